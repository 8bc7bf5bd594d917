"""Patience that does not depend on how busy the machine is."""

from __future__ import annotations

import time
from itertools import count
from types import SimpleNamespace

import pytest

TRIES_S = 10
"""How long every look at the clock takes between two tries: after six of them a minute is over."""


@pytest.fixture
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has a minute, as by default, is over after a few tries: each has all the time it needs, and what is
    told in the end is what the last of them met."""
    looks = count()
    clock = SimpleNamespace(monotonic=lambda: float(TRIES_S * next(looks)), sleep=time.sleep)
    monkeypatch.setattr("foldlog.client.wire.retries.time", clock)
