"""Tables in and out: the same records as one by one, in whichever partitions, columns and pieces."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import foldlog
from foldlog.client import bulk
from foldlog.errors import (
    InvalidArgument,
    MissingDependency,
    OffsetOutOfRange,
    ReadOnly,
    SerializationError,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.files.memory import MemoryFiles

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed; enable with: pip install 'foldlog[arrow]'")


def fill(log: foldlog.Log, partitions: int = 3, each: int = 40) -> None:
    log.create_topic("orders", partitions=partitions)
    with log.producer(batch_records=7, compression="lz4") as producer:
        for number in range(each):
            for partition in range(partitions):
                value = None if number % 9 == 0 else b"%d" % number
                key = None if number % 5 == 0 else b"k%d" % number
                producer.send(
                    "orders", value, key=key, headers={"n": b"%d" % number}, partition=partition, timestamp_ms=number
                )


def rows(records: Any) -> list[tuple[Any, ...]]:
    return [(record.partition, record.offset, record.timestamp_ms, record.key, record.value) for record in records]


def table_rows(table: Any) -> list[tuple[Any, ...]]:
    table = table.set_column(
        table.schema.get_field_index("timestamp"), "timestamp", table.column("timestamp").cast(pa.int64())
    )
    names = ["partition", "offset", "timestamp", "key", "value"]
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def test_a_table_holds_the_records_that_reading_gives(log: foldlog.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log)
    expected = [row for partition in range(3) for row in rows(log.read("orders", partition))]
    assert table_rows(log.read_arrow("orders")) == expected
    # In small pieces, on several threads, in the same order.
    monkeypatch.setattr(bulk, "ARROW_READ_BYTES", 1)
    monkeypatch.setattr(bulk, "_RANGE_BYTES_MIN", 100)
    monkeypatch.setattr(bulk, "read_threads", lambda: 3)
    assert table_rows(log.read_arrow("orders")) == expected
    assert log.read_arrow("orders").schema.names == list(log.read_arrow("orders", columns=bulk_columns()).schema.names)


def bulk_columns() -> tuple[str, ...]:
    from foldlog.records.arrow import COLUMNS

    return COLUMNS


def test_only_the_columns_asked_for_are_there_in_that_order(log: foldlog.Log) -> None:
    fill(log, partitions=1)
    table = log.read_arrow("orders", columns=["value", "offset"])
    assert table.schema.names == ["value", "offset"]
    assert log.read_arrow("orders", columns=[]).num_columns == 0
    with pytest.raises(InvalidArgument, match="colour"):
        log.read_arrow("orders", columns=["colour"])


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, {0: (0, 40), 1: (0, 40), 2: (0, 40)}),
        (35, None, {0: (35, 40), 1: (35, 40), 2: (35, 40)}),
        ({0: 38}, None, {0: (38, 40), 1: (0, 40), 2: (0, 40)}),
        ("end", None, {}),
        ({0: "end", 1: 39, 2: "end"}, None, {1: (39, 40)}),
        (None, {0: 2, 1: 0, 2: 1000}, {0: (0, 2), 2: (0, 40)}),
        (10, 12, {0: (10, 12), 1: (10, 12), 2: (10, 12)}),
    ],
)
def test_ranges_are_one_for_all_or_by_partition(log: foldlog.Log, start: Any, stop: Any, expected: Any) -> None:
    fill(log)
    table = log.read_arrow("orders", start, stop, columns=["partition", "offset"])
    found: dict[int, list[int]] = {}
    for row in table.to_pylist():
        found.setdefault(row["partition"], []).append(row["offset"])
    assert found == {partition: list(range(*bounds)) for partition, bounds in expected.items()}


def test_partitions_limits_what_is_read(log: foldlog.Log) -> None:
    fill(log)
    table = log.read_arrow("orders", partitions=[2, 0], columns=["partition"])
    assert table.column("partition").unique().to_pylist() == [0, 2]
    with pytest.raises(UnknownPartition):
        log.read_arrow("orders", partitions=[3])
    with pytest.raises(InvalidArgument, match="partition 1"):
        log.read_arrow("orders", start={1: 5}, partitions=[0])
    with pytest.raises(OffsetOutOfRange):
        log.read_arrow("orders", start=41)


def test_an_empty_topic_is_an_empty_table_with_all_columns(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    table = log.read_arrow("orders")
    assert table.num_rows == 0
    assert table.schema.names == list(bulk_columns())


def test_a_table_that_was_read_can_be_appended_as_it_is(log: foldlog.Log) -> None:
    fill(log)
    table = log.read_arrow("orders")
    log.create_topic("copy", partitions=3)
    assert log.append_arrow("copy", table) == {0: (0, 40), 1: (0, 40), 2: (0, 40)}
    again = log.read_arrow("copy")
    assert again.drop_columns(["topic"]).equals(table.drop_columns(["topic"]))
    assert log.append_arrow("copy", table) == {0: (40, 80), 1: (40, 80), 2: (40, 80)}


def test_rows_go_by_key_as_a_producer_would_send_them(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=5)
    keys = [f"key-{number}" for number in range(100)]
    appended = log.append_arrow("orders", pa.table({"key": keys, "value": keys}))
    assert sum(end - start for start, end in appended.values()) == 100
    for partition in range(5):
        for record in log.read("orders", partition):
            assert log.append("orders", b"", key=record.key).partition == partition


def test_rows_without_key_go_chunk_by_chunk_to_one_partition_after_the_other(
    log: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "ARROW_PACK_BYTES", 1)
    log.create_topic("orders", partitions=2)
    log.append("orders", b"x", partition=0)
    table = pa.table({"value": [b"%d" % number for number in range(4096)]})
    assert log.append_arrow("orders", table) == {0: (1, 2049), 1: (0, 2048)}


def test_small_syncs_lose_nothing(log: foldlog.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "ARROW_SYNC_BYTES", 1000)
    monkeypatch.setattr(bulk, "ARROW_PACK_BYTES", 10_000)
    log.create_topic("orders")
    values = [b"%d" % number for number in range(10_000)]
    table = pa.table({"value": values, "timestamp": pa.array(range(10_000), pa.timestamp("ms", tz="UTC"))})
    assert log.append_arrow("orders", table, batch_bytes=500, compression="zstd") == {0: (0, 10_000)}
    assert log.read_arrow("orders", columns=["value"]).column("value").to_pylist() == values
    assert log.offsets_at("orders", 5000) == {0: 5000}


def test_a_record_batch_goes_in_too(log: foldlog.Log) -> None:
    log.create_topic("orders")
    batch = pa.record_batch({"value": ["a", None]})
    assert log.append_arrow("orders", batch) == {0: (0, 2)}
    assert [record.value for record in log.read("orders")] == [b"a", None]
    assert log.append_arrow("orders", batch.slice(0, 0)) == {}


def test_what_would_be_lost_or_cannot_be_kept_is_refused_before_anything_is_written(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    log.create_topic("balances", config={"cleanup.policy": "compact"})
    refused: list[tuple[str, dict[str, Any], type[Exception]]] = [
        ("orders", {"key": ["a"]}, SerializationError),
        ("orders", {"value": ["a"], "amount": [5]}, SerializationError),
        ("orders", {"value": [5]}, SerializationError),
        ("orders", {"value": ["a"], "partition": [2]}, Exception),
        ("orders", {"value": ["a"], "partition": [-1]}, Exception),
        ("balances", {"value": ["a"]}, InvalidArgument),
        ("balances", {"value": ["a"], "key": [None]}, InvalidArgument),
        ("nothing", {"value": ["a"]}, UnknownTopic),
    ]
    for topic, columns, error in refused:
        with pytest.raises(error) as caught:
            log.append_arrow(topic, pa.table(columns))
        assert isinstance(caught.value, foldlog.FoldlogError)
    assert log.offsets("orders") == {0: (0, 0), 1: (0, 0)}
    assert log.offsets("balances") == {0: (0, 0)}


def test_a_log_that_is_only_read_gives_tables_and_takes_none(files: MemoryFiles) -> None:
    with foldlog.open("data", files=files) as log, foldlog.open("data", "r", files=files) as reader:
        fill(log)
        assert reader.read_arrow("orders").equals(log.read_arrow("orders"))
        with pytest.raises(ReadOnly):
            reader.append_arrow("orders", pa.table({"value": ["a"]}))


def test_pyarrow_is_imported_only_on_use() -> None:
    code = (
        "import sys, foldlog\n"
        "with foldlog.open(':memory:') as log:\n"
        "    log.create_topic('t'); log.append('t', b'x'); list(log.read('t'))\n"
        "    log.consumer(['t'], group='g').poll(); log.producer().send('t', b'x')\n"
        "heavy = {'pyarrow', 'numpy', 'kio', 'uvloop', 'pyspark', 'asyncio'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    source = foldlog.__path__[0].rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_pyarrow_a_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"value": ["1"]})
    with foldlog.open(":memory:") as log:
        log.create_topic("orders")
        monkeypatch.setitem(sys.modules, "pyarrow", None)  # which makes importing it fail as if it were not there
        with pytest.raises(MissingDependency, match=r"^append_arrow\(\) needs .*pip install 'foldlog\[arrow\]'$"):
            log.append_arrow("orders", table)
        with pytest.raises(MissingDependency, match=r"^read_arrow\(\) needs pyarrow") as raised:
            log.read_arrow("orders")
        assert log.offsets("orders") == {0: (0, 0)}
    assert isinstance(raised.value, ImportError), "as whoever tries an import expects"
