"""DescribeUserScramCredentials and AlterUserScramCredentials: what they answer, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.access.scram import salted_password
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from foldlog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from server.small_node import Denies, SmallNode

SALT = b"0123456789abcdef"
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@pytest.fixture
def small() -> Iterator[SmallNode]:
    node = SmallNode()
    yield node
    node.close()


def upsertion(name: str = "alice", mechanism: int = 1, **changed: Any) -> ScramCredentialUpsertion:
    salted = salted_password(MECHANISMS.get(mechanism, "SCRAM-SHA-256"), "secret", SALT, 4096)
    fields: dict[str, Any] = {
        "name": name,
        "mechanism": mechanism,
        "iterations": 4096,
        "salt": SALT,
        "salted_password": salted,
    }
    return ScramCredentialUpsertion(**{**fields, **changed})


def alter(small: SmallNode, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    deletions = [one for one in changes if isinstance(one, ScramCredentialDeletion)]
    upsertions = [one for one in changes if isinstance(one, ScramCredentialUpsertion)]
    answer = small.ask(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions), 0)
    return {result.user: result.error_code for result in answer.results}


def described(small: SmallNode, *names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)
    answer = small.ask(request, 0)
    assert (answer.error_code, answer.error_message) == (0, None)
    return {
        one.user: (one.error_code, [(info.mechanism, info.iterations) for info in one.credential_infos])
        for one in answer.results
    }


def test_users_are_made_described_and_deleted(small: SmallNode) -> None:
    assert described(small) == {}
    assert alter(small, upsertion(), upsertion("bob", 2, iterations=16_384)) == {"alice": 0, "bob": 0}
    assert alter(small, upsertion(mechanism=2)) == {"alice": 0}
    assert described(small) == {"alice": (0, [(1, 4096), (2, 4096)]), "bob": (0, [(2, 16_384)])}
    assert small.broker.access.current.users.knows("alice", "secret")
    assert not small.broker.access.current.users.knows("alice", "other")
    assert alter(small, ScramCredentialDeletion(name="alice", mechanism=1)) == {"alice": 0}
    assert described(small, "alice") == {"alice": (0, [(2, 4096)])}
    assert alter(small, ScramCredentialDeletion(name="alice", mechanism=2)) == {"alice": 0}
    assert small.broker.access.current.users.names == ["bob"]


def test_who_is_not_there_or_is_asked_for_twice_has_an_error(small: SmallNode) -> None:
    alter(small, upsertion())
    assert described(small, "alice", "nobody") == {
        "alice": (0, [(1, 4096)]),
        "nobody": (ErrorCode.RESOURCE_NOT_FOUND, []),
    }
    assert described(small, "alice", "alice") == {"alice": (ErrorCode.DUPLICATE_RESOURCE, [])}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a" * 257), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("../x\n"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b"x" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion(name="alice", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion(name="alice", mechanism=1), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_what_cannot_be_kept_is_refused_and_the_others_are_altered(
    small: SmallNode, change: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode
) -> None:
    assert alter(small, change, upsertion("bob")) == {change.name: code, "bob": 0}
    assert small.broker.access.current.users.names == ["bob"]


def test_a_user_is_altered_once_in_a_request(small: SmallNode) -> None:
    alter(small, upsertion())
    twice = alter(small, upsertion(mechanism=2), ScramCredentialDeletion(name="alice", mechanism=1), upsertion("bob"))
    assert twice == {"alice": ErrorCode.DUPLICATE_RESOURCE, "bob": 0}
    assert described(small, "alice") == {"alice": (0, [(1, 4096)])}


def test_the_cluster_is_asked_about() -> None:
    cluster = ((AclOperation.DESCRIBE, ResourceType.CLUSTER), (AclOperation.ALTER, ResourceType.CLUSTER))
    small = SmallNode(authorizer=Denies(*cluster))
    assert alter(small, upsertion()) == {"alice": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    answer = small.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="alice")]), 0)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [one.error_code for one in answer.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert not small.broker.access.current.users.names
    small.close()
