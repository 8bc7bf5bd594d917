"""The descendants of a process, and how to end all of them: by process id and start time, never by name.

Spark's JVM puts itself into its own session, so a process group is not enough to find it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

END_WITHIN_S: Final = 10.0
ASKED_WITHIN_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.02


class Process(NamedTuple):
    """A process; `started` distinguishes it from a later one with the same id."""

    pid: int
    started: str


class _Seen(NamedTuple):
    """A process with its parent. A dead one is listed until its parent has waited for it."""

    process: Process
    parent: int
    is_dead: bool


def family_of(pid: int) -> list[Process]:
    """The process and all its descendants, as of now; empty if it is gone."""
    everybody = _everybody()
    below: dict[int, list[_Seen]] = defaultdict(list)
    for one in everybody.values():
        below[one.parent].append(one)
    found: list[Process] = []
    waiting = [everybody[pid]] if pid in everybody else []
    while waiting:
        one = waiting.pop()
        found.append(one.process)
        waiting.extend(below[one.process.pid])
    return found


def alive(family: Iterable[Process]) -> list[Process]:
    """Those that still run; zombies do not."""
    everybody = _everybody()
    return [
        one
        for one in family
        if (seen := everybody.get(one.pid)) is not None and seen.process == one and not seen.is_dead
    ]


def end_family(pid: int, asking: int) -> list[Process]:
    """Send a process the signal that asks it to end; after a while kill what is left of it and its descendants."""
    family = family_of(pid)
    if family:
        os.kill(pid, asking)
    return end_all(wait_for_end(family, ASKED_WITHIN_S))


def end_all(family: Iterable[Process], within_s: float = END_WITHIN_S) -> list[Process]:
    """kill -9, and wait; returns those that are not gone after `within_s`."""
    family = list(family)
    for one in alive(family):
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return wait_for_end(family, within_s)


def wait_for_end(family: Iterable[Process], within_s: float = END_WITHIN_S) -> list[Process]:
    """Wait until they have ended; returns those that still run after `within_s`."""
    left = list(family)
    deadline_s = time.monotonic() + within_s
    while (left := alive(left)) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_AGAIN_S)
    return left


def _everybody() -> dict[int, _Seen]:
    return _from_proc() if Path("/proc/self/stat").exists() else _from_ps()


def _from_proc() -> dict[int, _Seen]:
    found: dict[int, _Seen] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            text = Path("/proc", name, "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has just ended
        # The name in brackets may contain anything, even brackets and blanks.
        state, parent, *others = text.rpartition(")")[2].split()
        found[int(name)] = _Seen(Process(int(name), others[17]), int(parent), state in "ZX")
    return found


def _from_ps() -> dict[int, _Seen]:
    """For systems without /proc, such as macOS."""
    told = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="], capture_output=True, text=True, check=True
    ).stdout
    found: dict[int, _Seen] = {}
    for line in told.splitlines():
        pid, parent, state, started = line.split(maxsplit=3)
        found[int(pid)] = _Seen(Process(int(pid), started), int(parent), state.startswith("Z"))
    return found
