"""latestPerKey against a dictionary: whatever the keys, however they are cut into batches, and with so little room for
keys that they have to be divided again and again. Then on a real log, tombstones and records without key included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import foldlog
from foldlog.spark.origins.by_path import PathOrigin
from foldlog.spark.origins.origin import OffsetRange, OriginSpec
from foldlog.spark.source.newest import newest_per_key

Row = tuple[int, bytes | None]


def batches_of(rows: list[Row], size: int) -> list[pa.RecordBatch]:
    table = {
        "offset": pa.array([offset for offset, _ in rows], pa.int64()),
        "key": pa.array([key for _, key in rows], pa.binary()),
        "value": pa.array([str(offset).encode() for offset, _ in rows], pa.binary()),
    }
    return [pa.RecordBatch.from_pydict(table).slice(start, size) for start in range(0, len(rows), size)]


def expected(rows: list[Row]) -> list[int]:
    newest = {key: offset for offset, key in rows}
    return [offset for offset, key in rows if key is None or newest[key] == offset]


keys = st.none() | st.sampled_from([b"", b"a", b"b", b"\x00", b"a\x00"]) | st.binary(max_size=3)
gaps = st.integers(1, 5)


@given(st.lists(st.tuples(gaps, keys), max_size=60), st.integers(1, 20), st.sampled_from([1, 40, 200, 1 << 20]))
def test_the_newest_row_of_each_key_and_every_row_without_one(
    drawn: list[tuple[int, bytes | None]], size: int, keys_bytes_max: int
) -> None:
    rows: list[Row] = []
    offset = 0
    for gap, key in drawn:
        offset += gap
        rows.append((offset, key))
    readings = 0

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        nonlocal readings
        readings += 1
        return iter(batch.select(list(columns)) for batch in batches_of(rows, size))

    found = [row for batch in newest_per_key(read, ["value"], keys_bytes_max) for row in batch.to_pylist()]
    assert sorted(row["offset"] for row in found) == expected(rows)
    assert all(row["value"] == str(row["offset"]).encode() for row in found)
    if keys_bytes_max == 1 << 20:
        assert readings == 2
        assert [row["offset"] for row in found] == expected(rows)  # in order, as nothing had to be divided


def test_keys_that_do_not_fit_are_divided_and_none_is_lost_or_doubled() -> None:
    rows: list[Row] = [(offset, b"key-%d" % (offset % 400)) for offset in range(2000)]
    readings: list[list[str]] = []

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        readings.append(list(columns))
        return iter(batch.select(list(columns)) for batch in batches_of(rows, 100))

    found = [
        offset for batch in newest_per_key(read, ["offset"], 4000) for offset in batch.column("offset").to_pylist()
    ]
    assert sorted(found) == list(range(1600, 2000))
    assert len(readings) > 4  # more than two parts of keys, two readings each


def test_of_a_topic_with_tombstones_and_keyless_records(tmp_path: Path) -> None:
    with foldlog.open(tmp_path, background=False) as log:
        log.create_topic("prices")
        sent = [("tea", "1"), ("rum", "2"), (None, "3"), ("tea", None), ("gin", "5"), (None, "6"), ("gin", "7")]
        for key, value in sent:
            log.append("prices", value, key=key)
        origin = PathOrigin.open(OriginSpec(path=log.path))
        wanted = OffsetRange("prices", 0, 0, len(sent))
        batches = newest_per_key(lambda columns: origin.read(wanted, columns), ["value"])
        found = [(row["key"], row["value"]) for batch in batches for row in batch.to_pylist()]
        origin.close()
    assert found == [(b"rum", b"2"), (None, b"3"), (b"tea", None), (None, b"6"), (b"gin", b"7")]
