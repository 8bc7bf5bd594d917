"""Every I/O call of a workload fails: with EIO, with ENOSPC, short; once, or from then on.

In memory every operation in turn, and every kind of failure of it. On the real file system, writes and reads that the
kernel takes in part: each such call gets a part of what it asked for, chosen by the seed, and the rest has to follow.
"""

from __future__ import annotations

import errno
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import foldlog
from faults import test_planted_bugs as planted
from faults.test_failing_disk import COMPACTED, PLAIN, Driver, faults_of, operations_of
from foldlog.errors import FoldlogError
from foldlog.log.config import LogConfig
from foldlog.log.durability import Durability
from foldlog.testing.faulty_files import NEEDS_SPACE, Fault, Operation
from scorecard.outcome import FaultClass, Outcome, Plant, passes, shuffled, until

WORKLOADS = [("plain", PLAIN, False), ("compacted", COMPACTED, False)]
WORKLOADS += [("plain, journaled", PLAIN, True), ("compacted, journaled", COMPACTED, True)]


class Down(Exception):
    """The disk keeps failing, and the log cannot be opened: its process would have ended."""


class OnAFailingDisk(Driver):
    """The disk does not work again by itself: an open that fails twice ends the run."""

    def reopen(self, *, cleanly: bool) -> None:
        try:
            super().reopen(cleanly=cleanly)
        except FoldlogError as error:
            raise Down from error


def sticky_faults(operation: Operation) -> Iterator[tuple[str, Fault]]:
    number = operation.number
    yield "EIO, sticky", Fault(lambda one: errno.EIO if one.number >= number else 0)
    if operation.kind in NEEDS_SPACE:
        yield "ENOSPC, sticky", Fault.full_from(number)
        yield "ENOSPC after a part, sticky", Fault.full_from(number, part=0.5)


def faults(operation: Operation) -> Iterator[tuple[str, Fault]]:
    for fault in faults_of(operation):
        name = errno.errorcode[fault.decide(operation)]
        yield f"{name}{' after a part' if fault.part else ''}, once", fault
    yield from sticky_faults(operation)


def fail(config: LogConfig, journaled: bool, seed: int, fault: Fault) -> None:
    """One run with one fault. Raises if a promise is broken."""
    driver = OnAFailingDisk(config, seed, journaled=journaled)
    driver.files.operations.clear()
    driver.files.fault = fault
    try:
        driver.run()
    except Down:
        pass
    assert driver.files.failed, "the fault never came: the run is not the one that was counted"
    driver.finish()


def run(seed: int, seconds: float) -> Outcome:
    outcome = Outcome()
    cases = [
        (name, config, journaled, operation)
        for name, config, journaled in WORKLOADS
        for operation in operations_of(config, journaled=journaled)
    ]
    cases = shuffled(cases, seed)
    for number in until(seconds):
        short_calls(seed * 1000 + number, outcome)
        for name, config, journaled, operation in cases[number * 20 % len(cases) :][:20]:
            for way, fault in faults(operation):
                outcome.done[f"failed calls/{way}"] += 1
                try:
                    fail(config, journaled, 5, fault)
                except Exception as error:  # noqa: BLE001 - any exception is a finding
                    where = f"{name}: {operation.kind.value} {operation.path}, operation {operation.number}, {way}"
                    outcome.found("promise broken", f"{where}: {type(error).__name__}: {error}", where)
    return outcome


# --- short calls of the real kernel -----------------------------------------------------------------------------------


def shortened(call: Callable[..., int], rng: random.Random, counts: list[int]) -> Callable[..., int]:
    """`os.pwritev` or `os.preadv` that takes a part of what it is given, often."""

    def part(descriptor: int, buffers: Any, *where: int) -> int:
        total = sum(map(len, buffers))
        if total < 2 or rng.random() < 0.5:
            return call(descriptor, buffers, *where)
        counts[0] += 1
        left, wanted = rng.randrange(1, total), []
        for buffer in buffers:
            wanted.append(memoryview(buffer)[:left])
            left -= len(wanted[-1])
            if left <= 0:
                break
        return call(descriptor, wanted, *where)

    return part


def short_calls(seed: int, outcome: Outcome) -> None:
    rng, counts = random.Random(seed), [0]
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as directory:
        patched.setattr(os, "pwritev", shortened(os.pwritev, rng, counts))
        patched.setattr(os, "preadv", shortened(os.preadv, rng, counts))
        sent = [b"%d " % number + rng.randbytes(rng.choice((5, 200, 5000))) for number in range(60)]
        with foldlog.open(directory, background=False) as log:
            log.create_topic("events", config={"segment.bytes": 20_000})
            with log.producer(linger_ms=0) as producer:
                for value in sent:
                    producer.send("events", value=value)
        with foldlog.open(directory, background=False) as log:
            found = [record.value for record in log.read("events", 0)]
    outcome.done["short calls/writes and reads in part"] += counts[0]
    if found != sent:
        outcome.found("promise broken", "records written by short calls are not what is read", f"seed {seed}")


def serving_after_a_failed_sync_is_found() -> bool:
    """A log that takes a failed sync for one that went well."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Durability, "poison_with", lambda self, error: None)
        outcome = run(1, 3.0)
    return any(finding.kind == "promise broken" for finding in outcome.findings)


def leaving_out_the_rest_is_found() -> bool:
    """Whoever takes the count of a short write for the whole of it."""
    with pytest.MonkeyPatch.context() as patched:
        whole = os.pwritev

        def half(descriptor: int, buffers: Any, *where: int) -> int:
            parts = [memoryview(buffer)[: max(1, len(buffer) // 2)] for buffer in buffers]
            whole(descriptor, parts, *where)
            return sum(map(len, buffers))

        patched.setattr(os, "pwritev", half)
        outcome = Outcome()
        try:
            short_calls(1, outcome)
        except FoldlogError:
            return True
        return bool(outcome.findings)


CLASS = FaultClass(
    name="disk",
    title="Failing disks",
    what="""Each file operation of a workload (append, roll, delete, compact, reopen; with a journal and without) fails
in its turn: with EIO or ENOSPC, before or after a part was written, once or from then on. The caller gets an error of
ours, the rest goes on, and once the disk works again, and after a power cut on top, everything acknowledged is there.
On the real file system, writes and reads return with a part of what was asked for.""",
    finds=("promise broken",),
    share=0.08,
    run=run,
    plants=(
        Plant("tries a failed sync again", passes(planted.test_trying_a_failed_sync_again_is_found)),
        Plant("goes on after a failed sync", serving_after_a_failed_sync_is_found),
        Plant("takes a short write for a whole one", leaving_out_the_rest_is_found),
    ),
)
