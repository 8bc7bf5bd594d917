"""A log in memory, on a clock that the test owns, with nothing in the background; syncs that can be held; and patience
with clusters that does not depend on how busy the machine is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import pytest

import foldlog
from foldlog.files.memory import MemoryFile, MemoryFiles
from foldlog.testing.sim_clock import SimClock

WAIT_S = 60.0
"""How long a test waits for another thread before it fails; nothing is ever expected to take this long."""


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(clock: SimClock, files: MemoryFiles) -> Iterator[foldlog.Log]:
    with foldlog.open(":memory:", clock=clock, files=files, background=False) as opened:
        yield opened


class Gate:
    """Every sync of a .log file waits here while the gate is shut."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.reached = threading.Event()

    def shut(self) -> None:
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        self.reached.set()
        assert self._open.wait(WAIT_S), "the test never opened the gate"


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    real_sync = MemoryFile.sync

    def sync(file: MemoryFile) -> None:
        if file.path.endswith(".log"):
            gate.pass_through()
        real_sync(file)

    monkeypatch.setattr(MemoryFile, "sync", sync)
    yield gate
    gate.open()


TRIES_S = 10
"""How long every look at the clock takes between two tries: after six of them a minute is over."""


@pytest.fixture
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has a minute, as by default, is over after a few tries: each has all the time it needs, and what is
    told in the end is what the last of them met."""
    looks = count()
    clock = SimpleNamespace(monotonic=lambda: float(TRIES_S * next(looks)), sleep=threading.Event().wait)
    monkeypatch.setattr("foldlog.client.wire.retries.time", clock)
