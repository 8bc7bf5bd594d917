"""Rows as packed batches: each row goes where a Java client would send it, in order, with all it has.

The batches are unpacked by the log's own reader and compared with a plain model; no Spark session is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldlog
from foldlog.client.backends.directory import broker_of
from foldlog.client.backends.served.resumable import TopicLimits
from foldlog.client.outgoing import partition_for_key
from foldlog.errors import InvalidArgument, RecordTooLarge, SerializationError, UnknownPartition, UnknownTopic
from foldlog.limits import STAGED_BATCH_BYTES, STAGED_PACK_BYTES
from foldlog.records.arrow import to_arrow
from foldlog.spark.sink.rows import Packed, RowPacker, gathered

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = dict[str, Any]


def limits(partitions: int = 3, **changes: Any) -> TopicLimits:
    return TopicLimits("id", partitions, 1 << 20, 1 << 30, is_compacted=False)._replace(**changes)


def packer(known: TopicLimits | None = None, topic: str | None = "orders", compression: int = 0) -> RowPacker:
    found = known or limits()
    return RowPacker(lambda name: found, topic=topic, compression=compression, now_ms=NOW_MS, first_keyless=0)


def table(rows: list[Row], names: list[str] | None = None) -> pa.RecordBatch:
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "headers": HEADERS,
        "offset": pa.int64(),
        "timestampType": pa.int32(),
    }
    chosen = names or [name for name in types if any(name in row for row in rows)]
    return pa.record_batch({name: pa.array([row.get(name) for row in rows], types[name]) for name in chosen})


def records(packed: list[Packed]) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """What a reader would find in each partition: timestamp, key, value, headers."""
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for one in packed:
        unpacked, _ = to_arrow(one.buffer, topic=one.topic, partition=one.partition)
        assert unpacked.num_rows == one.record_count
        at_ms = unpacked.column("timestamp").cast(pa.int64()).to_pylist()
        headers = [tuple(tuple(pair.values()) for pair in row) for row in unpacked.column("headers").to_pylist()]
        columns = (at_ms, *(unpacked.column(name).to_pylist() for name in ("key", "value")), headers)
        found.setdefault((one.topic, one.partition), []).extend(zip(*columns, strict=True))
    return found


row_strategy = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=6),
        "value": st.none() | st.binary(max_size=20),
        "topic": st.sampled_from(["orders", "payments", "ünïcode"]),
        "partition": st.none() | st.integers(0, 2),
        "timestamp": st.none() | st.integers(0, 1 << 40).map(lambda ms: ms * 1000),
        "headers": st.none()
        | st.lists(
            st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}), max_size=2
        ),
    }
)


@given(st.lists(st.lists(row_strategy, max_size=12), max_size=4))
def test_every_row_is_where_its_partition_or_its_key_says_in_order_with_all_it_has(batches: list[list[Row]]) -> None:
    made = packer(topic=None)
    packed = list(made.pack(table(rows, list(ROW_COLUMNS)) for rows in batches))
    rows = [row for batch in batches for row in batch]
    wanted: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    keyless: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        at_ms = NOW_MS if row["timestamp"] is None else row["timestamp"] // 1000
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or [])
        record = (at_ms, row["key"], row["value"], headers)
        if row["partition"] is not None:
            wanted.setdefault((row["topic"], row["partition"]), []).append(record)
        elif row["key"] is not None:
            wanted.setdefault((row["topic"], partition_for_key(row["key"], 3)), []).append(record)
        else:
            keyless.setdefault(row["topic"], []).append(record)
    found = records(packed)
    for topic, left in keyless.items():
        # All of a small piece go to one partition, before what else the piece has for it.
        at = found[topic, 0]
        assert at[: len(left)] == left
        del at[: len(left)]
    assert {key: values for key, values in found.items() if values} == wanted


ROW_COLUMNS = ("key", "value", "topic", "partition", "timestamp", "headers")


def test_the_option_goes_before_the_column_and_what_is_the_logs_is_ignored() -> None:
    rows: list[Row] = [
        {"value": b"a", "topic": "other", "offset": 7, "timestampType": 0},
        {"value": b"b", "topic": None},
    ]
    found = records(list(packer(limits(1)).pack([table(rows)])))
    assert found == {("orders", 0): [(NOW_MS, None, b"a", ()), (NOW_MS, None, b"b", ())]}


def test_strings_of_any_layout_are_text_in_utf_8() -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary()):
        given_rows = pa.record_batch({"value": pa.array(["grün"]).cast(kind)})
        assert records(list(packer(limits(1)).pack([given_rows])))["orders", 0][0][2] == "grün".encode()


def test_rows_without_a_key_go_to_one_partition_after_the_other() -> None:
    piece = pa.record_batch({"value": pa.array([b"x" * 1000] * (STAGED_PACK_BYTES // 1000 + 1))})
    packed = list(packer(limits(3)).pack([piece] * 4))
    order = list(dict.fromkeys(one.partition for one in packed))
    assert order == [0, 1, 2]
    assert sum(one.record_count for one in packed if one.partition == 0) == 2 * piece.num_rows


def test_a_task_begins_with_any_partition() -> None:
    made = [
        RowPacker(lambda name: limits(16), topic="orders", compression=0, now_ms=0).pack([table([{"value": b"x"}])])
        for _ in range(200)
    ]
    assert len({one.partition for packed in made for one in packed}) > 8


def test_batches_are_as_large_as_is_good_and_as_the_topic_allows() -> None:
    piece = pa.record_batch({"value": pa.array([b"x" * 1000] * 3000)})
    sizes = [len(one.buffer) for one in packer(limits(1)).pack([piece])]
    assert STAGED_BATCH_BYTES // 2 < max(sizes) <= STAGED_BATCH_BYTES
    assert max(len(one.buffer) for one in packer(limits(1, max_message_bytes=9000)).pack([piece])) <= 9000
    assert max(len(one.buffer) for one in packer(limits(1, segment_bytes=9000)).pack([piece])) <= 9000


@pytest.mark.parametrize("compression", range(5))
def test_batches_are_compressed_as_told(compression: int) -> None:
    piece = pa.record_batch({"value": pa.array([b"x" * 1000] * 100)})
    packed = list(packer(limits(1), compression=compression).pack([piece]))
    assert {one.buffer[22] & 7 for one in packed} == {compression}
    assert len(records(packed)["orders", 0]) == 100


def unknown(topic: str) -> TopicLimits:
    raise UnknownTopic(topic, ["a", "b"])


@pytest.mark.parametrize(
    ("rows", "known", "error", "sentence"),
    [
        ([{"value": b"x", "topic": None}], limits(), SerializationError, "the column 'topic' is null in a row"),
        (
            [{"value": b"x", "topic": "t", "partition": -1}],
            limits(),
            UnknownPartition,
            "no partition -1; it has 0 to 2",
        ),
        ([{"value": b"x", "topic": "t", "partition": 3}], limits(), UnknownPartition, "no partition 3; it has 0 to 2"),
        ([{"value": b"x", "topic": "t"}], limits(is_compacted=True), InvalidArgument, "every row needs a key"),
        (
            [{"value": b"x", "topic": "t", "key": None}],
            limits(is_compacted=True),
            InvalidArgument,
            "topic 't' is compacted: every row needs a key",
        ),
        (
            [{"value": b"x" * 5000, "topic": "t"}],
            limits(max_message_bytes=4000),
            RecordTooLarge,
            "max.message.bytes=4000",
        ),
        (
            [{"value": b"x", "topic": "t", "timestamp": datetime(1969, 1, 1, tzinfo=UTC)}],
            limits(),
            SerializationError,
            "time",
        ),
        (
            [{"value": b"x", "topic": "t", "headers": [None]}],
            limits(),
            SerializationError,
            "column 'headers' holds a header that is null",
        ),
        ([{"value": b"x", "topic": "t"}], unknown, UnknownTopic, "no topic 't'; there are a, b"),
    ],
)
def test_what_cannot_be_a_record_is_told_in_a_sentence(
    rows: list[Row], known: TopicLimits | Callable[[str], TopicLimits], error: type[Exception], sentence: str
) -> None:
    find = known if not isinstance(known, TopicLimits) else lambda name: known
    made = RowPacker(find, topic=None, compression=0, now_ms=0)
    with pytest.raises(error) as caught:
        list(made.pack([table(rows)]))
    assert sentence in str(caught.value)


def test_a_topic_is_looked_up_once() -> None:
    asked: list[str] = []

    def find(name: str) -> TopicLimits:
        asked.append(name)
        return limits()

    made = RowPacker(find, topic=None, compression=0, now_ms=0)
    rows = [table([{"value": b"x", "topic": name} for name in "abab"])] * 3
    assert sum(one.record_count for one in made.pack(rows)) == 12
    assert asked == ["a", "b"]
    assert set(made.limits) == {"a", "b"}


def test_small_batches_are_gathered_and_empty_ones_left_out() -> None:
    small = pa.record_batch({"value": pa.array([b"x" * 100] * 10)})
    assert [batch.num_rows for batch in gathered([small, small.slice(0, 0)] * 10, 3 * small.nbytes)] == [30, 30, 30, 10]
    assert list(gathered([small.slice(0, 0)], 1)) == []


def test_the_log_takes_what_was_packed() -> None:
    with foldlog.open(":memory:") as log:
        log.create_topic("orders", partitions=3)
        known = TopicLimits.of(log.topic("orders"))
        for one in packer(known).pack([table([{"key": bytes([n]), "value": b"v"} for n in range(50)])]):
            partition = broker_of(log).writable_partition("orders", one.partition)
            partition.wait_acknowledged(partition.append(one.buffer, foreign=True).next_offset)
        assert sum(end for _, end in log.offsets("orders").values()) == 50
