"""However the log is split, whoever dies between any two steps, and wherever a fold is rewound to: the newest record of
each key of a changes topic is what a recompute of the log in plain Python gives, also behind a second fold. A reader of
committed records never sees a change twice. Planted mistakes are found.

Fault model: processes die before or after each record that they send and each commit; the log's own files do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import foldlog
from foldlog.client.transactions import Transaction
from foldlog.spark.change_topics import changes as changes_module
from foldlog.spark.change_topics.changes import ChangesTopic
from foldlog.spark.change_topics.changes_log import TIMEOUT_MS, ChangesBookmark
from foldlog.spark.change_topics.keyed_rows import KeyedRows, RowChange, changes_of
from foldlog.spark.change_topics.rows_topic import RowsTopic
from foldlog.spark.origins.origin import origin_spec
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Delta
from spark.change_topics.change_machine import (
    SHAPE,
    Amount,
    Crash,
    Stage,
    check_changes,
    dying,
    recomputed,
)

Step = tuple[Any, ...]
_amounts = st.one_of(st.none(), st.integers(0, 6))
_records = st.lists(st.tuples(st.sampled_from("abcde"), _amounts), min_size=1, max_size=6)
_shares = st.sampled_from([0.2, 0.5, 1.0])
_deaths = st.one_of(st.none(), st.integers(0, 12))
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _records),
        st.tuples(st.just("first"), _shares, _deaths),
        st.tuples(st.just("second"), _shares, _deaths),
        st.tuples(st.just("rewind"), st.sampled_from(["first", "second"]), st.integers(0, 5)),
        st.tuples(st.just("rebuild"), st.sampled_from(["first", "second"]), _deaths),
        st.tuples(st.just("compact")),
    ),
    min_size=4,
    max_size=14,
)
_numbers = count()

few = settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.generate, Phase.reuse],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
many = settings(few, max_examples=25)


def doubled(amount: int) -> Amount:
    return None if amount == 3 else amount * 2


def kept(amount: int) -> Amount:
    return amount + 1 if amount > 4 else None


class Machine:
    """Runs steps, and compares after each of them."""

    def __init__(self, base: Path, patch: pytest.MonkeyPatch, *, old: bool = False) -> None:
        self.directory = base / f"log{next(_numbers)}"
        self._patch = patch
        self._old = old
        self._is_compacted = False
        spec = origin_spec(self.directory)
        self.first = Stage("orders", "doubled", doubled, spec, old)
        self.second = Stage("doubled", "kept", kept, spec)
        with foldlog.open(self.directory) as log:
            log.create_topic("orders", 2)

    def run(self, steps: Iterable[Step]) -> None:
        views = {"first": self.first.view(), "second": self.second.view()}
        stages = {"first": self.first, "second": self.second}
        for verb, *given_ in steps:
            if verb == "write":
                self._write(given_[0])
            elif verb == "compact":
                self._is_compacted = True
                with foldlog.open(self.directory) as log:
                    log.compact()
            else:
                name = verb if verb in stages else given_[0]
                step = self._replay if verb in ("rewind", "rebuild") else self._fold
                if not step(verb, stages[name], views[name], *given_[0 if verb in stages else 1 :]):
                    views[name] = stages[name].view()  # another process goes on
            self._check(views["first"])
        self._settle(views)
        for view in views.values():
            view.close()

    def _write(self, records: list[tuple[str, Amount]]) -> None:
        with foldlog.open(self.directory) as log:
            for key, amount in records:
                log.append("orders", None if amount is None else {"amount": amount}, key=key)

    def _fold(self, _: str, stage: Stage, view: ChangesTopic, share: float, death: int | None) -> bool:
        """False if the process died."""
        with foldlog.open(self.directory, mode="r") as log:
            if stage.reads not in log.topics():
                return True
            try:
                with dying(self._patch, death):
                    stage.run(log, share, view)
            except Crash:
                return False
        return True

    def _replay(self, verb: str, stage: Stage, view: ChangesTopic, given_: int | None) -> bool:
        at = view.bookmark()
        if at is None:
            return True
        if verb == "rewind":
            back = {number: Position(min(p.offset, given_ or 0)) for number, p in at.positions.items()}
            view.move(at, at.moved(back))
            return True
        with foldlog.open(self.directory, mode="r") as log:
            shadow = view.shadow("rebuild")
            start = replace(stage.start(log), epoch=at.epoch + 1)
            shadow.prepare(SHAPE, start)
            ends = {n: end for n, (_, end) in log.offsets(stage.reads, isolation="read_committed").items()}
            new = start.advanced({n: Position(end) for n, end in ends.items()})
            shadow.apply(stage.delta(log, {n: (0, end) for n, end in ends.items()}), start, new)
            try:
                with dying(self._patch, given_):
                    view.swap(shadow)
            except Crash:
                return False
        return True

    def _records(self, bookmark: Bookmark | None = None) -> list[tuple[str, Amount]]:
        with foldlog.open(self.directory, mode="r") as log:
            found = [record for number in log.offsets("orders") for record in log.read("orders", number)]
        if bookmark is not None:
            found = [one for one in found if one.offset < (bookmark.offset(one.partition) or 0)]
        return [((one.key or b"").decode(), None if one.value is None else one.json()["amount"]) for one in found]

    def _check(self, view: ChangesTopic) -> None:
        """At every moment the topic is what its bookmark says, unless that was moved back."""
        bookmark = view.bookmark()
        if bookmark is not None and not bookmark.reached:
            with foldlog.open(self.directory, mode="r") as log:
                self._check_topic(log, "doubled", recomputed(self._records(bookmark), doubled), old=self._old)

    def _settle(self, views: dict[str, ChangesTopic]) -> None:
        """Read all that is left, then compare with the whole."""
        with foldlog.open(self.directory, mode="r") as log:
            for name, stage in (("first", self.first), ("second", self.second)):
                while stage.is_behind(log, views[name]):
                    stage.run(log, 1.0, views[name])
            records = self._records()
            self._check_topic(log, "doubled", recomputed(records, doubled), old=self._old)
            self._check_topic(log, "kept", recomputed(records, doubled, kept), old=False)

    def _check_topic(self, log: foldlog.Log, topic: str, wanted: dict[str, Amount], *, old: bool) -> None:
        check_changes(log, topic, wanted, old=old, is_compacted=self._is_compacted)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    return lambda **options: Machine(tmp_path, monkeypatch, **options)


@few
@given(steps=_steps)
def test_two_folds_equal_the_recompute_whatever_dies(machine: Callable[..., Machine], steps: list[Step]) -> None:
    machine().run(steps)


@pytest.mark.faults
@many
@given(steps=_steps, old=st.booleans())
def test_two_folds_equal_the_recompute_whatever_dies_for_long(
    machine: Callable[..., Machine], steps: list[Step], old: bool
) -> None:
    machine(old=old).run(step for step in steps if not old or step[0] != "compact")  # which removes what was old


# --- every step, and planted mistakes ---------------------------------------------------------------------------------


def dies_at(death: int | None) -> list[Step]:
    """A change, a new row, a row that the fold filters out, and a tombstone in the range at whose steps it dies."""
    return [
        ("write", [("a", 1), ("b", 2), ("c", 4), ("d", 5)]),
        ("first", 1.0, None),
        ("second", 1.0, None),
        ("write", [("a", 2), ("b", 3), ("c", None), ("e", 6)]),
        ("first", 1.0, death),
        ("second", 1.0, death),
        ("first", 1.0, None),
    ]


STEPS = range(13)
"""Four changes and the bookmark, before and after each; and the commit."""


@pytest.mark.faults
def test_death_at_every_step_of_a_range_loses_and_repeats_nothing(machine: Callable[..., Machine]) -> None:
    for death in STEPS:
        machine(old=death % 2 == 1).run(dies_at(death))


def bookmark_in_a_transaction_of_its_own(patch: pytest.MonkeyPatch) -> None:
    def apply(self: ChangesTopic, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        found: list[ChangesBookmark] = []

        def write(transaction: Transaction) -> None:
            stored = self._expect(expected)
            changed = changes_of(delta, self._current(stored), self.place)
            ends = self._log.changes.send(transaction, changed, stored, 1 << 60)
            found.append(replace(stored, bookmark=new, ends=ends))

        self._log.fenced_from_others(write, rows=1, timeout_ms=TIMEOUT_MS)
        self._log.fenced_from_others(
            lambda transaction: self._log.send_bookmark(transaction, found[-1]), rows=1, timeout_ms=TIMEOUT_MS
        )

    patch.setattr(ChangesTopic, "apply", apply)


def changes_outside_of_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """So that a retry writes them again."""

    def send(
        self: RowsTopic, transaction: Transaction, changes: Iterable[RowChange], stored: ChangesBookmark, now_ms: int
    ) -> dict[int, int]:
        ends = dict(stored.ends)
        for one in changes:
            written = self._log().append(self.name, one.new, key=one.key)
            ends[written.partition] = written.offset + 1
        return ends

    patch.setattr(RowsTopic, "send", send)


def tombstones_lost(patch: pytest.MonkeyPatch) -> None:
    def lossy(delta: Delta, kept_rows: KeyedRows, location: str) -> list[RowChange]:
        return [one for one in changes_of(delta, kept_rows, location) if one.new is not None]

    patch.setattr(changes_module, "changes_of", lossy)


def differs(machine: Machine, death: int) -> bool:
    try:
        machine.run(dies_at(death))
    except AssertionError:
        return True
    return False


@pytest.mark.faults
@pytest.mark.parametrize(
    "mistake", [bookmark_in_a_transaction_of_its_own, changes_outside_of_the_transaction, tombstones_lost]
)
def test_a_planted_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        mistake(patch)
        assert any(differs(machine(), death) for death in reversed(STEPS))
