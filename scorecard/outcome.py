"""What a slice of a fault class did and found, and what a fault class is."""

from __future__ import annotations

import inspect
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that was broken: which kind, in a sentence, and how to see it again."""

    kind: str
    what: str
    replay: str


@dataclass(slots=True)
class Outcome:
    """Counts by name, as "images/appends": what stands before the stroke is summed on the page."""

    done: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    """Versions of tools, and what could not be done here and why."""

    def found(self, kind: str, what: object, replay: str) -> None:
        self.findings.append(Finding(kind, str(what)[:1000], replay))


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug that is planted on purpose. `is_found` runs the class's own check over it."""

    name: str
    is_found: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class FaultClass:
    """`run(seed, seconds)` does as much as fits, ending at a whole step. All of it follows from the seed."""

    name: str
    title: str
    what: str
    """Which faults, and what is checked after each."""
    finds: tuple[str, ...]
    """The kinds of findings, each of which is printed with its count, zero or not."""
    share: float
    run: Callable[[int, float], Outcome]
    plants: tuple[Plant, ...]
    short_share: float = -1.0
    """Of a short run; 0: not in it."""


def until(seconds: float) -> Iterator[int]:
    """0, 1, 2, …, until the time is over; at least once."""
    end = time.monotonic() + seconds
    number = 0
    while number == 0 or time.monotonic() < end:
        yield number
        number += 1


def shuffled(names: Iterator[Any] | list[Any], seed: int) -> list[Any]:
    """In an order that follows from the seed: a slice that ends early has begun with others than the one before."""
    ordered = list(names)
    random.Random(seed).shuffle(ordered)
    return ordered


def passes(test: Callable[..., None], **arguments: object) -> Callable[[], bool]:
    """Whether a test of a planted bug passes, which means that the bug was found."""

    def run() -> bool:
        with ExitStack() as stack:
            wanted = inspect.signature(test).parameters
            if "monkeypatch" in wanted:
                arguments["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
            if "tmp_path" in wanted:
                arguments["tmp_path"] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                test(**arguments)
            except (AssertionError, pytest.fail.Exception):
                return False
            return True

    return run
