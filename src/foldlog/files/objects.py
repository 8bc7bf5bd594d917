"""Objects in a store: S3 and what speaks its protocol, Google's and Azure's through obstore, or a directory.

Assumed of a store, and of nothing else:
1. an object appears whole, when its upload has ended, or not at all; when `put` or `create` returns, it is durable;
2. `create` succeeds for one of several callers, if they use the same key;
3. whoever reads or lists after that sees it.

A directory (`file:///…`) keeps all three by syncing file and name, and by a lock for its one writer. It is reached
through `Files`, like everything on a disk, so that power cuts can be tried on it. Requests are repeated a few times,
for half a minute at most: who waits for one wants an answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from foldlog.errors import InvalidArgument, MissingDependency, ObjectMissing, StoreError, brief_repr
from foldlog.files.base import DRAFT_SUFFIX, Buffer, Files, Lock, read_file

Result = TypeVar("Result")

_SCHEMES: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss"})
_LOCK_NAME: Final = ".writer"
_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 2
"""What an upload holds in memory: so many parts. More are no faster beside a producer who needs the processor."""

_RETRIES: Final = 4
_READ_S: Final = 10
"""How long a request that reads may take, and how long it is repeated: a consumer waits for it."""

_WRITE_S: Final = 60
_CONNECT_TIMEOUT: Final = "5s"
_REPEATED_S: Final = 5.0


class ObjectStore(Protocol):
    """Objects by key, such as "orders/0/segment". Any thread. Every fault is a StoreError; a missing object the
    ObjectMissing among them."""

    @property
    def url(self) -> str:
        """Where it is, as people name it."""
        ...

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        """Store an object, in the place of one with this key. Durable on return; after an error there is the old one,
        the new one, or none. Holds only some of the parts at a time."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Store a small object where there is none with this key; False if there is one."""
        ...

    def read(self, key: str, start: int, length: int) -> bytes:
        """These bytes; fewer only at the end of the object."""
        ...

    def get(self, key: str) -> bytes:
        """The whole of a small object."""
        ...

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        """The keys that begin with `prefix`, which ends with a slash, behind `after`; in order, page by page."""
        ...

    def folders(self, prefix: str) -> list[str]:
        """The names directly below `prefix` that have objects below them; in order."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Nothing happens for those that are gone already."""
        ...

    def claim(self) -> None:
        """Become its one writer, where nothing but a lock can tell two of them apart."""
        ...

    def close(self) -> None: ...


def open_store(url: str, files: Files) -> ObjectStore:
    """The store at a URL. Nothing is asked of it yet. Raises InvalidArgument for a URL that is none, and
    MissingDependency without obstore."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
            raise InvalidArgument(f"{brief_repr(url)} names no directory; write file:///path/of/a/directory")
        return DirectoryObjects(files, "/" + unquote(parts.path).strip("/"))
    if scheme not in _SCHEMES or not parts.netloc:
        raise InvalidArgument(
            f"{brief_repr(url)} is no store for segments; give a bucket, such as s3://bucket/prefix, gs://bucket/prefix"
            " or az://container/prefix, or a directory, such as file:///mnt/tier"
        )
    if parts.query or parts.fragment or parts.password is not None:
        raise InvalidArgument(
            f"the URL of a store on {scheme}:// has no password and no query; obstore finds credentials in the"
            " environment, such as AWS_ACCESS_KEY_ID"
        )
    return BucketObjects(url.rstrip("/"))


class DirectoryObjects:
    """A directory as a store: a file for each object."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._root = root
        self._lock: Lock | None = None
        self.url = f"file://{root}"

    def claim(self) -> None:
        if self._lock is None:
            self._make_directory(self._root)
            self._lock = self._files.lock(f"{self._root}/{_LOCK_NAME}")

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        path = self._path(key)
        with _told(self.url, key, "written"):
            self._make_directory(path.rpartition("/")[0])
            file = self._files.open(path + DRAFT_SUFFIX, write=True, create=True)
            try:
                file.truncate(0)
                position = 0
                for part in parts:
                    position += file.write(position, [part])
                file.sync()
            finally:
                file.close()
            self._files.rename(path + DRAFT_SUFFIX, path)
            self._files.sync_directory(path.rpartition("/")[0])

    def create(self, key: str, data: bytes) -> bool:
        if self._files.exists(self._path(key)):  # there is one writer: see `claim`
            return False
        self.put(key, [data])
        return True

    def read(self, key: str, start: int, length: int) -> bytes:
        with _told(self.url, key, "read"):
            file = self._files.open(self._path(key))
            try:
                return file.read(start, length)
            finally:
                file.close()

    def get(self, key: str) -> bytes:
        with _told(self.url, key, "read"):
            return read_file(self._files, self._path(key))

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        for name, is_directory in self._names(prefix):
            key = prefix + name
            if is_directory:
                yield from self.keys(key + "/", after)
            elif key > after and not name.endswith(DRAFT_SUFFIX) and name != _LOCK_NAME:
                yield key

    def folders(self, prefix: str) -> list[str]:
        return [
            name for name, is_directory in self._names(prefix) if is_directory and any(self.keys(f"{prefix}{name}/"))
        ]

    def delete(self, keys: Sequence[str]) -> None:
        folders = set()
        for key in keys:
            with _told(self.url, key, "removed"):
                try:
                    self._files.unlink(self._path(key))
                except FileNotFoundError:
                    continue
                folders.add(self._path(key).rpartition("/")[0])
        for folder in sorted(folders):
            with _told(self.url, "", "synced"):
                self._files.sync_directory(folder)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _names(self, prefix: str) -> list[tuple[str, bool]]:
        with _told(self.url, prefix, "listed"):
            try:
                entries = self._files.entries(self._path(prefix.rstrip("/")))
            except FileNotFoundError:
                return []
        return sorted((entry.name, entry.is_directory) for entry in entries)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _make_directory(self, path: str) -> None:
        made = []
        while path and not self._files.exists(path):
            made.append(path)
            path = path.rpartition("/")[0]
        if made:
            self._files.make_directory(made[0])
        for directory in reversed(made):
            self._files.sync_directory(directory.rpartition("/")[0] or "/")


class BucketObjects:
    """A bucket, or a part of one, through obstore."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
        except ImportError:
            raise MissingDependency("a store for segments in a bucket", "obstore", "tier") from None
        self.url = url
        self._obstore: Any = obstore

    @cached_property
    def _store(self) -> Any:
        return self._client(_READ_S)

    @cached_property
    def _written_store(self) -> Any:
        return self._client(_WRITE_S)

    def _client(self, patience_s: int) -> Any:
        from obstore.store import from_url

        # Plain HTTP only where an endpoint was set to it, such as AWS_ENDPOINT_URL of a store on the same network.
        client: Any = {"timeout": f"{patience_s}s", "connect_timeout": _CONNECT_TIMEOUT, "allow_http": True}
        retries: Any = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=patience_s)}
        made: Any = from_url
        return made(self.url, client_options=client, retry_config=retries)

    def claim(self) -> None:
        """`create` tells two writers apart."""

    def close(self) -> None:
        """Nothing is held."""

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        with _told(self.url, key, "written"):
            self._obstore.put(
                self._written_store, key, iter(parts), chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )

    def create(self, key: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with _told(self.url, key, "written"):
            try:
                self._obstore.put(self._written_store, key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def read(self, key: str, start: int, length: int) -> bytes:
        with _told(self.url, key, "read"):
            return bytes(self._obstore.get_range(self._store, key, start=start, length=length)) if length else b""

    def get(self, key: str) -> bytes:
        with _told(self.url, key, "read"):
            return bytes(self._obstore.get(self._store, key).bytes())

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        with _told(self.url, prefix, "listed"):
            pages = iter(self._obstore.list(self._store, prefix, offset=after or None, chunk_size=1000))
        while True:
            with _told(self.url, prefix, "listed"):
                page = next(pages, None)
            if page is None:
                return
            yield from sorted(str(one["path"]) for one in page)

    def folders(self, prefix: str) -> list[str]:
        with _told(self.url, prefix, "listed"):
            found = self._obstore.list_with_delimiter(self._store, prefix)["common_prefixes"]
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def delete(self, keys: Sequence[str]) -> None:
        with _told(self.url, keys[0] if keys else "", "removed"):
            for key in keys:
                try:
                    self._obstore.delete(self._store, key)
                except FileNotFoundError:
                    continue


class _told:  # noqa: N801 used as a block
    """Raises what a store or a disk raises as our own error, with what was being done."""

    def __init__(self, url: str, key: str, done: str) -> None:
        self._what = f"{url}/{key}" if key else url
        self._done = done

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or isinstance(error, StoreError):
            return
        if isinstance(error, FileNotFoundError) and _code(error) not in _NO_BUCKET:
            raise ObjectMissing(f"{self._what} is not in the store") from error
        is_foreign = type(error).__module__.startswith("obstore")
        if is_foreign or isinstance(error, OSError | ValueError):
            raise StoreError(f"{self._what} could not be {self._done}: {_reason(error)}") from error


_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_CLOCK: Final = (
    "the clock of this machine differs too much from the store's; set it, best by NTP, and it goes on by itself"
)
_CREDENTIALS: Final = (
    "the store does not accept these credentials; check those in the environment, such as AWS_ACCESS_KEY_ID"
)
_CODES: Final = {
    "RequestTimeTooSkewed": _CLOCK,
    "RequestExpired": _CLOCK,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "AuthenticationFailed": _CREDENTIALS,
    "ExpiredToken": "the credentials have expired; renew them",
    "AccessDenied": "these credentials may not do that; allow them to list, read, write and delete below this URL",
    "NoSuchBucket": "there is no such bucket; create it first",
    "ContainerNotFound": "there is no such container; create it first",
}
"""What stores answer, and what that means here. Azure calls a wrong clock a failed authentication, and says so in the
text."""


def _code(error: BaseException) -> str:
    """The store's own word for what went wrong; empty if it has none."""
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return found[1] if found else ""


def _reason(error: BaseException) -> str:
    """What a store's own word means, or the first sentence of what obstore says, without the bodies of answers and
    Rust's own values."""
    code = _code(error)
    if code:
        message = re.search(r"<Message>([^<]*)</Message>", str(error))
        is_clock = "date header" in str(error) or "Request has expired" in str(error)
        meaning = _CLOCK if is_clock else _CODES.get(code)
        return f"{meaning or (message and message[1].strip()) or 'it refused'} ({code})"
    text = str(error).partition("\n")[0].partition("Debug source")[0]
    return re.sub(r"\s+", " ", text)[:300].strip() or type(error).__name__


def retried(ask: Callable[[], Result], times: int = 3) -> Result:
    """What `ask` returns, asked again after a StoreError that is no missing object. The store's own client has waited
    between its tries already, and is not asked again after that: this is for what it does not repeat, such as wrong
    bytes, and answers that were cut in the middle."""
    began_s = time.monotonic()
    for attempt in range(times):
        try:
            return ask()
        except ObjectMissing:
            raise
        except StoreError:
            if attempt + 1 == times or time.monotonic() - began_s > _REPEATED_S:
                raise
    raise StoreError("never asked")
