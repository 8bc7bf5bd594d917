"""Processes to kill: Spark drivers that run a pipeline, and the Python workers of a Spark. All of it by process id.

A process is known by its id and the moment it started, so that another one with the same id is not taken for it.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
"""For a Spark to start, a range to be stored, a process to end: none of them takes long, even on a busy machine."""


class Process(NamedTuple):
    pid: int
    started: int


class _Stat(NamedTuple):
    """What Linux says of a process. `state` is R while it runs, Z once it is dead and nobody has waited for it."""

    process: Process
    parent: int
    state: str


def _stat(pid: int) -> _Stat | None:
    try:
        state, parent, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Stat(Process(pid, int(others[17])), int(parent), state)


def children(pid: int) -> list[Process]:
    try:
        # A thread has the children that it started; not every kernel tells.
        told = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
        found = [_stat(int(child)) for text in told for child in text.split()]
    except (FileNotFoundError, ProcessLookupError):
        found = []
    if not found:
        found = [_stat(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [one.process for one in found if one is not None and one.parent == pid]


def descendants(pid: int) -> list[Process]:
    direct = children(pid)
    return [*direct, *(deeper for one in direct for deeper in descendants(one.pid))]


def is_alive(process: Process) -> bool:
    stat = _stat(process.pid)
    return stat is not None and stat.process == process and stat.state not in "ZX"


def is_busy(process: Process) -> bool:
    stat = _stat(process.pid)
    return stat is not None and stat.process == process and stat.state == "R"


def kill(process: Process) -> bool:
    """kill -9; whether there was something to kill."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Look again and again; AssertionError if it does not come."""
    pause = Event()
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        pause.wait(0.02)


def python_workers(jvm_pid: int) -> list[Process]:
    """The processes that run Python for a Spark: the children of its daemons."""
    return [worker for daemon in children(jvm_pid) for worker in children(daemon.pid)]


class Driver:
    """A child process that runs a pipeline. `go` lets it begin, once it is `ready`."""

    def __init__(self, folds: Path, data: Path, scratch: Path, range_bytes: int, staged_from: int | None) -> None:
        scratch.mkdir(parents=True)
        self._complaints = scratch / "stderr"
        command = [sys.executable, str(TESTS / "spark" / "folds" / "folds_child.py")]
        command += [str(folds), str(data), str(scratch), str(range_bytes)]
        command += [] if staged_from is None else [str(staged_from)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS), str(TESTS.parent / "src")))}
        with self._complaints.open("wb") as complaints:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, env=environment, text=True
            )
        self._said: queue.Queue[str] = queue.Queue()
        self._jvm: Process | None = None
        self._reader = Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def jvm(self) -> Process:
        assert self._jvm is not None, "it is not ready yet"
        return self._jvm

    def ready(self) -> None:
        word, _, pid = self.next_line().partition(" ")
        assert word == "ready", word
        stat = _stat(int(pid))
        assert stat is not None
        self._jvm = stat.process

    def go(self) -> None:
        if self._jvm is None:
            self.ready()
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def next_line(self) -> str:
        """What it says next. AssertionError with its complaints if it ends instead."""
        try:
            line = self._said.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"it said nothing for {PATIENCE_S} s: {self.complaints()}") from None
        assert line, f"it ended by itself: {self.complaints()}"
        return line

    def let_run(self, rng: random.Random) -> None:
        """Until a random moment soon after some random range."""
        began, ranges = time.monotonic(), rng.randrange(1, 9)
        for _ in range(ranges):
            self.next_line()
        # Some moment of the next two ranges, which take as long as those before, however busy the machine is.
        Event().wait(rng.uniform(0, 2) * (time.monotonic() - began) / ranges)

    def kill(self, *, only_jvm: bool) -> None:
        """kill -9 of the Python driver, or of its JVM. The other one and all their children go by themselves."""
        assert self._process.poll() is None, f"it ended by itself: {self.complaints()}"
        family = descendants(self.pid)
        assert self.jvm in family
        if only_jvm:
            assert kill(self.jvm)
        else:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        wait_until(lambda: not any(map(is_alive, family)), f"nothing is left of {family}")

    def wait_for_end(self) -> None:
        """Until it has killed itself."""
        assert self._process.wait(PATIENCE_S) == -signal.SIGKILL, self.complaints()
        wait_until(lambda: not is_alive(self.jvm), "its JVM ends with it")

    def complaints(self) -> str:
        return self._complaints.read_text(errors="replace")[-3000:]

    def end(self) -> None:
        """Whatever state it is in: it, its JVM and their children are killed."""
        family = descendants(self.pid)
        self._process.kill()
        self._process.wait(PATIENCE_S)
        for process in family:
            kill(process)
        self._reader.join(PATIENCE_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line.rstrip("\n"))
        self._said.put("")


@contextmanager
def drivers(
    folds: Path, data: Path, scratch: Path, range_bytes: int, staged_from: int | None = None
) -> Iterator[Callable[[], Driver]]:
    """Makes drivers, and ends those that are left at the end of the block. Their executors write the rows of ranges of
    `staged_from` offsets.
    """
    made: list[Driver] = []

    def another() -> Driver:
        made.append(Driver(folds, data, scratch / f"driver{len(made)}", range_bytes, staged_from))
        return made[-1]

    try:
        yield another
    finally:
        for driver in made:
            driver.end()
