"""Histories of transactions and of appends under kill -9, judged by rules that know nothing of the log."""

from __future__ import annotations

import random
import signal
import tempfile
import time
from pathlib import Path

from faults.served import ServedDirectory
from faults.test_planted_transactions import LOST_MARKERS, STABLE_TOO_HIGH
from scorecard.histories import clients
from scorecard.histories.linear import broken_order
from scorecard.histories.rules import judge
from scorecard.outcome import FaultClass, Outcome, Plant

CLIENTS, READERS, APPENDERS = 3, 2, 2
ARGUMENTS = ("--create", f"{clients.LISTS}:{clients.PARTITIONS}", "--create", f"{clients.PLAIN}:1")
NOT_LINEARIZABLE = "not linearizable"
NOT_FINISHED = "not finished"


def history_with_kills(seed: int, seconds: float, outcome: Outcome, planted: str = "", kills: bool = True) -> None:
    rng = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedDirectory(Path(directory), *ARGUMENTS, planted=planted, journaled=seed % 2 == 0) as served,
    ):
        recorder = clients.Recorder(served.bootstrap)
        for number in range(CLIENTS):
            recorder.start(clients.writes_transactions, f"t{number}", seed * 100 + number)
        for number in range(READERS):
            recorder.start(clients.reads, f"r{number}", seed * 100 + number)
        for number in range(APPENDERS):
            recorder.start(clients.appends, f"a{number}")
        recorder.start(clients.looks)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not recorder.problems:
            ended = recorder.ended + rng.choice((1, 3, 10, 30))
            patience = time.monotonic() + 20
            while recorder.ended < ended and time.monotonic() < min(end, patience):
                time.sleep(0.01)
            if kills:
                served.end(signal.SIGKILL)
                served.start()
                outcome.done["kills/of the broker"] += 1
        recorder.stop()
        for number in range(CLIENTS):
            # What is still open is ended by the next producer of its id.
            clients.transactional_producer(served.bootstrap, f"t{number}")
        recorder.history.final = clients.final_read(served.bootstrap)
    count(recorder, outcome)
    where = f"seed {seed}"
    for problem in recorder.problems:
        outcome.found(NOT_FINISHED, problem, where)
    for anomaly in judge(recorder.history):
        outcome.found(anomaly.kind, anomaly.what, where)
    for what in broken_order(recorder.calls):
        outcome.found(NOT_LINEARIZABLE, what, where)


def count(recorder: clients.Recorder, outcome: Outcome) -> None:
    for one in recorder.history.transactions:
        outcome.done[f"transactions/{one.outcome}"] += 1
    outcome.done["reads/records given to readers"] += sum(len(poll.records) for poll in recorder.history.polls)
    outcome.done["reads/records in final reads"] += sum(map(len, recorder.history.final.values()))
    for call in recorder.calls:
        outcome.done[f"calls in real time/{call.what}s"] += 1


def run(seed: int, seconds: float) -> Outcome:
    outcome = Outcome()
    pieces = max(1, round(seconds / 60))
    for number in range(pieces):
        history_with_kills(seed * 100 + number, seconds / pieces, outcome)
    return outcome


def found_in(planted: str, *kinds: str) -> bool:
    outcome = Outcome()
    history_with_kills(1, 8.0, outcome, planted, kills=False)
    return any(finding.kind in kinds for finding in outcome.findings)


TELLS_AN_OLDER_END = """
from foldlog.server.handlers import list_offsets
sound = list_offsets._Found
def older(offset=-1, *rest, **more):
    return sound(offset - 3 if offset > 3 else offset, *rest, **more)
list_offsets._Found = older
"""

CLASS = FaultClass(
    name="transactions",
    title="Histories of transactions",
    what="""Transactional clients read, write to several partitions, commit and abort; others read committed records,
append one by one and look at the end of a partition; the broker is killed with SIGKILL all the while. Everything they
asked and were told is a history, judged by rules of others, written anew from their descriptions: Adya's G1a, G1b and
G1c as [Elle](https://github.com/jepsen-io/elle) looks for them, the anomalies of Jepsen's Kafka workload, and
linearizability of appends and looks. The judge shares no code with the log.""",
    finds=(
        "lost write", "aborted read", "dirty read", "fractured", "cycle", "duplicate", "inconsistent", "reordered",
        "skipped", "went back", "invented", NOT_LINEARIZABLE, NOT_FINISHED,
    ),
    share=0.08,
    run=run,
    plants=(
        Plant(
            "a last stable offset that is too high",
            lambda: found_in(STABLE_TOO_HIGH, "dirty read", "aborted read"),
        ),
        Plant("an end of a partition that is told too low", lambda: found_in(TELLS_AN_OLDER_END, NOT_LINEARIZABLE)),
        Plant(
            "abort markers that are lost in one topic",
            lambda: found_in(
                LOST_MARKERS.format(lost=False).replace('"target"', f'"{clients.LISTS}"'),
                "lost write", "aborted read", NOT_FINISHED,
            ),
        ),
    ),
)  # fmt: skip
