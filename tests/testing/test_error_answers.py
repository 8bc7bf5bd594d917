"""A fault's answer is one that Kafka could send: of that API and version, about what was asked, the error in place.

Every version of every API is asked for something, its refusal goes over the wire as bytes and is read back. What a few
APIs must say stands here by hand, with the names of Kafka's protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from foldlog.testing.error_answers import error_answer
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import decode_response, encode_response, request_class, response_class
from foldlog.wire.messages import APIS, NAMES
from foldlog.wire.schema import Message

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
PLACES = ("error_code", "partition_error_code")
WITHOUT_ITEMS = {"members", "brokers"}

VERSIONS = [(key, version) for key, api in APIS.items() for version in range(api.first, api.last + 1)]
BY_NAME = {name: key for key, name in NAMES.items()}

SAMPLES: dict[str, Any] = {"string": "x", "uuid": bytes(range(16)), "bytes": b"x", "records": b"x", "bool": True}


def asked(kind: type[Message], version: int) -> Any:
    """A request that names one thing wherever it can name several."""
    made = kind()
    for one in kind.SCHEMA:
        if not one.first <= version <= one.last:
            continue
        if one.item is not None:
            inner = asked(one.item, version)
            setattr(made, one.name, [inner] if one.is_array else inner)
        else:
            value = SAMPLES.get(one.kind, 1.0 if one.kind == "float64" else 7)
            setattr(made, one.name, [value] if one.is_array else value)
    return made


def answered(request: Any, version: int) -> Any:
    """The refusal, after it went over the wire."""
    answer = error_answer(request, version, CODE)
    frame = b"".join(encode_response(answer, version, 5))
    correlation_id, read = decode_response(response_class(request.API_KEY), version, frame[4:])
    assert correlation_id == 5
    return read


def codes(part: Message, version: int) -> Iterator[int]:
    for one in type(part).SCHEMA:
        if one.first <= version <= one.last:
            value = getattr(part, one.name)
            if one.name in PLACES:
                yield value
            elif one.item is not None:
                for item in value or () if one.is_array else [value] * (value is not None):
                    yield from codes(item, version)


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=[f"{NAMES[key]} v{version}" for key, version in VERSIONS])
def test_every_version_of_every_api_can_be_refused(key: int, version: int) -> None:
    for request in (asked(request_class(key), version), request_class(key)()):
        found = list(codes(answered(request, version), version))
        assert found or (NAMES[key], version) == ("SaslHandshake", 0), "there is no place for the error"
        assert set(found) <= {CODE}, "a place says that all is well"


def test_what_produce_says_of_its_partitions() -> None:
    request = asked(request_class(0), 9)
    (topic,) = answered(request, 9).responses
    (partition,) = topic.partition_responses
    assert (topic.name, partition.index, partition.error_code) == ("x", 7, CODE)
    assert (partition.base_offset, partition.log_append_time_ms) == (-1, -1)
    assert answered(asked(request_class(0), 13), 13).responses[0].topic_id == bytes(range(16))


@pytest.mark.parametrize(
    ("name", "version", "path", "names"),
    [
        ("ListOffsets", 7, "topics.partitions", {"partition_index": 7, "offset": -1, "timestamp": -1}),
        ("OffsetCommit", 8, "topics.partitions", {"partition_index": 7}),
        ("OffsetFetch", 7, "topics.partitions", {"partition_index": 7, "committed_offset": -1}),
        ("OffsetFetch", 8, "groups", {"group_id": "x"}),
        ("OffsetFetch", 8, "groups.topics.partitions", {"partition_index": 7}),
        ("FindCoordinator", 4, "coordinators", {"key": "x", "node_id": -1, "port": -1}),
        ("DescribeGroups", 5, "groups", {"group_id": "x"}),
        ("CreateTopics", 7, "topics", {"name": "x", "num_partitions": -1}),
        ("DeleteTopics", 5, "responses", {"name": "x"}),
        ("DeleteTopics", 6, "responses", {"name": "x"}),
        ("DeleteGroups", 2, "results", {"group_id": "x"}),
        ("DescribeConfigs", 4, "results", {"resource_type": 7, "resource_name": "x"}),
        ("IncrementalAlterConfigs", 1, "responses", {"resource_type": 7, "resource_name": "x"}),
        ("AlterUserScramCredentials", 0, "results", {"user": "x"}),
        ("AlterReplicaLogDirs", 2, "results", {"topic_name": "x"}),
        ("AlterClientQuotas", 1, "entries.entity", {"entity_type": "x", "entity_name": "x"}),
        ("DescribeTransactions", 0, "transaction_states", {"transactional_id": "x"}),
        ("TxnOffsetCommit", 3, "topics.partitions", {"partition_index": 7}),
        ("OffsetForLeaderEpoch", 4, "topics.partitions", {"partition": 7, "end_offset": -1}),
        ("LeaveGroup", 5, "members", {"member_id": "x"}),
        ("UpdateFeatures", 1, "results", {"feature": "x"}),
        ("ElectLeaders", 2, "replica_election_results.partition_result", {"partition_id": 7}),
    ],
)
def test_an_answer_names_what_the_request_named(name: str, version: int, path: str, names: dict[str, Any]) -> None:
    part = answered(asked(request_class(BY_NAME[name]), version), version)
    for step in path.split("."):
        (part,) = getattr(part, step)
    assert {field: getattr(part, field) for field in names} == names


def test_partitions_of_a_transaction_are_named_in_old_and_new_versions() -> None:
    key = BY_NAME["AddPartitionsToTxn"]
    old = answered(asked(request_class(key), 3), 3).results_by_topic_v3_and_below
    assert [(one.name, one.results_by_partition[0].partition_index) for one in old] == [("x", 7)]
    (new,) = answered(asked(request_class(key), 4), 4).results_by_transaction
    assert (new.transactional_id, new.topic_results[0].results_by_partition[0].partition_error_code) == ("x", CODE)
