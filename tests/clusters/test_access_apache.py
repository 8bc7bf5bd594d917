"""Who may do what: every API, for every kind of identity, answered as Apache Kafka's StandardAuthorizer answers it.

Each identity has topics, groups and transactional ids of its own, in both brokers, and the same ACLs. Compared is
whether an answer has an authorization error, and which. What an answer hides is compared by whether it names the group
or the id.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from clusters.apache_kafka import ApacheKafka
from clusters.maven import JarsUnavailable
from clusters.processes import HOST

from foldlog.broker.access.acls import ANONYMOUS, AclOperation, PatternType, Permission, ResourceType
from foldlog.wire.codec import encode
from foldlog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from foldlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from foldlog.wire.messages.describe_acls import DescribeAclsRequest
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest
from server.access.sasl_broker import sasl_broker, set_password
from server.api_access import (
    ANY_ACL,
    BEFORE,
    CLUSTER_FAILED,
    GROUP_FAILED,
    HIDDEN,
    ID_FAILED,
    ROWS,
    TOPIC_FAILED,
    Names,
    Row,
    built,
    codes,
)
from server.raw_client import RawClient

IDENTITIES = ("nobody", "describer", "prefixed", "denied", "admin")
"""Without an ACL; may describe all of it; may do all by a prefix; may do all, and is denied all; a super user."""

AUTHORIZATION = frozenset({TOPIC_FAILED, GROUP_FAILED, CLUSTER_FAILED, ID_FAILED})
SUPER_USERS = f"{ANONYMOUS};User:admin"
PASSWORD = "secret-of-the-tests"
VERSION = 3

KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


def names_of(identity: str, topic_id: bytes = bytes(16)) -> Names:
    stem = f"{identity}-"
    return Names(f"{stem}orders", topic_id, f"{stem}app", f"{stem}shared", f"{stem}tx", f"{stem}new")


def acl(identity: str, kind: ResourceType, name: str, operation: AclOperation, **changed: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": f"User:{identity}",
        "host": "*",
        "operation": operation,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**{**fields, **changed})


def acls() -> list[AclCreation]:
    made = [acl("describer", ResourceType.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE)]
    made += [acl("describer", kind, "*", AclOperation.DESCRIBE) for kind in KINDS]
    prefixed = {"resource_pattern_type": PatternType.PREFIXED}
    made += [acl("prefixed", kind, "pre", AclOperation.ALL, **prefixed) for kind in KINDS]
    made += [acl("denied", kind, "*", AclOperation.ALL) for kind in KINDS]
    deny = {**prefixed, "permission_type": Permission.DENY}
    made += [acl("denied", kind, "denied-", AclOperation.ALL, **deny) for kind in KINDS]
    return made


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": SUPER_USERS,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.num.partitions": 1,
    }
    users = dict.fromkeys(IDENTITIES, PASSWORD)
    try:
        with ApacheKafka.launch(tmp_path_factory.mktemp("kafka"), properties=properties, users=users) as kafka:
            yield kafka
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


class Side:
    """A broker as each identity sees it that has logged in there; the owner needs not."""

    def __init__(self, open_port: int, sasl_port: int) -> None:
        self._clients = {identity: _logged_in(sasl_port, identity) for identity in IDENTITIES}
        self._clients["owner"] = RawClient((HOST, open_port))

    def ask(self, identity: str, request: Any, version: int) -> Any:
        return self._clients[identity].ask(request, version)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def _logged_in(port: int, user: str) -> RawClient:
    client = RawClient((HOST, port))
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    token = f"\0{user}\0{PASSWORD}".encode()
    assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
    return client


def prepare(side: Side) -> dict[str, Names]:
    """The same topics, ACLs, groups and ids, once the broker knows them all; the names of each identity."""
    topics = [
        CreatableTopic(name=names_of(identity).topic, num_partitions=1, replication_factor=1) for identity in IDENTITIES
    ]
    made = side.ask("owner", CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    assert not codes(made)
    assert not codes(side.ask("owner", CreateAclsRequest(creations=acls()), VERSION))
    _wait(lambda: _acl_count(side) == len(acls()))
    found = {}
    for identity in IDENTITIES:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=names_of(identity).topic)])
        _wait(lambda wanted=wanted: not codes(side.ask("owner", wanted, 12)))
        found[identity] = names_of(identity, side.ask("owner", wanted, 12).topics[0].topic_id)
        for api in ("find_coordinator", "offset_commit", "init_producer_id"):
            for row in (row for row in ROWS if row.api == api):
                request = row.request(found[identity])
                _wait(lambda row=row, request=request: not codes(side.ask("owner", request, row.version)))
    return found


def _acl_count(side: Side) -> int:
    answer = side.ask("owner", built(DescribeAclsRequest, ANY_ACL), VERSION)
    return sum(len(resource.acls) for resource in answer.resources)


def _wait(is_so: Any) -> None:
    deadline_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline_s


@pytest.fixture(scope="module")
def sides(kafka: ApacheKafka) -> Iterator[list[tuple[Side, dict[str, Names]]]]:
    """Apache Kafka, and ours."""
    listeners = {"listeners": f"PLAINTEXT://{HOST}:0,SASL_PLAINTEXT://{HOST}:0"}
    authorizer = {"authorizer.class.name": "foldlog", "super.users": SUPER_USERS}
    with sasl_broker({**listeners, **authorizer}) as (broker, server):
        for identity in IDENTITIES:
            set_password(broker, identity, PASSWORD)
        ports = kafka.brokers[0].ports
        both = [
            Side(ports["PLAINTEXT"], ports["SASL_PLAINTEXT"]),
            Side(server.addresses[0][1], server.addresses[1][1]),
        ]
        yield [(side, prepare(side)) for side in both]
        for side in both:
            side.close()


def verdict(side: Side, names: Names, identity: str, row: Row) -> Sequence[int]:
    if identity == "admin":
        for before in BEFORE.get(row.api, ()):
            side.ask("owner", before.request(names), before.version)
    answer = side.ask(identity, row.request(names), row.version)
    if row.code is HIDDEN:
        data = encode(answer, row.version)
        operations = getattr(answer, "cluster_authorized_operations", None)
        return names.group.encode() in data, names.transactional_id.encode() in data, operations == 0
    return sorted(codes(answer) & AUTHORIZATION)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_every_api_answers_an_identity_as_kafka_does(sides: list[tuple[Side, dict[str, Names]]], identity: str) -> None:
    differing, refused = {}, set()
    for row in ROWS:
        theirs, ours = (verdict(side, names[identity], identity, row) for side, names in sides)
        if theirs != ours:
            differing[row.api, row.asked_for] = (theirs, ours)
        refused |= set(ours) if row.code is not HIDDEN else set()
    assert not differing, f"(Kafka's, ours): {differing}"
    expected = {"admin": set(), "prefixed": {CLUSTER_FAILED}}
    assert refused == expected.get(identity, AUTHORIZATION)
