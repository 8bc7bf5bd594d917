"""Where a lake's files are: a local or shared file system, or an object store.

    LocalStorage     paths; a file and its name are durable when they were synced, and a file can be moved
    ObjectStorage    URLs such as s3://bucket/payments, through obstore: the library that deltalake is built on, so one
                     set of `storage_options` serves both, a put can be conditional, and a wait does not hold the GIL
    ArrowStorage     URLs of Iceberg's files, through the file system that pyiceberg itself uses for them

An object appears whole, when its upload ends, and cannot be moved. So executors write an object where the table will
name it, and nothing but a commit makes it part of the table: see `staged_files.py`.

Settings hold secrets. They are sent to the executors, and appear nowhere else: not in a view's place, its description,
its bookmark, a repr, or a message.
"""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, ClassVar, Final, ParamSpec, TypeVar
from urllib.parse import urlsplit

from foldlog.errors import InvalidArgument, MissingDependency, brief_repr
from foldlog.files.paths import (
    discard_tree,
    is_directory,
    is_there,
    link_or_copy,
    make_parents,
    modified_ns,
    names_in,
    read_bytes,
    remove,
    remove_tree,
    rename,
    size_of,
    sync_directory,
    sync_parent,
    written,
)

Given = ParamSpec("Given")
Result = TypeVar("Result")

_SCHEMES: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl"})
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SHOWN: Final = re.compile(
    r"region|endpoint|warehouse|^type$|^uri$|timeout|retr|http|impl$|addressing|conditional", re.IGNORECASE
)
"""Names of settings whose values may appear in messages. All others may be secrets."""

_PASSWORD: Final = re.compile(r"(?<=://)([^/@\s]*):[^/@\s]*@")
_HIDDEN: Final = "***"

_CLIENT: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
"""Settings of the HTTP client, which obstore wants apart from those of the store."""

_DELTA_ONLY: Final = re.compile(r"allow_unsafe_rename|locking_provider|dynamo|conditional_put|copy_if_not_exists")
"""Settings that deltalake knows and obstore does not."""

PATIENCE: Final = {"max_retries": "5", "retry_timeout": "30s"}
"""Unless the settings say otherwise: by deltalake's own default, a store that is not there takes three minutes."""

_UPLOAD_BYTES: Final = 8 << 20
"""The size of the parts of an upload: what a writer holds besides a row group."""


class StorageOptions(Mapping[str, str]):
    """Settings of a store or a catalog. Shows their names only.

    >>> StorageOptions({"AWS_REGION": "eu-west-1", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI"})
    StorageOptions(AWS_REGION, AWS_SECRET_ACCESS_KEY)
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        given: Any = {} if options is None else options
        if not isinstance(given, Mapping):
            raise InvalidArgument(f"settings are a mapping from names to texts, not {type(given).__name__}")
        for name, value in given.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise InvalidArgument(
                    f"setting {brief_repr(name)} has a {type(value).__name__}; names and values are texts"
                )
        self._options: dict[str, str] = dict(given)

    def __getitem__(self, name: str) -> str:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(self._options)})"

    def redacted(self, text: str) -> str:
        """The text without values that may be secrets, and without passwords in URLs.

        >>> StorageOptions({"secret": "wJalr", "region": "eu-1"}).redacted("wJalr in eu-1 at http://me:pw@host/")
        '*** in eu-1 at http://me:***@host/'
        """
        for name, value in self._options.items():
            if len(value) > 2 and not _SHOWN.search(name) and value.lower() not in ("true", "false"):
                text = text.replace(value, _HIDDEN)
        return _PASSWORD.sub(rf"\1:{_HIDDEN}@", text)


def is_url(location: str) -> bool:
    """Whether a lake's location is a URL and not a path."""
    return _URL.match(location) is not None


def checked_url(url: str) -> str:
    """The URL of a table in an object store, without a slash at its end; InvalidArgument if it is none, or has secrets.

    >>> checked_url("s3://shop/lake/payments/")
    's3://shop/lake/payments'
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise InvalidArgument(
            f"a lake is a directory, such as 'views/payments', or a URL of an object store, such as"
            f" 's3://bucket/payments'; {parts.scheme}:// is neither"
        )
    # abfss://container@account... names the account before the host; only a password is a secret.
    if parts.query or parts.fragment or parts.password is not None:
        raise InvalidArgument(f"a lake's URL on {parts.scheme}:// has no password and no query; give storage_options=")
    if not parts.netloc or not parts.path.strip("/"):
        raise InvalidArgument(
            f"{url!r} names a bucket and no table in it; give a path, such as '{url.rstrip('/')}/payments'"
        )
    return url.rstrip("/")


class OpenedFile:
    """A file that is being written."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def finish(self) -> None:
        """Durable on return; on a file system, except for the name."""
        self.file.close()

    def discard(self) -> None:
        """Close it, whatever is in it."""
        self.file.close()


class LakeStorage(ABC):
    """The files of one store. Paths are whole: local ones, or URLs. Sent to executors, so it can be pickled."""

    moves: ClassVar[bool] = False
    """Whether a file can be moved, atomically."""

    @abstractmethod
    def names(self, directory: str) -> list[str]:
        """Files and directories directly below; none if there is no such directory."""

    @abstractmethod
    def files(self, directory: str) -> list[str]:
        """The whole paths of all files below."""

    @abstractmethod
    def has(self, path: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def size(self, path: str) -> int:
        """FileNotFoundError if there is no such file."""

    @abstractmethod
    def modified_ms(self, path: str) -> int: ...

    @abstractmethod
    def read(self, path: str) -> bytes: ...

    @abstractmethod
    def reader(self, path: str) -> Any:
        """For Arrow to read a Parquet file from."""

    @abstractmethod
    def writer(self, path: str) -> OpenedFile: ...

    @abstractmethod
    def copy(self, path: str, to: str) -> None: ...

    @abstractmethod
    def remove(self, path: str) -> None:
        """Nothing happens if it is gone already."""

    @abstractmethod
    def remove_tree(self, directory: str) -> None: ...

    @abstractmethod
    def make_place(self, root: str, path: str) -> None:
        """Mark a range's place, durably."""

    @abstractmethod
    def has_place(self, path: str) -> bool: ...

    @abstractmethod
    def remove_place(self, path: str) -> None:
        """With all that is in it."""

    def sync(self, directory: str) -> None:  # noqa: B027 objects are durable when their upload has ended
        """Make the names in a directory durable."""


@dataclass(frozen=True)
class LocalStorage(LakeStorage):
    """A local or shared file system."""

    moves = True

    def names(self, directory: str) -> list[str]:
        return list(names_in(directory)) if is_directory(directory) else []

    def files(self, directory: str) -> list[str]:
        found: list[str] = []
        for name in self.names(directory):
            path = f"{directory}/{name}"
            found += self.files(path) if is_directory(path) else [path]
        return found

    def has(self, path: str) -> bool:
        return is_there(path)

    def size(self, path: str) -> int:
        return size_of(path)

    def modified_ms(self, path: str) -> int:
        return modified_ns(path) // 1_000_000

    def read(self, path: str) -> bytes:
        return read_bytes(path)

    def reader(self, path: str) -> Any:
        return path

    def writer(self, path: str) -> OpenedFile:
        return _SyncedFile(path)

    def copy(self, path: str, to: str) -> None:
        link_or_copy(path, to)

    def move(self, path: str, to: str) -> None:
        rename(path, to)

    def remove(self, path: str) -> None:
        try:
            remove(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, directory: str) -> None:
        if is_there(directory):
            remove_tree(directory)

    def make_place(self, root: str, path: str) -> None:
        make_parents(f"{path}/")
        sync_parent(path)
        sync_directory(root)

    def has_place(self, path: str) -> bool:
        return is_directory(path)

    def remove_place(self, path: str) -> None:
        discard_tree(path)

    def sync(self, directory: str) -> None:
        sync_directory(directory)


class _SyncedFile(OpenedFile):
    """On a file system: synced when it is finished."""

    def __init__(self, path: str) -> None:
        self._context = written(path)
        super().__init__(self._context.__enter__())

    def finish(self) -> None:
        self._context.__exit__(None, None, None)


def _as_os_error(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """obstore raises errors of its own for what it has no error of Python's."""

    @wraps(method)
    def told(*given: Given.args, **named: Given.kwargs) -> Result:
        try:
            return method(*given, **named)
        except OSError:
            raise
        except Exception as error:
            if type(error).__module__.startswith("obstore"):
                raise OSError(str(error).partition("\n")[0]) from error
            raise

    return told


class _Upload(io.RawIOBase):
    """obstore's writer as Python's files are. The object appears when it is closed."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._at = 0

    def writable(self) -> bool:
        return True

    @_as_os_error
    def write(self, data: Any) -> int:
        count = len(memoryview(data))
        self._writer.write(bytes(data))
        self._at += count
        return count

    def tell(self) -> int:
        return self._at

    @_as_os_error
    def close(self) -> None:
        if not self.closed:
            super().close()
            self._writer.close()


class _Download(io.RawIOBase):
    """obstore's reader as Python's files are."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    @_as_os_error
    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.read(None if size < 0 else size))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())


@dataclass(frozen=True)
class ObjectStorage(LakeStorage):
    """An object store, through obstore."""

    url: str
    """Any URL of the bucket, or container."""
    options: StorageOptions = field(default_factory=StorageOptions)

    @_as_os_error
    def names(self, directory: str) -> list[str]:
        import obstore

        found = obstore.list_with_delimiter(self.store, self.key(directory) + "/")
        objects = [one["path"] for one in found["objects"]]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in [*objects, *found["common_prefixes"]])

    @_as_os_error
    def files(self, directory: str) -> list[str]:
        import obstore

        pages = obstore.list(self.store, self.key(directory) + "/")
        return [f"{self._base}/{one['path']}" for page in pages for one in page]

    def has(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    @_as_os_error
    def size(self, path: str) -> int:
        return int(self._head(path)["size"])

    @_as_os_error
    def modified_ms(self, path: str) -> int:
        return int(self._head(path)["last_modified"].timestamp() * 1000)

    def read(self, path: str) -> bytes:
        return self.tagged(path)[0]

    @_as_os_error
    def tagged(self, path: str) -> tuple[bytes, Mapping[str, Any]]:
        """The object's bytes, and what tells whether it was replaced since: a tag, on Google's store a version."""
        import obstore

        found = obstore.get(self.store, self.key(path))
        return bytes(found.bytes()), {
            name: found.meta[name] for name in ("e_tag", "version") if found.meta[name] is not None
        }

    @_as_os_error
    def put(self, path: str, content: bytes, replaces: Mapping[str, Any] | None) -> bool:
        """Store an object, in the place of the one with this tag, or of none; False if there is another one."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            mode: Any = "create" if replaces is None else dict(replaces)
            obstore.put(self.store, self.key(path), content, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    @_as_os_error
    def reader(self, path: str) -> Any:
        import obstore
        import pyarrow as pa

        return pa.PythonFile(_Download(obstore.open_reader(self.store, self.key(path))), mode="r")

    @_as_os_error
    def writer(self, path: str) -> OpenedFile:
        import obstore

        return OpenedFile(_Upload(obstore.open_writer(self.store, self.key(path), buffer_size=_UPLOAD_BYTES)))

    @_as_os_error
    def copy(self, path: str, to: str) -> None:
        import obstore

        obstore.copy(self.store, self.key(path), self.key(to))

    @_as_os_error
    def remove(self, path: str) -> None:
        import obstore

        try:
            obstore.delete(self.store, self.key(path))
        except FileNotFoundError:
            pass

    @_as_os_error
    def remove_tree(self, directory: str) -> None:
        import obstore

        for page in obstore.list(self.store, self.key(directory) + "/"):
            obstore.delete(self.store, [one["path"] for one in page])

    def make_place(self, root: str, path: str) -> None:
        self.put(path, b"the rows of a range that is not committed yet\n", None)

    def has_place(self, path: str) -> bool:
        return self.has(path)

    def remove_place(self, path: str) -> None:
        self.remove(path)

    def arrow_files(self) -> Any:
        """The whole store as a file system for Arrow to read from, with keys as paths."""
        import pyarrow.fs

        return pyarrow.fs.PyFileSystem(_readable(self))

    def key(self, path: str) -> str:
        return path.removeprefix(f"{self._base}/")

    @property
    def _base(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @cached_property
    def store(self) -> Any:
        try:
            from obstore.exceptions import UnknownConfigurationKeyError
            from obstore.store import from_url
        except ImportError:
            raise MissingDependency("a lake in an object store", "obstore", "views") from None
        config: dict[str, Any] = {}
        client: dict[str, Any] = {}
        retry: dict[str, Any] = {}
        for name, value in {**PATIENCE, **self.options}.items():
            plain = name.lower()
            bare = plain.removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
            if bare == "max_retries":
                retry["max_retries"] = int(value)
            elif bare == "retry_timeout":
                retry["retry_timeout"] = _seconds(value)
            elif bare in _CLIENT:
                client[bare] = value.lower() == "true" if value.lower() in ("true", "false") else value
            elif not _DELTA_ONLY.search(plain):
                config[name] = value
        made: Any = from_url  # by the scheme, it takes the settings of one store or another
        while True:
            try:
                return made(self._base, config=config, client_options=client or None, retry_config=retry or None)
            except UnknownConfigurationKeyError as error:
                # deltalake passes over what it does not know, such as AWS_CA_BUNDLE.
                named = re.search(r"'([^']+)'", str(error))
                known = {name: value for name, value in config.items() if not named or name.lower() != named[1].lower()}
                if len(known) == len(config):
                    raise
                config = known

    def _head(self, path: str) -> Any:
        import obstore

        return obstore.head(self.store, self.key(path))

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def _seconds(value: str) -> Any:
    from datetime import timedelta

    found = re.fullmatch(r"([0-9]+)(ms|s|m|h)?", value)
    if found is None:
        raise InvalidArgument(f"retry_timeout={value!r} is not a time such as '30s'")
    unit = {"ms": 0.001, "m": 60.0, "h": 3600.0}.get(found[2] or "s", 1.0)
    return timedelta(seconds=int(found[1]) * unit)


def _readable(storage: ObjectStorage) -> Any:
    """Arrow reads through this and not through deltalake's own handler: that one holds the interpreter's lock while it
    waits for the store, and cannot read while deltalake writes.
    """
    import pyarrow.fs

    class ObjectHandler(pyarrow.fs.FileSystemHandler):  # type: ignore[misc]
        def get_type_name(self) -> str:
            return "foldlog"

        def normalize_path(self, path: str) -> str:
            return path

        def open_input_file(self, path: str) -> Any:
            return storage.reader(path)

        open_input_stream = open_input_file

        def get_file_info(self, paths: list[str]) -> list[Any]:
            return [pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File) for path in paths]

        def _refuse(self, *_: object, **__: object) -> Any:
            raise io.UnsupportedOperation("this file system only reads files")

        get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
        delete_root_dir_contents = delete_file = move = copy_file = _refuse
        open_output_stream = open_append_stream = _refuse

    return ObjectHandler()


@dataclass(frozen=True)
class ArrowStorage(LakeStorage):
    """The store of an Iceberg table, through pyiceberg's own file system for it."""

    location: str
    """Any URL of the bucket."""
    properties: StorageOptions = field(default_factory=StorageOptions)

    def names(self, directory: str) -> list[str]:
        found = self._listed(directory, recursive=False)
        return sorted(one.base_name for one in found if one.path.strip("/") != self.key(directory))

    def files(self, directory: str) -> list[str]:
        from pyarrow.fs import FileType

        prefix = self.location[: self.location.index("://") + 3]
        return [prefix + one.path for one in self._listed(directory, recursive=True) if one.type == FileType.File]

    def has(self, path: str) -> bool:
        return bool(self._info(path).is_file)

    def size(self, path: str) -> int:
        info = self._info(path)
        if not info.is_file:
            raise FileNotFoundError(f"there is no {path}")
        return int(info.size)

    def modified_ms(self, path: str) -> int:
        return int(self._info(path).mtime_ns // 1_000_000)

    def read(self, path: str) -> bytes:
        with self.reader(path) as file:
            return bytes(file.read())

    def reader(self, path: str) -> Any:
        return self.filesystem.open_input_file(self.key(path))

    def writer(self, path: str) -> OpenedFile:
        return OpenedFile(self.filesystem.open_output_stream(self.key(path)))

    def copy(self, path: str, to: str) -> None:
        self.filesystem.copy_file(self.key(path), self.key(to))

    def remove(self, path: str) -> None:
        if self.has(path):
            self.filesystem.delete_file(self.key(path))

    def remove_tree(self, directory: str) -> None:
        # As a whole: after each single file, Arrow makes an object for the directory that is now empty.
        try:
            self.filesystem.delete_dir(self.key(directory))
        except FileNotFoundError:
            pass

    def make_place(self, root: str, path: str) -> None:
        with self.filesystem.open_output_stream(self.key(path)) as file:
            file.write(b"the rows of a range that is not committed yet\n")

    def has_place(self, path: str) -> bool:
        return self.has(path)

    def remove_place(self, path: str) -> None:
        self.remove(path)

    def key(self, path: str) -> str:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        return PyArrowFileIO.parse_location(path, dict(self.properties))[2].rstrip("/")

    @cached_property
    def filesystem(self) -> Any:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        files = PyArrowFileIO(dict(self.properties))
        scheme, netloc, _ = files.parse_location(self.location, dict(self.properties))
        return files.fs_by_scheme(scheme, netloc)

    def _info(self, path: str) -> Any:
        return self.filesystem.get_file_info(self.key(path))

    def _listed(self, directory: str, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        wanted = FileSelector(self.key(directory), recursive=recursive, allow_not_found=True)
        return list(self.filesystem.get_file_info(wanted))

    def __getstate__(self) -> dict[str, Any]:
        return {"location": self.location, "properties": self.properties}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def metadata_of(storage: LakeStorage, path: str) -> Any:
    """What the foot of a Parquet file says."""
    import pyarrow.parquet as pq

    return pq.read_metadata(storage.reader(path))
