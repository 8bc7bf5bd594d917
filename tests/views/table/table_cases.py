"""Cases of the views' contract for tables alone: records of several rows, and keys without a record key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from foldlog.views.contract import Delta, Shape
from views.view_contract import COLUMNS, Event, ViewCase, delta_of


class ExplodedCase(ViewCase):
    """Each record gives as many rows as its amount modulo four: none, too, whose record then replaces nothing."""

    shape = Shape(pa.schema([*COLUMNS, ("line", pa.int32())]), record_key="tx_id", key=("tx_id", "line"))
    grows = False

    def delta(self, events: Sequence[Event], start: int, stop: int) -> Delta:
        rows: list[dict[str, object]] = []
        for event in events:
            if start <= event.offset < stop:
                meta = {"tx_id": event.tx_id, "_offset": event.offset}
                if event.amount is None:
                    rows.append({**meta, "_deleted": True})
                else:
                    lines = range(event.amount % 4)
                    rows += [{**meta, "merchant": event.merchant, "amount": event.amount, "line": n} for n in lines]
        return delta_of(rows, self.shape.columns, start, stop)

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        # A record of no rows is not seen by the view: as if the fold had filtered it out.
        seen = [event for event in events if event.offset < stop and (event.amount is None or event.amount % 4)]
        newest = {event.tx_id: event for event in seen}
        return [
            {"tx_id": event.tx_id, "merchant": event.merchant, "amount": event.amount, "line": line}
            for event in newest.values()
            if event.amount is not None
            for line in range(event.amount % 4)
        ]


class ValueKeyCase(ViewCase):
    """The topic names no key column; the table's key is two columns of the value. Tombstones are filtered out."""

    shape = Shape(COLUMNS, record_key=None, key=("merchant", "tx_id"))
    grows = False

    def delta(self, events: Sequence[Event], start: int, stop: int) -> Delta:
        return super().delta(_with_merchant(events), start, stop)

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        newest = {(event.merchant, event.tx_id): event for event in _with_merchant(events) if event.offset < stop}
        return [{"tx_id": event.tx_id, "merchant": event.merchant, "amount": event.amount} for event in newest.values()]


class RowKeyCase(ViewCase):
    """Rows have a key of their own, and belong to one of three record keys; negative amounts delete a row, and
    tombstones withdraw all rows of a record key.
    """

    shape = Shape(pa.schema([*COLUMNS, ("owner", pa.string())]), record_key="owner", key=("tx_id",), keeps_rows=True)
    grows = False

    def delta(self, events: Sequence[Event], start: int, stop: int) -> Delta:
        rows: list[dict[str, object]] = []
        for event in events:
            if start <= event.offset < stop:
                meta = {"owner": _owner(event), "_offset": event.offset}
                if event.amount is None:
                    rows.append({**meta, "_deleted": True})
                else:
                    own = {"tx_id": event.tx_id, "merchant": event.merchant, "amount": event.amount}
                    rows.append({**meta, **own, "_deleted": event.amount < 0})
        return delta_of(rows, self.shape.columns, start, stop)

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        held: dict[str, dict[str, object]] = {}
        for event in events:
            if event.offset >= stop:
                continue
            if event.amount is None:
                held = {key: row for key, row in held.items() if row["owner"] != _owner(event)}
            elif event.amount < 0:
                held.pop(event.tx_id, None)
            else:
                values = {"merchant": event.merchant, "amount": event.amount, "owner": _owner(event)}
                held[event.tx_id] = {"tx_id": event.tx_id, **values}
        return list(held.values())


class ExpiringCase(ViewCase):
    """An event's amount is its time, in seconds; rows stay for 300 seconds of that time. Every fifth event is dated far
    ahead of its record, which is of the 100th second: it counts as one of that second.
    """

    shape = Shape(pa.schema([*COLUMNS, ("at", pa.timestamp("us", "UTC"))]), record_key="tx_id", key=("tx_id",))
    grows = False

    def delta(self, events: Sequence[Event], start: int, stop: int) -> Delta:
        rows: list[dict[str, object]] = [
            {
                "tx_id": event.tx_id,
                "merchant": event.merchant,
                "amount": event.amount,
                "at": None if event.amount is None else _seconds(event) * 1_000_000,
                "_offset": event.offset,
                "_timestamp": 100_000_000 if event.offset % 5 == 0 else 86_400_000_000,
                "_deleted": event.is_deleted,
            }
            for event in events
            if start <= event.offset < stop
        ]
        return delta_of(rows, self.shape.columns, start, stop)

    def content(self, events: Sequence[Event], stop: int) -> list[dict[str, object]]:
        seen = [event for event in events if event.offset < stop]
        told = [100 if one.offset % 5 == 0 else _seconds(one) for one in seen if one.amount is not None]
        newest = {event.tx_id: event for event in seen}
        return [
            {
                "tx_id": one.tx_id,
                "merchant": one.merchant,
                "amount": one.amount,
                "at": EPOCH + timedelta(seconds=_seconds(one)),
            }
            for one in newest.values()
            if one.amount is not None and _seconds(one) >= max(told) - 300
        ]


def _seconds(event: Event) -> int:
    return (event.amount or 0) + (5000 if event.offset % 5 == 0 else 0)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _owner(event: Event) -> str:
    return f"customer {int(event.tx_id.removeprefix('tx-')) % 3}"


def _with_merchant(events: Sequence[Event]) -> list[Event]:
    return [event._replace(merchant=event.merchant or "nobody") for event in events if not event.is_deleted]
