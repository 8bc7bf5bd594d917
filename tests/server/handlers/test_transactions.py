"""Transactions, request by request, as librdkafka, Java 3 and Java 4 send them: what is refused, and with which code.

What readers see is in test_isolation.py; real clients are in tests/clients/test_transactions.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.limits import EARLY_COMMITS_MAX
from foldlog.records.batch import CONTROL_COMMIT
from foldlog.records.loops import control_batch, pack
from foldlog.server.transactions import EarlyCommits
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from foldlog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from foldlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from foldlog.wire.messages.end_txn import EndTxnResponse
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest
from foldlog.wire.messages.list_transactions import ListTransactionsRequest
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from foldlog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from server.conftest import Connect
from server.raw_client import batch as plain_batch
from server.raw_client import produce as produce_request
from server.raw_client import produced
from server.small_node import Denies, SmallNode
from server.transaction_client import (
    JAVA_3,
    JAVA_4,
    LIBRDKAFKA,
    TransactionClient,
    Versions,
    aborted_in,
    fetched,
    values_of,
)

EVENTS = ("events", 0)
OTHER = ("events", 1)
FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH

every_client = pytest.mark.parametrize("versions", [LIBRDKAFKA, JAVA_3, JAVA_4], ids=["librdkafka", "java-3", "java-4"])
old_clients = pytest.mark.parametrize("versions", [LIBRDKAFKA, JAVA_3], ids=["librdkafka", "java-3"])


@pytest.fixture(autouse=True)
def _topic(small: SmallNode) -> None:
    small.broker.create_topic("events", 2)


def begun(small: SmallNode, versions: Versions, transactional_id: str = "tx") -> TransactionClient:
    client = TransactionClient(small, versions, transactional_id)
    assert client.init() == 0
    return client


def at(versions: Versions, **changes: int) -> Versions:
    return versions._replace(**changes)


# --- a transaction ----------------------------------------------------------------------------------------------------


@every_client
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_over_two_partitions_ends_as_it_is_told(
    small: SmallNode, versions: Versions, commit: bool
) -> None:
    client = begun(small, versions)
    client.write(EVENTS, b"a", b"b")
    client.write(OTHER, b"c")
    client.write(EVENTS, b"d")
    assert client.end(commit=commit) == 0
    for place, values in ((EVENTS, [b"a", b"b", b"d"]), (OTHER, [b"c"])):
        found = fetched(small, place, committed=True)
        assert values_of(found) == values, "who reads committed records leaves out the aborted ones by itself"
        assert aborted_in(found) == ([] if commit else [(client.producer_id, 0)])
        assert found.last_stable_offset == found.high_watermark == len(values) + 1


@every_client
def test_one_producer_has_one_transaction_after_the_other(small: SmallNode, versions: Versions) -> None:
    client = begun(small, versions)
    for number in range(5):
        client.write(EVENTS, b"%d" % number)
        assert client.end(commit=number % 2 == 0) == 0
    found = fetched(small, EVENTS, committed=True)
    assert values_of(found) == [b"0", b"1", b"2", b"3", b"4"]
    assert [offset for _, offset in aborted_in(found)] == [2, 6]
    assert client.epoch == (5 if versions.is_2 else 0)


def test_the_end_of_version_2_tells_the_next_epoch_and_so_does_its_repetition(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    client.write(EVENTS, b"a")
    request = client.end_request(commit=True)
    first, again = small.ask(request, 5), small.ask(request, 5)
    assert first == again == EndTxnResponse(producer_id=client.producer_id, producer_epoch=client.epoch + 1)
    assert small.ask(client.end_request(commit=False), 5).error_code == ErrorCode.INVALID_TXN_STATE


def test_in_version_2_an_abort_without_a_transaction_raises_the_epoch_and_a_commit_is_refused(
    small: SmallNode,
) -> None:
    client = begun(small, JAVA_4)
    assert client.end(commit=True) == ErrorCode.CONCURRENT_TRANSACTIONS, "it may be early"
    assert client.end(commit=True) == ErrorCode.INVALID_TXN_STATE
    epoch = client.epoch
    assert client.end(commit=False) == 0
    assert client.epoch == epoch + 1


def test_a_commit_of_version_2_that_comes_before_its_records_may_come_again(small: SmallNode) -> None:
    """As Java's producer sends it when its threads are slow: after INVALID_TXN_STATE it would end."""
    client = begun(small, JAVA_4)
    for value in (b"a", b"b"):
        assert client.end(commit=True) == ErrorCode.CONCURRENT_TRANSACTIONS
        client.write(EVENTS, value)
        assert client.end(commit=True) == 0
    assert values_of(fetched(small, EVENTS, committed=True)) == [b"a", b"b"]


def test_early_commits_are_remembered_for_the_newest_producers_only() -> None:
    early = EarlyCommits()
    names = [f"tx-{number}" for number in range(EARLY_COMMITS_MAX + 1)]
    assert all(early.is_first(name, 1, 0) for name in names)
    assert early.is_first(names[0], 1, 0), "forgotten for the newest"
    assert not early.is_first(names[-1], 1, 0)
    assert early.is_first(names[-1], 1, 1), "another epoch is another transaction"


@old_clients
def test_an_end_without_a_transaction_is_refused(small: SmallNode, versions: Versions) -> None:
    client = begun(small, versions)
    assert client.end(commit=True) == ErrorCode.INVALID_TXN_STATE
    client.write(EVENTS, b"a")
    assert client.end(commit=True) == 0
    assert client.end(commit=True) == 0, "the answer may have been lost"
    assert client.end(commit=False) == ErrorCode.INVALID_TXN_STATE


def test_a_late_batch_of_version_2_does_not_join_the_next_transaction(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    client.write(EVENTS, b"a")
    late = client.batch(EVENTS, [b"late"])
    assert client.end(commit=True) == 0
    assert client.produce(EVENTS, records=late) == OLD_EPOCH
    client.write(EVENTS, b"b")
    assert client.produce(EVENTS, records=late) == OLD_EPOCH
    assert client.end(commit=True) == 0
    assert values_of(fetched(small, EVENTS, committed=True)) == [b"a", b"b"]


def test_a_batch_that_comes_twice_is_written_once(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    first = client.batch(EVENTS, [b"a"])
    assert [client.produce(EVENTS, records=first) for _ in range(2)] == [0, 0]
    assert client.end(commit=True) == 0
    assert values_of(fetched(small, EVENTS, committed=True)) == [b"a"]


# --- partitions that are not in the transaction -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("produce_version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_who_does_not_add_a_partition_may_not_write_there(
    small: SmallNode, produce_version: int, code: ErrorCode
) -> None:
    client = begun(small, at(JAVA_3, produce=produce_version))
    assert client.produce(EVENTS, b"a") == code
    client.write(OTHER, b"b")
    assert client.produce(EVENTS, b"a") == code
    assert client.end(commit=True) == 0
    assert values_of(fetched(small, EVENTS, committed=False)) == []


@every_client
def test_partitions_that_do_not_exist_are_refused_and_the_others_are_not_added(
    small: SmallNode, versions: Versions
) -> None:
    client = begun(small, versions)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = client.add(EVENTS, ("events", 2), ("nothing", 0))
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, unknown, unknown]
    assert client.produce(("events", 2), b"a") == unknown
    assert described(small)[0].transaction_state == "Empty"


def test_nobody_adds_the_topics_of_the_broker_itself(small: SmallNode) -> None:
    client = begun(small, JAVA_3)
    assert client.add(("__transaction_state", 0)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_ask_about_several_transactions_and_only_to_verify(small: SmallNode, version: int) -> None:
    one, other = begun(small, JAVA_3, transactional_id="one"), begun(small, JAVA_4, transactional_id="other")
    one.write(EVENTS, b"a")

    def asked(client: TransactionClient, *, verify_only: bool, **changes: Any) -> AddPartitionsToTxnTransaction:
        fields = {
            "transactional_id": client.transactional_id,
            "producer_id": client.producer_id,
            "producer_epoch": client.epoch,
            "verify_only": verify_only,
            "topics": [AddPartitionsToTxnTopic(name="events", partitions=[0, 1])],
            **changes,
        }
        return AddPartitionsToTxnTransaction(**fields)

    transactions = [
        asked(one, verify_only=True),
        asked(other, verify_only=False),
        asked(other, verify_only=True),
        asked(one, verify_only=True, producer_epoch=one.epoch + 1),
        asked(one, verify_only=True, transactional_id=""),
        asked(one, verify_only=False, transactional_id="nobody"),
    ]
    answer = small.ask(AddPartitionsToTxnRequest(transactions=transactions), version)
    codes = [
        [partition.partition_error_code for topic in found.topic_results for partition in topic.results_by_partition]
        for found in answer.results_by_transaction
    ]
    assert [found.transactional_id for found in answer.results_by_transaction] == [
        one.transactional_id for one in transactions
    ]
    assert codes == [
        [0, ErrorCode.TRANSACTION_ABORTABLE],
        [0, 0],
        [0, 0],
        [FENCED, FENCED],
        [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST],
        [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING],
    ]


# --- zombies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "coordinator_says"),
    [
        (LIBRDKAFKA, OLD_EPOCH),
        (at(LIBRDKAFKA, add_partitions=1, add_offsets=1), OLD_EPOCH),
        (at(JAVA_3, add_partitions=2, add_offsets=2, end=2), FENCED),
        (JAVA_3, FENCED),
        (JAVA_4, FENCED),
    ],
)
def test_who_takes_the_id_over_aborts_the_open_transaction_and_fences_its_producer(
    small: SmallNode, versions: Versions, coordinator_says: ErrorCode
) -> None:
    """The coordinator's clients hear of it in the code that their version knows; writers always in the older one."""
    zombie = begun(small, versions)
    zombie.write(EVENTS, b"zombie")
    successor = begun(small, versions)
    assert (successor.producer_id, successor.epoch > zombie.epoch) == (zombie.producer_id, True)
    assert zombie.produce(EVENTS, b"late") == OLD_EPOCH
    assert zombie.produce(OTHER, b"late") == OLD_EPOCH
    assert zombie.add(OTHER) == [coordinator_says]
    assert zombie.add_offsets("readers") == coordinator_says
    assert zombie.commit_offsets("readers", {EVENTS: 1}) == [OLD_EPOCH]
    assert zombie.end(commit=True) == coordinator_says
    successor.write(EVENTS, b"successor")
    assert successor.end(commit=True) == 0
    found = fetched(small, EVENTS, committed=True)
    assert values_of(found) == [b"zombie", b"successor"]
    assert aborted_in(found) == [(zombie.producer_id, 0)]


@pytest.mark.parametrize(("version", "code"), [(3, OLD_EPOCH), (4, FENCED), (5, FENCED)])
def test_a_zombie_cannot_continue_with_its_old_epoch(small: SmallNode, version: int, code: ErrorCode) -> None:
    zombie = begun(small, at(JAVA_4, init=version))
    known = {"producer_id": zombie.producer_id, "producer_epoch": zombie.epoch}
    assert zombie.init(**known) == 0, "after an error it continues with the epoch after its own (KIP-360)"
    begun(small, JAVA_4)
    assert zombie.init(**known) == code


def test_an_epoch_without_an_id_is_no_request(small: SmallNode) -> None:
    client = TransactionClient(small, JAVA_4)
    assert client.init(producer_epoch=3) == ErrorCode.INVALID_REQUEST
    assert client.init(producer_id=3) == ErrorCode.INVALID_REQUEST


@every_client
def test_who_was_never_initialised_is_not_known(small: SmallNode, versions: Versions) -> None:
    client = TransactionClient(small, versions)
    client.producer_id, client.epoch = 7, 0
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert client.add(EVENTS) == [unknown]
    assert client.add_offsets("readers") == unknown
    assert client.end(commit=True) == unknown
    assert client.produce(EVENTS, b"a") == unknown
    assert client.commit_offsets("readers", {EVENTS: 1}) == [unknown]


# --- time -------------------------------------------------------------------------------------------------------------


@every_client
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    small: SmallNode, versions: Versions
) -> None:
    client = TransactionClient(small, versions)
    assert client.init(timeout_ms=5000) == 0
    client.write(EVENTS, b"a")
    small.advance(4999)
    assert fetched(small, EVENTS, committed=True).last_stable_offset == 0
    small.advance(2)
    assert fetched(small, EVENTS, committed=True).last_stable_offset == 2
    assert client.produce(EVENTS, b"b") == OLD_EPOCH
    told = {LIBRDKAFKA: OLD_EPOCH, JAVA_3: FENCED, JAVA_4: ErrorCode.INVALID_TXN_STATE}
    assert client.end(commit=True) == told[versions]
    assert client.init() == 0
    client.write(EVENTS, b"c")
    assert client.end(commit=True) == 0


def test_timeouts_are_checked_by_requests_too(small: SmallNode) -> None:
    """The background has not run: an end that comes too late is refused, not carried out."""
    client = TransactionClient(small, JAVA_4)
    assert client.init(timeout_ms=5000) == 0
    client.write(EVENTS, b"a")
    small.clock.advance(5001)
    assert client.end(commit=True) == ErrorCode.INVALID_TXN_STATE
    assert aborted_in(fetched(small, EVENTS, committed=True)) == [(client.producer_id, 0)]
    assert client.end(commit=False) == 0, "that is what has happened, so its producer may go on"
    client.write(EVENTS, b"b")
    assert client.end(commit=True) == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60 * 1000 + 1])
def test_timeouts_over_the_brokers_maximum_are_refused(small: SmallNode, timeout_ms: int) -> None:
    assert TransactionClient(small, JAVA_4).init(timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


# --- batches that no transaction has ----------------------------------------------------------------------------------


def test_a_transactional_batch_needs_a_transactional_id(connect: Connect) -> None:
    """In a request that looks like the fast path's, and in one that does not."""
    records = bytes(pack([(5, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    client = connect()
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produced(client.ask(produce_request(records), 9))[0] == code
    two = produce_request(records)
    two.topic_data = [*two.topic_data, *produce_request(plain_batch(b"x"), partition=1).topic_data]
    answer = client.ask(two, 9)
    assert [topic.partition_responses[0].error_code for topic in answer.responses] == [code, code]


def test_a_batch_of_an_open_transaction_needs_the_transactional_id_too(connect: Connect) -> None:
    """The partition would take it: the request looks like the fast path's."""
    raw = connect()
    client = TransactionClient(raw, JAVA_4)
    assert client.init() == 0
    client.write(("orders", 0), b"a")
    records = client.batch(("orders", 0), [b"b"])
    assert produced(raw.ask(produce_request(records), 9))[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_plain_batch_in_a_request_with_a_transactional_id_is_written(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    assert client.produce(EVENTS, records=plain_batch(b"plain")) == 0
    assert fetched(small, EVENTS, committed=True).last_stable_offset == 1


def test_the_batches_of_a_request_are_of_one_producer(small: SmallNode) -> None:
    one, other = begun(small, JAVA_4, transactional_id="one"), begun(small, JAVA_4, transactional_id="other")
    data = [
        PartitionProduceData(index=0, records=one.batch(EVENTS, [b"a"])),
        PartitionProduceData(index=1, records=other.batch(OTHER, [b"b"])),
    ]
    request = ProduceRequest(
        transactional_id="one",
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="events", partition_data=data)],
    )
    (topic,) = small.ask(request, 12).responses
    assert [found.error_code for found in topic.partition_responses] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_a_batch_of_another_transactional_id_is_refused(small: SmallNode) -> None:
    one, other = begun(small, JAVA_4, transactional_id="one"), begun(small, JAVA_4, transactional_id="other")
    stolen = one.batch(EVENTS, [b"a"])
    assert other.produce(EVENTS, records=stolen) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_plain_batch_of_a_producer_in_a_transaction_is_refused(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    client.write(EVENTS, b"a")
    outside = client.batch(EVENTS, [b"b"], transactional=False)
    assert client.produce(EVENTS, records=outside) == ErrorCode.INVALID_TXN_STATE


def test_a_client_writes_no_markers(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    client.write(EVENTS, b"a")
    marker = bytes(control_batch(CONTROL_COMMIT, 0, client.producer_id, client.epoch, small.clock.now_ms()))
    assert client.produce(EVENTS, records=marker) == ErrorCode.INVALID_RECORD


# --- who may ----------------------------------------------------------------------------------------------------------


def test_each_request_needs_the_right_to_the_transactional_id() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)))
    small.broker.create_topic("events", 2)
    client = TransactionClient(small, JAVA_4)
    client.producer_id, client.epoch = 7, 0
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.init() == code
    assert client.add(EVENTS, OTHER) == [code, code]
    assert client.produce(EVENTS, b"a") == code
    assert client.add_offsets("readers") == code
    assert client.commit_offsets("readers", {EVENTS: 1}) == [code]
    assert client.end(commit=True) == code
    small.close()


def test_topics_and_groups_need_their_own_rights() -> None:
    denied = ((AclOperation.WRITE, ResourceType.TOPIC), (AclOperation.READ, ResourceType.GROUP))
    small = SmallNode(authorizer=Denies(*denied))
    small.broker.create_topic("events", 2)
    client = begun(small, JAVA_4)
    assert client.add(EVENTS) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert client.produce(EVENTS, b"a") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.add_offsets("readers") == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert client.commit_offsets("readers", {EVENTS: 1}) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    small.close()


def test_what_brokers_ask_needs_the_right_to_the_cluster() -> None:
    cluster = [(operation, ResourceType.CLUSTER) for operation in (AclOperation.CLUSTER_ACTION, AclOperation.ALTER)]
    small = SmallNode(authorizer=Denies(*cluster))
    small.broker.create_topic("events", 2)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert small.ask(AddPartitionsToTxnRequest(), 5).error_code == code
    assert marked(small, 7, 0) == code
    small.close()


def test_an_empty_transactional_id_is_no_request(small: SmallNode) -> None:
    client = TransactionClient(small, JAVA_4, transactional_id="")
    assert client.init() == ErrorCode.INVALID_REQUEST
    assert client.add(EVENTS) == [ErrorCode.INVALID_REQUEST]
    assert client.end(commit=True) == ErrorCode.INVALID_REQUEST


# --- what is told of them ---------------------------------------------------------------------------------------------


def described(small: SmallNode, *names: str) -> list[Any]:
    answer = small.ask(DescribeTransactionsRequest(transactional_ids=list(names or ["tx"])), 0)
    return list(answer.transaction_states)


def test_a_transaction_is_described_while_it_is_open_and_after(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    started_ms = small.clock.now_ms()
    client.write(EVENTS, b"a")
    client.write(OTHER, b"b")
    (one,) = described(small)
    assert (one.error_code, one.transaction_state, one.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (one.producer_id, one.producer_epoch) == (client.producer_id, client.epoch)
    assert one.transaction_start_time_ms == started_ms
    assert [(topic.topic, topic.partitions) for topic in one.topics] == [("events", [0, 1])]
    assert client.end(commit=True) == 0
    (one,) = described(small)
    assert (one.transaction_state, one.topics) == ("CompleteCommit", [])


def test_ids_that_nobody_used_are_not_found(small: SmallNode) -> None:
    codes = [one.error_code for one in described(small, "nobody", "", "nobody")]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST]


def test_a_hidden_topic_is_left_out_of_a_description() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.TOPIC)))
    small.broker.create_topic("events", 2)
    begun(small, JAVA_4).write(EVENTS, b"a")
    assert described(small)[0].topics == []
    small.close()


def test_transactions_are_listed_by_state_producer_duration_and_pattern(small: SmallNode) -> None:
    first, second = (begun(small, JAVA_4, transactional_id=name) for name in ("orders-1", "orders-2"))
    begun(small, JAVA_4, transactional_id="idle")
    first.write(EVENTS, b"a")
    small.clock.advance(1000)
    second.write(EVENTS, b"b")

    def listed(version: int = 2, **filters: Any) -> list[str]:
        answer = small.ask(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return [one.transactional_id for one in answer.transaction_states]

    assert listed(0) == listed() == ["idle", "orders-1", "orders-2"]
    assert listed(0, state_filters=["Ongoing"]) == ["orders-1", "orders-2"]
    assert listed(0, producer_id_filters=[second.producer_id]) == ["orders-2"]
    assert listed(1, duration_filter=500) == ["orders-1"]
    assert listed(transactional_id_pattern="orders-.*") == ["orders-1", "orders-2"]
    assert listed(transactional_id_pattern="orders") == [], "the whole id has to match"
    answer = small.ask(ListTransactionsRequest(state_filters=["Ongoing", "Sleeping"]), 0)
    assert answer.unknown_state_filters == ["Sleeping"]
    assert [one.transaction_state for one in answer.transaction_states] == ["Ongoing", "Ongoing"]
    wrong = small.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_who_may_not_describe_an_id_does_not_see_it() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)))
    begun(small, JAVA_4)
    assert small.ask(ListTransactionsRequest(), 2).transaction_states == []
    assert described(small)[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    small.close()


def open_since(small: SmallNode) -> list[tuple[int, int]]:
    request = DescribeProducersRequest(topics=[TopicRequest(name="events", partition_indexes=[0])])
    (partition,) = small.ask(request, 0).topics[0].partitions
    return [(one.current_txn_start_offset, one.coordinator_epoch) for one in partition.active_producers]


def test_a_partition_tells_where_the_transactions_of_its_producers_began(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    client.write(EVENTS, b"a")
    assert client.end(commit=True) == 0
    client.write(EVENTS, b"b")
    ((start, coordinator_epoch),) = open_since(small)
    assert (start, coordinator_epoch >= 0) == (2, True)
    assert client.end(commit=False) == 0
    assert [start for start, _ in open_since(small)] == [-1]


# --- markers by an operator -------------------------------------------------------------------------------------------


def marked(small: SmallNode, producer_id: int, epoch: int, number: int = 0, version: int = 1) -> int:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        coordinator_epoch=0,
        topics=[WritableTxnMarkerTopic(name="events", partition_indexes=[number])],
    )
    (found,) = small.ask(WriteTxnMarkersRequest(markers=[marker]), version).markers
    assert found.producer_id == producer_id
    return int(found.topics[0].partitions[0].error_code)


def test_a_marker_that_an_operator_writes_ends_the_transaction_in_its_partition(small: SmallNode) -> None:
    """As `kafka-transactions abort` does it, with version 1."""
    client = begun(small, JAVA_4)
    client.write(EVENTS, b"a")
    assert fetched(small, EVENTS, committed=True).last_stable_offset == 0
    assert marked(small, client.producer_id, client.epoch) == 0
    assert fetched(small, EVENTS, committed=True).last_stable_offset == 2
    assert marked(small, client.producer_id, client.epoch, 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_marker_of_an_old_epoch_is_refused(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    client.write(EVENTS, b"a")
    assert client.end(commit=True) == 0
    assert marked(small, client.producer_id, client.epoch - 1) == OLD_EPOCH


# --- the id of a producer without transactions ------------------------------------------------------------------------


def test_an_idempotent_producer_gets_an_id_of_its_own(small: SmallNode) -> None:
    client = begun(small, JAVA_4)
    answer = small.ask(InitProducerIdRequest(transactional_id=None), 5)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != client.producer_id
