"""Capture: rows a second from PostgreSQL into the log, beside what the server itself does with the same rows.

A snapshot stands beside COPY to nowhere. The stream stands beside the server's own decoding of the same changes with
the same plugin, which it counts and throws away: nobody who reads them can be faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.measuring import FULL, Place, Scale
from bench.spark_views import postgres_server
from bench.table import Row, Table, per_second, table_of

import foldlog
from foldlog import capture

TITLE = "Capture"
ROWS = 100_000
SMALL = 2_000
_TURNS = 3

_CREATE = """CREATE TABLE items (id bigint PRIMARY KEY, name text, price numeric(9,2), at timestamptz, tags text[],
             note text)"""
_INSERT = """INSERT INTO items SELECT i, 'item ' || i, i / 100.0, now(), ARRAY['a', 'b'], repeat('x', 60)
             FROM generate_series(%s::bigint, %s::bigint - 1) AS i"""

_NOTES = (
    "Rows of six columns, about 200 bytes as JSON, into a directory, synced. The server syncs, too, on the same disk.",
    "COPY is what reads a table fastest. Decoding is pgoutput within the server, whose messages are only counted.",
    "Small transactions have one row each. Each is one durable transaction of the log, unless --together says more.",
)


def run(place: Place, scale: Scale) -> Table:
    with postgres_server() as url:
        if url is None:
            return table_of(TITLE, [Row("PostgreSQL into the log", "-", "there is no PostgreSQL server to start here")])
        return table_of(TITLE, _measured(place, scale, url), _NOTES)


def _measured(place: Place, scale: Scale, url: str) -> list[Row]:
    import psycopg

    rows, small = (ROWS, SMALL) if scale is FULL else (200, 20)
    turns = _TURNS if scale is FULL else 1
    ours: dict[str, list[float]] = {"snapshot": [], "large": [], "small": [], "together": []}
    others: dict[str, list[float]] = {"snapshot": [], "large": [], "small": [], "together": []}
    with psycopg.connect(url, autocommit=True) as connection:
        for turn in range(turns):
            connection.execute("DROP TABLE IF EXISTS items")
            connection.execute(_CREATE.encode())
            connection.execute(_INSERT.encode(), (0, rows))
            path = place.fresh()
            chosen = capture.postgres(url, ["items"], name=f"bench_{turn}")
            with foldlog.open(path / "log") as log:
                others["snapshot"].append(rows / _timed(partial(_copy, connection)))
                ours["snapshot"].append(rows / _timed(partial(capture.run, chosen, log, once=True)))
                for number, (name, step) in enumerate((("large", rows), ("small", 1), ("together", 1))):
                    count = rows if name == "large" else small
                    if name == "together":
                        chosen = capture.postgres(url, ["items"], name=chosen.name, together=1000)
                    other = f"beside_{turn}_{name}"
                    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (other,))
                    start = 10_000_000 * (number + 1)
                    for first in range(start, start + count, step):
                        connection.execute(_INSERT.encode(), (first, first + step))
                    others[name].append(count / _timed(partial(_decode, connection, other, f"foldlog_{chosen.name}")))
                    connection.execute("SELECT pg_drop_replication_slot(%s)", (other,))
                    ours[name].append(count / _timed(partial(capture.run, chosen, log, once=True)))
            capture.drop(chosen)
            place.give_back(path)
    return [
        _row("snapshot", "COPY to nowhere", ours["snapshot"], others["snapshot"]),
        _row(f"stream, one transaction of {rows:,} rows", "decoding", ours["large"], others["large"]),
        _row("stream, transactions of 1 row", "decoding", ours["small"], others["small"]),
        _row("the same, up to 1,000 together", "decoding", ours["together"], others["together"]),
    ]


def _row(what: str, beside: str, ours: list[float], others: list[float]) -> Row:
    return Row(
        f"PostgreSQL into the log, {what}",
        f"{per_second(statistics.median(ours))} rows",
        f"{beside} {per_second(statistics.median(others))} rows",
        statistics.median(one / other for one, other in zip(ours, others, strict=True)),
    )


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _copy(connection: Any) -> None:
    with connection.cursor() as cursor, cursor.copy(b"COPY items TO STDOUT") as rows:
        for _ in rows:
            pass


def _decode(connection: Any, slot: str, publication: str) -> None:
    """All changes of the slot as pgoutput's messages, counted in the server."""
    connection.execute(
        "SELECT count(*) FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
        " 'publication_names', %s)",
        (slot, publication),
    )
