"""The rules of transactional ids, one by one: who may begin, add, end; what a repeated request gets; who is fenced."""

from __future__ import annotations

import pytest

from foldlog.broker.transactions.coordinator import EPOCH_MAX, TransactionCoordinator, TransactionSettings, select
from foldlog.broker.transactions.state_format import TransactionMetadata, TransactionState, encode_key, encode_value
from foldlog.errors import (
    ConcurrentTransactions,
    FoldlogError,
    InvalidArgument,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    ProducerFenced,
    TooManyTransactions,
    TransactionAbortable,
    UnknownTransactionalId,
)
from foldlog.testing.sim_clock import SimClock

TIMEOUT_MS = 60_000
KEY = ("orders", 0)
OTHER = ("orders", 1)
State = TransactionState


class Bench:
    """A coordinator whose every decision is stored at once."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.clock = SimClock()
        self.next_id = 100
        self.coordinator = TransactionCoordinator(self.clock, self._new_id, settings)

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def apply(self, metadata: TransactionMetadata) -> TransactionMetadata:
        self.coordinator.apply(metadata)
        return metadata

    def init(self, name: str = "t", producer_id: int = -1, epoch: int = -1) -> tuple[int, int]:
        found = self.apply(self.coordinator.init(name, TIMEOUT_MS, producer_id, epoch, 2))
        if found.state.is_prepared:
            self.complete(name)
            found = self.apply(self.coordinator.init(name, TIMEOUT_MS, producer_id, epoch, 2))
        return found.producer_id, found.producer_epoch

    def add(self, producer: tuple[int, int], *partitions: tuple[str, int], name: str = "t") -> TransactionMetadata:
        return self.apply(self.coordinator.add(name, *producer, partitions or (KEY,), 2))

    def prepare(self, producer: tuple[int, int], commit: bool, version: int) -> TransactionMetadata:
        return self.apply(self.coordinator.end("t", *producer, commit=commit, client_version=version))

    def end(self, producer: tuple[int, int], commit: bool = True, version: int = 2) -> tuple[int, int]:
        if self.prepare(producer, commit, version).state.is_prepared:
            self.complete()
        return self.producer

    def complete(self, name: str = "t") -> None:
        self.apply(self.coordinator.complete(name))

    @property
    def metadata(self) -> TransactionMetadata:
        return self.coordinator.describe("t")

    @property
    def producer(self) -> tuple[int, int]:
        return self.metadata.producer_id, self.metadata.producer_epoch

    def at_epoch(self, epoch: int) -> tuple[int, int]:
        """As if it had been initialised that often."""
        metadata = TransactionMetadata("t", 7, epoch, TIMEOUT_MS, updated_ms=self.clock.now_ms())
        self.coordinator.restore(encode_key("t"), encode_value(metadata))
        return 7, epoch

    def refused(self, error: type[FoldlogError], producer: tuple[int, int], commit: bool, version: int) -> None:
        before = self.metadata
        with pytest.raises(error):
            self.coordinator.end("t", *producer, commit=commit, client_version=version)
        assert self.metadata is before


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_producer_gets_a_new_id_and_each_next_one_a_higher_epoch(bench: Bench) -> None:
    assert bench.init() == (100, 0)
    assert bench.init() == (100, 1)
    assert bench.init("other") == (101, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_outside_the_bounds_is_refused(bench: Bench, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout):
        bench.coordinator.init("t", timeout_ms, -1, -1, 2)


def test_an_empty_transactional_id_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidArgument):
        bench.init("")


def test_a_new_producer_aborts_the_open_transaction_of_the_one_before_and_fences_it(bench: Bench) -> None:
    old = bench.init()
    bench.add(old)
    found = bench.apply(bench.coordinator.init("t", TIMEOUT_MS, -1, -1, 2))
    assert (found.state, found.producer_epoch) == (State.PREPARE_ABORT, 1)
    assert found.partitions == {KEY}
    with pytest.raises(ConcurrentTransactions):
        bench.coordinator.init("t", TIMEOUT_MS, -1, -1, 2)
    bench.complete()
    new = bench.init()
    assert new == (100, 2)
    for call in (
        lambda: bench.coordinator.add("t", *old, [KEY], 2),
        lambda: bench.coordinator.verify("t", *old, [KEY]),
        lambda: bench.coordinator.end("t", *old, commit=True, client_version=2),
        lambda: bench.coordinator.end("t", *old, commit=False, client_version=1),
        lambda: bench.coordinator.init("t", TIMEOUT_MS, *old, 2),
    ):
        with pytest.raises(ProducerFenced):
            call()


def test_a_producer_continues_after_an_error_and_a_lost_answer_comes_again(bench: Bench) -> None:
    first = bench.init()
    second = bench.init("t", *first)
    assert second == (100, 1)
    assert bench.init("t", *first) == second
    assert bench.init("t", *second) == (100, 2)
    with pytest.raises(ProducerFenced):
        bench.init("t", *first)
    with pytest.raises(ProducerFenced):
        bench.init("t", 55, 1)


def test_a_producer_that_continues_aborts_its_own_open_transaction(bench: Bench) -> None:
    first = bench.init()
    bench.add(first)
    second = bench.init("t", *first)
    assert second == (100, 1)
    assert bench.init("t", *first) == second


def test_a_zombie_that_wants_to_continue_leaves_the_transaction_of_its_successor_alone(bench: Bench) -> None:
    zombie = bench.init()
    bench.add(bench.init())
    with pytest.raises(ProducerFenced):
        bench.coordinator.init("t", TIMEOUT_MS, *zombie, 2)
    assert bench.metadata.state is State.ONGOING


def test_partitions_are_added_once(bench: Bench) -> None:
    producer = bench.init()
    first = bench.add(producer)
    assert (first.state, first.start_ms) == (State.ONGOING, bench.clock.now_ms())
    bench.clock.advance(5)
    assert bench.coordinator.add("t", *producer, [KEY], 2) is first
    both = bench.add(producer, OTHER)
    assert both.partitions == {KEY, OTHER}
    assert both.start_ms == first.start_ms


def test_only_what_was_added_may_be_written(bench: Bench) -> None:
    producer = bench.init()
    assert isinstance(bench.coordinator.verify("t", *producer, [KEY])[KEY], TransactionAbortable)
    bench.add(producer)
    found = bench.coordinator.verify("t", *producer, [KEY, OTHER])
    assert found[KEY] is None
    assert isinstance(found[OTHER], TransactionAbortable)
    with pytest.raises(InvalidProducerIdMapping):
        bench.coordinator.verify("t", 1, 0, [KEY])
    with pytest.raises(InvalidProducerIdMapping):
        bench.coordinator.verify("unknown", *producer, [KEY])
    bench.prepare(producer, True, 1)
    with pytest.raises(ConcurrentTransactions):
        bench.coordinator.verify("t", *producer, [KEY])
    with pytest.raises(ConcurrentTransactions):
        bench.coordinator.add("t", *producer, [KEY], 2)


@pytest.mark.parametrize("commit", [True, False])
def test_version_1_keeps_the_epoch_and_answers_a_repeated_end_as_the_first(bench: Bench, commit: bool) -> None:
    producer = bench.init()
    bench.add(producer)
    prepared = bench.prepare(producer, commit, 1)
    assert prepared.state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    bench.refused(ConcurrentTransactions, producer, commit, 1)
    bench.refused(InvalidTransactionState, producer, not commit, 1)
    bench.complete()
    assert bench.producer == producer
    assert bench.prepare(producer, commit, 1) is bench.metadata
    bench.refused(InvalidTransactionState, producer, not commit, 1)
    bench.add(producer)
    assert bench.metadata.partitions == {KEY}


def test_version_1_has_nothing_to_end_in_an_empty_id(bench: Bench) -> None:
    producer = bench.init()
    for commit in (True, False):
        bench.refused(InvalidTransactionState, producer, commit, 1)


@pytest.mark.parametrize("commit", [True, False])
def test_version_2_raises_the_epoch_with_each_end_and_answers_a_repeated_one_as_the_first(
    bench: Bench, commit: bool
) -> None:
    producer = bench.init()
    bench.add(producer)
    prepared = bench.prepare(producer, commit, 2)
    assert prepared.producer_epoch == 1
    bench.refused(ConcurrentTransactions, producer, commit, 2)
    bench.refused(InvalidTransactionState, producer, not commit, 2)
    bench.complete()
    assert bench.producer == (100, 1)
    assert bench.prepare(producer, commit, 2) is bench.metadata
    bench.refused(InvalidTransactionState, producer, not commit, 2)
    bench.refused(InvalidTransactionState, (100, 1), True, 2)
    bench.refused(ProducerFenced, (100, 2), True, 2)
    bench.add((100, 1))
    bench.refused(ProducerFenced, producer, commit, 2)


def test_version_2_aborts_without_an_open_transaction_by_raising_the_epoch(bench: Bench) -> None:
    producer = bench.init()
    bench.refused(InvalidTransactionState, producer, True, 2)
    assert bench.end(producer, commit=False) == (100, 1)
    assert bench.end(producer, commit=False) == (100, 1)
    assert bench.end((100, 1), commit=False) == (100, 2)
    bench.refused(ProducerFenced, producer, False, 2)


def test_a_repeated_end_from_an_empty_id_is_fenced(bench: Bench) -> None:
    producer = bench.init()
    bench.init()
    bench.refused(ProducerFenced, producer, False, 2)


def test_a_zombie_of_version_2_is_not_answered_with_an_end_of_version_1_by_its_successor(bench: Bench) -> None:
    zombie = bench.init()
    heir = bench.init()
    bench.add(heir)
    bench.end(heir, commit=False, version=1)
    bench.refused(ProducerFenced, zombie, False, 2)


def test_when_the_epochs_are_used_up_the_end_brings_a_new_producer_id(bench: Bench) -> None:
    producer = bench.at_epoch(EPOCH_MAX - 1)
    bench.add(producer)
    prepared = bench.prepare(producer, True, 2)
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (7, EPOCH_MAX, 100)
    bench.refused(ConcurrentTransactions, producer, True, 2)
    bench.complete()
    assert bench.producer == (100, 0)
    assert bench.end(producer, commit=True) == (100, 0)
    bench.refused(InvalidTransactionState, producer, False, 2)
    bench.add((100, 0))
    with pytest.raises(InvalidProducerIdMapping):
        bench.end(producer, commit=True)


def test_when_the_epochs_are_used_up_init_brings_a_new_producer_id_and_a_lost_answer_comes_again(bench: Bench) -> None:
    producer = bench.at_epoch(EPOCH_MAX - 1)
    assert bench.init("t", *producer) == (100, 0)
    assert bench.init("t", *producer) == (100, 0)
    assert bench.init() == (100, 1)
    with pytest.raises(ProducerFenced):
        bench.init("t", *producer)


def test_the_last_epoch_is_given_again_if_the_answer_was_lost(bench: Bench) -> None:
    producer = bench.at_epoch(EPOCH_MAX - 2)
    assert bench.init("t", *producer) == bench.init("t", *producer) == (7, EPOCH_MAX - 1)


def test_an_abort_at_the_last_epoch_leaves_one_that_no_client_gets(bench: Bench) -> None:
    producer = bench.at_epoch(EPOCH_MAX - 1)
    bench.add(producer)
    bench.apply(bench.coordinator.fence("t"))
    assert bench.producer == (7, EPOCH_MAX)
    bench.complete()
    assert bench.init("t", *producer) == (100, 0)


def test_a_transaction_is_due_when_its_timeout_has_passed_since_it_began(bench: Bench) -> None:
    producer = bench.init()
    bench.clock.advance(TIMEOUT_MS)
    assert bench.coordinator.next_deadline_ms() is None
    bench.add(producer)
    bench.clock.advance(TIMEOUT_MS - 1)
    bench.add(producer, OTHER)
    assert not bench.coordinator.is_due("t")
    assert bench.coordinator.due() == []
    bench.clock.advance(1)
    assert bench.coordinator.is_due("t")
    assert bench.coordinator.due() == ["t"]
    bench.apply(bench.coordinator.fence("t"))
    assert bench.coordinator.due() == []
    assert bench.coordinator.next_deadline_ms() is None
    bench.complete()
    bench.refused(ProducerFenced, producer, True, 1)
    bench.refused(InvalidTransactionState, producer, True, 2)
    assert bench.end(producer, commit=False, version=2) == (100, 1)


def test_after_a_restart_a_transaction_has_the_rest_of_its_time(bench: Bench) -> None:
    for passed_ms, left_ms in ((0, TIMEOUT_MS), (10, TIMEOUT_MS - 10), (TIMEOUT_MS + 9, 0), (-5, TIMEOUT_MS)):
        start_ms = bench.clock.now_ms() - passed_ms
        metadata = TransactionMetadata(
            "t", 7, 0, TIMEOUT_MS, State.ONGOING, frozenset({KEY}), start_ms=start_ms, updated_ms=start_ms
        )
        bench.coordinator.restore(encode_key("t"), encode_value(metadata))
        assert bench.coordinator.next_deadline_ms() == bench.clock.monotonic_ms() + left_ms


def test_what_has_no_open_transaction_cannot_be_aborted_by_an_operator(bench: Bench) -> None:
    with pytest.raises(UnknownTransactionalId):
        bench.coordinator.fence("t")
    bench.init()
    with pytest.raises(InvalidTransactionState):
        bench.coordinator.fence("t")


def test_ids_expire_unless_their_transaction_is_open_or_being_ended(bench: Bench) -> None:
    week_ms = bench.coordinator.settings.id_expiration_ms
    producer = bench.init()
    bench.add(producer)
    bench.clock.advance(week_ms)
    assert bench.coordinator.expired() == []
    bench.prepare(producer, True, 1)
    bench.clock.advance(week_ms)
    assert bench.coordinator.expired() == []
    bench.complete()
    bench.clock.advance(week_ms - 1)
    assert bench.coordinator.expired() == []
    bench.clock.advance(1)
    assert bench.coordinator.expired() == ["t"]
    bench.coordinator.forget("t")
    assert bench.coordinator.id_of_producer(100) is None
    with pytest.raises(InvalidProducerIdMapping):
        bench.coordinator.add("t", *producer, [KEY], 2)
    assert bench.init() == (101, 0)


def test_ids_and_partitions_are_bounded() -> None:
    bench = Bench(TransactionSettings(ids_max=2, partitions_max=3))
    producer, other = bench.init(), bench.init("other")
    with pytest.raises(TooManyTransactions):
        bench.init("third")
    bench.add(producer, KEY, OTHER)
    with pytest.raises(TooManyTransactions):
        bench.add(other, KEY, OTHER, name="other")
    bench.add(other, KEY, name="other")
    bench.end(producer)
    bench.add(other, OTHER, name="other")


def test_transactions_are_listed_by_state_producer_duration_and_name(bench: Bench) -> None:
    producer = bench.init()
    bench.add(bench.init("other"), name="other")
    bench.clock.advance(100)
    bench.add(producer)

    def names(**wanted: object) -> list[str]:
        now_ms = bench.clock.now_ms()
        found = select(bench.coordinator.all(), now_ms, **wanted)  # type: ignore[arg-type]
        return [one.transactional_id for one in found]

    assert names() == ["other", "t"]
    assert names(states=["Ongoing"]) == ["other", "t"]
    assert names(states=["Empty"]) == []
    assert names(producer_ids=[100]) == ["t"]
    assert names(min_duration_ms=50) == ["other"]
    assert names(is_wanted=lambda name: name == "t") == ["t"]
    assert bench.coordinator.id_of_producer(100) == "t"
