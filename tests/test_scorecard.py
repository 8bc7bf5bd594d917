"""What `make scorecard` judges with: each rule finds the history that breaks it, and none finds a sound one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scorecard.histories import bulk, rules
from scorecard.histories.linear import NEVER, Call, broken_order, is_linearizable, partition_step
from scorecard.histories.rules import Poll, Transaction, TransactionHistory, Write


def sound() -> TransactionHistory:
    """Two transactions that were committed, one that was aborted, and a reader."""
    one = Transaction("a", [Write(0, "a1", 0), Write(1, "a2", 0)], [], 5.0, rules.COMMITTED)
    two = Transaction("b", [Write(0, "b1", 2)], ["a1"], 8.0, rules.COMMITTED)
    lost = Transaction("a", [Write(0, "a3", 4)], [], NEVER, rules.NOT_COMMITTED)
    polls = [Poll("r", 6.0, [(0, 0, "a1"), (1, 0, "a2")]), Poll("r", 9.0, [(0, 2, "b1")])]
    return TransactionHistory([one, two, lost], polls, {0: [(0, "a1"), (2, "b1")], 1: [(0, "a2")]})


def kinds(history: TransactionHistory) -> set[str]:
    return {anomaly.kind for anomaly in rules.judge(history)}


def test_a_sound_history_has_no_anomaly() -> None:
    assert kinds(sound()) == set()


def broken(kind: str) -> TransactionHistory:
    history = sound()
    one, two, _ = history.transactions
    if kind == rules.LOST:
        history.final[0], history.polls = [(0, "a1")], []
    elif kind == rules.ABORTED:
        history.final[0].append((4, "a3"))
    elif kind == rules.DIRTY:
        history.polls[0].done = 4.0
    elif kind == rules.FRACTURED:
        one.outcome, history.final[1], history.polls = rules.UNKNOWN, [], []
    elif kind == rules.CYCLE:
        one.reads = ["b1"]
    elif kind == rules.DUPLICATE:
        history.final[0].append((6, "b1"))
    elif kind == rules.INCONSISTENT:
        two.writes[0].offset = 7
    elif kind == rules.REORDERED:
        two.sender = "a"
        history.final[0] = [(0, "b1"), (2, "a1")]
    elif kind == rules.SKIPPED:
        history.final[0].insert(1, (1, "b0"))
        two.writes.append(Write(0, "b0"))
    elif kind == rules.WENT_BACK:
        history.polls.append(Poll("r", 10.0, [(0, 0, "a1")]))
    else:
        history.final[1].append((3, "nobody's"))
    return history


@pytest.mark.parametrize("kind", rules.KINDS)
def test_each_anomaly_is_found(kind: str) -> None:
    assert kind in kinds(broken(kind))


def test_the_quick_judge_of_real_time_agrees_with_the_search() -> None:
    rng, verdicts = random.Random(1), set()
    for _ in range(400):
        calls = [
            Call(
                rng.choice(("append", "look")),
                start := rng.randrange(12),
                start + rng.randrange(1, 6),
                rng.randrange(5),
            )
            for _ in range(rng.randrange(1, 6))
        ]
        is_sound = is_linearizable(calls, partition_step, 0)
        assert (broken_order(calls) == []) == is_sound, calls
        verdicts.add(is_sound)
    assert verdicts == {True, False}


def read(*pairs: tuple[int, int]) -> dict[int, bulk.PartitionRead]:
    """One partition with these (sender, number)."""
    columns = np.array(pairs, np.int64)
    return {0: bulk.PartitionRead(np.arange(len(pairs)), columns[:, 0], columns[:, 1])}


@pytest.mark.parametrize(
    ("pairs", "kind"),
    [
        ([(0, 0), (0, 1), (0, 2)], None),
        ([(0, 0), (0, 2)], "lost"),
        ([(0, 0), (0, 1)], "lost"),
        ([(0, 0), (0, 1), (0, 1), (0, 2)], "doubled"),
        ([(0, 1), (0, 0), (0, 2)], "reordered"),
        ([(0, 0), (0, 1), (0, 2), (0, 9)], "invented"),
        ([(0, 0), (0, 1), (0, 2), (5, 0)], "invented"),
    ],
)
def test_many_records_are_judged_by_their_numbers(pairs: list[tuple[int, int]], kind: str | None) -> None:
    found = {name for name, _ in bulk.judge(read(*pairs), {0: 3}, {(0, 0): np.arange(3)}, 1)}
    assert found == set() if kind is None else kind in found
