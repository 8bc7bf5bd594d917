"""Conversations about transactions with our broker and with Apache Kafka, request by request, have the same answers.

Each conversation is a function that asks one broker, as librdkafka, Java 3 or Java 4 would, and tells what it was
answered: codes, epochs, offsets, what readers see. Where Kafka says CONCURRENT_TRANSACTIONS, since it ends transactions
after it has answered, the question is asked again, as clients do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest
from clusters.apache_kafka import ApacheKafka

from foldlog.records.batch import CONTROL_COMMIT
from foldlog.records.loops import control_batch, walk
from foldlog.testing import KafkaBroker
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from foldlog.wire.messages.api_versions import ApiVersionsRequest
from foldlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from foldlog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from foldlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from foldlog.wire.messages.find_coordinator import FindCoordinatorRequest
from foldlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from foldlog.wire.messages.list_transactions import ListTransactionsRequest
from foldlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from foldlog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from foldlog.wire.schema import Request
from server.raw_client import RawClient
from server.transaction_client import (
    JAVA_3,
    JAVA_4,
    LIBRDKAFKA,
    TransactionClient,
    Versions,
    aborted_in,
    fetch_request,
    fetched,
    values_of,
)

BOUND_S = 60
NOT_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""What a client repeats."""

STEPS = 40
SEEDS = 10

_numbers = count(1)


class PatientClient:
    """A connection that repeats a question while the broker is not ready for it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._client = RawClient((host, int(port)))
        self.name = name

    def ask(self, request: Request, version: int) -> Any:
        until = time.monotonic() + BOUND_S
        while True:
            answer = self._client.ask(request, version)
            if not codes_in(answer) & NOT_YET or time.monotonic() > until:
                return answer

    def close(self) -> None:
        self._client.close()


def codes_in(answer: Any) -> set[int]:
    """Every error code anywhere in an answer."""
    found: set[int] = set()
    for field in type(answer).SCHEMA:
        value = getattr(answer, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.add(value)
        elif field.item is not None and value is not None:
            for one in value if field.is_array else [value]:
                found |= codes_in(one)
    return found


@pytest.fixture(scope="module")
def brokers(apache_kafka: ApacheKafka) -> Iterator[tuple[PatientClient, PatientClient]]:
    with KafkaBroker.launch() as ours:
        connected = PatientClient(str(ours), "ours"), PatientClient(apache_kafka.bootstrap, "kafka")
        for one in connected:  # Kafka makes its own topics with the first question
            for key_type in (0, 1):
                one.ask(FindCoordinatorRequest(coordinator_keys=["first"], key_type=key_type), 6)
            TransactionClient(one, JAVA_4, "first").init()
        yield connected
        for one in connected:
            one.close()


class Talk:
    """One conversation with one broker: a topic with two partitions and a transactional id of its own."""

    def __init__(self, broker: PatientClient, versions: Versions, number: int) -> None:
        self.broker = broker
        self.versions = versions
        self.number = number
        self.topic = f"transactions-{number}"
        self.group = f"transactions-{number}"
        self.zero, self.one = (self.topic, 0), (self.topic, 1)
        topic = CreatableTopic(name=self.topic, num_partitions=2, replication_factor=1)
        made = broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
        assert made.topics[0].error_code == 0
        self._wait_for_leaders()

    def _wait_for_leaders(self) -> None:
        until = time.monotonic() + BOUND_S
        for place in (self.zero, self.one):
            while True:
                answer = self.broker.ask(fetch_request(place, committed=False), 11)
                if not answer.responses[0].partitions[0].error_code:
                    break
                assert time.monotonic() < until

    def producer(self, name: str = "tx", **versions: int) -> TransactionClient:
        # With the time of now: Kafka would begin a segment at a marker that is years younger than the records.
        stamp_ms = int(time.time() * 1000)
        return TransactionClient(self.broker, self.versions._replace(**versions), f"{name}-{self.number}", stamp_ms)

    def begun(self, name: str = "tx", **versions: int) -> TransactionClient:
        producer = self.producer(name, **versions)
        assert producer.init() == 0
        return producer

    def settle(self, *names: str) -> str:
        """Wait until the last transaction of the id is complete; its state."""
        until = time.monotonic() + BOUND_S
        while True:
            found = self.described("tx")
            if not str(found[0]).startswith("Prepare") or time.monotonic() > until:
                return str(found[0])

    def described(self, name: str) -> tuple[Any, ...]:
        request = DescribeTransactionsRequest(transactional_ids=[f"{name}-{self.number}"])
        (one,) = self.broker.ask(request, 0).transaction_states
        topics = [(topic.topic, sorted(topic.partitions)) for topic in one.topics]
        return one.transaction_state, one.error_code, one.transaction_timeout_ms, one.producer_epoch, topics

    def seen(self, place: tuple[str, int], *, committed: bool, offset: int = 0) -> tuple[Any, ...]:
        found = fetched(self.broker, place, offset, committed=committed)
        batches = [
            (header.base_offset, header.is_control, header.is_transactional, header.producer_epoch)
            for header in walk(found.records or b"").headers
        ]
        is_told = found.aborted_transactions is not None
        aborted = [first for _, first in aborted_in(found)]
        return found.high_watermark, found.last_stable_offset, is_told, aborted, batches, values_of(found)

    def committed(self, *, stable: bool) -> list[tuple[int, int]]:
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0, 1])]
        groups = [OffsetFetchRequestGroup(group_id=self.group, topics=topics)]
        request = OffsetFetchRequest(groups=groups, require_stable=stable)
        found = self.broker.ask(request, 9).groups[0].topics[0].partitions
        return [(one.committed_offset, one.error_code) for one in found]

    def commit(self, producer: TransactionClient, offset: int, **member: Any) -> list[int]:
        if not self.versions.is_2:
            assert producer.add_offsets(self.group) == 0
        return producer.commit_offsets(self.group, {self.zero: offset}, **member)


Told = Iterator[tuple[str, Any]]
Conversation = Callable[[Talk], Told]


def a_transaction_of_two_partitions(talk: Talk) -> Told:
    tx = talk.begun()
    for commit in (True, False):
        tx.write(talk.zero, b"a", b"b")
        tx.write(talk.one, b"c")
        yield "open", [talk.seen(talk.zero, committed=committed) for committed in (True, False)]
        yield "described", talk.described("tx")
        yield "end", (tx.end(commit=commit), tx.epoch)
        yield "state", talk.settle()
        yield "ended", [talk.seen(talk.zero, committed=committed) for committed in (True, False)]
        yield "other", talk.seen(talk.one, committed=True)


def ends_that_come_twice(talk: Talk) -> Told:
    tx = talk.begun()
    for commit in (True, False):
        yield "without a transaction", tx.end(commit=commit)
        talk.settle()
    request = wrong = tx.end_request(commit=True)
    for commit in (True, False):
        tx.write(talk.zero, b"a")
        request = tx.end_request(commit=commit)
        wrong = tx.end_request(commit=not commit)
        yield "end", [talk.broker.ask(one, tx.versions.end).error_code for one in (request, request, wrong)]
        yield "state", (talk.settle(), talk.described("tx")[3])
        yield "again", [talk.broker.ask(one, tx.versions.end).error_code for one in (request, wrong)]
        tx.init()
    yield "from empty", [talk.broker.ask(one, tx.versions.end).error_code for one in (request, wrong)]


def partitions_that_are_not_added(talk: Talk) -> Told:
    tx = talk.begun()
    yield "not begun", tx.produce(talk.zero, b"a")
    yield "unknown", sorted(tx.add(talk.zero, (talk.topic, 7), ("nothing-at-all", 0)))
    yield "internal", tx.add(("__transaction_state", 0))
    yield "added", tx.add(talk.one)
    yield "the other", tx.produce(talk.zero, b"a")
    yield "its own", tx.produce(talk.one, b"a")
    yield "end", tx.end(commit=True)
    talk.settle()
    yield "after the end", tx.produce(talk.one, b"b")


def a_successor(talk: Talk) -> Told:
    zombie = talk.begun()
    zombie.write(talk.zero, b"zombie")
    successor = talk.begun()
    yield "epochs", (successor.producer_id == zombie.producer_id, successor.epoch - zombie.epoch)
    yield "batch", [zombie.produce(place, b"late") for place in (talk.zero, talk.one)]
    yield "add", zombie.add(talk.one)
    yield "offsets", (zombie.add_offsets(talk.group), zombie.commit_offsets(talk.group, {talk.zero: 1}))
    yield "end", [zombie.end(commit=commit) for commit in (True, False)]
    yield "init", zombie.init(producer_id=zombie.producer_id, producer_epoch=zombie.epoch)
    successor.write(talk.zero, b"successor")
    yield "its batch", zombie.produce(talk.zero, b"late")
    yield "its end", successor.end(commit=True)
    talk.settle()
    yield "seen", talk.seen(talk.zero, committed=True)


def a_producer_that_continues(talk: Talk) -> Told:
    """KIP-360: it names its id and epoch, once more if the answer was lost."""
    tx = talk.begun()
    known = {"producer_id": tx.producer_id, "producer_epoch": tx.epoch}
    yield "once", (tx.init(**known), tx.epoch)
    yield "again", (tx.init(**known), tx.epoch)
    yield "too new", tx.init(producer_id=tx.producer_id, producer_epoch=tx.epoch + 1)
    yield "another", tx.init(producer_id=tx.producer_id + 1000, producer_epoch=0)
    yield "half", [tx.init(producer_id=1), tx.init(producer_epoch=1)]
    tx.write(talk.zero, b"a")
    yield "open", (tx.init(producer_id=tx.producer_id, producer_epoch=tx.epoch), tx.epoch)
    yield "seen", talk.seen(talk.zero, committed=True)


def strangers(talk: Talk) -> Told:
    tx = talk.producer("never")
    tx.producer_id, tx.epoch = 123_456, 0
    yield "add", tx.add(talk.zero)
    yield "batch", tx.produce(talk.zero, b"a")
    yield "offsets", (tx.add_offsets(talk.group), tx.commit_offsets(talk.group, {talk.zero: 1}))
    yield "end", tx.end(commit=True)
    yield "described", talk.described("never")
    other = talk.begun()
    tx.transactional_id = other.transactional_id
    yield "id of another", (tx.add(talk.zero), tx.produce(talk.zero, b"a"), tx.end(commit=True))
    tx.transactional_id = ""
    yield "no id", (tx.init(), tx.add(talk.zero), tx.add_offsets(talk.group), tx.end(commit=False))


def timeouts(talk: Talk) -> Told:
    yield "codes", [talk.producer().init(timeout_ms) for timeout_ms in (0, -1, 900_001, 900_000, 1)]


def batches_that_do_not_belong(talk: Talk) -> Told:
    tx = talk.begun()
    tx.write(talk.zero, b"a")
    outside = tx.batch(talk.zero, [b"b"], transactional=False)
    yield "outside", tx.produce(talk.zero, records=outside)
    yield "elsewhere", tx.produce(talk.one, records=tx.batch(talk.one, [b"b"], transactional=False))
    marker = bytes(control_batch(CONTROL_COMMIT, 0, tx.producer_id, tx.epoch, tx.stamp_ms))
    yield "marker", tx.produce(talk.zero, records=marker)
    yield "gap", tx.produce(talk.zero, records=tx.batch(talk.zero, [b"b"], base_sequence=9))
    plain = tx.batch(talk.zero, [b"plain"], producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False)
    yield "plain", tx.produce(talk.zero, records=plain)
    again = tx.batch(talk.zero, [b"a"], base_sequence=0)
    yield "twice", tx.produce(talk.zero, records=again)
    late = tx.batch(talk.zero, [b"late"], base_sequence=1)
    yield "end", tx.end(commit=True)
    talk.settle()
    yield "late", tx.produce(talk.zero, records=late)
    yield "seen", talk.seen(talk.zero, committed=False)


def offsets_of_a_group(talk: Talk) -> Told:
    tx = talk.begun()
    for commit in (True, False):
        yield "commit", talk.commit(tx, 5 if commit else 7)
        yield "pending", talk.committed(stable=False)
        yield "end", tx.end(commit=commit)
        talk.settle()
        yield "ended", [talk.committed(stable=stable) for stable in (True, False)]
    yield "not announced", tx.commit_offsets(talk.group, {talk.zero: 9})
    yield "unknown", tx.commit_offsets(talk.group, {(talk.topic, 9): 1, ("nothing-at-all", 0): 1})
    yield "member", talk.commit(tx, 9, member_id="nobody", generation_id_or_member_epoch=1)


def what_brokers_ask(talk: Talk) -> Told:
    tx = talk.begun()
    tx.write(talk.zero, b"a")
    for version in (4, 5):
        for verify_only in (True, False):
            for epoch in (tx.epoch, tx.epoch + 1):
                asked = AddPartitionsToTxnTransaction(
                    transactional_id=tx.transactional_id,
                    producer_id=tx.producer_id,
                    producer_epoch=epoch,
                    verify_only=verify_only,
                    topics=[AddPartitionsToTxnTopic(name=talk.topic, partitions=[0, 1])],
                )
                answer = talk.broker.ask(AddPartitionsToTxnRequest(transactions=[asked]), version)
                (topic,) = answer.results_by_transaction[0].topic_results
                codes = sorted((one.partition_index, one.partition_error_code) for one in topic.results_by_partition)
                yield f"{version} {verify_only} {epoch - tx.epoch}", (answer.error_code, codes)


def what_operators_ask(talk: Talk) -> Told:
    tx = talk.begun()
    tx.write(talk.zero, b"a")

    def listed(version: int, **filters: Any) -> Any:
        answer = talk.broker.ask(ListTransactionsRequest(**filters), version)
        states = [
            (one.transactional_id, one.transaction_state)
            for one in answer.transaction_states
            if one.transactional_id.endswith(f"-{talk.number}")
        ]
        return answer.error_code, sorted(answer.unknown_state_filters), states

    yield "all", listed(0)
    yield "state", [listed(0, state_filters=[state]) for state in ("Ongoing", "Empty", "Sleeping")]
    yield "producer", [listed(0, producer_id_filters=[number]) for number in (tx.producer_id, 99_999_999)]
    yield "duration", [listed(1, duration_filter=duration_ms) for duration_ms in (-1, 1_000_000)]
    patterns = ("tx-.*", "tx", "(", "", None, ".*[0-9]")
    yield "pattern", [listed(2, transactional_id_pattern=pattern) for pattern in patterns]

    def producers() -> Any:
        request = DescribeProducersRequest(topics=[TopicRequest(name=talk.topic, partition_indexes=[0])])
        (partition,) = talk.broker.ask(request, 0).topics[0].partitions
        return [
            (one.producer_epoch, one.last_sequence, one.coordinator_epoch >= 0, one.current_txn_start_offset)
            for one in partition.active_producers
        ]

    def marked(epoch: int, number: int = 0) -> int:
        marker = WritableTxnMarker(
            producer_id=tx.producer_id,
            producer_epoch=epoch,
            topics=[WritableTxnMarkerTopic(name=talk.topic, partition_indexes=[number])],
        )
        (found,) = talk.broker.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers
        return int(found.topics[0].partitions[0].error_code)

    yield "producers", producers()
    yield "no partition", marked(tx.epoch, 9)
    yield "marker", marked(tx.epoch)
    yield "producers after", producers()
    yield "seen", talk.seen(talk.zero, committed=True)
    yield "end", tx.end(commit=True)


def ends_of_the_log(talk: Talk) -> Told:
    tx = talk.begun()
    tx.write(talk.one, b"elsewhere")
    tx.write(talk.zero, b"a")

    def listed(timestamp_ms: int, level: int) -> tuple[int, int, int]:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
        topics = [ListOffsetsTopic(name=talk.topic, partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)
        (found,) = talk.broker.ask(request, 7).topics[0].partitions
        return found.error_code, found.offset, found.timestamp

    for _ in range(2):
        # Not the largest timestamp (-3): that is the marker's in Kafka, and ours counts records only.
        yield "offsets", [listed(asked, level)[:2] for asked in (-1, -2, tx.stamp_ms) for level in (0, 1)]
        tx.end(commit=False)
        talk.settle()


CONVERSATIONS: tuple[Conversation, ...] = (
    a_transaction_of_two_partitions,
    ends_that_come_twice,
    partitions_that_are_not_added,
    a_successor,
    a_producer_that_continues,
    strangers,
    timeouts,
    batches_that_do_not_belong,
    offsets_of_a_group,
    what_brokers_ask,
    what_operators_ask,
    ends_of_the_log,
)

DIFFERENT = {
    ("offsets_of_a_group", "member"): "a group that only has offsets has no members and no generation here, so the"
    " generation is wrong, and in Kafka the member is; clients join again on both",
}
"""(conversation, step): why ours is another answer."""


def at_random(seed: int) -> Conversation:
    """Two producers with one id do whatever comes to their mind, also what no client would do."""

    def conversation(talk: Talk) -> Told:
        rng = random.Random(seed)
        producers = [talk.begun(), talk.begun()]
        for step in range(STEPS):
            tx = rng.choice(producers)
            place = rng.choice([talk.zero, talk.one])
            # In Kafka a zombie that continues aborts the transaction of its successor before it is refused.
            is_open = talk.settle() == "Ongoing"
            known = {} if is_open else {"producer_id": tx.producer_id, "producer_epoch": tx.epoch}
            acts: list[tuple[str, Callable[[], Any]]] = [
                ("produce", partial(tx.produce, place, b"x")),
                ("produce", partial(tx.produce, place, b"x")),
                ("add", partial(tx.add, place)),
                ("add offsets", partial(tx.add_offsets, talk.group)),
                ("commit offsets", partial(tx.commit_offsets, talk.group, {talk.zero: 1})),
                ("commit", partial(tx.end, commit=True)),
                ("abort", partial(tx.end, commit=False)),
                ("init", tx.init),
                ("continue", partial(tx.init, **known)),
            ]
            name, act = rng.choice(acts)
            code = act()
            yield f"{step}: {name}", (code, tx.epoch, talk.settle())
        yield "seen", [talk.seen(place, committed=True) for place in (talk.zero, talk.one)]
        yield "committed", talk.committed(stable=False)

    conversation.__name__ = f"at_random_{seed}"
    return conversation


@pytest.mark.parametrize("versions", [LIBRDKAFKA, JAVA_3, JAVA_4], ids=["librdkafka", "java-3", "java-4"])
@pytest.mark.parametrize("conversation", [*CONVERSATIONS, *map(at_random, range(SEEDS))], ids=lambda one: one.__name__)
def test_the_same_questions_have_the_same_answers(
    brokers: tuple[PatientClient, PatientClient], conversation: Conversation, versions: Versions
) -> None:
    number = next(_numbers)
    ours, kafkas = (list(conversation(Talk(broker, versions, number))) for broker in brokers)
    different = {
        step: f"ours {mine}, Kafka's {other}"
        for (step, mine), (_, other) in zip(ours, kafkas, strict=True)
        if mine != other and (conversation.__name__, step) not in DIFFERENT
    }
    assert not different


def test_version_2_of_transactions_is_in_force_as_in_kafka(brokers: tuple[PatientClient, PatientClient]) -> None:
    def told(broker: PatientClient, version: int) -> Any:
        answer = broker.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), version)
        name = "transaction.version"
        supported = [(one.min_version, one.max_version) for one in answer.supported_features if one.name == name]
        finalized = [
            (one.min_version_level, one.max_version_level) for one in answer.finalized_features if one.name == name
        ]
        return supported, finalized, answer.finalized_features_epoch >= 0

    for version in (3, 4):
        ours, kafkas = (told(broker, version) for broker in brokers)
        assert ours == kafkas
