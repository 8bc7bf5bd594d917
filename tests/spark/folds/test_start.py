"""Where a view begins: at the end, at a time, at an offset; and tables that append, of topics without keys.

A view that begins at a place holds the fold of the records from there on, and nothing else, in every run, rebuild and
verification; a rebuild from an earlier place adds what came before. Compared with a recompute in plain Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from foldlog.cli.main import main
from foldlog.errors import FoldError, InvalidArgument
from foldlog.spark.folds.declaration import Fold
from folds_model import SCHEMA, append, payment, records_of


def rows_of(fold: Fold, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for batch in fold.view.scan().batches for row in batch.to_pylist())


def newest_from(directory: Path, origins: dict[int, int]) -> list[tuple[Any, ...]]:
    """The newest payment of each key, of the records from these offsets on."""
    found: dict[str, tuple[Any, ...]] = {}
    for record in records_of(directory, "payments"):
        if record.offset < origins[record.partition]:
            continue
        assert record.key is not None
        key = record.key.decode()
        found.pop(key, None)
        if record.value is not None:
            found[key] = (key, json.loads(record.value)["amount_paise"])
    return sorted(found.values())


def fold_from(tmp_path: Path, start: str | int | None) -> Fold:
    topic = fl.topic("payments", key="tx_id", schema=SCHEMA)
    return fl.fold(topic, into=fl.table(tmp_path / "shop.db", "payments"), name="mirror", start=start)(
        lambda rows: rows
    )


def ends(directory: Path) -> dict[int, int]:
    with foldlog.open(directory, mode="r") as log:
        return {number: bounds[1] for number, bounds in log.offsets("payments").items()}


@pytest.mark.faults
def test_a_view_that_begins_at_the_end_has_what_came_since_and_a_rebuild_from_the_start_has_all(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(20)))
    began = ends(directory)
    mirror = fold_from(tmp_path, "latest")
    fl.run([mirror], directory, once=True, spark=spark)
    assert rows_of(mirror, "tx_id") == []
    append(directory, *((f"tx{n}", payment(amount_paise=n)) for n in range(15, 30)), ("tx16", None), ("tx2", None))
    fl.run([mirror], directory, once=True, spark=spark, range_bytes=900)
    assert rows_of(mirror, "tx_id", "amount_paise") == newest_from(directory, began)
    assert fl.verify(mirror, directory, spark=spark).answer == "equal"
    fl.rebuild(mirror, directory, spark=spark)  # "latest" is another place by now, and the view begins where it began
    assert rows_of(mirror, "tx_id", "amount_paise") == newest_from(directory, began)
    with pytest.raises(FoldError, match=r"it would begin at 0=\d+,1=\d+, behind records that the view has"):
        fl.rebuild(mirror, directory, start="end", spark=spark)
    fl.rebuild(mirror, directory, start="start", spark=spark)
    assert rows_of(mirror, "tx_id", "amount_paise") == newest_from(directory, {0: 0, 1: 0})
    assert fl.verify(mirror, directory, spark=spark).answer == "equal"


@pytest.mark.faults
@pytest.mark.parametrize("place", ["-5", "7", "0=3,1=end", "0=2", "@2026-01-15T00:00:20Z"])
def test_a_view_begins_at_any_place(directory: Path, tmp_path: Path, spark: SparkSession, place: str) -> None:
    with foldlog.open(directory) as log, log.producer() as producer:
        for n in range(40):
            producer.send("payments", payment(amount_paise=n), f"tx{n % 9}", timestamp_ms=1_768_435_200_000 + n * 1000)
    mirror = fold_from(tmp_path, place)
    fl.run([mirror], directory, once=True, spark=spark, range_bytes=900)
    bookmark = mirror.view.bookmark()
    assert bookmark is not None
    last = ends(directory)
    wanted: dict[str, Callable[[int], int]] = {
        "-5": lambda number: last[number] - 5,
        "7": lambda number: 7,
        "0=3,1=end": lambda number: (3, last[1])[number],
        "0=2": lambda number: (2, 0)[number],
    }
    if place in wanted:
        assert dict(bookmark.origins) == {number: wanted[place](number) for number in last}
    else:
        late = [one for one in records_of(directory, "payments") if one.timestamp_ms >= 1_768_435_220_000]
        assert dict(bookmark.origins) == {n: min(one.offset for one in late if one.partition == n) for n in last}
    assert rows_of(mirror, "tx_id", "amount_paise") == newest_from(directory, dict(bookmark.origins))
    assert fl.verify(mirror, directory, spark=spark).answer == "equal"


@pytest.mark.faults
def test_the_command_line_rebuilds_from_a_place_and_a_bad_start_is_told(
    directory: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for start in ("now", "100:200", 1.5, True):
        with pytest.raises(InvalidArgument, match=r"start=.*(place|range)"):
            fold_from(tmp_path, start)  # type: ignore[arg-type]
    Path("folds.py").write_text(
        "import foldlog.spark as fl\n"
        f"topic = fl.topic('payments', key='tx_id', schema='{SCHEMA}')\n"
        "@fl.fold(topic, into=fl.table('shop.db', 'payments'), start='latest')\n"
        "def mirror(rows): return rows\n"
    )
    append(directory, ("a", payment()), ("b", payment()))
    assert main(["fold", "run", "folds.py", "-d", str(directory), "--once"]) == 0
    assert main(["fold", "rebuild", "mirror", "-d", str(directory), "--start", "start"]) == 0
    assert main(["fold", "rebuild", "mirror", "-d", str(directory), "--start", "now"]) != 0
    assert "'now' is not a place in a topic" in capsys.readouterr().err
    (mirror,) = fl.load_folds("folds.py")
    assert rows_of(mirror, "tx_id") == [("a",), ("b",)]


# --- tables that append -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "engine", ["sqlite", *(pytest.param(name, marks=pytest.mark.faults) for name in ("postgresql", "duckdb"))]
)
def test_a_topic_without_keys_is_appended_row_by_row_and_once(
    directory: Path, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest, engine: str
) -> None:
    places = {"sqlite": tmp_path / "shop.db", "duckdb": tmp_path / "shop.duckdb"}
    place = places.get(engine) or request.getfixturevalue("postgres_url")
    topic = fl.topic("payments", schema=SCHEMA)
    fold = fl.fold(topic, into=fl.table(place, "all_payments", mode="append"), name="all")(
        lambda rows: rows.selectExpr("merchant", "array(amount_paise) AS amounts", *fl.META).filter(
            "merchant <> 'rice'"
        )
    )

    def expected() -> list[tuple[Any, ...]]:
        given = [
            (one.partition, one.offset, json.loads(one.value)) for one in records_of(directory, "payments") if one.value
        ]
        rows = [(number, at, row["merchant"], [row["amount_paise"]], False) for number, at, row in given]
        return sorted(row for row in rows if row[2] != "rice")

    def check() -> None:
        assert rows_of(fold, "_partition", "_offset", "merchant", "amounts", "_deleted") == expected()

    append(directory, *((None, payment(["tea", "rice"][n % 2], amount_paise=n)) for n in range(20)), (None, None))
    fl.run([fold], directory, once=True, spark=spark, range_bytes=900)
    check()
    append(directory, ("with a key", payment(amount_paise=1)), ("with a key", payment(amount_paise=2)))
    fl.run([fold], directory, once=True, spark=spark)
    check()
    with pytest.raises(FoldError, match="adds up what it reads"):
        fl.rewind(fold, directory, "start")
    assert fl.verify(fold, directory, spark=spark).answer == "equal"
    fl.rebuild(fold, directory, spark=spark)
    check()
    assert fold.view.drop_old()
    fold.view.drop()
    assert fold.view.bookmark() is None


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: fl.table("a.db", "t", mode="add"), "a table's mode is one of merge, append, not 'add'"),  # type: ignore[arg-type]
    (lambda: fl.table("a.db", "t", key="id", mode="append"), "a table that appends has no key= and no replaces="),
    (lambda: fl.table("a.duckdb", "t"), "tables in SQLite and PostgreSQL, and in DuckDB only with mode='append'"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_is_told_in_one_sentence(mistake: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        mistake()
