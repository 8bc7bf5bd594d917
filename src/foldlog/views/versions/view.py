"""Views of versions in any SQL engine: a table of the newest rows, and a history."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from foldlog.views.contract import Shape
from foldlog.views.merged.duckdb import DuckdbMerged
from foldlog.views.merged.postgres import PostgresMerged
from foldlog.views.merged.sqlite import SqliteMerged
from foldlog.views.merged.view import MergedTransaction, MergedView, StoredRows
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import quoted
from foldlog.views.versions.settings import VersionSettings

if TYPE_CHECKING:
    import pyarrow as pa

Connection = TypeVar("Connection")
Stored = StoredRows[VersionSettings]


@dataclass(frozen=True, slots=True)
class Versions:
    """What the user asks for: the columns of the key (none for the record's), the version, and whether all are kept."""

    key: tuple[str, ...]
    order_by: str
    keeps_all: bool


class VersionsView(MergedView[Connection, VersionSettings], Generic[Connection]):
    """See `foldlog.views.versions.settings`. Every row has a place of its own, so a newer record leaves the rows of
    older ones alone: see `View.keeps_rows`.
    """

    is_keyed: ClassVar[bool] = True
    kind: ClassVar[str] = "versions"
    stored_kind: ClassVar[str] = "versions"
    versions: Versions

    def description(self) -> dict[str, object] | None:
        return None  # a peek does not know such views

    def keeps_rows(self, record_key: tuple[str, ...]) -> bool:
        return True

    def filled(self, shape: Shape) -> tuple[str, ...]:
        return (*(self.versions.key or shape.key), self.versions.order_by)

    def settings_for(self, shape: Shape) -> VersionSettings:
        """The settings for rows of this shape; InvalidArgument if they have no versions. Touches nothing."""
        asked = self.versions
        return VersionSettings.of(shape, asked.key, asked.order_by, self.place, keeps_all=asked.keeps_all)

    def _wanted(self, shape: Shape) -> VersionSettings:
        return self.settings_for(shape)

    def _settings_from(self, text: str) -> VersionSettings:
        return VersionSettings.from_json(text)

    def _reconcile(self, run: Run, stored: Stored, wanted: VersionSettings) -> None:
        grown = stored.settings.grown(wanted, self.place)
        if grown is stored.settings:
            return
        known = stored.settings.stored().names
        for field in grown.stored():
            if field.name not in known:
                kind = self._sql_type(field.type)
                run(f"ALTER TABLE {stored.table.sql} ADD COLUMN {quoted(field.name)} {kind}")
        changed = replace(stored, settings=grown)
        if self._label is None:
            self._make_view(run, changed, stored.settings)
        self._bookmarks.set_settings(run, self._name, self._entry(changed).settings)

    def _contents(self, transaction: MergedTransaction[Connection], stored: Stored) -> Iterator[pa.RecordBatch]:
        schema = stored.settings.shown_texts()
        for batch in self._read(transaction, self._selection(stored), schema):
            yield stored.settings.show(batch)

    def _selection(self, stored: Stored) -> str:
        return stored.settings.selection(stored.table)


class SqliteVersions(VersionsView[sqlite3.Connection], SqliteMerged[VersionSettings]):
    """See `SqliteMerged`."""

    def __init__(self, path: object, versions: Versions, name: str, label: str | None = None) -> None:
        SqliteMerged.__init__(self, path, name, label)
        self.versions = versions

    def _another(self, label: str) -> SqliteVersions:
        return SqliteVersions(self._path, self.versions, self._table.name, label)


class DuckdbVersions(VersionsView[Any], DuckdbMerged[VersionSettings]):
    """See `DuckdbMerged`."""

    def __init__(self, path: str, versions: Versions, name: str, label: str | None = None) -> None:
        DuckdbMerged.__init__(self, path, name, label)
        self.versions = versions

    def _another(self, label: str) -> DuckdbVersions:
        return DuckdbVersions(self._path, self.versions, self._table.name, label)


class PostgresVersions(VersionsView[Any], PostgresMerged[VersionSettings]):
    """See `PostgresMerged`."""

    def __init__(self, url: str, versions: Versions, name: str, label: str | None = None) -> None:
        PostgresMerged.__init__(self, url, name, label)
        self.versions = versions

    def _another(self, label: str) -> PostgresVersions:
        return PostgresVersions(self._url, self.versions, str(self._table), label)
