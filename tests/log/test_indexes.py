"""The two sparse indexes against a plain list, and what they make of rubbish."""

from __future__ import annotations

import itertools
import struct

from hypothesis import given
from hypothesis import strategies as st

from foldlog.log.segment import OffsetIndex, TimeIndex

GROWING = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60).map(
    lambda steps: [(sum(s[0] for s in steps[: at + 1]), sum(s[1] for s in steps[: at + 1])) for at in range(len(steps))]
)


@given(GROWING, st.integers(-1, 4000))
def test_floor_is_the_last_entry_at_or_below(entries: list[tuple[int, int]], wanted: int) -> None:
    index = OffsetIndex()
    for entry in entries:
        index.append(*entry)
    below = [entry for entry in entries if entry[0] <= wanted]
    assert index.floor(wanted) == (below[-1] if below else None)


@given(GROWING, st.integers(-1, 4000))
def test_before_is_the_last_entry_that_is_earlier(entries: list[tuple[int, int]], wanted: int) -> None:
    index = TimeIndex()
    for entry in entries:
        index.append(*entry)
    earlier = [entry for entry in entries if entry[0] < wanted]
    assert index.before(wanted) == (earlier[-1] if earlier else None)


@given(GROWING)
def test_what_is_written_is_kafkas_format_and_is_read_back(entries: list[tuple[int, int]]) -> None:
    index = OffsetIndex()
    for entry in entries:
        index.append(*entry)
    position, data = index.unwritten()
    assert position == 0
    assert data == b"".join(struct.pack(">II", *entry) for entry in entries)
    index.wrote(len(data))
    assert index.unwritten() == (len(data), b"")
    again = OffsetIndex.parse(data)
    assert [again[at] for at in range(len(again))] == entries


def test_time_entries_only_grow_when_clocks_go_backward() -> None:
    index = TimeIndex()
    for timestamp, relative in [(10, 1), (5, 2), (10, 3), (11, 4)]:
        index.append(timestamp, relative)
    assert [index[at] for at in range(len(index))] == [(10, 1), (11, 4)]


@given(GROWING, st.binary(max_size=40))
def test_rubbish_behind_good_entries_is_left_out_or_still_grows(entries: list[tuple[int, int]], tail: bytes) -> None:
    data = b"".join(struct.pack(">II", *entry) for entry in entries) + tail
    index = OffsetIndex.parse(data)
    found = [index[at] for at in range(len(index))]
    assert found[: len(entries)] == entries
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(found))
