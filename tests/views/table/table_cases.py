"""Cases of the views' contract for tables alone: records of several rows, and keys without a record key."""

from __future__ import annotations

from collections.abc import Sequence

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


def _with_merchant(events: Sequence[Event]) -> list[Event]:
    return [event._replace(merchant=event.merchant or "nobody") for event in events if not event.is_deleted]
