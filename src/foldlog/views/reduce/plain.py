"""States computed without any shortcut: one record after the other, in a dict. What `stepping` does must equal this.

Verifications step this way, and the law of a step is tried with it: a step that gives something else for rows together
than for one after the other would make a view that depends on how the log was split.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import UnlawfulFold
from foldlog.views.contract import DELETED, OFFSET, PARTITION
from foldlog.views.reduce.states import State
from foldlog.views.reduce.stepping import EachRow, Reduction, StepFault, Stepped, step_groups, told

if TYPE_CHECKING:
    import pyarrow as pa

_SPLITS: Final = 4
"""How often a sample is split at random."""

_ADVICE: Final = "a step has to give the same for rows together as for one after the other; fl.each_row(step) does"


def step_plainly(reduction: Reduction, key: str, rows: pa.Table, stored: Mapping[Any, State]) -> Stepped:
    """What `step_groups` returns."""
    found = Stepped()
    states: dict[Any, State | None] = dict(stored)
    for one, partition, offset, first, record in _records(key, rows):
        found.last[one] = first + len(record) - 1
        if reduction.tombstones == "delete" and record[0][DELETED]:
            states[one] = None
            continue
        given: Any = record if isinstance(reduction.step, EachRow) else _batch(rows, first, len(record))
        try:
            states[one] = reduction.stepped(deepcopy(states.get(one)), given)
        except Exception as error:  # noqa: BLE001 whatever a user's step raises
            found.faults.append(StepFault(partition, offset, told(error)))
    found.states = {one: states.get(one) for one in found.last if states.get(one) != stored.get(one)}
    return found


def _records(key: str, rows: pa.Table) -> Iterator[tuple[Any, int, int, int, list[dict[str, Any]]]]:
    """Each record with a key: the key, its coordinates, the number of its first row, and its rows."""
    at = 0
    for (partition, offset, one, _), some in groupby(
        rows.to_pylist(), key=lambda row: (row[PARTITION], row[OFFSET], row[key], row[DELETED])
    ):
        record = list(some)
        if one is not None:
            yield one, partition, offset, at, record
        at += len(record)


def _batch(rows: pa.Table, first: int, count: int) -> pa.RecordBatch:
    (batch,) = rows.slice(first, count).combine_chunks().to_batches()
    return batch


# --- the law of a step ------------------------------------------------------------------------------------------------


def check_steps(fold: str, reduction: Reduction, key: str, rows: pa.Table, chance: random.Random) -> None:
    """UnlawfulFold, with the fewest records of a key that show it, if the states after these rows depend on how they
    are split. `rows` are in offset order, from the first record of each key on.
    """
    at_once = step_groups(reduction, key, rows, {}).states
    again = step_groups(reduction, key, rows, {}).states
    if at_once != again:
        one = next(one for one in at_once if at_once[one] != again.get(one))
        why = f"its step gave {_shown(at_once[one])} for key {one!r}, and {_shown(again.get(one))} for the same records"
        raise UnlawfulFold(fold, why, "leave the time, random numbers and what it remembers out of the step")
    in_parts = [step_plainly(reduction, key, rows, {}).states]
    in_parts += [_in_parts(reduction, key, rows, chance) for _ in range(_SPLITS)]
    for states in in_parts:
        differing = [one for one in {**at_once, **states} if at_once.get(one) != states.get(one)]
        if differing:
            raise UnlawfulFold(fold, _smallest(reduction, key, rows, differing[0], states.get(differing[0])), _ADVICE)


def _in_parts(reduction: Reduction, key: str, rows: pa.Table, chance: random.Random) -> dict[Any, State | None]:
    """The states after the rows came in some ranges. A record's rows stay together."""
    places = list(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))
    begins = [number for number in range(1, len(places)) if places[number] != places[number - 1]]
    cuts = sorted(chance.sample(begins, min(len(begins), chance.randint(1, 20))))
    states: dict[Any, State] = {}
    for start, stop in zip([0, *cuts], [*cuts, len(places)], strict=True):
        for one, state in step_groups(reduction, key, rows.slice(start, stop - start), states).states.items():
            if state is None:
                states.pop(one, None)
            else:
                states[one] = state
    return dict(states)


def _smallest(reduction: Reduction, key: str, rows: pa.Table, one: Any, split: State | None) -> str:
    """The shortest beginning of a key's rows that gives one state at once, and another if the last comes alone."""
    import pyarrow.compute as pc

    own = rows.filter(pc.equal(rows[key], one))
    places = list(zip(own[PARTITION].to_pylist(), own[OFFSET].to_pylist(), strict=True))
    ends = [number for number in range(1, len(places)) if places[number] != places[number - 1]] + [len(places)]
    before, begin = 0, dict[Any, State]()
    for count, end in enumerate(ends, 1):
        together = step_groups(reduction, key, own.slice(0, end), {}).states.get(one)
        alone = step_groups(reduction, key, own.slice(before, end - before), begin).states.get(one, begin.get(one))
        if together != alone:
            return (
                f"its step gave {_shown(together)} for the first {count} records of key {one!r} together, and"
                f" {_shown(alone)} if the last of them came by itself"
            )
        before, begin = end, {} if together is None else {one: together}
    return f"its step gave another state for key {one!r} when its {len(ends)} records were split: {_shown(split)}"


def _shown(state: State | None) -> str:
    return "no state" if state is None else json.dumps(state, default=str, ensure_ascii=False)[:200]
