"""Commits of the sink by wire, with a real broker and without Spark: each batch is there once, as one, or not at all.

What a killed driver leaves is made here by a transaction that is begun and not ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from client.wire.simulated_cluster import SimulatedCluster
from foldlog.client.wire.admin import list_transactions
from foldlog.client.wire.cluster import COMMITS_TOPIC, STAGED_TOPIC, Cluster
from foldlog.client.wire.transactions.produce import WireTransaction
from foldlog.errors import (
    InvalidTransactionTimeout,
    ProducerFenced,
    RecordTooLarge,
    StorageError,
    TransactionError,
    UnknownTopic,
)
from foldlog.records.loops import pack
from foldlog.spark.sink import by_wire, wire_commits
from foldlog.spark.sink.options import SinkOptions
from foldlog.spark.sink.wire_commits import commit_record, ensure_commits, last_version
from foldlog.spark.sink.wire_committing import TRANSACTIONAL_ID_PREFIX, WireCommitter
from foldlog.testing import KafkaBroker
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from foldlog.wire.schema import Request, Response
from spark.sink.wire_batches import PARTITIONS, QUERY, TOPIC, expected, options, read, stage, write


@pytest.fixture(scope="module")
def shared() -> Iterator[KafkaBroker]:
    with KafkaBroker.launch({"transaction.max.timeout.ms": 600_000}) as broker:
        yield broker


@pytest.fixture
def broker(shared: KafkaBroker) -> Iterator[KafkaBroker]:
    """With an empty topic, and nothing committed."""
    shared.create_topic(TOPIC, PARTITIONS)
    yield shared
    for name in (TOPIC, "wide", STAGED_TOPIC, COMMITS_TOPIC):
        if name in shared.log.topics(include_internal=True):
            shared.log.delete_topic(name)


@pytest.fixture
def told(broker: KafkaBroker) -> SinkOptions:
    return options(broker)


@pytest.fixture
def cluster(broker: KafkaBroker) -> Iterator[Cluster]:
    with Cluster.open(broker) as opened:
        yield opened


def begun(cluster: Cluster, name: str = QUERY, value: bytes = b"zombie/0/000") -> WireTransaction:
    """What a driver leaves that is killed in the middle of a commit."""
    transaction = cluster.transaction(TRANSACTIONAL_ID_PREFIX + name, 60_000)
    transaction.send_all([(TOPIC, 0, pack([(0, None, value, None)]))])
    return transaction


def test_batches_are_read_committed_and_one_that_is_repeated_is_dropped(broker: KafkaBroker, told: SinkOptions) -> None:
    write(told, 0)
    write(told, 1)
    assert read(broker, is_of_one_query=True) == expected(0, 1)
    write(told, 1)
    write(told, 0)
    assert read(broker) == read(broker, "read_uncommitted") == expected(0, 1)
    write(told, 1, query="another")
    assert read(broker) == sorted(expected(0, 1) + expected(1))
    assert broker.log.topics() == [TOPIC], "the sink's own topics are not the user's"


def test_only_the_attempts_that_the_commit_names_count(broker: KafkaBroker, told: SinkOptions) -> None:
    """Of a task that Spark ran twice, at the same time or one after the other, it names one attempt."""
    failed, first, second = stage(told, 0), stage(told, 0), stage(told, 0)
    assert failed[0].batch_count == PARTITIONS
    WireCommitter(told).commit([first[0], second[1]], QUERY, QUERY, 0)
    assert read(broker) == expected(0)


def test_a_commit_that_fails_is_aborted_and_its_repetition_is_written(broker: KafkaBroker, told: SinkOptions) -> None:
    staged = stage(told, 0)
    lacking = [staged[0], replace(staged[1], batch_count=staged[1].batch_count + 1)]
    with pytest.raises(StorageError, match=f"not there any more: of {PARTITIONS + 1} batches .* nothing was written"):
        WireCommitter(told).commit(lacking, QUERY, QUERY, 0)
    assert read(broker) == []
    write(told, 0)
    assert read(broker) == expected(0)


def test_a_block_without_a_commit_leaves_records_that_only_uncommitted_readers_see(
    broker: KafkaBroker, cluster: Cluster
) -> None:
    with begun(cluster) as transaction:
        transaction._sender.flush()  # and no commit
    assert read(broker) == []
    assert read(broker, "read_uncommitted") == ["zombie/0/000"]


def test_a_driver_that_comes_later_aborts_what_the_killed_one_left_and_fences_it(
    broker: KafkaBroker, told: SinkOptions, cluster: Cluster
) -> None:
    zombie = begun(cluster)
    zombie._sender.flush()
    write(told, 0)
    assert read(broker) == expected(0), "nothing holds readers back, and nothing of the zombie counts"
    with pytest.raises(ProducerFenced, match="another process has taken over transactional id 'foldlog-sink-"):
        zombie.commit()
    with begun(cluster) as zombie:
        write(told, 1)
        with pytest.raises(ProducerFenced, match="use an id in one place"):
            zombie.send_all([(TOPIC, 1, pack([(0, None, b"zombie/0/001", None)]))])
    assert read(broker) == expected(0, 1)


def test_what_was_decided_before_the_driver_died_is_found(
    broker: KafkaBroker, told: SinkOptions, cluster: Cluster
) -> None:
    """The zombie's commit is the batch's: the one that comes later writes nothing."""
    ensure_commits(cluster)
    with cluster.transaction(TRANSACTIONAL_ID_PREFIX + QUERY, 60_000) as zombie:
        record = commit_record(QUERY, 0, 1, 0)
        zombie.send_all([(TOPIC, 0, pack([(0, None, b"once/0/000", None)])), (record.topic, 0, record.buffer)])
        zombie.commit()
    write(told, 0)
    assert read(broker) == ["once/0/000"]


def test_commits_are_found_behind_open_transactions_and_among_those_of_others(
    broker: KafkaBroker, told: SinkOptions, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_commits, "COMMITS_FIRST_OFFSETS", 2)
    ensure_commits(cluster)
    with begun(cluster, "other") as other:
        record = commit_record("other", 3, 1, 0)
        other.send_all([(record.topic, 0, record.buffer)])
        for batch in range(3):
            write(told, batch)
            for query in ("a", "b", "c"):
                write(told, batch, query)
        write(told, 2)  # no reader of committed records could see that it was written
        assert last_version(cluster, QUERY) == 2
        assert last_version(cluster, "none") is None
        other.commit()
    write(told, 1)
    assert last_version(cluster, "other") == 3
    assert read(broker) == sorted(4 * expected(0, 1, 2) + ["zombie/0/000"])


def test_a_note_that_says_nothing_and_one_of_a_transaction_that_hangs_are_told(
    told: SinkOptions, cluster: Cluster
) -> None:
    ensure_commits(cluster)
    with cluster.producer() as producer:
        producer.send(COMMITS_TOPIC, 0, pack([(0, QUERY.encode(), b"{}", None)]))
    with pytest.raises(StorageError, match="offset 0 of topic '__foldlog_commits' does not say which batch"):
        write(told, 0)
    with cluster.producer() as producer:
        producer.send(COMMITS_TOPIC, 0, pack([(0, QUERY.encode(), b'{"version":7}', None)]))
    with pytest.raises(StorageError, match="does not say"):
        last_version(cluster, QUERY)
    with begun(cluster, "not of this sender") as hanging:
        record = commit_record("hung", 0, 1, 0)
        hanging.send_all([(record.topic, 0, record.buffer)])
        hanging._sender.flush()
        with pytest.raises(StorageError, match="belongs to a transaction that nobody ends"):
            last_version(cluster, "hung")


def test_jobs_of_one_application_fence_each_other_and_a_version_is_written_once(
    broker: KafkaBroker, told: SinkOptions, cluster: Cluster
) -> None:
    """Each job has a name of its own, and yet they write under one transactional id."""
    sender = "application:nightly"
    staged = stage(told, 0)
    with begun(cluster, sender) as before:
        WireCommitter(told).commit(staged, "job-1", sender, 5)
        with pytest.raises(ProducerFenced):
            before.commit()
    for job, version in (("job-2", 5), ("job-3", 4)):
        WireCommitter(told).commit(staged, job, sender, version)
    assert read(broker) == expected(0)
    WireCommitter(told).commit(staged, "job-4")
    WireCommitter(told).commit(staged, "job-5", sender, 6)
    assert read(broker) == sorted(3 * expected(0))


def test_large_rows_and_many_partitions_pass_a_staging_topic_with_kafkas_usual_limit(broker: KafkaBroker) -> None:
    """An operator has made it, with the limit that topics have by default."""
    broker.create_topic(STAGED_TOPIC, 2)
    broker.create_topic("wide", 200)
    told = replace(options(broker), topic="wide")
    large = "x" * 1_000_000
    rows = pa.record_batch(
        {
            "value": [*(f"{number}" for number in range(2000)), large, large],
            "partition": pa.array([*(number % 200 for number in range(2000)), 0, 1], pa.int32()),
        }
    )
    WireCommitter(told).commit([by_wire.stage(told, 1, [rows])], "job")
    found = {number: [one.value for one in broker.log.read("wide", number)] for number in range(200)}
    for number, values in found.items():
        own = [f"{one}".encode() for one in range(number, 2000, 200)]
        assert values == (own if number > 1 else [*own, large.encode()])
    with pytest.raises(RecordTooLarge, match=r"over max\.message\.bytes=1048076; .*: that of '__foldlog_staged'"):
        by_wire.stage(told, 0, [pa.record_batch({"value": ["x" * 1_048_300]})])


def test_staged_rows_that_have_expired_and_topics_that_were_replaced_are_told_and_nothing_is_written(
    broker: KafkaBroker, told: SinkOptions
) -> None:
    staged = stage(told, 0)
    ends = {number: end for number, (_, end) in broker.log.offsets(STAGED_TOPIC).items()}
    broker.log.delete_records(STAGED_TOPIC, ends)
    with pytest.raises(StorageError, match=r"nothing was written; .* retention\.ms"):
        WireCommitter(told).commit(staged, QUERY, QUERY, 0)
    staged = stage(told, 0)
    broker.log.delete_topic(TOPIC)
    broker.create_topic(TOPIC, 1)
    with pytest.raises(UnknownTopic):
        WireCommitter(told).commit(staged, QUERY, QUERY, 0)
    assert read(broker, "read_uncommitted") == []


def test_a_commit_that_takes_longer_than_its_transaction_may_is_told(broker: KafkaBroker, cluster: Cluster) -> None:
    with cluster.transaction("slow", 1) as transaction:
        transaction.send_all([(TOPIC, 0, pack([(0, None, b"late/0/000", None)]))])
        while any(one.transactional_id == "slow" and one.partitions for one in list_transactions(cluster._links)):
            pass
        with pytest.raises(
            ProducerFenced, match=r"open for longer than transaction\.timeout\.ms=1, or another process"
        ):
            transaction.commit()
    assert read(broker) == []


def test_a_time_that_the_broker_does_not_allow_is_told_with_the_option(broker: KafkaBroker) -> None:
    told = options(broker, transaction_timeout_ms="900000")
    with pytest.raises(InvalidTransactionTimeout, match=r"set kafka\.transaction\.timeout\.ms to at most"):
        write(told, 0)
    assert read(broker, "read_uncommitted") == []


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION])
def test_a_broker_that_begins_no_transaction_is_told_before_any_row_and_the_way_out_with_it(code: ErrorCode) -> None:
    def refuse(node: int, request: Request) -> Response | None:
        is_begin = isinstance(request, InitProducerIdRequest) and request.transactional_id is not None
        return InitProducerIdResponse(error_code=code) if is_begin else None

    with SimulatedCluster() as simulated:
        simulated.create(TOPIC, PARTITIONS)
        simulated.interfere = refuse
        with pytest.raises(TransactionError, match=rf"{code.name}.*; option exactlyOnce=false writes without") as told:
            WireCommitter(options(simulated.address())).check("job")
        assert "\n" not in str(told.value)
        assert simulated.count("ProduceRequest") == 0
