"""Names that try to become a path: of topics, users, groups, transactional ids, client ids and principals of ACLs. What
is refused leaves nothing; what is taken stays a name, and no file appears that was not there for a harmless one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from foldlog.broker.broker import Broker
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from foldlog.wire.codec import encode
from foldlog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from foldlog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from foldlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest
from foldlog.wire.messages.metadata import MetadataRequest
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from foldlog.wire.schema import Request
from server.raw_client import RawClient

NAMES = ["../../outside", "/tmp/outside", "..", "a/../../outside", "..\\outside", "%2e%2e%2foutside", "a\0b", "~root"]


def topic(name: str) -> tuple[Request, int]:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]), 5


def user(name: str) -> tuple[Request, int]:
    one = ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32))
    return AlterUserScramCredentialsRequest(upsertions=[one]), 0


def group(name: str) -> tuple[Request, int]:
    asked = OffsetCommitRequestTopic(name="orders", partitions=[OffsetCommitRequestPartition(committed_offset=0)])
    return OffsetCommitRequest(group_id=name, topics=[asked]), 8


def transactional_id(name: str) -> tuple[Request, int]:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000), 4


def principal(name: str) -> tuple[Request, int]:
    fields: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": name,
        "host": name,
        "operation": 3,
        "permission_type": 3,
    }
    return CreateAclsRequest(creations=[AclCreation(**fields, principal=f"User:{name}")]), 3


def client_id(name: str) -> tuple[Request, int]:
    return MetadataRequest(topics=None), 9


KINDS: dict[str, Callable[[str], tuple[Request, int]]] = {
    "topic": topic,
    "user": user,
    "group": group,
    "transactional id": transactional_id,
    "principal": principal,
    "client id": client_id,
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A directory deep enough that names can climb out of it, and still be seen."""
    around = tmp_path / "around"
    data = around / "deep" / "data"
    data.parent.mkdir(parents=True)
    with Broker.open(str(data)) as broker:
        broker.create_topic("orders", 1)
        settings = {"listeners": "127.0.0.1:0", "authorizer.class.name": "foldlog", "super.users": "User:ANONYMOUS"}
        with Server.start(broker, ServerSettings.parse(settings)) as server:
            yield server, around


def files_of(path: Path) -> set[str]:
    return {str(one.relative_to(path)) for one in path.rglob("*")}


def ask_for(server: Server, kind: str, name: str) -> Any:
    client = RawClient(server.addresses[0], client_id=name if kind == "client id" else "raw")
    request, version = KINDS[kind](name)
    answer = client.ask(request, version)
    client.close()
    return encode(answer, version)


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_stays_a_name(served: tuple[Server, Path], kind: str) -> None:
    server, around = served
    ask_for(server, kind, "harmless")
    before = files_of(around)
    for name in NAMES:
        ask_for(server, kind, name)
    assert files_of(around) == before
    assert not any(Path("/tmp").glob("outside*"))
