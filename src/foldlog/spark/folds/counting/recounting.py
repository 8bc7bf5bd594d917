"""Counts rows the long way: in plain Python, value by value, without the code that tasks and views use.

`verify` and the trial of a fold compare the two. A state here is made of all values of a group at once.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from foldlog.views.contract import Delta, Shape
from foldlog.views.counters.measures import Aggregation, Measure
from foldlog.views.counters.windows import WINDOW_END, WINDOW_START, Window

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]

_NAN: Final = float("nan")
"""A single NaN object: two NaNs are not equal, but tuples compare identity first."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WALL: Final = datetime(1970, 1, 1)  # noqa: DTZ001 a clock on a wall has no zone
_MS: Final = timedelta(milliseconds=1)

_WORD: Final = (1 << 64) - 1
_PRIMES: Final = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)
"""Of the hash function XXH64."""


def recounted(rows: pa.Table, aggregation: Aggregation, shape: Shape) -> pa.Table:
    """One row of partial results for each group, or session."""
    import pyarrow as pa

    columns = {name: _same_nan(rows[name].to_pylist()) for name in rows.column_names}
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for number in range(rows.num_rows):
        row = {name: values[number] for name, values in columns.items()}
        by = tuple(row[name] for name in aggregation.by)
        for start in _starts(row, aggregation):
            groups.setdefault((*by, *start), []).append(row)
    names = aggregation.group_columns() if aggregation.sessions is None else aggregation.by
    found = []
    for group, members in groups.items():
        for bounds, some in _sessions(members, aggregation):
            partial = dict(zip(names, group, strict=True)) | bounds
            for name, measure in aggregation.measures.items():
                partial |= _partials(name, measure, some)
            found.append(partial)
    return pa.Table.from_pylist(found, schema=shape.columns)


def are_in_time(rows: pa.Table, aggregation: Aggregation) -> bool:
    """Whether all windows of the rows can be told in years from 1 to 9999."""
    if aggregation.window is None:
        return True
    try:
        for moment in rows[aggregation.window.column].to_pylist():
            row = {aggregation.window.column: moment}
            _starts(row, aggregation)
            if moment is not None and aggregation.sessions is not None:
                moment + timedelta(milliseconds=aggregation.sessions.gap_ms)
    except (OverflowError, ValueError):
        return False
    return True


def held_counters(aggregation: Aggregation, deltas: Iterable[Delta]) -> Counter[str]:
    """The contents of counters after these changes: each row as a text, with its count."""
    groups = aggregation.group_columns() if aggregation.sessions is None else aggregation.by
    held: dict[str, list[Row]] = {}
    for delta in deltas:
        for row in delta.rows.to_pylist():
            held.setdefault(_text({name: row[name] for name in groups}), []).append(row)
    found: Counter[str] = Counter()
    for rows in held.values():
        for some in _overlapping(rows) if aggregation.sessions is not None else [rows]:
            found[_text(_merged_rows(some, aggregation))] += 1
    return found


def _text(row: Row) -> str:
    return json.dumps({name: row[name] for name in sorted(row)}, default=repr, ensure_ascii=False)


def _same_nan(values: list[Any]) -> list[Any]:
    return [_NAN if isinstance(one, float) and one != one else one for one in values]


# --- windows ----------------------------------------------------------------------------------------------------------


def _starts(row: Row, aggregation: Aggregation) -> list[tuple[datetime | None, ...]]:
    """The starts of the windows that a row is in; of sessions, nothing, as they are found later."""
    window = aggregation.window
    if not isinstance(window, Window):
        return [()]
    moment: datetime | None = row[window.column]
    if moment is None:
        return [(None,)]
    zone = ZoneInfo(window.zone) if window.zone is not None else UTC
    wall = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    return [(_instant(one, zone),) for one in _wall_starts(wall, window)]


def _wall_starts(wall: datetime, window: Window) -> list[datetime]:
    if window.months:
        month = (wall.month - 1) // window.months * window.months + 1
        return [datetime(wall.year, month, 1)]  # noqa: DTZ001
    since = _WALL + timedelta(days=-3 if window.zone is not None and window.step_ms % 604_800_000 == 0 else 0)
    start = wall - (wall - since) % (window.step_ms * _MS)
    found = []
    while start + window.width_ms * _MS > wall:
        found.append(start)
        start -= window.step_ms * _MS
    return found


def _instant(wall: datetime, zone: Any) -> datetime:
    """When the clock first shows this time; of a time that it leaves out, as much later as it leaves out."""
    return wall.replace(tzinfo=zone).astimezone(UTC)


def _sessions(rows: list[Row], aggregation: Aggregation) -> list[tuple[Row, list[Row]]]:
    if aggregation.sessions is None:
        return [({}, rows)]
    gap, column = timedelta(milliseconds=aggregation.sessions.gap_ms), aggregation.sessions.column
    found: list[list[Row]] = []
    for row in sorted((one for one in rows if one[column] is not None), key=lambda one: one[column]):
        if found and row[column] < found[-1][-1][column] + gap:
            found[-1].append(row)
        else:
            found.append([row])
    sessions = [({WINDOW_START: some[0][column], WINDOW_END: some[-1][column] + gap}, some) for some in found]
    timeless = [one for one in rows if one[column] is None]
    return [*sessions, *([({WINDOW_START: None, WINDOW_END: None}, timeless)] if timeless else [])]


def _overlapping(rows: list[Row]) -> list[list[Row]]:
    """Partial results of sessions, by the session that they are of in the end."""
    timed = sorted((one for one in rows if one[WINDOW_START] is not None), key=lambda one: one[WINDOW_START])
    found: list[list[Row]] = []
    for row in timed:
        if found and row[WINDOW_START] < max(one[WINDOW_END] for one in found[-1]):
            found[-1].append(row)
        else:
            found.append([row])
    timeless = [one for one in rows if one[WINDOW_START] is None]
    return [*found, *([timeless] if timeless else [])]


# --- measures ---------------------------------------------------------------------------------------------------------


def _partials(name: str, measure: Measure, rows: Sequence[Row]) -> Row:
    """The partial columns of a measure, of all rows of a group."""
    if measure.column is None:
        return {name: len(rows)}
    values = [row[measure.column] for row in rows if row[measure.column] is not None]
    if measure.order_by is not None:
        pairs = [(row[measure.order_by], row[measure.column]) for row in rows]
        return _ordered(name, measure, [pair for pair in pairs if None not in pair])
    if measure.kind == "avg":
        return {f"{name}__sum": sum(values) if values else None, f"{name}__count": len(values)}
    if measure.kind == "count_distinct":
        return {f"{name}__values": sorted(set(values))}
    if measure.kind == "approx_count_distinct":
        return {f"{name}__registers": _registers(map(_hash, values), measure.size)}
    if measure.kind == "quantile":
        return {f"{name}__buckets": _buckets(map(float, values), measure.size)}
    return {name: _reduced(measure.kind, values)}


def _merged_rows(rows: Sequence[Row], aggregation: Aggregation) -> Row:
    """Partial results of one group, merged."""
    found = {name: rows[0][name] for name in aggregation.group_columns()}
    if aggregation.sessions is not None and found[WINDOW_START] is not None:
        found[WINDOW_START] = min(row[WINDOW_START] for row in rows)
        found[WINDOW_END] = max(row[WINDOW_END] for row in rows)
    for name, measure in aggregation.measures.items():
        found |= _merged_measure(name, measure, rows)
    return found


def _merged_measure(name: str, measure: Measure, rows: Sequence[Row]) -> Row:
    if measure.kind == "top":
        items = [item for row in rows for item in row[f"{name}__top"] or ()]
        return _ordered(name, measure, [(item["order"], item["value"]) for item in items])
    if measure.order_by is not None:
        pairs = [(row[f"{name}__order"], row[name]) for row in rows]
        return _ordered(name, measure, [pair for pair in pairs if None not in pair])
    if measure.state is not None:
        states = [row[f"{name}__{measure.state}"] for row in rows]
        return {f"{name}__{measure.state}": _union(measure, [one for one in states if one])}
    found = {}
    for partial, how, _ in measure.partials(name):
        values = [row[partial] for row in rows if row[partial] is not None]
        found[partial] = _reduced("sum" if how == "count" else how, values)
    return found


def _reduced(how: str, values: Sequence[Any]) -> Any:
    """Null is ignored, and NaN is the largest number."""
    if how == "count":
        return len(values)
    if not values:
        return None
    if how == "sum":
        return sum(values[1:], values[0])
    return sorted(values, key=_with_nan_last)[0 if how == "min" else -1]


def _with_nan_last(value: Any) -> tuple[bool, Any]:
    is_nan = value != value
    return is_nan, value


def _ordered(name: str, measure: Measure, pairs: Sequence[tuple[Any, Any]]) -> Row:
    inorder = sorted(pairs, key=lambda pair: (_with_nan_last(pair[0]), _with_nan_last(pair[1])))
    if measure.kind == "top":
        return {
            f"{name}__top": [{"order": order, "value": value} for order, value in reversed(inorder[-measure.size :])]
        }
    order, value = (inorder[0 if measure.kind == "first" else -1]) if inorder else (None, None)
    return {name: value, f"{name}__order": order}


def _union(measure: Measure, states: Sequence[Any]) -> Any:
    if measure.state == "values":
        return sorted({value for state in states for value in state})
    if measure.state == "registers":
        items = [item for state in states for (item,) in struct.iter_unpack("<I", state)]
        return _packed_registers((item >> 6, item & 63) for item in items)
    counts: Counter[int] = Counter()
    for state in states:
        for bucket, count in struct.iter_unpack("<iq", state):
            counts[bucket] += count
    return _packed_buckets(counts)


def _registers(hashes: Iterable[int], bits: int) -> bytes:
    found = []
    for one in hashes:
        rest = one & ((1 << (64 - bits)) - 1)
        found.append((one >> (64 - bits), 64 - bits - rest.bit_length() + 1))
    return _packed_registers(found)


def _packed_registers(items: Iterable[tuple[int, int]]) -> bytes:
    ranks: dict[int, int] = {}
    for number, rank in items:
        ranks[number] = max(rank, ranks.get(number, 0))
    return b"".join(struct.pack("<I", number << 6 | ranks[number]) for number in sorted(ranks))


def _buckets(numbers: Iterable[float], bits: int) -> bytes:
    return _packed_buckets(Counter(_bucket(one, bits) for one in numbers if not math.isnan(one)))


def _packed_buckets(counts: Counter[int]) -> bytes:
    return b"".join(struct.pack("<iq", bucket, counts[bucket]) for bucket in sorted(counts))


def _bucket(number: float, bits: int) -> int:
    size = abs(number)
    if size == 0:
        return 0
    exponent = 1024 if math.isinf(size) else math.frexp(size)[1] - 1
    part = 0 if math.isinf(size) else int((math.ldexp(size, -exponent) - 1) * (1 << bits))
    found = ((exponent + 1075) << bits) + part + 1
    return found if number > 0 else -found


def _hash(value: Any) -> int:
    """Spark's xxhash64 of a value; of smaller integers and dates, as of a BIGINT."""
    if isinstance(value, str | bytes):
        return _xxhash64(value.encode() if isinstance(value, str) else value)
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        return _xxhash64(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True))
    if isinstance(value, datetime):
        value = ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(value, date):
        value = value.toordinal() - _EPOCH.toordinal()
    return _xxhash64(struct.pack("<q", value))


def _xxhash64(data: bytes, seed: int = 42) -> int:
    one, two, three, four, five = _PRIMES
    at, found = 0, seed + five
    if len(data) >= 32:
        lanes = [seed + one + two, seed + two, seed, seed - one]
        while at + 32 <= len(data):
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_turned(lane + word * two, 31) * one for lane, word in zip(lanes, words, strict=True)]
            at += 32
        found = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            found = (found ^ (_turned(lane * two, 31) * one & _WORD)) & _WORD
            found = found * one + four
    found += len(data)
    while at + 8 <= len(data):
        (word,) = struct.unpack_from("<Q", data, at)
        found = _turned((found ^ (_turned(word * two, 31) * one)) & _WORD, 27) * one + four
        at += 8
    if at + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, at)
        found = _turned((found ^ (word * one)) & _WORD, 23) * two + three
        at += 4
    for byte in data[at:]:
        found = _turned((found ^ (byte * five)) & _WORD, 11) * one
    found &= _WORD
    found = ((found ^ (found >> 33)) * two) & _WORD
    found = ((found ^ (found >> 29)) * three) & _WORD
    return found ^ (found >> 32)


def _turned(word: int, by: int) -> int:
    word &= _WORD
    return ((word << by) | (word >> (64 - by))) & _WORD
