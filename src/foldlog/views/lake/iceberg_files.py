"""Files that pyiceberg writes for lake views: fsynced when closed, on a local disk, so that committed files survive a
power cut.

Loaded by pyiceberg, by the name in `FILES`; it requires pyiceberg.
"""

from __future__ import annotations

import io

from pyarrow.fs import LocalFileSystem
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from foldlog.files.paths import make_parents, sync_open, sync_parent


class SyncedStream(io.BufferedWriter):
    """A file that is durable, with its name, once it is closed."""

    def __init__(self, path: str) -> None:
        self._path = path
        super().__init__(io.FileIO(path, "w"), 1 << 20)

    def close(self) -> None:
        if not self.closed:
            sync_open(self)
            super().close()
            sync_parent(self._path)


class SyncedFile(PyArrowFile):
    """A file of pyiceberg's, on the local file system."""

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        make_parents(self._path)
        return SyncedStream(self._path)


class SyncedFiles(PyArrowFileIO):
    """Reads as pyiceberg does, and writes with a sync."""

    def new_output(self, location: str) -> PyArrowFile:
        plain = super().new_output(location)
        if not isinstance(plain._filesystem, LocalFileSystem):
            return plain
        return SyncedFile(location=plain.location, path=plain._path, fs=plain._filesystem)
