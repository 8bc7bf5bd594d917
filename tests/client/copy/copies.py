"""What the tests of copies share: one whole copy, what a partition holds, and a copy that stops in the middle.

Run as a program, it is a copy to be killed: it says a line after so many batches, and then waits for its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import foldlog
from foldlog.client.copy import cluster as copying_cluster
from foldlog.client.copy import directory as copying_directory
from foldlog.client.copy.check import CopyVerdict
from foldlog.client.copy.copying import Copying, Pair
from foldlog.client.copy.groups import GroupMove
from foldlog.client.copy.targets import Copied, OnProgress, Route

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

_TESTS = Path(__file__).resolve().parents[2]

SYNC_BYTES = 300
"""For copies that are to note their progress after every few batches."""


OFTEN = (
    (copying_cluster, "COPY_SYNC_BYTES"),
    (copying_directory, "COPY_SYNC_BYTES"),
    (copying_directory, "COPY_WRITE_BYTES"),
)


class Stopped(Exception):
    """The copy was to end here."""


@dataclass
class Outcome:
    """Everything that a copy did."""

    copied: dict[Route, Copied]
    verdicts: dict[Route, CopyVerdict]
    groups: list[GroupMove]

    @property
    def records(self) -> int:
        return sum(one.records for one in self.copied.values())


def ignored(offsets: int, size_bytes: int) -> None:
    """For whoever does not ask how far it is."""


def copy(source: foldlog.Log, target: foldlog.Log, *topics: str, on_progress: OnProgress = ignored) -> Outcome:
    """Copy, check, move groups. Every verdict has to be the same."""
    pairs = [Pair(name.partition("=")[0], name.partition("=")[2] or name) for name in topics]
    with Copying(source, target, pairs) as copying:
        copying.plan()
        copying.prepare()
        copied = copying.copy_all(on_progress)
        verdicts = copying.check_all(copied, ignored)
        groups = copying.move_groups({route: one.offsets for route, one in copied.items()})
    assert [verdict.difference for verdict in verdicts.values() if not verdict.is_same] == []
    return Outcome(copied, verdicts, groups)


def stopping_after(batches: int) -> Callable[[int, int], None]:
    """Stops a copy once it has dealt with so many batches."""
    left = batches

    def on_progress(offsets: int, size_bytes: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Stopped

    return on_progress


def contents(log: foldlog.Log, topic: str, partition: int = 0) -> dict[int, Content]:
    """By offset: everything that a copy keeps of a record."""
    return {
        record.offset: (record.timestamp_ms, record.key, record.value, record.headers)
        for record in log.read(topic, partition)
    }


def note_often() -> None:
    for module, name in OFTEN:
        setattr(module, name, SYNC_BYTES)


def kill_after(source: str, target: str, topic: str, batches: int) -> None:
    """A copy in a process of its own, that is killed (-9) when it has dealt with so many batches."""
    search = os.pathsep.join([str(_TESTS), str(_TESTS.parent / "src")])
    with subprocess.Popen(
        [sys.executable, __file__, source, target, topic, str(batches)],
        env={**os.environ, "PYTHONPATH": search},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"so far\n"
        process.kill()


def _opened(place: str, mode: str) -> foldlog.Log:
    return foldlog.connect(place) if place.startswith("kafka://") else foldlog.open(place, mode=mode)


def _main(source_place: str, target_place: str, topic: str, batches: int) -> None:
    """Deal with so many batches, say so, and wait."""

    def wait_for_the_end(offsets: int, size_bytes: int) -> None:
        nonlocal batches
        batches -= 1
        if batches == 0:
            print("so far", flush=True)
            sys.stdin.read()

    note_often()
    with _opened(source_place, "r") as source, _opened(target_place, "w") as target:
        copy(source, target, topic, on_progress=wait_for_the_end)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
