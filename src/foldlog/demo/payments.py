"""Generates the shop's payments: what a payment service would append to its log.

Most are new payments; some correct an earlier one (the same key again), some are refunds (a tombstone: the key without
a value), and a few are poison: bytes that are no payment, as in every real stream. Some arrive late, with a time of
minutes ago. Each record carries its number in a header, so that every single one can be counted.
"""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

TOPIC: Final = "payments"
PARTITIONS: Final = 3
SCHEMA: Final = "merchant STRING, amount_paise BIGINT, note STRING, at TIMESTAMP"
NUMBER: Final = "n"
"""The header that numbers the records."""

_MERCHANTS: Final = {
    "chai-point": (90_00, 6),
    "book-nook": (650_00, 3),
    "city-metro": (40_00, 8),
    "kirana-store": (420_00, 5),
    "spice-route": (780_00, 3),
    "cycle-works": (5_400_00, 1),
    "cinema-lux": (320_00, 2),
}
"""The usual amount there, in paise, and the relative frequency."""
_THINGS: Final = ("order", "table", "ticket", "parcel", "monthly pass", "gift", "repair", "refill")
_REMARKS: Final = ("paid at the counter", "with a coupon", "by subscription", "in two parts", "for a friend", "online")
_POISON: Final = (b'{"merchant": "chai-point", "amount_pai', b"<payment>90.00</payment>", b'{"amount_paise": "ninety"}')
_REMEMBERED: Final = 5000
_LATE_MAX_MS: Final = 4 * 60_000

PAYMENT: Final = "payments"
CORRECTION: Final = "corrections"
REFUND: Final = "refunds"
POISON: Final = "poison"
_WEIGHTS: Final = {PAYMENT: 920, CORRECTION: 40, REFUND: 36, POISON: 4}


@dataclass(frozen=True, slots=True)
class Event:
    """One record to append. `value` is None for a refund."""

    number: int
    kind: str
    key: bytes
    value: bytes | None
    timestamp_ms: int

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [(NUMBER, b"%d" % self.number)]


class PaymentStream:
    """An endless stream of events; the same for the same seed and the same times. For one thread."""

    def __init__(self, seed: int = 5) -> None:
        self.made: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._number = 0
        self._recent: deque[str] = deque(maxlen=_REMEMBERED)

    def next(self, now_ms: int) -> Event:
        """The next event."""
        chance = self._random
        (kind,) = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        if kind in (CORRECTION, REFUND) and not self._recent:
            kind = PAYMENT
        number, self._number = self._number, self._number + 1
        self.made[kind] += 1
        tx_id = chance.choice(self._recent) if kind in (CORRECTION, REFUND) else f"tx_{number:07d}"
        if kind == PAYMENT:
            self._recent.append(tx_id)
        if kind == REFUND:
            return Event(number, kind, tx_id.encode(), None, now_ms)
        if kind == POISON:
            return Event(number, kind, tx_id.encode(), chance.choice(_POISON), now_ms)
        return Event(number, kind, tx_id.encode(), self._payment(tx_id, now_ms), now_ms)

    def _payment(self, tx_id: str, now_ms: int) -> bytes:
        chance = self._random
        (merchant,) = chance.choices(list(_MERCHANTS), [often for _, often in _MERCHANTS.values()])
        usual_paise, _ = _MERCHANTS[merchant]
        is_late = chance.random() < 0.1
        at_ms = now_ms - (chance.randrange(_LATE_MAX_MS) if is_late else 0)
        payment = {
            "tx_id": tx_id,
            "merchant": merchant,
            "amount_paise": max(1_00, round(usual_paise * chance.lognormvariate(0, 0.5))),
            "note": f"{chance.choice(_THINGS)} {chance.randrange(1, 1000)}, {chance.choice(_REMARKS)}",
            "at": datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        }
        return json.dumps(payment).encode()
