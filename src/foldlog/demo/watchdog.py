"""Outlives the demo by a moment, to leave nothing behind: not even after `kill -9` of the demo itself.

`python -m foldlog.demo.watchdog DIRECTORY` reads lines from standard input, `+PID` for a process that was started as
the leader of a group and `-PID` for one that has ended. When the input ends, because the demo closed it or is gone, it
kills every group that is left with all its descendants, and removes the directory. Signals that end the demo are not
for it.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from foldlog.demo.descendants import Process, end_all, family_of


def left_behind(lines: Iterable[str]) -> set[int]:
    """The leaders that nobody has reported as ended.

    >>> left_behind(["+7", "+9", "-7"])
    {9}
    """
    leaders: set[int] = set()
    for line in lines:
        sign, number = line[:1], line[1:].strip()
        if sign == "+":
            leaders.add(int(number))
        elif sign == "-":
            leaders.discard(int(number))
    return leaders


def watch(told: TextIO, directory: Path) -> None:
    """Returns when the demo is gone and everything of it is."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    leaders = left_behind(told)
    family: list[Process] = [one for pid in sorted(leaders) for one in family_of(pid)]
    end_all(family)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.stdin, Path(sys.argv[1]))
