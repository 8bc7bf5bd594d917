"""The fault classes, in the order in which they run and stand on the page."""

from __future__ import annotations

from scorecard.classes import access, disk, flips, folds, fuzz, hostile, kills, power, simulated, transactions
from scorecard.outcome import FaultClass

CLASSES: tuple[FaultClass, ...] = (
    power.CLASS,
    kills.CLASS,
    transactions.CLASS,
    disk.CLASS,
    flips.CLASS,
    fuzz.DECODERS,
    fuzz.SANITIZED,
    fuzz.GUIDED,
    hostile.CLASS,
    simulated.CLASS,
    folds.CLASS,
    access.CLASS,
)
