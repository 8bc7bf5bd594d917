"""A view in a page: rows by key in one JSON file that is replaced as a whole. The smallest that keeps the contract."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from foldlog.errors import StaleBookmark
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import DELETED, META, Delta, Shape, Snapshot, View


class FileView(View):
    """Keyed by the record's key. Remembers every delta it was given, for tests that look at ranges."""

    kind = "file"
    is_keyed = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.deltas: list[Delta] = []

    @property
    def place(self) -> str:
        return str(self.path)

    def bookmark(self) -> Bookmark | None:
        return Bookmark.from_json(self._content()["bookmark"]) if self.path.exists() else None

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        with self._alone():
            stored = self.bookmark()
            if stored is None:
                self._store({"bookmark": start.to_json(), "key": shape.record_key, "rows": {}})
            return stored or start

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self._alone():
            self._apply(delta, self._expecting(expected), new)
        self.deltas.append(delta)

    def _apply(self, delta: Delta, content: dict[str, Any], new: Bookmark) -> None:
        for row in delta.rows.to_pylist():
            key = row[content["key"]]
            content["rows"].pop(key, None)
            if not row[DELETED]:
                content["rows"][key] = {name: value for name, value in row.items() if name not in META}
        self._store({**content, "bookmark": new.to_json()})

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        with self._alone():
            self._store({**self._expecting(expected), "bookmark": new.to_json()})

    def shadow(self, label: str) -> FileView:
        return FileView(self.path.with_suffix(f".{label}"))

    def swap(self, shadow: View) -> None:
        with self._alone():
            os.link(self.path, self.path.with_suffix(".older"))
            os.replace(self.path.with_suffix(".older"), self.path.with_suffix(".old"))
            os.replace(shadow.place, self.path)

    def drop_old(self) -> bool:
        old = self.path.with_suffix(".old")
        had = old.exists()
        old.unlink(missing_ok=True)
        return had

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)

    def scan(self) -> Snapshot:
        content = self._content()
        return Snapshot(Bookmark.from_json(content["bookmark"]), self._batches(list(content["rows"].values())))

    def rows(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = self._content()["rows"]
        return found

    @staticmethod
    def _batches(rows: list[dict[str, object]]) -> Iterator[pa.RecordBatch]:
        if rows:
            yield from pa.Table.from_pylist(rows).to_batches()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Between threads and processes: comparing and storing is one step."""
        with self.path.with_suffix(".lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

    def _expecting(self, expected: Bookmark) -> dict[str, Any]:
        content = self._content()
        if content["bookmark"] != expected.to_json():
            raise StaleBookmark(self.place, content["bookmark"], expected.to_json())
        return content

    def _content(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    def _store(self, content: object) -> None:
        scratch = self.path.with_suffix(".new")
        scratch.write_text(json.dumps(content))
        os.replace(scratch, self.path)
