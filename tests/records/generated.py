"""Generated records and logs of batches, and batches broken on purpose, for the tests of this room.

Batches are made with the Python loops, so that a test of the compiled ones never rests on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import crc32c
from hypothesis import strategies as st

from foldlog.errors import FoldlogError
from foldlog.records import batch as fmt
from foldlog.records import kernels_py

CODECS = (0, 1, 2, 3, 4)

Item = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

timestamps = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_000_300), st.just(-1), st.integers(0, fmt.MAX_INT64 - 1)
)
keys = st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"d"]) | st.binary(max_size=20)
values = st.none() | st.binary(max_size=80) | st.integers(0, 300).map(lambda size: b"v" * size)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
items: st.SearchStrategy[Item] = st.tuples(timestamps, keys, values, st.just(()) | headers)
item_lists = st.lists(items, min_size=1, max_size=12)


@st.composite
def batches(draw: st.DrawFn, base_offset: int = 0) -> bytearray:
    """One batch with any codec, flags and producer fields; now and then a control marker or an empty batch."""
    kind = draw(st.sampled_from(["data"] * 8 + ["control", "empty"]))
    if kind == "control":
        made = kernels_py.control_batch(draw(st.integers(0, 1)), 3, 17, 2, 1_700_000_000_100)
    else:
        has_producer = draw(st.booleans())
        made = kernels_py.pack(
            draw(item_lists),
            draw(st.sampled_from(CODECS)),
            producer_id=draw(st.integers(0, 99)) if has_producer else -1,
            producer_epoch=3 if has_producer else -1,
            base_sequence=draw(st.integers(0, 1000)) if has_producer else -1,
            transactional=draw(st.booleans()),
        )
    found = kernels_py.walk(made).headers
    append_time_ms = 1_700_000_000_200 if draw(st.integers(0, 4)) == 0 else -1
    kernels_py.assign_offsets(made, found, base_offset, draw(st.integers(0, 2)), append_time_ms)
    return bytearray(kernels_py.empty_batch(found[0])) if kind == "empty" else made


@st.composite
def logs(draw: st.DrawFn, most: int = 4) -> bytearray:
    """Some batches one after the other, with gaps here and there, and sometimes compacted, so with gaps inside."""
    log = bytearray()
    next_offset = draw(st.integers(0, 1000))
    for _ in range(draw(st.integers(0, most))):
        made = draw(batches(next_offset))
        log += made
        next_offset = kernels_py.walk(made).headers[-1].next_offset + draw(st.sampled_from([0, 0, 0, 5]))
    if draw(st.booleans()):
        known = kernels_py.KeyMap(10_000)
        end = known.add(log)
        log, _ = kernels_py.compact(
            log,
            known,
            now_ms=draw(st.sampled_from([0, 1_700_000_000_150])),
            delete_retention_ms=100,
            mapped_end=end,
            keep_last=draw(st.booleans()),
        )
    return log


def with_right_crc(data: bytes | bytearray) -> bytearray:
    """Those bytes with the first batch's CRC made right, so that what is broken is found by a deeper check."""
    out = bytearray(data)
    if len(out) >= fmt.RECORDS_AT:
        length = int.from_bytes(out[fmt.LENGTH_AT : fmt.LEADER_EPOCH_AT], "big", signed=True)
        end = max(fmt.ATTRIBUTES_AT, min(len(out), fmt.LENGTH_PREFIX_BYTES + length))
        crc = crc32c.crc32c(bytes(out[fmt.ATTRIBUTES_AT : end]))
        out[fmt.CRC_AT : fmt.ATTRIBUTES_AT] = crc.to_bytes(4, "big")
    return out


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call gave, in a form that two implementations share: values by repr, errors by type and text."""
    try:
        return "gave", told(call())
    except FoldlogError as error:
        return type(error).__name__, str(error)


def told(value: Any) -> Any:
    """A value as plain data."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", ())
        parts = tuple(told(part) for part in value)
        return tuple(zip(names, parts, strict=True)) if names else parts
    if isinstance(value, list):
        return [told(part) for part in value]
    if value is None or isinstance(value, (int, str, bytes)):
        return value
    try:
        return bytes(memoryview(value))
    except TypeError:
        return repr(value)
