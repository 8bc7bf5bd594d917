"""Who was started by whom, and how to end all of them: by process id and starting time, never by name.

Spark's JVM puts itself into a session of its own, so a process group is not enough to find it.
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
    """A process; `started` tells it from a later one that was given the same id."""

    pid: int
    started: str


class _Seen(NamedTuple):
    """A process with its parent. A dead one is there until somebody has waited for it."""

    process: Process
    parent: int
    is_dead: bool


def family_of(pid: int) -> list[Process]:
    """The process and everything that descends from it, as of now; empty if it is gone."""
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
    """Those that still run. A dead one that nobody has waited for does not."""
    everybody = _everybody()
    return [
        one
        for one in family
        if (seen := everybody.get(one.pid)) is not None and seen.process == one and not seen.is_dead
    ]


def end_family(pid: int, asking: int) -> list[Process]:
    """Send a process the signal that asks it to end; kill what is left of it and its descendants after a while."""
    family = family_of(pid)
    if family:
        os.kill(pid, asking)
    return end_all(wait_for_end(family, ASKED_WITHIN_S))


def end_all(family: Iterable[Process], within_s: float = END_WITHIN_S) -> list[Process]:
    """kill -9, and wait until they are gone; those that are not, after `within_s`."""
    family = list(family)
    for one in alive(family):
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return wait_for_end(family, within_s)


def wait_for_end(family: Iterable[Process], within_s: float = END_WITHIN_S) -> list[Process]:
    """Those that still run after `within_s`; none, as soon as there are none."""
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
        # The name in brackets may hold anything, brackets and blanks too.
        state, parent, *others = text.rpartition(")")[2].split()
        found[int(name)] = _Seen(Process(int(name), others[17]), int(parent), state in "ZX")
    return found


def _from_ps() -> dict[int, _Seen]:
    """Where there is no /proc, as on macOS."""
    told = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="], capture_output=True, text=True, check=True
    ).stdout
    found: dict[int, _Seen] = {}
    for line in told.splitlines():
        pid, parent, state, started = line.split(maxsplit=3)
        found[int(pid)] = _Seen(Process(int(pid), started), int(parent), state.startswith("Z"))
    return found
