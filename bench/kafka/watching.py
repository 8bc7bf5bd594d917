"""A process seen from outside: the processor time it has used, and its memory, with that of its children."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_RESET_PEAK = "5"
"""What clear_refs takes to forget the peak (proc_pid_clear_refs(5))."""


@dataclass(frozen=True, slots=True)
class Used:
    """Between two looks."""

    cpu_s: float
    peak_bytes: int


class Watch:
    """What the process has used since the watch began. Not for a process that has ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        for one in family(pid):
            (_PROC / str(one) / "clear_refs").write_text(_RESET_PEAK, encoding="ascii")
        self._before_s = cpu_s(pid)

    def used(self) -> Used:
        return Used(cpu_s(self._pid) - self._before_s, memory_bytes(self._pid, peak=True))


def family(pid: int) -> list[int]:
    """The process and what descends from it."""
    found = [pid]
    for parent in found:
        for children in (_PROC / str(parent) / "task").glob("*/children"):
            found += [int(child) for child in children.read_text(encoding="ascii").split()]
    return found


def cpu_s(pid: int) -> float:
    """User and system time of all threads, of children that live and of those that have ended."""
    ticks = 0
    for one in family(pid):
        fields = (_PROC / str(one) / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int, *, peak: bool = False) -> int:
    """Resident now, or the most since the watch began."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    return sum(_status_kib(one, wanted) for one in family(pid)) * 1024


def _status_kib(pid: int, wanted: str) -> int:
    for line in (_PROC / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(wanted):
            return int(line.split()[1])
    return 0  # it has ended, and its parent has not looked yet
