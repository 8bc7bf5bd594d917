"""The catalog in a process that only reads: as the writer last left it, looked at again every now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable

from foldlog import limits
from foldlog.broker.catalog import CATALOG_NAME, Catalog, decode
from foldlog.broker.data_directory import open_for_reading
from foldlog.clock import Clock
from foldlog.files.base import Files, read_file


class CatalogFollower:
    """Any thread. What `catalog` answers is at most limits.READER_POLL_MAX_MS old.

    `on_change` is called with the older and the newer catalog, by whoever noticed the change.
    """

    def __init__(self, files: Files, path: str, clock: Clock, on_change: Callable[[Catalog, Catalog], None]) -> None:
        self._files = files
        self._path = f"{path}/{CATALOG_NAME}"
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._catalog = open_for_reading(files, path)
        self._data = b""
        self._looked_ms = float("-inf")

    @property
    def known(self) -> Catalog:
        """As of the last look."""
        return self._catalog

    @property
    def catalog(self) -> Catalog:
        if self._clock.monotonic_ms() - self._looked_ms >= limits.READER_POLL_MAX_MS:
            self.refresh()
        return self._catalog

    def refresh(self) -> Catalog:
        """Look now. The writer replaces the file whole, so there is always one to be found."""
        with self._lock:
            self._looked_ms = self._clock.monotonic_ms()
            data = read_file(self._files, self._path)
            if data != self._data:
                older, self._catalog = self._catalog, decode(data, self._path)
                self._data = data
                self._on_change(older, self._catalog)
            return self._catalog
