"""The law of folds, tried on given records: split, ordered and interrupted at random, they must give the same view.

A run is a list of steps. A step folds some records of each partition, those that come next, and stores what they give;
a lost one is folded, and its runner dies before it stores anything, so the next steps begin where it began. `check_law`
compares such runs with one that folds all records at once. Of a run that gives another view it makes the smallest that
still does: without lost steps, with fewer steps, with fewer records, for as long as any of this can be left out.

What folds, and into what, is the caller's: `Contents` gives the view after a run.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

LOST_SHARE: Final = 0.25
"""How many of the steps are lost."""

ADVICE: Final = "a fold may look at one row at a time, and must always give the same result for it"

STEP_ADVICE: Final = "a step has to give the same for rows together as for one after the other; fl.each_row(step) does"


class GivenRecord(NamedTuple):
    """A record for a fold. `value` None is a tombstone; dicts, lists and numbers are JSON."""

    value: Any
    key: Any = None
    partition: int = 0
    timestamp_ms: int | None = None

    def __str__(self) -> str:
        if isinstance(self.value, bytes):
            value = repr(self.value)
        elif isinstance(self.value, str):
            value = self.value
        else:
            value = json.dumps(self.value, ensure_ascii=False)
        key = "" if self.key is None else f"key {self.key!r}, "
        return f"partition {self.partition}: {key}{'a tombstone' if self.value is None else value}"


@dataclass(frozen=True, slots=True)
class Step:
    """Records, by their numbers, that are folded together; partitions are read in the order of their first record."""

    numbers: tuple[int, ...]
    is_lost: bool = False

    def __str__(self) -> str:
        told = ", ".join(map(str, self.numbers))
        return f"({told}, lost)" if self.is_lost else f"({told})"


Row = Mapping[str, Any]
Contents = Callable[[Sequence[GivenRecord], Sequence[Step]], list[Row]]
"""The rows of a view, in any order, after a run over these records."""


class LawBroken(AssertionError):
    """A fold whose view depends on how its records are split: `records` and `steps` are the fewest that show it."""

    def __init__(self, message: str, records: Sequence[GivenRecord], steps: Sequence[Step]) -> None:
        super().__init__(message)
        self.records = list(records)
        self.steps = list(steps)


def check_law(
    name: str,
    contents: Contents,
    records: Sequence[GivenRecord],
    *,
    tries: int,
    seed: int,
    advice: str = ADVICE,
) -> None:
    """LawBroken if one of so many random runs gives another view than all records at once."""
    chance = random.Random(seed)
    at_once = Counter(map(_text, contents(records, whole(records))))
    for number in range(1, tries + 1):
        steps = random_steps(records, chance)
        if Counter(map(_text, contents(records, steps))) != at_once:
            fewest, shortest = smallest(contents, records, steps)
            where = f"run {number} of {tries}, seed={seed}, {len(records)} records"
            told = _told(name, contents, fewest, shortest, f"{advice} (found by {where})")
            raise LawBroken(told, fewest, shortest)


def whole(records: Sequence[GivenRecord]) -> list[Step]:
    """The run that folds everything at once."""
    return [Step(tuple(sorted(range(len(records)), key=lambda number: (records[number].partition, number))))]


def random_steps(records: Sequence[GivenRecord], chance: random.Random) -> list[Step]:
    """A run over all records. Each partition is read in its order; which are read when, and how far, is left to chance.

    >>> records = [GivenRecord(number, partition=number % 2) for number in range(4)]
    >>> print(*random_steps(records, random.Random(2)), sep=" ")
    (0) (1, 2) (3)
    """
    left: dict[int, list[int]] = {}
    for number, record in enumerate(records):
        left.setdefault(record.partition, []).append(number)
    steps: list[Step] = []
    pace = chance.choice((1, 2, max(1, len(records) // 2)))
    while left:
        partitions = chance.sample(sorted(left), chance.randint(1, len(left)))
        taken = {partition: left[partition][: chance.randint(1, pace)] for partition in partitions}
        is_lost = chance.random() < LOST_SHARE
        steps.append(Step(tuple(number for some in taken.values() for number in some), is_lost))
        if is_lost:
            continue
        for partition, some in taken.items():
            left[partition] = left[partition][len(some) :]
            if not left[partition]:
                del left[partition]
    return steps


# --- the smallest that breaks it --------------------------------------------------------------------------------------


def smallest(
    contents: Contents, records: Sequence[GivenRecord], steps: Sequence[Step]
) -> tuple[list[GivenRecord], list[Step]]:
    """Leave out whatever can be left out while the run still differs. The order of tries is fixed."""
    found = (list(records), list(steps))
    has_changed = True
    while has_changed:
        has_changed = False
        for candidate in _smaller(*found):
            if _differs(contents, *candidate) is not None:
                found, has_changed = candidate, True
                break
    return found


def _smaller(records: list[GivenRecord], steps: list[Step]) -> Iterator[tuple[list[GivenRecord], list[Step]]]:
    """Smaller cases, those that leave out most first. Each has fewer records or fewer steps, so shrinking ends."""
    size = len(records) // 2
    while size:
        for start in range(0, len(records), size):
            yield _without(records, steps, set(range(start, min(start + size, len(records)))))
        size //= 2
    for number, step in enumerate(steps):
        if step.is_lost:
            yield records, steps[:number] + steps[number + 1 :]
    for number in range(len(steps) - 1):
        one, other = steps[number : number + 2]
        if not one.is_lost and not other.is_lost:
            joined = _by_partition(records, one.numbers + other.numbers)
            yield records, [*steps[:number], Step(joined), *steps[number + 2 :]]


def _by_partition(records: Sequence[GivenRecord], numbers: Sequence[int]) -> tuple[int, ...]:
    order = {
        partition: place for place, partition in reversed(list(enumerate(records[one].partition for one in numbers)))
    }
    return tuple(sorted(numbers, key=lambda number: (order[records[number].partition], number)))


def _without(records: list[GivenRecord], steps: list[Step], gone: set[int]) -> tuple[list[GivenRecord], list[Step]]:
    kept = [number for number in range(len(records)) if number not in gone]
    numbers = {old: new for new, old in enumerate(kept)}
    fewer = [Step(tuple(numbers[one] for one in step.numbers if one in numbers), step.is_lost) for step in steps]
    return [records[number] for number in kept], [step for step in fewer if step.numbers]


def _differs(
    contents: Contents, records: Sequence[GivenRecord], steps: Sequence[Step]
) -> tuple[list[str], list[str]] | None:
    """The rows that only one run gives, and those that only the other does; None if they give the same."""
    if not records:
        return None
    at_once = Counter(map(_text, contents(records, whole(records))))
    in_steps = Counter(map(_text, contents(records, steps)))
    if at_once == in_steps:
        return None
    return sorted((at_once - in_steps).elements()), sorted((in_steps - at_once).elements())


def _text(row: Row) -> str:
    return json.dumps({name: row[name] for name in sorted(row)}, default=str, ensure_ascii=False)


def _told(name: str, contents: Contents, records: list[GivenRecord], steps: list[Step], advice: str) -> str:
    difference = _differs(contents, records, steps)
    only_at_once, only_in_steps = difference or ([], [])
    lines = [f"fold {name!r} breaks the law of folds: these records give another view when they are split"]
    lines += [f"  {number}  {record}" for number, record in enumerate(records)]
    if difference is None:
        lines.append(
            f"  split {' '.join(map(str, steps))}, and not each time: the function does not always give the same"
        )
    else:
        lines.append("folded at once, only then the view has")
        lines += [f"  {row}" for row in only_at_once] or ["  nothing more"]
        lines.append(f"folded in the steps {' '.join(map(str, steps))}, only then it has")
        lines += [f"  {row}" for row in only_in_steps] or ["  nothing more"]
    return "\n".join([*lines, advice])
