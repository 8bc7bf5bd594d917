"""DescribeClientQuotas and AlterClientQuotas: what they answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from foldlog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from server.small_node import Denies, SmallNode

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Named = Mapping[str, str | None]


@pytest.fixture
def small() -> Iterator[SmallNode]:
    node = SmallNode()
    yield node
    node.close()


def entry(named: Named, **values: float | None) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in named.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter(small: SmallNode, *entries: EntryData, validate_only: bool = False, version: int = 1) -> list[int]:
    answer = small.ask(AlterClientQuotasRequest(entries=entries, validate_only=validate_only), version)
    return [one.error_code for one in answer.entries]


def described(small: SmallNode, *wanted: tuple[str, int, str | None], strict: bool = False) -> list[Named]:
    components = [ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in wanted]
    answer = small.ask(DescribeClientQuotasRequest(components=components, strict=strict), 1)
    assert (answer.error_code, answer.error_message) == (0, None)
    return [{part.entity_type: part.entity_name for part in one.entity} for one in answer.entries]


@pytest.fixture
def filled(small: SmallNode) -> SmallNode:
    codes = alter(
        small,
        entry({"user": "alice"}, producer_byte_rate=1000),
        entry({"user": "alice", "client_id": "app"}, consumer_byte_rate=2000, request_percentage=12.5),
        entry({"user": None}, controller_mutation_rate=0.5),
        entry({"client_id": None}, producer_byte_rate=500),
        entry({"ip": "10.0.0.1"}, connection_creation_rate=5),
    )
    assert codes == [0] * 5
    return small


def test_values_are_kept_and_removed(filled: SmallNode) -> None:
    component = ComponentData(entity_type="client-id", match_type=EXACT, match="app")
    (found,) = filled.ask(DescribeClientQuotasRequest(components=[component]), 0).entries
    assert {one.key: one.value for one in found.values} == {"consumer_byte_rate": 2000, "request_percentage": 12.5}
    both = {"user": "alice", "client_id": "app"}
    assert alter(filled, entry(both, consumer_byte_rate=None, producer_byte_rate=None, request_percentage=50)) == [0]
    (found,) = filled.ask(DescribeClientQuotasRequest(components=[component]), 1).entries
    assert {one.key: one.value for one in found.values} == {"request_percentage": 50}
    assert alter(filled, entry(both, request_percentage=None)) == [0]
    assert not filled.ask(DescribeClientQuotasRequest(components=[component]), 1).entries


def test_filters_mean_names_defaults_and_kinds(filled: SmallNode) -> None:
    alice, both = {"user": "alice"}, {"client-id": "app", "user": "alice"}
    assert len(described(filled)) == 5
    assert described(filled, strict=True) == []
    assert described(filled, ("user", EXACT, "alice")) == [both, alice]
    assert described(filled, ("user", EXACT, "alice"), strict=True) == [alice]
    assert described(filled, ("user", DEFAULT, None)) == [{"user": None}]
    assert described(filled, ("user", SPECIFIED, None), strict=True) == [{"user": None}, alice]
    assert described(filled, ("client-id", SPECIFIED, None)) == [{"client-id": None}, both]
    assert described(filled, ("user", SPECIFIED, None), ("client-id", EXACT, "app")) == [both]
    assert described(filled, ("ip", SPECIFIED, None)) == [{"ip": "10.0.0.1"}]
    assert described(filled, ("ip", EXACT, "10.0.0.2")) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, "a"), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_means_nothing_is_refused(
    small: SmallNode, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    asked = [ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    answer = small.ask(DescribeClientQuotasRequest(components=asked), 1)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message


@pytest.mark.parametrize(
    "wrong",
    [
        entry({}, producer_byte_rate=1),
        entry({"group": "a"}, producer_byte_rate=1),
        entry({"user": ""}, producer_byte_rate=1),
        entry({"user": "a", "ip": "::1"}, producer_byte_rate=1),
        entry({"ip": "not an address"}, connection_creation_rate=1),
        entry({"ip": "::1"}, producer_byte_rate=1),
        entry({"user": "a"}, connection_creation_rate=1),
        entry({"user": "a"}, speed=1),
        entry({"user": "a"}, producer_byte_rate=0),
        entry({"user": "a"}, producer_byte_rate=-1),
        entry({"user": "a"}, producer_byte_rate=1.5),
        entry({"user": "a"}, request_percentage=float("nan")),
        EntryData(
            entity=[EntityData(entity_type="user", entity_name="a")] * 2,
            ops=[OpData(key="producer_byte_rate", value=1.0)],
        ),
        EntryData(
            entity=[EntityData(entity_type="user", entity_name="a")],
            ops=[OpData(key="producer_byte_rate", value=1.0)] * 2,
        ),
    ],
)
def test_what_is_no_quota_is_refused_and_the_others_are_set(small: SmallNode, wrong: EntryData) -> None:
    assert alter(small, wrong, entry({"user": "b"}, producer_byte_rate=1)) == [ErrorCode.INVALID_REQUEST, 0]
    assert described(small) == [{"user": "b"}]


def test_an_entity_that_stands_there_twice_is_not_altered(small: SmallNode) -> None:
    twice = [entry({"user": "a"}, producer_byte_rate=1), entry({"user": "a"}, producer_byte_rate=2)]
    assert alter(small, *twice) == [ErrorCode.INVALID_REQUEST]
    assert described(small) == []


def test_a_check_changes_nothing(small: SmallNode) -> None:
    good, wrong = entry({"user": "a"}, producer_byte_rate=1), entry({"user": "b"}, producer_byte_rate=-1)
    assert alter(small, good, wrong, validate_only=True, version=0) == [0, ErrorCode.INVALID_REQUEST]
    assert described(small) == []


def test_the_cluster_is_asked_about() -> None:
    kinds = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
    small = SmallNode(authorizer=Denies(*((kind, ResourceType.CLUSTER) for kind in kinds)))
    assert alter(small, entry({"user": "a"}, producer_byte_rate=1)) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    answer = small.ask(DescribeClientQuotasRequest(components=[]), 1)
    assert (answer.error_code, answer.entries) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    small.close()
