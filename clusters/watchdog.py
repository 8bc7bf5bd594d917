"""Ends the processes of a cluster when whoever started them is gone, however it went: also by SIGTERM or `kill -9`,
after which nothing of it runs any more.

It is a process of its own, one for each that starts clusters. It is told of process groups through a pipe, a line each
("+123" to watch it, "-123" to forget it), and when the pipe ends, it kills those that are left. Linux could do the same
with a signal at the parent's death, but that comes with the death of the *thread* that started a process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache


class Watchdog:
    """This process's line to it. Any thread: a line is written whole."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", __file__],
            stdin=subprocess.PIPE,
            start_new_session=True,  # what ends this process's group does not end it
        )

    def watch(self, group: int) -> None:
        self._write(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._write(f"-{group}\n")

    def _write(self, line: str) -> None:
        if self._process.stdin is not None:
            os.write(self._process.stdin.fileno(), line.encode())


@cache
def watchdog() -> Watchdog:
    """Started when it is first needed."""
    return Watchdog()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        sign, group = line[0], int(line[1:])
        (groups.add if sign == "+" else groups.discard)(group)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
