"""Questions to our broker and to Apache Kafka, byte for byte on the wire, have the same answers.

What clients look at in an answer besides its success: which record of a batch is refused, how a setting was written and
where it is from, and which timeouts a group takes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clusters.apache_kafka import ApacheKafka
from crc32c import crc32c

from foldlog.records.loops import pack
from foldlog.testing import KafkaBroker
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from foldlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from foldlog.wire.messages.find_coordinator import FindCoordinatorRequest
from foldlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from server.raw_client import RawClient, produce

BOUND_S = 60
TOPIC, BROKER = 2, 4
NOT_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
STATIC_BROKER_CONFIG = 4


@pytest.fixture(scope="module")
def clients(apache_kafka: ApacheKafka) -> Iterator[tuple[RawClient, RawClient]]:
    """A connection to ours, and one to Kafka."""
    with KafkaBroker.launch() as ours:
        connected = RawClient(address(str(ours))), RawClient(address(apache_kafka.bootstrap))
        yield connected
        for client in connected:
            client.close()


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def settled(ask: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
    """(error code, rest), once Kafka knows everywhere of what was just made."""
    until = time.monotonic() + BOUND_S
    while True:
        found = ask()
        if found[0] not in NOT_YET or time.monotonic() > until:
            return found


def create(client: RawClient, name: str, **settings: str) -> int:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    return int(answer.topics[0].error_code)


def described(client: RawClient, name: str, setting: str, kind: int = TOPIC) -> tuple[int, Any]:
    """What Kafka's own configuration in these tests sets is left out."""
    wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[setting])
    (result,) = client.ask(DescribeConfigsRequest(resources=[wanted], include_synonyms=True), 4).results
    rows = [
        (
            row.name,
            row.config_source,
            [(one.name, one.source) for one in row.synonyms if one.source != STATIC_BROKER_CONFIG],
        )
        for row in result.configs
    ]
    return result.error_code, (result.error_message, rows)


@pytest.mark.parametrize(
    ("name", "policy"),
    [("both", "compact,delete"), ("turned", "delete,compact"), ("neither", ""), ("twice", "delete,delete")],
)
def test_a_cleanup_policy_is_kept_as_it_was_written(
    clients: tuple[RawClient, RawClient], name: str, policy: str
) -> None:
    def value(client: RawClient) -> tuple[int, Any]:
        wanted = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=f"policy-{name}", configuration_keys=["cleanup.policy"]
        )
        (result,) = client.ask(DescribeConfigsRequest(resources=[wanted]), 4).results
        return result.error_code, [row.value for row in result.configs]

    assert [create(client, f"policy-{name}", cleanup_policy=policy) for client in clients] == [0, 0]
    ours, kafka = (settled(lambda client=client: value(client)) for client in clients)  # type: ignore[misc]
    assert ours == kafka


def test_a_cleanup_policy_with_an_empty_part_is_refused(clients: tuple[RawClient, RawClient]) -> None:
    assert {create(client, "policy-part", cleanup_policy="delete,") for client in clients} == {ErrorCode.INVALID_CONFIG}


@pytest.mark.parametrize(
    "setting",
    [
        "retention.ms",
        "retention.bytes",
        "segment.ms",
        "segment.jitter.ms",
        "flush.ms",
        "flush.messages",
        "min.insync.replicas",
        "max.message.bytes",
        "compression.type",
        "message.timestamp.type",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "delete.retention.ms",
        "index.interval.bytes",
    ],
)
def test_a_setting_has_the_source_and_the_synonyms_that_it_has_in_kafka(
    clients: tuple[RawClient, RawClient], setting: str
) -> None:
    for client in clients:
        assert create(client, "synonyms") in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    ours, kafka = (settled(lambda client=client: described(client, "synonyms", setting)) for client in clients)  # type: ignore[misc]
    assert ours == kafka


@pytest.mark.parametrize("name", ["1", ""])
def test_what_a_topic_has_from_all_brokers_is_among_the_brokers_settings(
    clients: tuple[RawClient, RawClient], name: str
) -> None:
    ours, kafka = (described(client, name, "min.insync.replicas", BROKER) for client in clients)
    assert ours == kafka
    assert ours[1][1], "it is there"


def test_the_records_that_a_compacted_topic_refuses_are_named(clients: tuple[RawClient, RawClient]) -> None:
    records = bytes(pack([(5, key, b"value", ()) for key in (b"k", None, b"k", None)]))

    def refused(client: RawClient) -> tuple[int, Any]:
        only = client.ask(produce(records, topic="keyed", acks=1), 9).responses[0].partition_responses[0]
        return only.error_code, [one.batch_index for one in only.record_errors]

    for client in clients:
        create(client, "keyed", cleanup_policy="compact")
    ours, kafka = (settled(lambda client=client: refused(client)) for client in clients)  # type: ignore[misc]
    assert ours == kafka == (ErrorCode.INVALID_RECORD, [1, 3])


def test_a_record_is_named_for_its_key_or_else_for_its_time(clients: tuple[RawClient, RawClient]) -> None:
    now_ms = int(time.time() * 1000)
    late_ms = now_ms + 2 * 3_600_000
    both = [(now_ms, None), (now_ms, b"k"), (late_ms, b"k"), (late_ms, None)]
    for client in clients:
        create(client, "keyed-dated", cleanup_policy="compact")
    for wanted, code, named in (
        (both, ErrorCode.INVALID_TIMESTAMP, [0, 2, 3]),
        (both[3:], ErrorCode.INVALID_RECORD, [0]),
    ):
        records = bytes(pack([(time_ms, key, b"v", ()) for time_ms, key in wanted]))

        def refused(client: RawClient, records: bytes = records) -> tuple[int, Any]:
            only = client.ask(produce(records, topic="keyed-dated", acks=1), 9).responses[0].partition_responses[0]
            return only.error_code, [one.batch_index for one in only.record_errors]

        ours, kafka = (settled(lambda client=client: refused(client)) for client in clients)  # type: ignore[misc]
        assert ours == kafka == (code, named)


@pytest.mark.parametrize(
    ("settings", "hours"),
    [
        ({}, (0, 2, -1000, 3)),
        ({"message_timestamp_after_max_ms": "36000000"}, (0, 2, 11)),
        ({"message_timestamp_before_max_ms": "3600000"}, (0, -2, 0, -3)),
        ({"message_timestamp_type": "LogAppendTime"}, (0, 2, -1000)),
    ],
)
def test_times_that_are_too_far_from_the_clock_are_refused_and_named(
    clients: tuple[RawClient, RawClient], settings: dict[str, str], hours: tuple[int, ...]
) -> None:
    now_ms = int(time.time() * 1000)
    records = bytes(pack([(now_ms + hour * 3_600_000, b"k", b"v", ()) for hour in hours] + [(-1, b"k", b"v", ())]))
    topic = "-".join(["dated", *(name[18:23] for name in settings)])

    def refused(client: RawClient) -> tuple[int, Any]:
        only = client.ask(produce(records, topic=topic, acks=1), 9).responses[0].partition_responses[0]
        return only.error_code, [one.batch_index for one in only.record_errors]

    for client in clients:
        create(client, topic, **settings)
    ours, kafka = (settled(lambda client=client: refused(client)) for client in clients)  # type: ignore[misc]
    assert ours == kafka


@pytest.mark.parametrize("timeout_ms", [1000, 0, -1, -5])
def test_a_group_takes_the_rebalance_timeouts_that_kafka_takes(
    clients: tuple[RawClient, RawClient], timeout_ms: int
) -> None:
    request = JoinGroupRequest(
        group_id=f"timeout{timeout_ms}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=timeout_ms,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"x")],
    )

    def joined(client: RawClient) -> tuple[int, Any]:
        client.ask(FindCoordinatorRequest(key=request.group_id, key_type=0), 2)
        answer = client.ask(request, 3)
        return answer.error_code, answer.generation_id

    ours, kafka = (settled(lambda client=client: joined(client)) for client in clients)  # type: ignore[misc]
    assert ours == kafka == (0, 1)


def refixed(batch: bytes, position: int, layout: str, value: int) -> bytes:
    """The batch with another number at a position, and a checksum that is right again."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


GOOD = bytes(pack([(5, b"k", b"v", ())] * 3))
CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
NOT_WHOLE = "what is not whole is taken for damage on the way, and sent again by clients"

WRONG: dict[str, tuple[bytes, ErrorCode, ErrorCode, str]] = {
    # What is wrong: the bytes, the code here, the code of Kafka, and why they differ if they do.
    "a wrong checksum": (GOOD[:-1] + b"x", CORRUPT, CORRUPT, ""),
    "a format of tomorrow": (refixed(GOOD, 16, ">b", 3), CORRUPT, CORRUPT, ""),
    "two batches": (GOOD + GOOD, INVALID, INVALID, ""),
    "a control batch": (refixed(GOOD, 21, ">h", 0x20), INVALID, INVALID, ""),
    "a producer without sequence": (refixed(GOOD, 43, ">q", 9), INVALID, INVALID, ""),
    "more records than there are": (refixed(GOOD, 57, ">i", 4), CORRUPT, INVALID, NOT_WHOLE),
    "fewer records than there are": (refixed(GOOD, 57, ">i", 2), CORRUPT, INVALID, NOT_WHOLE),
    "no records": (refixed(GOOD, 57, ">i", 0), CORRUPT, INVALID, NOT_WHOLE),
    "another last offset": (refixed(GOOD, 23, ">i", 5), CORRUPT, INVALID, NOT_WHOLE),
    "the end cut off": (GOOD[:-3], CORRUPT, INVALID, NOT_WHOLE),
    "nothing": (b"", CORRUPT, INVALID, NOT_WHOLE),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_batch_is_refused_and_no_record_of_it_is_named(clients: tuple[RawClient, RawClient], what: str) -> None:
    records, ours_says, kafka_says, why = WRONG[what]
    assert (ours_says != kafka_says) == bool(why)

    def refused(client: RawClient) -> tuple[int, Any]:
        only = client.ask(produce(records, topic="wrong", acks=1), 9).responses[0].partition_responses[0]
        return only.error_code, [one.batch_index for one in only.record_errors]

    for client in clients:
        create(client, "wrong")
    ours, kafka = (settled(lambda client=client: refused(client)) for client in clients)  # type: ignore[misc]
    assert (ours, kafka) == ((ours_says, []), (kafka_says, []))


@pytest.mark.parametrize("compression", ["producer", "gzip"])
def test_records_without_a_key_are_named_whatever_the_codec(
    clients: tuple[RawClient, RawClient], compression: str
) -> None:
    topic = f"keyed-{compression}"
    for client in clients:
        create(client, topic, cleanup_policy="compact", compression_type=compression)
    for codec in (0, 1, 3, 4):
        records = bytes(pack([(5, key, b"v", ()) for key in (b"k", None, b"k")], compression=codec))

        def refused(client: RawClient, records: bytes = records) -> tuple[int, Any]:
            only = client.ask(produce(records, topic=topic, acks=1), 9).responses[0].partition_responses[0]
            return only.error_code, [one.batch_index for one in only.record_errors]

        ours, kafka = (settled(lambda client=client: refused(client)) for client in clients)  # type: ignore[misc]
        assert ours == kafka == (ErrorCode.INVALID_RECORD, [1])
