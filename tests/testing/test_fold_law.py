"""The law of folds is checked by runs at random, and what breaks it is shrunk to the fewest records and steps.

Folds here are plain functions over the records, with views of plain Python: no Spark runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from foldlog.testing import GivenRecord, LawBroken
from foldlog.testing.fold_law import Row, Step, check_law, random_steps

RECORDS = [GivenRecord({"amount": number}, f"k{number % 5}", partition=number % 3) for number in range(30)]


def mirror(records: Sequence[GivenRecord], steps: Sequence[Step]) -> list[Row]:
    return [{"amount": records[one].value["amount"]} for step in steps if not step.is_lost for one in step.numbers]


def numbered(records: Sequence[GivenRecord], steps: Sequence[Step]) -> list[Row]:
    """Numbers the rows of a range: that depends on where it begins."""
    return [
        {"amount": records[one].value["amount"], "place": place}
        for step in steps
        if not step.is_lost
        for place, one in enumerate(step.numbers)
    ]


def test_a_lawful_fold_passes() -> None:
    check_law("mirror", mirror, RECORDS, tries=50, seed=1)


def test_what_breaks_it_is_shrunk_and_told() -> None:
    with pytest.raises(LawBroken) as broken:
        check_law("numbered", numbered, RECORDS, tries=50, seed=1)
    assert len(broken.value.records) == 2, "one record alone always has the first place"
    assert not any(step.is_lost for step in broken.value.steps)
    told = str(broken.value).splitlines()
    assert told[0] == "fold 'numbered' breaks the law of folds: these records give another view when they are split"
    assert [line[:16] for line in told[1:3]] == [
        f"  {number}  partition {one.partition}"[:16] for number, one in enumerate(broken.value.records)
    ]
    assert "found by run 1 of 50, seed=1, 30 records" in told[-1]


def test_a_fold_that_remembers_what_was_lost_is_found() -> None:
    seen: set[int] = set()

    def remembering(records: Sequence[GivenRecord], steps: Sequence[Step]) -> list[Row]:
        """Gives each record once, also if what it gave was lost."""
        seen.clear()
        rows: list[Row] = []
        for step in steps:
            given = [one for one in step.numbers if one not in seen]
            seen.update(given)
            rows += [] if step.is_lost else [{"amount": records[one].value["amount"]} for one in given]
        return rows

    with pytest.raises(LawBroken) as broken:
        check_law("remembering", remembering, RECORDS, tries=50, seed=1)
    assert [len(broken.value.records), len(broken.value.steps)] == [1, 2]
    assert broken.value.steps[0].is_lost
    assert "folded in the steps (0, lost) (0), only then it has\n  nothing more" in str(broken.value)


def test_a_run_reads_each_partition_once_and_in_its_order() -> None:
    for seed in range(200):
        stored = [one for step in random_steps(RECORDS, Random(seed)) if not step.is_lost for one in step.numbers]
        assert sorted(stored) == list(range(30))
        for partition in range(3):
            own = [one for one in stored if RECORDS[one].partition == partition]
            assert own == sorted(own)
