"""Transactions: what they cost at several sizes, beside plain produce, and how what they wrote is read."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.kafka.effort import Effort
from bench.kafka.recorder import Figures, Recorder, watched
from bench.kafka.results import Case
from bench.kafka.sides import FOLDLOG, KAFKA, Side, both
from bench.transactions import SIZES, measured


def run(recorder: Recorder, directory: Path) -> None:
    counts = _counts(recorder.effort)
    with both(directory) as sides:
        for name in (KAFKA, FOLDLOG):  # Kafka makes its topic of transactions, and its compiler has seen the work
            measured(sides[name].bootstrap, 1, {SIZES[0]: counts[SIZES[0]]})
        for size in SIZES:
            case: Case = {"records": size}
            runs = {name: partial(_measure, recorder, sides[name], size, counts[size]) for name in (KAFKA, FOLDLOG)}
            recorder.in_turns(case, runs)


def _counts(effort: Effort) -> dict[int, int]:
    every = (effort.small_transactions, effort.medium_transactions, effort.large_transactions)
    return dict(zip(SIZES, every, strict=True))


def _measure(recorder: Recorder, side: Side, size: int, count: int) -> Figures:
    recorder.settle()

    def work() -> Figures:
        found = {name: values[0] for name, values in measured(side.bootstrap, 1, {size: count}).items()}
        speed = found[f"transactions of {size}"]
        figures = {
            "records_per_s": speed,
            "transaction_s": size / speed,
            "plain_per_s": found[f"plain, {size}"],
            "beside_plain": speed / found[f"plain, {size}"],
        }
        if "committed" in found:
            figures |= {
                "committed_per_s": found["committed"],
                "uncommitted_per_s": found["uncommitted"],
                "committed_beside_all": found["committed"] / found["uncommitted"],
            }
        return figures

    return watched(side.pid, work)
