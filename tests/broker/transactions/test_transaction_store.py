"""Transactions on real partitions, in memory: what readers of committed records see, and what survives a restart."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.small_broker import at, die, open_broker, read, writable, write
from broker.transactions.transactional_broker import TIMEOUT_MS, Producer, batch, read_committed
from foldlog.broker.broker import Broker
from foldlog.broker.groups.messages import JoinRequest
from foldlog.broker.topics.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from foldlog.broker.transactions.state_format import TransactionMetadata, TransactionState
from foldlog.broker.transactions.store import MarkersToWrite
from foldlog.broker.upkeep import Job
from foldlog.errors import (
    ConcurrentTransactions,
    InvalidArgument,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTopicName,
    InvalidTransactionState,
    LogClosed,
    PartitionPoisoned,
    ProducerFenced,
    ReadOnly,
    StorageError,
    StorageFull,
    TransactionAbortable,
    UnknownMember,
    UnknownTopic,
    UnknownTransactionalId,
    UnstableOffsets,
)
from foldlog.files.memory import MemoryFiles
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind
from foldlog.testing.sim_clock import SimClock

VERSIONS = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def broker(files: MemoryFiles, clock: SimClock) -> Iterator[Broker]:
    with open_broker(files, clock) as opened:
        opened.create_topic("orders", 2)
        opened.create_topic("refunds", 1)
        yield opened


def state_of(broker: Broker, name: str = "t") -> TransactionState:
    (found,) = broker.transactions.describe([name])
    assert isinstance(found, TransactionMetadata)
    return found.state


def committed(broker: Broker, group: str = "g") -> dict[tuple[str, int], int]:
    return {key: found.offset for key, found in broker.committed(group).items()}


@VERSIONS
def test_records_count_together_when_the_transaction_is_committed(broker: Broker, version: int) -> None:
    producer = Producer(broker, version=version)
    producer.send("orders", 0, b"a", b"b")
    producer.send("refunds", 0, b"c")
    write(broker, "orders", 0, b"plain")
    assert read(broker, "orders") == [b"a", b"b", b"plain"]
    assert read_committed(broker, "orders") == read_committed(broker, "refunds") == []
    producer.commit()
    assert read_committed(broker, "orders") == [b"a", b"b", b"plain"]
    assert read_committed(broker, "refunds") == [b"c"]
    assert state_of(broker) is TransactionState.COMPLETE_COMMIT


@VERSIONS
def test_records_of_an_aborted_transaction_never_count(broker: Broker, version: int) -> None:
    producer = Producer(broker, version=version)
    producer.send("orders", 0, b"a")
    producer.abort()
    producer.send("orders", 0, b"b")
    producer.commit()
    assert read(broker, "orders") == [b"a", b"b"]
    assert read_committed(broker, "orders") == [b"b"]


@VERSIONS
def test_a_transaction_goes_on_after_a_restart(files: MemoryFiles, clock: SimClock, version: int) -> None:
    broker = open_broker(files, clock)
    broker.create_topic("orders")
    producer = Producer(broker, version=version)
    producer.send("orders", 0, b"a")
    broker.close()
    with open_broker(files, clock) as broker:
        producer.broker = broker
        assert read_committed(broker, "orders") == []
        producer.send("orders", 0, b"b")
        producer.commit()
        assert read_committed(broker, "orders") == [b"a", b"b"]


@VERSIONS
def test_a_new_producer_aborts_and_fences_the_one_before(broker: Broker, version: int) -> None:
    zombie = Producer(broker, version=version)
    zombie.send("orders", 0, b"zombie")
    heir = Producer(broker, version=version)
    with pytest.raises(InvalidProducerEpoch):
        zombie.send("orders", 0, b"late")
    with pytest.raises(ProducerFenced):
        zombie.send("orders", 1, b"late")
    with pytest.raises(ProducerFenced):
        zombie.commit()
    with pytest.raises(ProducerFenced):
        zombie.commit_offsets("g", 1)
    heir.send("orders", 0, b"heir")
    heir.commit()
    assert read_committed(broker, "orders") == [b"heir"]


def test_nothing_is_written_to_a_partition_that_was_not_added(broker: Broker) -> None:
    producer = Producer(broker, version=1)
    with pytest.raises(TransactionAbortable):
        producer.produce("orders", 0, b"a")
    producer.add(("orders", 0))
    producer.produce("orders", 0, b"a")
    with pytest.raises(TransactionAbortable):
        producer.produce("orders", 1, b"b")
    assert read(broker, "orders", 1) == []
    assert broker.transactions.verify("t", *producer.identity, [("orders", 0)]) == {("orders", 0): None}
    producer.commit()
    with pytest.raises(TransactionAbortable):
        producer.produce("orders", 0, b"late")
    assert read(broker, "orders") == [b"a"]


def test_what_no_coordinator_knows_is_refused(broker: Broker) -> None:
    partition = writable(broker, "orders")
    records = batch((5, 0), 0, [b"a"], 0)
    with pytest.raises(InvalidArgument):
        broker.transactions.append(None, partition, records, add=True)
    with pytest.raises(InvalidProducerIdMapping):
        broker.transactions.append("t", partition, records, add=True)
    producer = Producer(broker)
    with pytest.raises(UnknownTopic):
        producer.add(("orders", 0), ("nowhere", 0))
    assert state_of(broker) is TransactionState.EMPTY


def test_batches_of_two_producers_are_not_taken_together(broker: Broker) -> None:
    producer = Producer(broker)
    records = batch(producer.identity, 0, [b"a"], 0) + batch((99, 0), 0, [b"b"], 0)
    with pytest.raises(ValueError, match="batch"):
        broker.transactions.append("t", writable(broker, "orders"), records, add=True)
    assert read(broker, "orders") == []


@VERSIONS
def test_a_lost_answer_comes_again(broker: Broker, version: int) -> None:
    producer = Producer(broker, version=version)
    producer.send("orders", 0, b"a")
    asked = producer.identity
    producer.commit()
    again = broker.transactions.end("t", *asked, commit=True, client_version=version)
    assert again == producer.identity
    with pytest.raises(InvalidTransactionState):
        broker.transactions.end("t", *asked, commit=False, client_version=version)
    assert len(read(broker, "orders")) == 1


def test_version_2_aborts_what_has_not_begun(broker: Broker) -> None:
    producer = Producer(broker)
    producer.abort()
    assert producer.identity[1] == 1
    producer.send("orders", 0, b"a")
    producer.commit()
    assert read_committed(broker, "orders") == [b"a"]


# --- time -------------------------------------------------------------------------------------------------------------


@VERSIONS
def test_upkeep_aborts_a_transaction_whose_time_is_over(broker: Broker, clock: SimClock, version: int) -> None:
    producer = Producer(broker, version=version)
    producer.send("orders", 0, b"a")
    write(broker, "orders", 0, b"plain")
    clock.advance(TIMEOUT_MS - 1)
    assert Job.TRANSACTIONS not in broker.run_due()
    clock.advance(1)
    assert Job.TRANSACTIONS in broker.run_due()
    assert state_of(broker) is TransactionState.COMPLETE_ABORT
    assert read_committed(broker, "orders") == [b"plain"]
    with pytest.raises(InvalidProducerEpoch):
        producer.send("orders", 0, b"late")


def test_a_request_finds_that_the_time_is_over_before_upkeep_does(broker: Broker, clock: SimClock) -> None:
    one, two = Producer(broker, "one", version=1), Producer(broker, "two", version=2)
    for producer in (one, two):
        producer.send("orders", 0, b"a")
    clock.advance(TIMEOUT_MS)
    with pytest.raises(ProducerFenced):
        one.commit()
    with pytest.raises(InvalidTransactionState):
        two.commit()
    two.abort()
    two.send("orders", 0, b"b")
    two.commit()
    assert read_committed(broker, "orders") == [b"b"]


def test_time_goes_on_while_the_log_is_closed(files: MemoryFiles, clock: SimClock) -> None:
    with open_broker(files, clock) as broker:
        broker.create_topic("orders")
        Producer(broker).send("orders", 0, b"a")
    clock.advance(TIMEOUT_MS - 10)
    with open_broker(files, clock) as broker:
        broker.run_due()
        assert state_of(broker) is TransactionState.ONGOING
        clock.advance(10)
        broker.run_due()
        assert state_of(broker) is TransactionState.COMPLETE_ABORT


def test_ids_that_nobody_uses_expire(files: MemoryFiles, clock: SimClock) -> None:
    broker = open_broker(files, clock)
    Producer(broker, "old")
    clock.advance(6 * 24 * 3_600_000)
    Producer(broker, "young")
    clock.advance(24 * 3_600_000)
    broker.run_due()
    assert [found.transactional_id for found in broker.transactions.list()] == ["young"]
    broker.close()
    with open_broker(files, clock) as broker:
        assert [found.transactional_id for found in broker.transactions.list()] == ["young"]
        assert isinstance(broker.transactions.describe(["old"])[0], UnknownTransactionalId)


# --- offsets ----------------------------------------------------------------------------------------------------------


@VERSIONS
def test_offsets_count_with_their_transaction(broker: Broker, version: int) -> None:
    broker.commit_offsets("g", {("orders", 0): at(1)})
    producer = Producer(broker, version=version)
    producer.commit_offsets("g", 5)
    assert committed(broker) == {("orders", 0): 1}
    assert broker.unstable_offsets("g") == {("orders", 0)}
    assert broker.unstable_offsets("g", [("orders", 1)]) == set()
    with pytest.raises(UnstableOffsets):
        broker.committed("g", [("orders", 0)], require_stable=True)
    assert broker.committed("g", [("orders", 1)], require_stable=True) == {}
    producer.abort()
    assert committed(broker) == {("orders", 0): 1}
    producer.commit_offsets("g", 6)
    producer.commit()
    assert committed(broker) == {("orders", 0): 6}
    assert broker.committed("g", require_stable=True)["orders", 0].offset == 6


def test_offsets_of_a_group_that_was_not_added_are_refused(broker: Broker) -> None:
    producer = Producer(broker, version=1)
    producer.send("orders", 0, b"a")
    with pytest.raises(TransactionAbortable):
        broker.transactions.commit_offsets("t", *producer.identity, "g", {("orders", 0): at(1)})


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("ends_before", [True, False])
def test_offsets_are_the_same_after_a_restart(
    files: MemoryFiles, clock: SimClock, commit: bool, ends_before: bool
) -> None:
    broker = open_broker(files, clock)
    broker.create_topic("orders", 3)
    producer = Producer(broker)
    for number in range(3):
        broker.commit_offsets("g", {("orders", number): at(number)})
    producer.commit_offsets("g", 10)
    producer.commit_offsets("g", 11, "orders", 1)
    broker.commit_offsets("g", {("orders", 1): at(99)})  # after the other, which does not replace it later
    if ends_before:
        producer.end(commit=commit)
    broker.close()
    broker = producer.broker = open_broker(files, clock)
    with open_broker(files, clock, mode="r") as reader:
        assert committed(reader) == committed(broker)
        assert reader.unstable_offsets("g") == broker.unstable_offsets("g")
        if not ends_before:
            assert committed(broker) == {("orders", 0): 0, ("orders", 1): 99, ("orders", 2): 2}
            assert broker.unstable_offsets("g") == {("orders", 0), ("orders", 1)}
            producer.end(commit=commit)
        assert committed(broker) == {("orders", 0): 10 if commit else 0, ("orders", 1): 99, ("orders", 2): 2}
        assert committed(reader) == committed(broker)
        assert reader.unstable_offsets("g") == set()
    broker.close()


def test_offsets_in_a_deleted_topic_are_gone_before_the_transaction_ends(broker: Broker) -> None:
    producer = Producer(broker)
    producer.commit_offsets("g", 5)
    producer.commit_offsets("g", 7, "refunds")
    broker.delete_topic("orders")
    broker.create_topic("orders")
    producer.commit()
    assert committed(broker) == {("refunds", 0): 7}


def test_a_deleted_group_does_not_come_back_with_a_transaction(broker: Broker) -> None:
    producer = Producer(broker)
    producer.commit_offsets("g", 5)
    assert broker.group_names() == ["g"]
    broker.delete_group("g")
    producer.commit()
    assert broker.group_names() == []


def test_members_are_checked_as_for_other_commits(broker: Broker) -> None:
    producer = Producer(broker)
    with pytest.raises(Exception, match="rebalanced"):
        broker.transactions.commit_offsets(
            "t", *producer.identity, "g", {("orders", 0): at(1)}, member_id="m", generation=3, add=True
        )
    producer.commit()
    assert committed(broker) == {}


def test_a_producer_that_says_nothing_of_a_member_commits_beside_the_members(broker: Broker) -> None:
    with broker.coordinator() as coordinator:
        coordinator.join(JoinRequest("g", "consumer", (("range", b""),), 10_000, 10_000), lambda result: None)
    with pytest.raises(UnknownMember):
        broker.commit_offsets("g", {("orders", 0): at(1)})
    producer = Producer(broker)
    producer.commit_offsets("g", 5)
    producer.commit()
    assert committed(broker) == {("orders", 0): 5}


# --- topics and operators ---------------------------------------------------------------------------------------------


@VERSIONS
def test_a_topic_that_is_deleted_meanwhile_needs_no_marker(broker: Broker, version: int) -> None:
    producer = Producer(broker, version=version)
    producer.send("orders", 0, b"a")
    producer.send("refunds", 0, b"b")
    broker.delete_topic("orders")
    producer.commit()
    assert state_of(broker) is TransactionState.COMPLETE_COMMIT
    assert read_committed(broker, "refunds") == [b"b"]


def test_an_operator_aborts_a_transaction(broker: Broker) -> None:
    producer = Producer(broker)
    producer.send("orders", 0, b"a")
    (held,) = broker.transactions.open_at("orders", 0)
    assert (held.transactional_id, held.producer_id, held.first_offset) == ("t", producer.identity[0], 0)
    broker.transactions.abort("t")
    assert broker.transactions.open_at("orders", 0) == []
    assert read_committed(broker, "orders") == []
    with pytest.raises(InvalidProducerEpoch):
        producer.send("orders", 0, b"late")
    with pytest.raises(InvalidTransactionState):
        broker.transactions.abort("t")
    with pytest.raises(UnknownTransactionalId):
        broker.transactions.abort("nobody")


def test_markers_are_written_as_told(broker: Broker) -> None:
    producer = Producer(broker)
    producer.send("orders", 0, b"a")
    producer.commit_offsets("g", 5)
    producer_id, epoch = producer.identity
    keys = (("orders", 0), (OFFSETS_TOPIC, 0), ("nowhere", 0))
    (result,) = broker.transactions.write_markers([MarkersToWrite(producer_id, epoch, 0, True, keys)])
    assert result["orders", 0] is result[OFFSETS_TOPIC, 0] is None
    assert isinstance(result["nowhere", 0], UnknownTopic)
    assert read_committed(broker, "orders") == [b"a"]
    assert committed(broker) == {("orders", 0): 5}


def test_transactions_are_listed(broker: Broker, clock: SimClock) -> None:
    Producer(broker, "a.idle")
    busy = Producer(broker, "b.busy")
    busy.send("orders", 1, b"a")
    clock.advance(10)

    def names(**wanted: object) -> list[str]:
        return [found.transactional_id for found in broker.transactions.list(**wanted)]  # type: ignore[arg-type]

    assert names() == ["a.idle", "b.busy"]
    assert names(states=["Ongoing"]) == names(min_duration_ms=5) == names(id_pattern="b.*") == ["b.busy"]
    assert names(producer_ids=[busy.identity[0]]) == ["b.busy"]
    assert names(id_pattern="b") == []
    with pytest.raises(InvalidArgument):
        names(id_pattern="(")
    (found,) = broker.transactions.list(states=["Ongoing"])
    assert found.partitions == {("orders", 1)}


def test_a_reading_process_lists_and_does_nothing_else(files: MemoryFiles, broker: Broker, clock: SimClock) -> None:
    producer = Producer(broker)
    with open_broker(files, clock, mode="r") as reader:
        assert state_of(reader) is TransactionState.EMPTY
        producer.send("orders", 0, b"a")
        clock.advance(100)
        assert state_of(reader) is TransactionState.ONGOING
        for call in (
            lambda: reader.transactions.init_producer("t", 1),
            lambda: reader.transactions.abort("t"),
            lambda: reader.transactions.open_at("orders", 0),
        ):
            with pytest.raises(ReadOnly):
                call()


def test_a_closed_log_refuses(files: MemoryFiles, clock: SimClock) -> None:
    broker = open_broker(files, clock)
    store = broker.transactions
    broker.close()
    with pytest.raises(LogClosed):
        store.init_producer("t", 1)
    with pytest.raises(LogClosed):
        _ = broker.transactions


def test_the_topic_is_the_logs_own(broker: Broker) -> None:
    Producer(broker)
    assert TRANSACTIONS_TOPIC not in broker.topics()
    assert broker.topic(TRANSACTIONS_TOPIC).config.settings["cleanup.policy"] == "compact"
    for call in (
        lambda: broker.delete_topic(TRANSACTIONS_TOPIC),
        lambda: broker.grow_topic(TRANSACTIONS_TOPIC, 5),
        lambda: broker.alter_topic(TRANSACTIONS_TOPIC, {"retention.ms": 1}),
    ):
        with pytest.raises(InvalidTopicName):
            call()


def test_compaction_keeps_the_newest_state_of_each_id(files: MemoryFiles, clock: SimClock) -> None:
    broker = open_broker(files, clock)
    broker.create_topic("orders")
    first, second = Producer(broker, "first"), Producer(broker, "second")
    for _ in range(20):
        first.send("orders", 0, b"a")
        first.commit()
    second.send("orders", 0, b"open")
    writable(broker, TRANSACTIONS_TOPIC).roll()
    broker.compact(TRANSACTIONS_TOPIC)
    before = broker.transactions.list()
    die(files)
    with open_broker(files, clock) as broker:
        after = broker.transactions.list()
        assert [(one.producer_id, one.producer_epoch, one.state) for one in after] == [
            (one.producer_id, one.producer_epoch, one.state) for one in before
        ]
        first.broker = second.broker = broker
        second.commit()
        first.send("orders", 0, b"again")
        first.commit()
        assert read_committed(broker, "orders")[-2:] == [b"open", b"again"]


# --- faults and threads -----------------------------------------------------------------------------------------------


@VERSIONS
def test_a_partition_that_cannot_take_its_marker_gets_it_later(clock: SimClock, version: int) -> None:
    files = FaultyFiles(MemoryFiles())
    with open_broker(files, clock) as broker:
        broker.create_topic("orders")
        broker.create_topic("refunds")
        producer = Producer(broker, version=version)
        for topic in ("orders", "refunds"):
            producer.send(topic, 0, b"a")
        files.fault = Fault(
            lambda asked: errno.ENOSPC if asked.kind is Kind.WRITE and "refunds-0/" in asked.path else 0
        )
        producer.commit()
        assert state_of(broker) is TransactionState.PREPARE_COMMIT
        assert read_committed(broker, "orders") == [b"a"]
        assert read_committed(broker, "refunds") == []
        assert any("ending a transaction of 't' in refunds-0" in text for text in broker.warnings())
        with pytest.raises(ConcurrentTransactions):
            producer.send("orders", 0, b"b")
        files.fault = NO_FAULT
        clock.advance(10_000)
        assert Job.TRANSACTIONS in broker.run_due()
        assert state_of(broker) is TransactionState.COMPLETE_COMMIT
        assert read_committed(broker, "refunds") == [b"a"]
        producer.send("orders", 0, b"b")
        producer.commit()
        assert read_committed(broker, "orders") == [b"a", b"b"]


def test_a_decision_that_could_not_be_written_was_not_made(clock: SimClock) -> None:
    files = FaultyFiles(MemoryFiles())
    with open_broker(files, clock) as broker:
        broker.create_topic("orders")
        producer = Producer(broker)
        producer.send("orders", 0, b"a")
        files.fault = Fault(lambda asked: errno.ENOSPC if asked.kind is Kind.WRITE else 0)
        with pytest.raises(StorageFull):
            producer.commit()
        files.fault = NO_FAULT
        assert state_of(broker) is TransactionState.ONGOING
        producer.commit()
        assert read_committed(broker, "orders") == [b"a"]


def test_a_decision_whose_sync_failed_has_no_markers_until_the_log_is_opened_again(clock: SimClock) -> None:
    files = FaultyFiles(MemoryFiles())
    broker = open_broker(files, clock)
    broker.create_topic("orders")
    producer = Producer(broker)
    producer.send("orders", 0, b"a")
    files.fault = Fault(lambda asked: errno.EIO if asked.kind is Kind.SYNC and TRANSACTIONS_TOPIC in asked.path else 0)
    with pytest.raises(PartitionPoisoned):
        producer.commit()
    files.fault = NO_FAULT
    clock.advance(10_000)
    broker.run_due()
    for _ in range(2):
        with pytest.raises(PartitionPoisoned):
            producer.commit()
    assert read_committed(broker, "orders") == []
    with contextlib.suppress(StorageError):
        broker.close()
    with open_broker(files, clock) as broker:
        producer.broker = broker
        # The open decides what is on disk: here the commit was cut off, and the transaction goes on.
        assert state_of(broker) is TransactionState.ONGOING
        producer.commit()
        assert read_committed(broker, "orders") == [b"a"]


def test_producers_on_many_threads(tmp_path: Path) -> None:
    """Real files and threads: eight producers, half of them with a zombie that wants the same id."""
    with Broker.open(str(tmp_path / "data")) as broker:
        broker.create_topic("orders", 3)
        faults: list[BaseException] = []
        expected: list[bytes] = []

        def work(index: int) -> None:
            try:
                producer = Producer(broker, f"t{index}", version=1 + index % 2)
                for turn in range(6):
                    value = f"{index}-{turn}".encode()
                    for number in range(3):
                        producer.send("orders", number, value)
                    producer.commit_offsets(f"g{index}", turn)
                    if index < 4 and turn == 3:
                        producer = Producer(broker, f"t{index}", version=1 + index % 2)
                        continue
                    producer.end(commit=turn % 2 == 0)
                    if turn % 2 == 0:
                        expected.append(value)
            except BaseException as error:  # noqa: BLE001  the main thread reports it
                faults.append(error)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults
        for number in range(3):
            assert sorted(read_committed(broker, "orders", number)) == sorted(expected)
            assert broker.transactions.open_at("orders", number) == []
        assert {committed(broker, f"g{index}")["orders", 0] for index in range(8)} == {4}


def test_a_directory_that_is_opened_for_moments_only_does_not_read_more_and_more(
    files: MemoryFiles, clock: SimClock
) -> None:
    with open_broker(files, clock) as broker:
        broker.create_topic("orders", 1)
        producer = Producer(broker, "etl")
        other = Producer(broker, "other")
        for number in range(400):
            producer.send("orders", 0, b"%d" % number)
            producer.end(commit=True)
        before = [(one.transactional_id, one.producer_epoch, one.state) for one in broker.transactions.list()]
        held = len(read(broker, TRANSACTIONS_TOPIC))
    with open_broker(files, clock) as broker:
        after = [(one.transactional_id, one.producer_epoch, one.state) for one in broker.transactions.list()]
        assert after == before
        assert len(read(broker, TRANSACTIONS_TOPIC)) < 20 < held
        producer.broker = broker
        producer.send("orders", 0, b"more")
        producer.end(commit=True)
        other.broker = broker
        other.init()
    with open_broker(files, clock) as broker:
        assert len(read_committed(broker, "orders", 0)) == 401


def test_markers_are_durable_in_every_topic_that_acknowledges_before_it_syncs(broker: Broker) -> None:
    broker.create_topic("relaxed", 3, {"flush.messages": 1000})
    producer = Producer(broker)
    for number in range(3):
        producer.send("relaxed", number, b"a")
    producer.commit()
    partitions = [writable(broker, "relaxed", number) for number in range(3)]
    assert [(one.durable_offset, one.log_end_offset) for one in partitions] == [(2, 2)] * 3
