"""Outlives the demo by a moment, to leave nothing behind, even after `kill -9` of the demo itself.

`python -m foldlog.demo.watchdog DIRECTORY` reads lines from standard input: `+PID SIGNAL` for a process that was
started and the signal that asks it to end, `-PID` for one that has ended. When the input ends, because the demo closed
it or is gone, it ends the remaining processes with all their descendants, newest first, and removes the directory. It
ignores the signals that end the demo.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from foldlog.demo.descendants import end_family


def left_behind(lines: Iterable[str]) -> dict[int, int]:
    """The processes that were not reported as ended, with the signal for each.

    >>> left_behind(["+7 15", "+9 3", "-7"])
    {9: 3}
    """
    left: dict[int, int] = {}
    for line in lines:
        pid, _, asking = line[1:].partition(" ")
        if line.startswith("+"):
            left[int(pid)] = int(asking)
        elif line.startswith("-"):
            left.pop(int(pid), None)
    return left


def watch(told: TextIO, directory: Path) -> None:
    """Returns when the demo is gone and everything is cleaned up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for pid, asking in reversed(left_behind(told).items()):
        end_family(pid, asking)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.stdin, Path(sys.argv[1]))
