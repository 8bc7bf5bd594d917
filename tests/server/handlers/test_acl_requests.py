"""DescribeAcls, CreateAcls and DeleteAcls: what they answer, and that a change decides from the next request on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from foldlog.broker.access.acls import (
    ANONYMOUS,
    AclOperation,
    Identity,
    PatternType,
    Permission,
    ResourceType,
)
from foldlog.files.memory import MemoryFiles
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from foldlog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from foldlog.wire.messages.describe_acls import DescribeAclsRequest
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from server.small_node import Denies, SmallNode

VERSION = 3
ACLS_ON = {"authorizer.class.name": "foldlog", "super.users": f"{ANONYMOUS};User:admin"}


@pytest.fixture
def small() -> Iterator[SmallNode]:
    node = SmallNode(settings=ACLS_ON)
    yield node
    node.close()


def creation(name: str = "orders", **changed: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**{**fields, **changed})


def create(small: SmallNode, *creations: AclCreation, version: int = VERSION) -> list[int]:
    answer = small.ask(CreateAclsRequest(creations=creations), version)
    return [result.error_code for result in answer.results]


def wanted(**changed: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": Permission.ANY,
    }
    return {**fields, **changed}


def described(small: SmallNode, version: int = VERSION, **changed: Any) -> dict[tuple[int, str, int], int]:
    """Number of ACLs by resource."""
    answer = small.ask(DescribeAclsRequest(**wanted(**changed)), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    return {(one.resource_type, one.resource_name, one.pattern_type): len(one.acls) for one in answer.resources}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_is_created_is_described_by_resource(small: SmallNode, version: int) -> None:
    write = creation(operation=AclOperation.WRITE)
    prefixed = creation("ord", resource_pattern_type=PatternType.PREFIXED)
    assert create(small, creation(), write, creation(), prefixed, version=version) == [0, 0, 0, 0]
    assert described(small, version) == {(2, "ord", 4): 1, (2, "orders", 3): 2}
    assert described(small, version, resource_name_filter="orders", pattern_type_filter=PatternType.MATCH) == {
        (2, "ord", 4): 1,
        (2, "orders", 3): 2,
    }
    assert described(small, version, operation=AclOperation.WRITE) == {(2, "orders", 3): 1}
    answer = small.ask(DescribeAclsRequest(**wanted(operation=AclOperation.WRITE)), version)
    (acl,) = answer.resources[0].acls
    assert (acl.principal, acl.host, acl.operation, acl.permission_type) == ("User:alice", "*", 4, 3)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"resource_type": ResourceType.CLUSTER, "resource_name": "mine"}, "kafka-cluster"),
        ({"resource_name": ""}, "empty"),
        ({"resource_type": ResourceType.ANY}, "kind of resource ANY"),
        ({"resource_type": 99}, "kind of resource UNKNOWN"),
        ({"resource_type": ResourceType.DELEGATION_TOKEN}, "delegation tokens"),
        ({"resource_pattern_type": PatternType.MATCH}, "pattern MATCH"),
        ({"operation": AclOperation.ANY}, "operation ANY"),
        ({"operation": 99}, "operation UNKNOWN"),
        ({"permission_type": Permission.ANY}, "permission ANY"),
        ({"principal": "alice"}, "principal"),
        ({"host": ""}, "host"),
    ],
)
def test_what_is_no_acl_is_refused_and_the_others_are_made(
    small: SmallNode, changed: dict[str, Any], words: str
) -> None:
    answer = small.ask(CreateAclsRequest(creations=[creation(**changed), creation("other")]), VERSION)
    assert [result.error_code for result in answer.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert words in answer.results[0].error_message
    assert described(small) == {(2, "other", 3): 1}


def test_deleted_acls_are_named_for_each_filter(small: SmallNode) -> None:
    create(small, creation("a"), creation("b"), creation("b", operation=AclOperation.WRITE))
    filters = [
        DeleteAclsFilter(**wanted(resource_name_filter="b")),
        DeleteAclsFilter(**wanted(operation=AclOperation.WRITE)),
        DeleteAclsFilter(**wanted(resource_name_filter="nothing")),
        DeleteAclsFilter(**wanted(operation=99)),
    ]
    answer = small.ask(DeleteAclsRequest(filters=filters), VERSION)
    found = [(one.error_code, sorted(acl.operation for acl in one.matching_acls)) for one in answer.filter_results]
    assert found == [(0, [3, 4]), (0, [4]), (0, []), (ErrorCode.INVALID_REQUEST, [])]
    assert described(small) == {(2, "a", 3): 1}


def test_an_unknown_number_in_a_filter_is_refused(small: SmallNode) -> None:
    answer = small.ask(DescribeAclsRequest(**wanted(pattern_type_filter=0)), VERSION)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_without_an_authorizer_there_is_nothing_to_ask() -> None:
    small = SmallNode()
    requests = (
        DescribeAclsRequest(**wanted()),
        CreateAclsRequest(creations=[creation()] * 2),
        DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted())]),
    )
    describe, made, deleted = (small.ask(request, VERSION) for request in requests)
    assert describe.error_code == ErrorCode.SECURITY_DISABLED
    assert [one.error_code for one in made.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert [one.error_code for one in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
    small.close()


@pytest.mark.parametrize("operation", [AclOperation.DESCRIBE, AclOperation.ALTER])
def test_the_cluster_is_asked_about(operation: AclOperation) -> None:
    small = SmallNode(authorizer=Denies((operation, ResourceType.CLUSTER)))
    is_refused = operation is AclOperation.DESCRIBE
    answer = small.ask(DescribeAclsRequest(**wanted()), VERSION)
    assert (answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED) is is_refused
    assert (create(small, creation()) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]) is not is_refused
    deleted = small.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted())]), VERSION)
    refused = [one.error_code for one in deleted.filter_results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert refused is not is_refused
    small.close()


def test_a_change_decides_at_once_and_after_a_restart() -> None:
    files = MemoryFiles()
    small = SmallNode(files, settings=ACLS_ON)
    small.broker.create_topic("orders", 1)
    alice = Identity("User:alice", "127.0.0.1")

    def code() -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
        return int(small.ask(request, 9, who=alice).topics[0].error_code)

    assert code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert create(small, creation()) == [0]
    assert code() == ErrorCode.NONE
    small.close()
    small = SmallNode(files, settings=ACLS_ON)
    assert code() == ErrorCode.NONE
    small.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted())]), VERSION)
    assert code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    small.close()


def test_a_closed_node_hears_of_no_more_changes() -> None:
    small = SmallNode(settings=ACLS_ON)
    assert small.broker.access.watchers
    small.stop_serving()
    assert not small.broker.access.watchers
    small.close()
