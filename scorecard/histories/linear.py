"""Whether appends to a partition, and looks at its end, are linearizable: as if each happened at one moment of its own.

Two judges. `broken_order` knows that an append is told its offset, which leaves one order only, and compares that with
real time: linear in the history. `is_linearizable` is the search of Wing and Gong with Lowe's memory of states
(Testing for linearizability, 2017), for any object with a step function: it takes nothing for granted and is slow. The
tests hold the first to the second; histories of real clients are long, and get the first, and the second in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Call:
    """Called at one time and answered at another. An append is told its offset; a look the end, one above the last
    offset. `returned` NEVER: no answer came, and it may have happened at any time since, or not."""

    what: str
    called: float
    returned: float
    told: int | None


def broken_order(history: Sequence[Call]) -> list[str]:
    """What contradicts real time; nothing if the history is linearizable.

    What a call was told is its place in the one order that there can be: an append at offset n comes after a look that
    was told n, and before one that was told n + 1. That order has to be possible: no call was answered before one that
    stands before it was made.
    """
    answered = sorted((one for one in history if one.told is not None), key=_place)
    found: list[str] = []
    latest: Call | None = None  # of those in places before this one, the one that was called last
    for place, together in groupby(answered, key=_place):
        calls = list(together)
        if len(calls) > 1 and place[1]:
            found.append(f"offset {place[0]} was given {len(calls)} times")
        found += [
            f"{_shown(one)} was over at {one.returned}, before {_shown(latest)}, at {latest.called}"
            for one in calls
            if latest is not None and one.returned < latest.called
        ]
        latest = max([*calls, *([latest] if latest else [])], key=lambda one: one.called)
    return found


def _place(call: Call) -> tuple[int, int]:
    return (call.told or 0, int(call.what == "append"))


def _shown(call: Call) -> str:
    return f"the {call.what} that was told {call.told}"


State = Any
Step = Callable[[State, Call], tuple[bool, State]]
"""(state, call) → (whether the object could answer so, its next state)."""


def partition_step(end: int, call: Call) -> tuple[bool, int]:
    """A partition, of which `end` is known: above every offset that somebody was told. It grows with gaps: markers and
    records of others take offsets too."""
    if call.told is None:
        return True, end  # it may have an offset that nobody was told
    return call.told >= end, call.told + 1 if call.what == "append" else call.told


def is_linearizable(history: Sequence[Call], step: Step, start: State) -> bool:
    """Whether there is an order of the calls that real time allows and in which each gets the answer that it got."""
    calls = sorted(history, key=lambda one: one.called)
    everything = frozenset(range(len(calls)))
    tried: set[tuple[frozenset[int], State]] = set()
    work = [(everything, start)]
    while work:
        left, state = work.pop()
        if all(calls[number].returned == NEVER for number in left):
            return True  # nobody was told anything of those
        # One that was called after another was answered cannot come before it.
        first_return = min(calls[number].returned for number in left)
        for number in left:
            if calls[number].called > first_return:
                continue
            could, after = step(state, calls[number])
            key = (left - {number}, after)
            if could and key not in tried:
                tried.add(key)
                work.append(key)
    return False
