"""An application on a real port, in a thread of the test's process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep

import uvicorn
from fastapi import FastAPI

START_SECONDS = 20


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve on a free port of this machine; gives the base URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", lifespan="on"))
        thread = Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        limit = monotonic() + START_SECONDS
        while not server.started:
            if monotonic() > limit or not thread.is_alive():
                raise RuntimeError("the test's server does not start")
            sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join(START_SECONDS)
