"""Two logs, and what their join has to be, in plain Python: nested loops over what was read, and nothing remembered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Delta, Shape, View
from foldlog.views.join.side import JoinSide
from foldlog.views.join.spec import JoinSpec

ORDERS = pa.schema(
    [("order_id", pa.string()), ("customer", pa.string()), ("at", pa.timestamp("us", "UTC")), ("amount", pa.int64())]
)
CUSTOMERS = pa.schema(
    [("id", pa.string()), ("customer", pa.string()), ("since", pa.timestamp("us", "UTC")), ("name", pa.string())]
)
COLUMNS = (ORDERS, CUSTOMERS)
MINUTE_US = 60_000_000

INNER = JoinSpec("inner", (("customer", "customer"),))
LEFT = JoinSpec("left", (("customer", "customer"),))
ASOF = JoinSpec("asof", (("customer", "customer"),), ("at", "since"))
ASOF_WITHIN = JoinSpec("asof", (("customer", "customer"),), ("at", "since"), "3 minutes")
SPECS = (INNER, LEFT, ASOF, ASOF_WITHIN)


class Event(NamedTuple):
    """A record of either topic. Without a value it is a tombstone."""

    partition: int
    offset: int
    key: str
    customer: str | None
    minute: int | None
    value: int | None

    def row(self, side: int) -> dict[str, object]:
        """As its fold gives it: the columns of its side, and META."""
        names = COLUMNS[side].names
        values: list[object] = [self.key, None, None, None]
        if self.value is not None:
            time = None if self.minute is None else self.minute * MINUTE_US
            values = [self.key, self.customer, time, self.value if side == 0 else f"name {self.value}"]
        meta = {"_topic": "t", "_partition": self.partition, "_offset": self.offset, "_timestamp": 0}
        return {**dict(zip(names, values, strict=True)), **meta, "_deleted": self.value is None}


class Read(NamedTuple):
    """What was read of both topics, in the order of reading."""

    events: tuple[list[Event], list[Event]]
    are_keyed: tuple[bool, bool]

    def kept(self, side: int) -> dict[str, Event]:
        """By the record's name: the last of each key, unless that is a tombstone; or every record with a value."""
        found: dict[str, Event] = {}
        for event in self.events[side]:
            name = named(event.key) if self.are_keyed[side] else f"{event.partition}@{event.offset}"
            if event.value is not None:
                found[name] = event
            elif self.are_keyed[side]:
                found.pop(name, None)
        return found


def named(key: str) -> str:
    """A record of this key: never the empty text, and never one that begins like a digest."""
    return "\\" + key if key == "" or key[0] in "#\\" else key


def joined(read: Read, spec: JoinSpec) -> list[tuple[object, ...]]:
    """The rows: order_id, customer, at, amount, id, since, name, _left, _right."""
    lefts, rights = read.kept(0), read.kept(1)
    found: list[tuple[object, ...]] = []
    for left_name, left in lefts.items():
        partners = [
            (name, right)
            for name, right in rights.items()
            if left.customer is not None and right.customer == left.customer
        ]
        if spec.how == "asof":
            partners = _newest_before(left, partners, 3 if spec.tolerance else None)
        mine = (left.key, left.customer, left.minute, left.value)
        found += [(*mine, right.key, right.minute, f"name {right.value}", left_name, name) for name, right in partners]
        if not partners and spec.how != "inner":
            found.append((*mine, None, None, None, left_name, ""))
    return sorted(found, key=repr)


def _newest_before(left: Event, partners: list[tuple[str, Event]], within: int | None) -> list[tuple[str, Event]]:
    best: tuple[str, Event] | None = None
    for name, right in partners:
        if left.minute is None or right.minute is None or right.minute > left.minute:
            continue
        if within is not None and left.minute - right.minute > within:
            continue
        if best is None or (right.minute, right.partition, right.offset) > (
            best[1].minute,
            best[1].partition,
            best[1].offset,
        ):
            best = (name, right)
    return [] if best is None else [best]


def content(view: View) -> list[tuple[object, ...]]:
    """What the joined table holds, in the form of `joined`."""
    return rows_of(view.scan().batches)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[tuple[object, ...]]:
    """Rows of the joined table in the form of `joined`."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    names = ("order_id", "customer", "at", "amount", "id", "since", "name", "_left", "_right")
    return sorted((tuple(_minute(row[name]) for name in names) for row in rows), key=repr)


def _minute(value: object) -> object:
    return int(value.timestamp()) // 60 if hasattr(value, "timestamp") else value


def topic_of(side: int) -> str:
    return ("orders", "customers")[side]


def start(side: int, epoch: int = 0) -> Bookmark:
    return Bookmark(topic_of(side), f"id-{side}", {0: Position(0), 1: Position(0)}, {0: 0, 1: 0}, epoch=epoch)


def shape_of(side: int, are_keyed: Sequence[bool]) -> Shape:
    key = COLUMNS[side].names[0] if are_keyed[side] else None
    return Shape(COLUMNS[side], key, (key,) if key else ())


def delta_of(events: Sequence[Event], side: int) -> Delta:
    meta = [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_deleted", pa.bool_()),
    ]
    rows = [event.row(side) for event in sorted(events)]
    spans: dict[int, tuple[int, int]] = {}
    for event in events:
        low, high = spans.get(event.partition, (event.offset, event.offset + 1))
        spans[event.partition] = (min(low, event.offset), max(high, event.offset + 1))
    return Delta(pa.Table.from_pylist(rows, schema=pa.schema([*COLUMNS[side], *meta])), spans)


def after(bookmark: Bookmark, events: Sequence[Event]) -> Bookmark:
    stops: dict[int, int] = {}
    for event in events:
        stops[event.partition] = max(stops.get(event.partition, 0), event.offset + 1)
    return bookmark.advanced({number: Position(stop) for number, stop in stops.items()})


def pieces(log: Sequence[Event], at: Bookmark, size: int) -> list[Event]:
    """The next events of each partition, `size` of them in all at most."""
    left = [event for event in log if event.offset >= (at.offset(event.partition) or 0)]
    return sorted(left, key=lambda event: (event.offset, event.partition))[:size]


def event_at(side: int, offset: int) -> Event:
    """A log without an end: one record in seven is a tombstone."""
    key, minute = f"{'oc'[side]}{offset * 31 % 17}", offset * 13 % 29
    value = None if offset % 7 == 6 else offset
    return Event(0, offset, key, "xyz"[offset * 5 % 3], minute, value)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Event], list[Event]]:
    """Few keys and customers, so that everything meets; a key stays in its partition."""
    found: list[list[Event]] = []
    for _ in (0, 1):
        ends = [0, 0]
        log: list[Event] = []
        for _ in range(draw(st.integers(0, 9))):
            key = draw(st.sampled_from(["", "#1", "a", "b", "\\c"]))
            partition = sum(key.encode()) % 2
            value = draw(st.one_of(st.none(), st.integers(0, 99), st.integers(0, 99)))
            customer = draw(st.sampled_from(["x", "y", None]))
            minute = draw(st.one_of(st.none(), st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)))
            log.append(Event(partition, ends[partition], key, customer, minute, value))
            ends[partition] += 1
        found.append(log)
    return found[0], found[1]


def opened(pair: tuple[View, View], spec: JoinSpec) -> tuple[JoinSide, JoinSide]:
    """Sides that know what they join, as after the fold's function was called."""
    left, right = pair
    assert isinstance(left, JoinSide)
    assert isinstance(right, JoinSide)
    left.declared.declare(spec, "enriched")
    return left, right
