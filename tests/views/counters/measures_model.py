"""Windows, sessions and measures in plain Python, from all rows at once, with other arithmetic than the views use."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from typing import Any

from foldlog.views.counters.measures import Aggregation, Measure
from foldlog.views.counters.windows import WINDOW_END, WINDOW_START

Row = dict[str, Any]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MASK = (1 << 64) - 1
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def counted(aggregation: Aggregation, rows: Sequence[Row]) -> list[Row]:
    """What a reader sees, of plain groups and of sessions."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in aggregation.by), []).append(row)
    found = []
    for group, members in groups.items():
        for bounds, some in _windows(aggregation, members):
            row = {**dict(zip(aggregation.by, group, strict=True)), **bounds}
            found.append(row | {name: shown(one, some) for name, one in aggregation.measures.items()})
    return found


def _windows(aggregation: Aggregation, rows: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
    if aggregation.sessions is None:
        return [({}, list(rows))]
    gap = dt.timedelta(milliseconds=aggregation.sessions.gap_ms)
    column = aggregation.sessions.column
    found: list[list[Row]] = []
    for row in sorted((one for one in rows if one[column] is not None), key=lambda one: one[column]):
        if found and row[column] - found[-1][-1][column] < gap:
            found[-1].append(row)
        else:
            found.append([row])
    sessions = [({WINDOW_START: some[0][column], WINDOW_END: some[-1][column] + gap}, some) for some in found]
    timeless = [one for one in rows if one[column] is None]
    return [*sessions, *([({WINDOW_START: None, WINDOW_END: None}, timeless)] if timeless else [])]


def shown(measure: Measure, rows: Sequence[Row]) -> Any:
    if measure.column is None:
        return len(rows)
    values = [row[measure.column] for row in rows if row[measure.column] is not None]
    if measure.order_by is not None:
        return _by_order(measure, rows)
    counted = {"count": len(values), "count_distinct": len(set(values))}
    if measure.kind in counted:
        return counted[measure.kind]
    if measure.kind == "approx_count_distinct":
        return hyperloglog([xxhash64(one) for one in values], measure.size)
    if measure.kind == "quantile":
        return sketched(values, measure.rank, measure.size)
    return _reduced(measure.kind, values) if values else None


def _reduced(kind: str, values: Sequence[Any]) -> Any:
    if kind == "avg":
        return sum(values) / len(values)
    if kind == "sum":
        return sum(values)
    return min(values) if kind == "min" else max(values)


def _by_order(measure: Measure, rows: Sequence[Row]) -> Any:
    pairs = [(row[measure.order_by or ""], row[measure.column or ""]) for row in rows]
    pairs = sorted(pair for pair in pairs if None not in pair)
    if measure.kind == "top":
        return [value for _, value in reversed(pairs[-measure.size :])]
    if not pairs:
        return None
    return pairs[0][1] if measure.kind == "first" else pairs[-1][1]


def sketched(values: Sequence[float], rank: float, bits: int) -> float | None:
    """The quantile that a sketch shows: the middle of the bucket of the exact one, found by the bits of the float."""
    numbers = sorted(float(one) for one in values if not math.isnan(one))
    if not numbers:
        return None
    exact = numbers[math.floor(round(rank * 1000) * (len(numbers) - 1) / 1000)]
    if exact == 0 or math.isinf(exact):
        return abs(exact) * (1 if exact >= 0 else -1)
    (pattern,) = struct.unpack(">Q", struct.pack(">d", abs(exact)))
    low = pattern >> (52 - bits) << (52 - bits)
    (start,) = struct.unpack(">d", struct.pack(">Q", low))
    (stop,) = struct.unpack(">d", struct.pack(">Q", low + (1 << (52 - bits))))
    return math.copysign(start / 2 + stop / 2, exact)


def hyperloglog(hashes: Sequence[int], bits: int) -> int:
    """The number of different hashes, estimated."""
    size = 1 << bits
    registers = [0] * size
    for one in hashes:
        word = f"{one & _MASK:064b}"
        rest = word[bits:] + "1"
        number = int(word[:bits], 2)
        registers[number] = max(registers[number], rest.index("1") + 1)
    counts = [registers.count(rank) for rank in range(64 - bits + 2)]
    total = size * _tau(1 - counts[-1] / size)
    for count in counts[-2:0:-1]:
        total = (total + count) / 2
    total += size * _sigma(counts[0] / size)
    return 0 if math.isinf(total) else round(size * size / (2 * math.log(2)) / total)


def _sigma(share: float) -> float:
    return math.inf if share == 1 else share + math.fsum(math.pow(share, 2**k) * 2 ** (k - 1) for k in range(1, 60))


def _tau(share: float) -> float:
    if share in (0, 1):
        return 0
    return (1 - share - math.fsum((1 - math.pow(share, 2.0**-k)) ** 2 * 2.0**-k for k in range(1, 60))) / 3


def xxhash64(value: Any, seed: int = 42) -> int:
    """XXH64 of at most 31 bytes, as Spark computes it of text and of 64-bit integers."""
    data = value.encode() if isinstance(value, str) else struct.pack("<q", value)
    one, two, three, four, five = _PRIMES
    found, at = seed + five + len(data), 0
    while at + 8 <= len(data):
        word = int.from_bytes(data[at : at + 8], "little")
        found = _rotated(found ^ (_rotated(word * two, 31) * one & _MASK), 27) * one + four
        at += 8
    if at + 4 <= len(data):
        found = _rotated(found ^ (int.from_bytes(data[at : at + 4], "little") * one & _MASK), 23) * two + three
        at += 4
    for byte in data[at:]:
        found = _rotated(found ^ (byte * five & _MASK), 11) * one
    found &= _MASK
    found = (found ^ (found >> 33)) * two & _MASK
    found = (found ^ (found >> 29)) * three & _MASK
    return found ^ (found >> 32)


def _rotated(word: int, by: int) -> int:
    word &= _MASK
    return (word << by | word >> (64 - by)) & _MASK
