"""A repository on the Hugging Face hub: its cached snapshot when that is complete, else range requests.

The only module that imports huggingface_hub, which supplies cache paths, addresses, tokens, the HTTP session
and offline mode (HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE). Nothing is written to
disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import huggingface_hub
from huggingface_hub import constants, errors, get_session, hf_raise_for_status
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from draftproof.checkpoint.index import INDEX_FILE, read_index
from draftproof.checkpoint.location import HubLocation
from draftproof.checkpoint.source import LocalSource, Source, require_inside, require_small
from draftproof.errors import CheckpointError, DraftproofError, EnvironmentProblem, UsageError

FIRST_READ = 128 * 1024
"""Covers the header of most shards in one request."""
CONCURRENT_READS = 8
ATTEMPTS = 4
PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
TIMEOUT_SECONDS = 20.0
MAX_SKIPPED_BYTES = 64 * 1024 * 1024
"""What may be read in vain from a server that answers a range request with the whole file."""

_MATTERS = (".safetensors", ".json")
_BUSY = (429, 500, 502, 503, 504)
_Result = TypeVar("_Result")


class HubSource:
    """Remote files of one commit, read by range requests. Made by `open_hub_source`."""

    first_read = FIRST_READ
    concurrent_reads = CONCURRENT_READS

    def __init__(self, location: HubLocation, commit: str, files: Mapping[str, int]) -> None:
        self._location = location
        self._commit = commit
        self._files = files

    @property
    def label(self) -> str:
        """Repository and commit."""
        return f"{self._location.repository}@{self._commit[:12]}"

    @property
    def commit(self) -> str:
        """The commit that is read, whatever the branch does meanwhile."""
        return self._commit

    @property
    def refused(self) -> Mapping[str, str]:
        """Nothing: a repository holds no links."""
        return {}

    def list_files(self) -> Mapping[str, int]:
        """Sizes as the hub reports them."""
        return self._files

    def url(self, name: str) -> str:
        """Address of a file at this commit."""
        return huggingface_hub.hf_hub_url(self._location.repository, name, revision=self._commit)

    def read(self, name: str, limit: int) -> bytes:
        """A whole small file; errors as `Source.read`, EnvironmentProblem when the hub cannot be reached."""
        size = self._size(name)
        require_small(name, size, limit)
        return self.read_range(name, 0, size)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`; errors as `Source.read_range`, or EnvironmentProblem."""
        require_inside(name, self._size(name), start, length)
        if length == 0:
            return b""
        return _with_retries(self._location, lambda: self._request(name, start, length))

    def _size(self, name: str) -> int:
        if name not in self._files:
            raise CheckpointError(f"{self.label} has no file {name}")
        return self._files[name]

    def _request(self, name: str, start: int, length: int) -> bytes:
        headers = {**build_hf_headers(), "Range": f"bytes={start}-{start + length - 1}"}
        # Compressed answers would make the range one of compressed bytes.
        headers["Accept-Encoding"] = "identity"
        session = get_session()
        with session.stream(
            "GET", self.url(name), headers=headers, follow_redirects=True, timeout=TIMEOUT_SECONDS
        ) as response:
            if response.status_code >= 400:
                response.read()
            hf_raise_for_status(response)
            skip = _bytes_before(response, name, start)
            return _take(response.iter_bytes(), skip, length, name)


def open_hub_source(location: HubLocation) -> Source:
    """Read access to a repository.

    Online, the commit that the revision names now is read: from the cache if it is complete there, else
    remotely. Offline, or when the hub cannot be reached, the cached snapshot is read if it is complete.

    Raises:
        UsageError: no such repository or revision.
        EnvironmentProblem: access is refused, the hub cannot be reached, or offline and not in the cache.
    """
    if constants.HF_HUB_OFFLINE:
        return _cached(location) or _fail_offline(location)
    try:
        info = _with_retries(location, lambda: _repository_info(location))
    except EnvironmentProblem as problem:
        cached = _cached(location) if isinstance(problem.__cause__, _connection_errors()) else None
        if cached is None:
            raise
        return cached
    if info.sha is None:
        raise EnvironmentProblem(f"the hub does not say which commit {location} is")
    files = {sibling.rfilename: sibling.size for sibling in info.siblings or ()}
    cached = _cached(HubLocation(location.argument, location.repository, info.sha), files)
    if cached is not None:
        return cached
    unsized = [name for name, size in files.items() if size is None]
    if unsized:
        raise EnvironmentProblem(f"the hub does not say how large {unsized[0]} of {location} is")
    return HubSource(location, info.sha, {name: size for name, size in files.items() if size is not None})


def _repository_info(location: HubLocation) -> huggingface_hub.ModelInfo:
    return huggingface_hub.HfApi().model_info(
        location.repository, revision=location.revision, files_metadata=True, timeout=TIMEOUT_SECONDS
    )


def _cached(location: HubLocation, listed: Iterable[str] | None = None) -> LocalSource | None:
    """The cached snapshot, when everything that matters is in it.

    Args:
        location: repository and revision.
        listed: every file of the repository; None when that is not known (offline).
    """
    found = huggingface_hub.try_to_load_from_cache(
        location.repository, "config.json", cache_dir=constants.HF_HUB_CACHE, revision=location.revision
    )
    if not isinstance(found, str):
        return None
    source = LocalSource(Path(found).parent)
    if listed is not None:
        wanted = [name for name in listed if name.endswith(_MATTERS)]
        return source if source.list_files().keys() >= set(wanted) else None
    return source if _is_loadable(source) else None


def _is_loadable(source: LocalSource) -> bool:
    """Every file that the index names is there; without an index, any weights are."""
    files = source.list_files()
    if INDEX_FILE not in files:
        return any(name.endswith((".safetensors", ".bin", ".gguf")) for name in files)
    try:
        return all(shard in files for shard in read_index(source).shards)
    except CheckpointError:
        # A broken index is the inventory's to report, not a reason to read the same file again.
        return True


def _fail_offline(location: HubLocation) -> NoReturn:
    raise EnvironmentProblem(
        f"{location} is not complete in the cache {constants.HF_HUB_CACHE}, and offline mode is on",
        "Unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE, or name a folder.",
    )


def _with_retries(location: HubLocation, action: Callable[[], _Result]) -> _Result:
    """Runs a request, again when the hub is busy or the connection breaks; every other failure at once."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with _explained(location):
                return action()
        except EnvironmentProblem as problem:
            pause = _pause(problem.__cause__, attempt)
            if pause is None or attempt == ATTEMPTS:
                raise
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _pause(cause: BaseException | None, attempt: int) -> float | None:
    """Seconds to wait before another attempt; None when another one is useless."""
    response = getattr(cause, "response", None)
    if response is not None:
        if response.status_code not in _BUSY:
            return None
        asked = response.headers.get("Retry-After", "")
        if asked.isdigit():
            return min(float(asked), LONGEST_PAUSE_SECONDS)
    elif not isinstance(cause, _broken_connection_errors()):
        return None
    return min(PAUSE_SECONDS * 2.0 ** (attempt - 1), LONGEST_PAUSE_SECONDS)


@contextmanager
def _explained(location: HubLocation) -> Iterator[None]:
    """Turns every failure of a request into one line that says what to do."""
    try:
        yield
    except DraftproofError:
        raise
    except errors.GatedRepoError as error:
        raise EnvironmentProblem(
            f"{location.repository} is gated and this account has no access",
            f"Accept its terms at {constants.ENDPOINT}/{location.repository} and set HF_TOKEN.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UsageError(
            f"there is no repository {location.repository} on {constants.ENDPOINT}, or it is private",
            "Check the spelling; for a private repository set HF_TOKEN; for a folder give its path.",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(
            f"{location.repository} has no revision {location.revision or 'main'}",
            f"Its revisions are listed at {constants.ENDPOINT}/{location.repository}/refs.",
        ) from error
    except errors.HfHubHTTPError as error:
        raise EnvironmentProblem(
            f"{constants.ENDPOINT} answered {error.response.status_code} for {location.repository}",
            "Check HF_ENDPOINT, try again later, or name a folder.",
        ) from error
    except errors.HFValidationError as error:
        raise UsageError(f"{location.repository!r} is no repository name") from error
    except _network_errors() as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise EnvironmentProblem(
            f"{constants.ENDPOINT} cannot be reached: {reason}", "Check the network, HF_ENDPOINT and proxies."
        ) from error


def _network_errors() -> tuple[type[Exception], ...]:
    """Everything that can go wrong between here and the hub."""
    return (OSError, _http_library().HTTPError)


def _connection_errors() -> tuple[type[Exception], ...]:
    """Errors of a hub that cannot be reached at all."""
    return (_http_library().TransportError, ConnectionError)


def _broken_connection_errors() -> tuple[type[Exception], ...]:
    """Errors after which another attempt may help: the connection was there and broke, or timed out."""
    library = _http_library()
    return (library.ReadTimeout, library.ReadError, library.RemoteProtocolError)


def _http_library() -> Any:
    """The HTTP library that huggingface_hub uses, which differs between its versions."""
    client = next(base for base in type(get_session()).__mro__ if base.__module__.startswith("httpx"))
    return import_module(client.__module__.partition(".")[0])


def _bytes_before(response: Any, name: str, start: int) -> int:
    """Bytes of the answer to skip: none of a partial one, all before `start` of a whole one."""
    if response.status_code == 206:
        if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise EnvironmentProblem(f"the server sent another part of {name} than the one asked for")
        return 0
    if start > MAX_SKIPPED_BYTES:
        raise EnvironmentProblem(
            f"the server does not answer range requests, {name} would have to be read in full",
            "Download the repository and name its folder.",
        )
    return start


def _take(chunks: Iterator[bytes], skip: int, length: int, name: str) -> bytes:
    """Bytes skip .. skip + length of a stream, which is not read any further."""
    taken = bytearray()
    for chunk in chunks:
        taken += chunk
        if len(taken) >= skip + length:
            return bytes(taken[skip : skip + length])
    raise EnvironmentProblem(f"the connection broke while {name} was read")
