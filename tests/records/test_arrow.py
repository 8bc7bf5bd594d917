"""Arrow in and out: what `to_arrow` gives equals what `decode` gives, and what `pack_arrow` makes reads back equal.

Every column subset and range, every layout Arrow has for bytes and text, nulls, slices and chunks; refusals name the
column. Both sets of loops stand behind it in turn.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument, RecordTooLarge, SerializationError
from foldlog.records import kernels_py
from records.generated import item_lists, items, logs

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed; enable with: pip install 'foldlog[arrow]'")

from foldlog.records import arrow  # noqa: E402  needs pyarrow

NOW = 1_700_000_900_000
HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module", autouse=True)
def behind(loops: ModuleType) -> Iterator[None]:
    """Let `arrow` use one set of loops after the other."""
    names = ("gather", "pack_columns", "route_rows")
    before = {name: getattr(arrow, name) for name in names}
    for name in names:
        setattr(arrow, name, getattr(loops, name))
    yield
    for name, loop in before.items():
        setattr(arrow, name, loop)


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """Rows as Python values, with the timestamp as its number, which not every datetime can hold."""
    batch.validate(full=True)
    columns = {
        name: (batch.column(name).cast(pa.int64()) if name == "timestamp" else batch.column(name)).to_pylist()
        for name in batch.schema.names
    }
    return [{name: values[row] for name, values in columns.items()} for row in range(batch.num_rows)]


def packed(data: Any, **more: Any) -> list[Any]:
    return list(arrow.pack_arrow(data, now_ms=NOW, **{"max_batch_bytes": 1 << 20, **more}))


def read_back(found: list[Any]) -> list[tuple[Any, ...]]:
    """All records of all batches, each batch checked as a producer's."""
    read = []
    for batch in found:
        [header] = kernels_py.validate(batch.buffer, max_batch_bytes=1 << 30, decompressed_limit=1 << 30)
        assert (header.record_count, header.max_timestamp) == (batch.record_count, batch.max_timestamp_ms)
        records, _ = kernels_py.decode(batch.buffer, "t", 0)
        read += [(r.timestamp_ms, r.key, r.value, r.headers) for r in records]
    return read


@given(
    log=logs(),
    start=st.integers(0, 40),
    length=st.integers(0, 40),
    columns=st.lists(st.sampled_from(arrow.COLUMNS), unique=True),
)
def test_columns_hold_what_decode_gives(log: bytearray, start: int, length: int, columns: list[str]) -> None:
    base = kernels_py.walk(log).headers[0].base_offset if log else 0
    span = {"start_offset": base + start, "end_offset": base + start + length}
    expected, expected_next = kernels_py.decode(log, "orders", 4, **span)
    batch, next_offset = arrow.to_arrow(log, topic="orders", partition=4, columns=columns, **span)
    assert next_offset == expected_next
    assert batch.num_rows == len(expected)
    assert batch.schema.names == columns
    told: dict[str, Callable[[Any], Any]] = {
        "topic": lambda r: r.topic,
        "partition": lambda r: r.partition,
        "offset": lambda r: r.offset,
        "timestamp": lambda r: r.timestamp_ms,
        "timestamp_type": lambda r: r.timestamp_type,
        "key": lambda r: r.key,
        "value": lambda r: r.value,
        "headers": lambda r: [{"key": key, "value": value} for key, value in r.headers],
    }
    if columns:
        assert rows_of(batch) == [{name: told[name](record) for name in columns} for record in expected]


@given(log=logs(), start=st.integers(0, 40), length=st.integers(0, 40), enough_bytes=st.integers(1, 400))
def test_batches_of_a_bounded_size_hold_the_same_rows(
    log: bytearray, start: int, length: int, enough_bytes: int
) -> None:
    base = kernels_py.walk(log).headers[0].base_offset if log else 0
    first, end = base + start, base + start + length
    whole, _ = arrow.to_arrow(log, topic="orders", partition=4, start_offset=first, end_offset=end)
    parts = list(
        arrow.arrow_batches(
            log, topic="orders", partition=4, start_offset=first, end_offset=end, enough_bytes=enough_bytes
        )
    )
    assert [row for part in parts for row in rows_of(part)] == rows_of(whole)
    assert all(part.num_rows for part in parts)


def test_well_compressed_batches_are_not_expanded_all_at_once() -> None:
    rows = pa.table({"value": pa.array([b"x" * 100_000] * 40)})
    log = bytearray()
    for batch in packed(rows, compression=4, max_batch_bytes=200_000):
        kernels_py.assign_offsets(batch.buffer, kernels_py.walk(batch.buffer).headers, batch.first_row, 0)
        log += batch.buffer
    parts = list(arrow.arrow_batches(log, topic="t", partition=0, enough_bytes=500_000, columns=["offset", "value"]))
    assert [offset for part in parts for offset in part.column("offset").to_pylist()] == list(range(40))
    assert all(500_000 <= part.nbytes <= 800_000 for part in parts[:-1])
    assert len(parts) > 4


def test_the_types_are_those_promised() -> None:
    assert str(arrow.schema(["timestamp", "offset"]).field("timestamp").type) == "timestamp[ms, tz=UTC]"
    batch, _ = arrow.to_arrow(b"", topic="t", partition=0)
    assert batch.num_rows == 0
    assert batch.schema == arrow.schema(arrow.COLUMNS)
    with pytest.raises(InvalidArgument, match="no column 'valeu'"):
        arrow.schema(["valeu"])
    with pytest.raises(InvalidArgument, match="twice"):
        arrow.schema(["key", "key"])


def table_of(records: list[Any]) -> Any:
    return pa.table(
        {
            "timestamp": pa.array([record[0] for record in records], pa.int64()),
            "key": pa.array([record[1] for record in records], pa.binary()),
            "value": pa.array([record[2] for record in records], pa.binary()),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in record[3]] for record in records], HEADER_TYPE
            ),
        }
    )


@given(
    records=st.lists(items, max_size=30),
    codec=st.integers(0, 4),
    max_bytes=st.integers(1, 900),
    most=st.integers(1, 9),
    cuts=st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
def test_packed_rows_read_back_as_they_were(
    records: list[Any], codec: int, max_bytes: int, most: int, cuts: tuple[int, int]
) -> None:
    """The table is sliced and chunked first: buffers then start anywhere."""
    whole = table_of([(1, b"before", b"before", (("x", b"y"),)), *records]).slice(1)
    first, second = sorted(min(cut, len(records)) for cut in cuts)
    table = pa.concat_tables([whole.slice(0, first), whole.slice(first, second - first), whole.slice(second)])
    found = packed(table, compression=codec, max_batch_bytes=max_bytes, max_batch_records=most)
    assert read_back(found) == [tuple(record) for record in records]
    assert [batch.first_row for batch in found] == [
        sum(batch.record_count for batch in found[:index]) for index in range(len(found))
    ]
    for batch in found:
        assert batch.record_count <= most
        if batch.record_count > 1 and not codec:
            assert len(batch.buffer) <= max_bytes


@settings(max_examples=50)
@given(records=item_lists)
def test_packing_and_the_builder_make_the_same_bytes(records: list[Any]) -> None:
    [batch] = packed(table_of(records))
    assert batch.buffer == kernels_py.pack(records)


BYTES = [b"abcd", None, b"wxyz", b"abcd"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.binary(4),
        pa.dictionary(pa.int8(), pa.binary()),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
    ids=str,
)
def test_every_layout_of_bytes_and_text_is_taken(kind: Any) -> None:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    array = (
        pa.array(BYTES, pa.binary()).cast(plain if pa.types.is_fixed_size_binary(plain) else pa.string()).cast(plain)
    )
    if pa.types.is_dictionary(kind):
        array = array.dictionary_encode().cast(kind)
    batch = pa.record_batch({"value": array, "key": array})
    for piece, expected in ((batch, BYTES), (batch.slice(1, 2), BYTES[1:3])):
        assert [(key, value) for _, key, value, _ in read_back(packed(piece))] == [(b, b) for b in expected]


def test_columns_of_nothing_but_nulls_are_taken() -> None:
    batch = pa.record_batch(
        {"value": pa.nulls(2), "key": pa.nulls(2), "headers": pa.nulls(2), "timestamp": pa.nulls(2)}
    )
    assert read_back(packed(batch)) == [(NOW, None, None, ())] * 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_times_of_any_unit_and_zone_become_milliseconds(unit: str, zone: str | None) -> None:
    moment = dt.datetime(2024, 5, 1, 12, 0, 1, tzinfo=dt.UTC)
    number = int(moment.timestamp()) * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    extra = {"s": 0, "ms": 7, "us": 7_999, "ns": 7_999_999}[unit]
    times = pa.array([number + extra, None], pa.int64()).cast(pa.timestamp(unit, tz=zone))
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "timestamp": times})
    expected = int(moment.timestamp()) * 1000 + (7 if extra else 0)
    assert [row[0] for row in read_back(packed(batch))] == [expected, NOW]


def test_headers_may_be_lists_of_any_width_or_maps() -> None:
    entry = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    value = pa.array([b"x", b"y", b"z"])
    entries = pa.struct([("key", pa.string()), ("value", pa.binary())])
    swapped = pa.struct([("value", pa.binary()), ("key", pa.string())])
    expected = [(("a", b"1"), ("b", None)), (), ()]
    for headers in (
        pa.array([entry, None, []], pa.list_(entries)),
        pa.array([entry, None, []], pa.large_list(entries)),
        pa.array([entry, None, []], pa.list_(swapped)),
        pa.array([[("a", b"1"), ("b", None)], None, []], pa.map_(pa.string(), pa.binary())),
        pa.array([entry, None, []], pa.list_(pa.struct([("key", pa.binary()), ("value", pa.large_binary())]))),
    ):
        batch = pa.record_batch({"value": value, "headers": headers})
        assert [row[3] for row in read_back(packed(batch))] == expected
        assert [row[3] for row in read_back(packed(batch.slice(1)))] == expected[1:]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.array([b"a"])}, "no column 'value'"),
        ({"value": pa.array([1])}, "column 'value' is int64"),
        ({"value": pa.array([b"a"]), "key": pa.array([1.5])}, "column 'key' is double"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array(["now"])}, "column 'timestamp' is string"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array([-5])}, "'timestamp' holds a time that is out of range"),
        ({"value": pa.array([b"a"]), "headers": pa.array([b"a"])}, "column 'headers' is binary"),
        ({"value": pa.array([b"a"]), "headers": pa.array([["a"]])}, "column 'headers' is list<"),
        (
            {"value": pa.array([b"a"]), "headers": pa.array([[{"key": None, "value": b"1"}]], HEADER_TYPE)},
            "header without a key",
        ),
        ({"value": pa.array([b"a"]), "headers": pa.array([[None]], HEADER_TYPE)}, "header that is null"),
        (
            {
                "value": pa.array([b"a"]),
                "headers": pa.array(
                    [[{"key": b"\xff", "value": b"1"}]],
                    pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
                ),
            },
            "not text",
        ),
    ],
)
def test_what_cannot_be_packed_is_refused_by_column(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        packed(pa.record_batch(columns))


def test_a_time_beyond_milliseconds_is_refused() -> None:
    batch = pa.record_batch({"value": pa.array([b"a"]), "timestamp": pa.array([1 << 62], pa.timestamp("s"))})
    with pytest.raises(SerializationError, match="out of range"):
        packed(batch)


def test_offsets_that_lie_are_refused_instead_of_followed() -> None:
    """pyarrow itself looks only at the first and the last offset of an array it is given."""
    offsets = pa.py_buffer(struct.pack("<3i", 0, 1 << 20, 5))
    broken = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"short")])
    for columns in ({"value": broken}, {"value": pa.array([b"a", b"b"]), "key": broken}):
        with pytest.raises(SerializationError, match="offsets are not in order"):
            packed(pa.record_batch(columns))


def test_an_impossible_batch_size_is_refused() -> None:
    batch = pa.record_batch({"value": pa.array([b"a"])})
    for bad in ({"max_batch_bytes": 0}, {"max_batch_records": 0}):
        with pytest.raises(InvalidArgument):
            packed(batch, **bad)
    assert issubclass(RecordTooLarge, ValueError)


@given(
    found=st.lists(st.tuples(st.none() | st.binary(max_size=6), st.none() | st.integers(0, 4)), max_size=30),
    has_partition=st.booleans(),
    has_key=st.booleans(),
)
def test_rows_go_where_their_partition_or_their_key_says(
    found: list[tuple[bytes | None, int | None]], has_partition: bool, has_key: bool
) -> None:
    columns: dict[str, Any] = {"value": pa.array([b"%d" % row for row in range(len(found))], pa.binary())}
    if has_key:
        columns["key"] = pa.array([key for key, _ in found], pa.binary())
    if has_partition:
        columns["partition"] = pa.array([partition for _, partition in found], pa.int32())
    expected: dict[int, list[bytes]] = {}
    for row, (key, partition) in enumerate(found):
        number = -1
        if has_partition and partition is not None:
            number = partition
        elif has_key and key is not None:
            number = (kernels_py.murmur2(key) & 0x7FFFFFFF) % 5
        expected.setdefault(number, []).append(b"%d" % row)
    routed = arrow.route(pa.record_batch(columns), 5)
    assert {number: batch.column("value").to_pylist() for number, batch in routed} == expected
    assert [number for number, _ in routed] == sorted(expected)


def test_a_partition_that_does_not_exist_is_refused() -> None:
    for partition in (5, -1):
        batch = pa.record_batch({"value": pa.array([b"a"]), "partition": pa.array([partition])})
        with pytest.raises(InvalidArgument, match=f"no partition {partition}"):
            arrow.route(batch, 5)
    with pytest.raises(SerializationError, match="column 'partition' is string"):
        arrow.route(pa.record_batch({"value": pa.array([b"a"]), "partition": pa.array(["0"])}), 5)
    with pytest.raises(InvalidArgument, match="0 partitions"):
        arrow.route(pa.record_batch({"value": pa.array([b"a"])}), 0)


def test_memory_that_is_used_again_changes_no_column_that_somebody_has(loops: ModuleType) -> None:
    """Columns of many sizes come and go on several threads; those that are held keep their bytes."""

    def batch_of(number: int) -> bytearray:
        builder = loops.BatchBuilder(1 << 30, 100_000)
        for row in range(1 + number * 997 % 1_000):
            builder.append(number, b"k%d" % row, bytes([number % 251]) * 450, ())
        return bytearray(builder.build())

    batches = [batch_of(number) for number in range(24)]

    def read(number: int) -> Any:
        return arrow.to_arrow(batches[number], topic="t", partition=0)[0]

    def copied(batch: Any) -> Any:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return pa.ipc.open_stream(sink.getvalue()).read_next_batch()

    expected = [copied(read(number)) for number in range(len(batches))]
    with ThreadPoolExecutor(4) as pool:
        held: list[tuple[int, Any]] = []
        for turn in range(6):
            numbers = [(turn * 7 + step * 5) % len(batches) for step in range(len(batches))]
            held = [*held[::3], *zip(numbers, pool.map(read, numbers), strict=True)]
    for number, batch in held:
        batch.validate(full=True)
        assert batch.equals(expected[number])
