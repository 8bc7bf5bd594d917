"""A shop's pipeline into every engine there is, as the tests of folds run it, and what each of its views has to hold.

`write_pipeline` makes the file that a person would write. A view is compared with the recompute at the bookmark that
the view itself stores: by its own `scan`, and, once a pipeline stands still, as the engine shows it to anybody.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Final

import duckdb
import psycopg
import pyarrow.dataset as ds
from deltalake import DeltaTable
from psycopg.rows import dict_row
from pyiceberg.catalog.sql import SqlCatalog

from foldlog import Record
from foldlog.spark.folds.declaration import Fold, load_folds
from foldlog.views.bookmark import Bookmark
from foldlog.views.search.fts import FtsSearch
from foldlog.views.search.tantivy import TantivySearch
from folds_model import SHOP_COLUMNS, SHOP_SCHEMA, Row, below, counted, history, in_order, mirror, rows_of, stepped

TABLES: Final = ("table_sqlite", "table_postgres")
SEARCHES: Final = ("search_tantivy", "search_fts")
COUNTERS: Final = ("counters_sqlite", "counters_postgres", "counters_duckdb")
HISTORIES: Final = ("delta_history", "parquet_history", "iceberg_history")
MIRRORS: Final = (*TABLES, *SEARCHES, "delta_mirror")
REDUCED: Final = ("reduce_sqlite", "reduce_postgres")
ADDING: Final = (*COUNTERS, *HISTORIES)
ALL: Final = (*MIRRORS, *ADDING)
WORD: Final = "paid"
"""What readers of the search views look for, in the notes."""

_HEAD: Final = Template("""
import foldlog.spark as fl

payments = fl.topic("payments", key="tx_id", schema="$schema")
measures = {
    "payments": fl.count(),
    "paise": fl.sum("amount_paise"),
    "lowest": fl.min("amount_paise"),
    "highest": fl.max("amount_paise"),
    "mean": fl.avg("amount_paise"),
}


def step(state, rows):
    chain = state["chain"]
    for paise in rows["amount_paise"].to_pylist():
        chain = (chain * 31 + (paise or 0)) % 1_000_003
    return {"payments": state["payments"] + rows.num_rows, "chain": chain}
""")
_FOLD: Final = Template("""
@fl.fold(payments, into=fl.$view)
def $name(rows): return $rows
""")
_MINUTES: Final = 'by=["merchant"], window=("at", "1 minute"), measures=measures'
_STATES: Final = 'state="payments BIGINT, chain BIGINT", zero={"payments": 0, "chain": 7}, step=step'
_VIEWS: Final = {
    "table_sqlite": 'table("$views/shop.db", "payments")',
    "table_postgres": 'table("$postgres", "payments")',
    "search_tantivy": 'search("$views/search", text=["merchant", "note"], engine="tantivy")',
    "search_fts": 'search("$views/search.db", text=["merchant", "note"], engine="fts5")',
    "counters_sqlite": f'counters("$views/shop.db", {_MINUTES})',
    "counters_postgres": f'counters("$postgres", {_MINUTES})',
    "counters_duckdb": f'counters("$views/live.duckdb", {_MINUTES})',
    "reduce_sqlite": f'reduce("$views/states.db", "states", {_STATES})',
    "reduce_postgres": f'reduce("$postgres", "states", {_STATES})',
    "delta_history": 'lake("$views/history", format="delta")',
    "delta_mirror": 'lake("$views/mirror", format="delta", mode="merge")',
    "parquet_history": 'lake("$views/files", format="parquet")',
    "iceberg_history": 'lake("$views/ice", format="iceberg")',
}


def write_pipeline(
    file: Path, views: Path, postgres_url: str | None, names: Iterable[str] = ALL, schema: str = SHOP_SCHEMA
) -> Path:
    """folds.py, with these folds; those into PostgreSQL only where there is a server."""
    views.mkdir(exist_ok=True)
    parts = [_HEAD.substitute(schema=schema)]
    for name in names:
        if postgres_url is None and "postgres" in name:
            continue
        view = Template(_VIEWS[name]).substitute(views=views, postgres=postgres_url or "")
        rows = 'rows.filter("amount_paise > 0")' if name in COUNTERS else "rows"
        parts.append(_FOLD.substitute(view=view, name=name, rows=rows))
    file.write_text("".join(parts))
    return file


def loaded(file: Path) -> dict[str, Fold]:
    """The folds of a pipeline, by name."""
    return {fold.name: fold for fold in load_folds(file)}


# --- what a view holds, and what it has to hold ---------------------------------------------------------------------


def expected(name: str, records: Iterable[Record], columns: Mapping[str, type] = SHOP_COLUMNS) -> list[Row]:
    """What the view of the fold `name` holds once it has read `records`."""
    make = mirror if name in MIRRORS else counted if name in COUNTERS else stepped if name in REDUCED else history
    return in_order(make(rows_of(records, columns)))


def snapshot_of(fold: Fold) -> tuple[Bookmark, list[Row]] | None:
    """A view's bookmark and rows, of one moment: the fold may be running meanwhile. None if there is no view yet."""
    with closing(fold.view):
        if fold.view.bookmark() is None:
            return None
        snapshot = fold.view.scan()
        return snapshot.bookmark, in_order(row for batch in snapshot.batches for row in batch.to_pylist())


def check_rows(
    name: str,
    bookmark: Bookmark,
    rows: list[Row],
    records: Iterable[Record],
    columns: Mapping[str, type] = SHOP_COLUMNS,
) -> None:
    """The rows of a view are the fold of exactly what its bookmark says."""
    wanted = expected(name, below(records, bookmark), columns)
    if rows == wanted:
        return
    strange, missing = [row for row in rows if row not in wanted], [row for row in wanted if row not in rows]
    raise AssertionError(
        f"{name} is not the fold of what its bookmark says, {bookmark.to_json()}:"
        f" it holds {strange[:3]} ({len(strange)} such), and not {missing[:3]} ({len(missing)} such)"
    )


def check_at_its_bookmark(
    fold: Fold, records: Iterable[Record], columns: Mapping[str, type] = SHOP_COLUMNS
) -> dict[int, int]:
    """`check_rows`, and where the bookmark is. A view that is not there has read nothing."""
    found = snapshot_of(fold)
    if found is None:
        return {}
    bookmark, rows = found
    check_rows(fold.name, bookmark, rows, records, columns)
    return {number: at.offset for number, at in bookmark.positions.items()}


def check_as_shown(name: str, records: Iterable[Record], views: Path, postgres_url: str | None) -> None:
    """A reader who has never heard of foldlog finds the fold of all records, by the engine's own means."""
    wanted = expected(name, records)
    if name in SEARCHES:
        wanted = [row for row in wanted if WORD in (row["note"] or "").split()]
    assert in_order(_READERS[name](views, postgres_url or "")) == wanted


def _sqlite(path: Path, table: str) -> list[Row]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [_with_times(dict(row)) for row in connection.execute(f"SELECT * FROM {table}")]


def _postgres(url: str, table: str) -> list[Row]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return [_exact_mean(row) for row in connection.execute(f"SELECT * FROM {table}".encode())]


def _duckdb(path: Path) -> list[Row]:
    with closing(duckdb.connect(str(path), read_only=True)) as connection:
        table = connection.sql("SELECT * FROM counters").to_arrow_table()
    return [_exact_mean(_in_utc(row)) for row in table.to_pylist()]


def _iceberg(path: Path) -> list[Row]:
    catalog = SqlCatalog("foldlog", uri=f"sqlite:///{path}/catalog.db", warehouse=str(path))
    try:
        rows: list[Row] = catalog.load_table(f"foldlog.{path.name}").scan().to_arrow().to_pylist()
        return rows
    finally:
        catalog.close()


def _delta(path: Path) -> list[Row]:
    rows: list[Row] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return rows


def _parquet(path: Path) -> list[Row]:
    rows: list[Row] = ds.dataset(path / "current").to_table().to_pylist()
    return rows


def _found(view: TantivySearch | FtsSearch) -> list[Row]:
    """The rows with the word, which is all that a search can show."""
    with closing(view):
        return view.search(WORD, limit=1000)


_READERS: Final[Mapping[str, Callable[[Path, str], list[Row]]]] = {
    "table_sqlite": lambda views, url: _sqlite(views / "shop.db", "payments"),
    "table_postgres": lambda views, url: _postgres(url, "payments"),
    "search_tantivy": lambda views, url: _found(TantivySearch(str(views / "search"), ["merchant", "note"])),
    "search_fts": lambda views, url: _found(FtsSearch(str(views / "search.db"), ["merchant", "note"])),
    "counters_sqlite": lambda views, url: _sqlite(views / "shop.db", "counters"),
    "counters_postgres": lambda views, url: _postgres(url, "counters"),
    "counters_duckdb": lambda views, url: _duckdb(views / "live.duckdb"),
    "delta_history": lambda views, url: _delta(views / "history"),
    "delta_mirror": lambda views, url: _delta(views / "mirror"),
    "parquet_history": lambda views, url: _parquet(views / "files"),
    "iceberg_history": lambda views, url: _iceberg(views / "ice"),
}


def _with_times(row: Row) -> Row:
    """SQLite keeps times as text."""
    return {
        name: datetime.fromisoformat(value) if name in ("at", "window_start") and value is not None else value
        for name, value in row.items()
    }


def _in_utc(row: Row) -> Row:
    return {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()}


def _exact_mean(row: Row) -> Row:
    """PostgreSQL and DuckDB show a mean as a number of their own type."""
    return _in_utc({**row, **({"mean": float(row["mean"])} if "mean" in row else {})})
