"""The benchmark's Spark sections run, fill their tables, and measure what they say: tiny sizes, the shared session.

Nothing here looks at a clock. What is compared has to do the same work, and that is checked: the ceiling gives as many
rows of the same columns, and a view that is given the captured changes holds what the fold would have put there.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import foldlog.spark as fl
from foldlog.views.digest import digest

pytestmark = pytest.mark.faults  # with the other long runs
ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = 300


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the benchmark, which is no part of the package."""
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"bench.{name}")


@pytest.fixture
def scale(bench: Any) -> Any:
    sizes = {"spark_value_bytes": 100 * RECORDS, "spark_sink_records": RECORDS, "fold_records": RECORDS}
    return replace(bench("measuring").QUICK, **sizes, fold_latencies=2)


@pytest.fixture
def place(bench: Any, tmp_path: Path) -> Any:
    return bench("measuring").Place(tmp_path / "bench")


def test_reading_is_measured_by_path_by_wire_and_beside_the_ceiling(
    bench: Any, place: Any, scale: Any, spark: SparkSession
) -> None:
    source = bench("spark_source")
    rows = source.read_topic(place, scale, spark, 100, {"4 columns": source.FOUR}, ["batch"])
    assert [row.name for row in rows] == [
        f"batch, 100 B values, 4 columns, by {way}" for way in ("path", "wire", "path")
    ]
    assert [row.other.split()[0] for row in rows] == ["ceiling", "ceiling", "Parquet"]
    assert all(row.ratio > 0 for row in rows)
    (newest,) = source.read_newest(place, scale, spark)
    assert f"ships {RECORDS // 20} rows" in newest.ours


def test_joins_are_measured_beside_streams_that_keep_their_state_in_rocksdb(
    bench: Any, place: Any, scale: Any, spark: SparkSession
) -> None:
    joins, topics = bench("spark_joins"), bench("spark_topics")
    log = place.fresh()
    topics.make_orders(log, 40, 1)
    rows = joins.measure(place, scale, spark, log, 40)
    assert [row.name for row in rows] == ["inner join, SQLite", "inner join, SQLite, rebuild"]
    assert all(row.ratio > 0 for row in rows)


def test_states_are_measured_beside_a_stream_that_keeps_them_in_rocksdb(
    bench: Any, place: Any, scale: Any, spark: SparkSession
) -> None:
    log = place.fresh()
    bench("spark_topics").make_payments(log, 40, 1)
    rows = bench("spark_reduce").measure(place, scale, spark, log)
    assert [row.name for row in rows] == [f"reduce, SQLite, {name}" for name in ("step(state, rows)", "each_row(step)")]
    assert all(row.ratio > 0 for row in rows)


def test_the_ceiling_gives_as_many_rows_as_it_is_told(bench: Any, spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa

    ceiling = bench("spark_ceiling")
    ceiling.register(spark)
    schema = pa.schema([pa.field("offset", pa.int64()), pa.field("value", pa.binary())])
    ready = [pa.record_batch([[0, 1, 2], [b"a", b"b", None]], schema=schema)]
    ceiling.save_batches(tmp_path / "ready.arrow", ready)
    options = {"file": str(tmp_path / "ready.arrow"), "tasks": "2", "rows": "7"}
    columns = "offset bigint, value binary"
    frame = spark.read.format(ceiling.SOURCE).schema(columns).options(**options).load()
    assert frame.toArrow()["offset"].to_pylist() == [0, 1, 2, 0, 1, 2, 0] * 2
    stream = spark.readStream.format(ceiling.SOURCE).schema(columns).options(**options).load()
    rows, seconds = bench("spark_session").stream_to_nowhere(stream, str(tmp_path / "checkpoint"))
    assert rows == 14
    assert seconds > 0


def test_writing_is_measured_and_what_was_written_is_counted(
    bench: Any, place: Any, scale: Any, spark: SparkSession
) -> None:
    rows = bench("spark_sink").write_rows(place, scale, spark, 100)
    assert [row.name for row in rows] == [
        f"df.write, {RECORDS} rows, 100 B values, by {way}" for way in ("path", "wire", "wire with exactlyOnce=false")
    ]


def test_a_fold_is_measured_beside_its_halves_and_so_is_its_rebuild(
    bench: Any, place: Any, scale: Any, spark: SparkSession, tmp_path: Path
) -> None:
    folds, views, topics = bench("spark_folds"), bench("spark_views"), bench("spark_topics")
    topics.make_payments(tmp_path / "log", RECORDS, 2)
    topics.make_payments(tmp_path / "small", RECORDS // folds.SMALLER, 2)
    (case,) = [one for one in views.cases(None) if one.name == "table, SQLite"]
    rows = folds.measure(place, scale, spark, tmp_path / "log", tmp_path / "small", case)
    assert [row.name for row in rows] == ["table, SQLite", "table, SQLite, rebuild"]
    assert all(" ms, then " in row.ours for row in rows)
    assert all("source" in row.other and "together" in row.other for row in rows)


def test_two_sizes_tell_a_fixed_cost_from_a_speed(bench: Any) -> None:
    line = bench("spark_folds").line
    assert line((1000, 0.5), (3000, 1.0)) == (0.25, 4000.0)
    assert line((1000, 0.5), (3000, 0.5)) == (0.5, None)


def test_poison_is_measured_beside_none(bench: Any, place: Any, scale: Any, spark: SparkSession) -> None:
    rows = bench("spark_poison").measure(place, scale, spark)
    names = [row.name for row in rows]
    assert [name for name in names if name.startswith("decode, ")] == names[:14], "each kind of poison by itself"
    ways = ("read and decode", "fold")
    assert names[14:] == [f"{way}, {part} bad" for way in ways for part in ("0.02 %", "1 %")]


@pytest.mark.parametrize("name", ["table, SQLite", "counters, SQLite", "lake, Parquet"])
def test_captured_changes_make_the_view_that_the_fold_makes(
    bench: Any, place: Any, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    folds, views, topics = bench("spark_folds"), bench("spark_views"), bench("spark_topics")
    topics.make_payments(tmp_path / "log", RECORDS, 2)
    (case,) = [one for one in views.cases(None) if one.name == name]
    kept = folds.capture(case, place, tmp_path / "log", spark)
    applied, folded = case.make(tmp_path / "applied"), case.make(tmp_path / "folded")
    (tmp_path / "applied").mkdir()
    (tmp_path / "folded").mkdir()
    folds.apply_all(applied, kept, loading=False)
    fl.run([views.payments_fold(folded)], tmp_path / "log", once=True, spark=spark)
    assert digest(applied.scan().batches) == digest(folded.scan().batches)
    assert applied.bookmark() == folded.bookmark()


@pytest.mark.parametrize("way", ["path", "wire"])
def test_latency_is_measured_until_a_reader_sees_the_record(
    bench: Any, place: Any, scale: Any, spark: SparkSession, way: str
) -> None:
    row = bench("spark_latency").measure(place, scale, spark, way)
    assert row.name.endswith(f"by {way}")
    assert row.other.startswith("empty job ")


def test_the_memory_of_driver_and_jvm_is_read(bench: Any, spark: SparkSession, tmp_path: Path) -> None:
    bench("spark_topics").make_payments(tmp_path / "log", RECORDS, 2)
    cost = bench("spark_memory").fold_and_look(tmp_path / "log", tmp_path / "view", "parquet", spark)
    assert cost.python_bytes > 10_000_000
    assert cost.jvm_bytes > 10_000_000
    assert cost.python_cpu_s > 0


def test_folds_are_measured_beside_the_same_job_of_sparks_own(
    bench: Any, place: Any, scale: Any, spark: SparkSession, tmp_path: Path
) -> None:
    beside, topics = bench("spark_beside"), bench("spark_topics")
    topics.make_payments(tmp_path / "log", RECORDS, 2)
    rows = beside.measure(place, scale, spark, tmp_path / "log", None)
    assert [row.other.split()[0] for row in rows].count("foreachBatch") == 4
    views = {case.name: case for case in bench("spark_views").cases(None)}
    for name in ("lake, Parquet", "lake, Delta, merge"):
        home = tmp_path / name
        home.mkdir()
        beside.stream_into(beside._WRITERS[name](None, home), home, tmp_path / "log", spark)
        fold = bench("spark_views").payments_fold(views[name].make(tmp_path / f"{name} of the fold"))
        fl.run([fold], tmp_path / "log", once=True, spark=spark)
        if "Delta" in name:
            written = DeltaTable(str(home / "lake")).to_pyarrow_table()
        else:
            written = pa.dataset.dataset(home / "lake").to_table()
        folded = pa.Table.from_batches(list(fold.view.scan().batches))
        assert written.num_rows == folded.num_rows
        assert sorted(written["tx_id"].to_pylist()) == sorted(folded["tx_id"].to_pylist())


@pytest.mark.faults
def test_session_counters_are_measured_beside_session_window(
    bench: Any, place: Any, scale: Any, spark: SparkSession, tmp_path: Path
) -> None:
    bench("spark_topics").make_payments(tmp_path / "log", RECORDS, 2)
    row = bench("spark_sessions").measure(place, scale, spark, tmp_path / "log")
    assert row.other.startswith("session_window")
    (tmp_path / "stream").mkdir()
    assert bench("spark_sessions").stream_of_sessions(tmp_path / "stream", tmp_path / "log", spark) > 0


def test_what_a_runner_at_rest_takes_is_counted_with_its_jvm(bench: Any, place: Any) -> None:
    found = bench("spark_idle").measure(place, 0.5, 2)
    assert set(found) == {0, bench("spark_idle").RATE}
    assert all(share >= 0 for share in found.values())


def test_where_there_is_no_spark_the_table_says_so(bench: Any, monkeypatch: pytest.MonkeyPatch, place: Any) -> None:
    monkeypatch.setattr(bench("spark_session"), "why_not", lambda: "pyspark is not installed")
    table = bench("spark_source").run(place, bench("measuring").QUICK)
    assert table.notes == ["Not measured: pyspark is not installed."]
