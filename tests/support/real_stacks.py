"""The real SGLang and vLLM sources that rules are tested on, as the product itself fetches and keeps them.

    from tests.support.real_stacks import real_stack
    stack = real_stack("sglang", "0.5.12")

The source of each is fetched once into the user's cache folder (`DRAFTPROOF_CACHE` names another one) and
used from there afterwards. Before a test run without a network, fetch them all:

    python -m tests.support.real_stacks

Without them the tests fail: what they say about real sources must not go unchecked in silence.
"""

from __future__ import annotations

import functools
import os
import sys
import time

from draftproof.errors import EnvironmentProblem
from draftproof.stacks.find.find import StackFinder
from draftproof.stacks.request import parse_request
from draftproof.stacks.stack import Stack

REAL_STACKS = (
    ("sglang", "0.5.9"),
    ("sglang", "0.5.12"),
    ("sglang", "0.5.23"),
    ("vllm", "0.19.0"),
    ("vllm", "0.26.0"),
    ("vllm", "0.33.0"),
)
"""Name and version of every source that tests may ask for."""


_ENVIRONMENT = dict(os.environ)
"""As it was at the start: a test that changes the environment does not move the cache of the others."""


@functools.cache
def real_stack(name: str, version: str) -> Stack:
    """One of `REAL_STACKS`; the same object each time, so that a file is parsed once in a test process.

    Raises:
        RuntimeError: it is neither in the cache nor can it be fetched.
    """
    if (name, version) not in REAL_STACKS:
        raise ValueError(f"{name} {version} is not among {REAL_STACKS}")
    finder = StackFinder(_ENVIRONMENT)
    try:
        return finder.find(parse_request(f"{name}=={version}"))
    except EnvironmentProblem as problem:
        raise RuntimeError(
            f"the source of {name} {version} is needed by this test: {problem} "
            "Fetch all of them once: python -m tests.support.real_stacks"
        ) from problem


def main() -> int:
    """Fetches what is missing; prints where each source is."""
    for name, version in REAL_STACKS:
        start = time.monotonic()
        try:
            stack = real_stack(name, version)
        except RuntimeError as error:
            sys.stderr.write(f"{error}\n")
            return 4
        sys.stdout.write(f"{stack.label}: {stack.tree.root} ({time.monotonic() - start:.1f} s)\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
