"""The views that folds are measured with, and a view that throws away what comes, or keeps it to be applied again."""

from __future__ import annotations

import importlib.util
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.spark_topics import PAYMENTS, PAYMENTS_SCHEMA

import foldlog.spark as fl
from foldlog.spark.folds.declaration import Fold
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.lake.lake import Format, Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TESTS = Path(__file__).resolve().parent.parent / "tests"


class Step(NamedTuple):
    """One `apply` that a view was asked for."""

    delta: Delta
    expected: Bookmark
    new: Bookmark


class Nowhere(View):
    """Takes what a fold makes for a view like `model`, and stores only the bookmark. `steps` is what came, if kept."""

    kind = "nowhere"

    def __init__(self, model: View, *, keeps: bool = False) -> None:
        self.aggregation = model.aggregation
        self.keeps = keeps
        self.shape: Shape | None = None
        self.start: Bookmark | None = None
        self.steps: list[Step] = []
        self._stored: Bookmark | None = None
        self._place = f"nowhere:{uuid.uuid4().hex}"

    @property
    def place(self) -> str:
        return self._place

    def bookmark(self) -> Bookmark | None:
        return self._stored

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        self.shape, self.start, self._stored = shape, start, start
        return start

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        if self.keeps:
            self.steps.append(Step(delta, expected, new))
        self._stored = new

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        self._stored = new

    def shadow(self, label: str) -> View:
        raise NotImplementedError("nothing is kept, so there is nothing to rebuild")

    def swap(self, shadow: View) -> None:
        raise NotImplementedError("nothing is kept, so there is nothing to swap")

    def drop_old(self) -> bool:
        return False

    def drop(self) -> None:
        self._stored = None

    def scan(self) -> Snapshot:
        raise NotImplementedError("nothing is kept, so there is nothing to read")


class NowhereKeyed(Nowhere):
    """A view into nothing whose rows have keys: records without one are refused, and tombstones are wanted."""

    is_keyed = True


def nowhere_like(model: View, *, keeps: bool = False) -> Nowhere:
    return NowhereKeyed(model, keeps=keeps) if model.is_keyed else Nowhere(model, keeps=keeps)


@dataclass(frozen=True)
class Case:
    """A fold into one engine. `make` gives a new view in a directory of its own; `rebuilds` is measured, too."""

    name: str
    make: Callable[[Path], View]
    rebuilds: bool = False


def payments_fold(view: View) -> Fold:
    """The fold of the documentation's example that suits the view."""
    topic = fl.topic(PAYMENTS, key="tx_id", schema=PAYMENTS_SCHEMA)

    def as_they_are(rows: DataFrame) -> DataFrame:
        return rows

    def paid(rows: DataFrame) -> DataFrame:
        return rows.filter("amount_paise > 0")

    return fl.fold(topic, into=view, name="measured")(as_they_are if view.aggregation is None else paid)


def cases(postgres: str | None) -> list[Case]:
    """All engines that are here. `postgres` is the URL of a database that can be written to."""
    found = [
        Case("table, SQLite", lambda home: fl.table(home / "shop.db", "payments"), rebuilds=True),
        Case("search, FTS5", lambda home: _search(home / "search.db", "fts5"), rebuilds=True),
        Case("counters, SQLite", lambda home: _counters(str(home / "live.db")), rebuilds=True),
        Case("lake, Parquet", lambda home: _lake(home, "parquet", "append")),
    ]
    if postgres is not None:
        found += [
            Case("table, PostgreSQL", lambda _: fl.table(postgres, _new_name("payments")), rebuilds=True),
            Case("counters, PostgreSQL", lambda _: _counters(postgres, _new_name("counters"))),
        ]
    if importlib.util.find_spec("tantivy") is not None:
        found.append(Case("search, tantivy", lambda home: _search(home / "search", "tantivy"), rebuilds=True))
    if importlib.util.find_spec("duckdb") is not None:
        found.append(Case("counters, DuckDB", lambda home: _counters(str(home / "live.duckdb"))))
    if importlib.util.find_spec("deltalake") is not None:
        found += [
            Case("lake, Delta, append", lambda home: _lake(home, "delta", "append")),
            Case("lake, Delta, merge", lambda home: _lake(home, "delta", "merge"), rebuilds=True),
        ]
    order = ("table", "search", "counters", "lake")
    return sorted(found, key=lambda case: order.index(case.name.partition(",")[0]))


def _search(path: Path, engine: str) -> View:
    return fl.search(path, text=["merchant", "note"], engine=engine)


def _counters(place: str, name: str = "counters") -> View:
    measures = {"payments": fl.count(), "paise": fl.sum("amount_paise")}
    return fl.counters(place, by=["merchant"], window=("at", "1 minute"), measures=measures, name=name)


def _lake(home: Path, form: Format, mode: Mode) -> View:
    return fl.lake(home / "lake", format=form, mode=mode)


def _new_name(base: str) -> str:
    return f"{base}_{uuid.uuid4().hex[:12]}"


@contextmanager
def postgres_server() -> Iterator[str | None]:
    """The URL of a server of our own that syncs as it should; None where there is none to start."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))  # the tests know how to start one, as a user who may, and how to end it
    from postgres_server import running_server, server_binaries

    if server_binaries() is None or importlib.util.find_spec("psycopg") is None:
        yield None
        return
    with running_server(durable=True, shared_buffers="256MB", max_wal_size="4GB") as server:
        yield server.url
