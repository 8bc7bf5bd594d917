"""A log in memory, on a clock that the test owns, with nothing in the background; and syncs that can be held."""

from __future__ import annotations

import threading
from collections.abc import Iterator

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
