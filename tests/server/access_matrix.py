"""Every API, asked by every identity at a listener of every protocol: one cell each, of any broker that has them all.

`docs/reference/access.md` is written from our broker's cells (`scripts/write_access_table.py`), and `make test-kafka`
compares each cell with Apache Kafka's.

An identity is somebody to the broker by other means on each protocol. With SASL it is a user, with SSL the name in a
certificate. On PLAINTEXT everybody is User:ANONYMOUS, so ACLs tell them apart by address; and nobody is a super user
there unless all are: that one cell needs a broker of its own settings (`ANONYMOUS_RULES`).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from certificates import Authority, client_context
from foldlog.broker.access.acls import ANONYMOUS, AclOperation, PatternType, Permission, ResourceType
from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from foldlog.wire.codec import encode
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import APIS
from foldlog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from foldlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from foldlog.wire.messages.describe_acls import DescribeAclsRequest
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest
from foldlog.wire.schema import Request
from server.access.sasl_broker import set_password
from server.api_access import (
    ANY_ACL,
    ASKS_NOTHING,
    BEFORE,
    CLUSTER_FAILED,
    GROUP_FAILED,
    HIDDEN,
    ID_FAILED,
    ROWS,
    TOPIC_FAILED,
    Names,
    Row,
    codes,
)
from server.raw_client import RawClient

HOST: Final = "127.0.0.1"
PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")

NOBODY, WRONG, NO_ACL, DESCRIBES, NO_TOPICS, PREFIX, DENIED, SUPER = IDENTITIES = (
    "nobody",
    "wrong-password",
    "no-acl",
    "describe-only",
    "no-topics",
    "prefix",
    "denied",
    "super-user",
)
"""Who does not log in; whose password, or certificate's authority, is wrong; without an ACL; may describe all of it;
may do all but with topics; may do all by a prefix; may do all, and is denied all; may do everything."""

USERS: Final = (NO_ACL, DESCRIBES, NO_TOPICS, PREFIX, DENIED, SUPER)
PASSWORD: Final = "secret-of-the-tests"
ADDRESSES: Final = {identity: f"127.0.0.{number}" for number, identity in enumerate(IDENTITIES, 101)}
"""Where each comes from on PLAINTEXT."""

SUPER_USERS: Final = f"User:{SUPER}"
ANONYMOUS_RULES: Final = f"{SUPER_USERS};{ANONYMOUS}"
"""`super.users` of a broker, and of one where whoever comes by PLAINTEXT is one."""

MAPPING_RULES: Final = "RULE:^CN=([^,]+)$/$1/,DEFAULT"
VERSION: Final = 3
WAIT_S: Final = 60.0
KINDS: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)

FREE_ROWS: Final[Sequence[Row]] = (
    Row("api_versions", 3, (), HIDDEN, lambda n: {"client_software_name": "a", "client_software_version": "1"}),
    Row("sasl_handshake", 1, (), HIDDEN, lambda n: {"mechanism": "PLAIN"}),
    Row("sasl_authenticate", 2, (), HIDDEN, lambda n: {"auth_bytes": b""}),
    Row("get_telemetry_subscriptions", 0, (), HIDDEN, lambda n: {"client_instance_id": bytes(15) + b"\1"}),
    Row("push_telemetry", 0, (), HIDDEN, lambda n: {"client_instance_id": bytes(15) + b"\1", "metrics": b""}),
)
"""A request of each API that asks for nothing."""

ALL_ROWS: Final = (*FREE_ROWS, *ROWS)
assert {row.api for row in FREE_ROWS} == ASKS_NOTHING.keys()
assert {row.api for row in ALL_ROWS} == {api.module for api in APIS.values()}, "an API has no row"

YES: Final = "yes"
CLOSED: Final = "closed"
LESS: Final = "less"
NO_LOGIN: Final = "no login"
REFUSALS: Final = {
    TOPIC_FAILED: "topic",
    GROUP_FAILED: "group",
    CLUSTER_FAILED: "cluster",
    ID_FAILED: "id",
    ErrorCode.ILLEGAL_SASL_STATE: NO_LOGIN,
    ErrorCode.SASL_AUTHENTICATION_FAILED: "login",
}
"""How a cell names the errors that it is about; an answer with any other is one to somebody who may ask."""


class Cell(NamedTuple):
    """Who asks, and how it comes in."""

    identity: str
    protocol: str

    @property
    def is_let_in(self) -> bool:
        if self.identity == WRONG:
            return self.protocol == PLAINTEXT  # where nobody asks for a password
        return self.identity != NOBODY or not self.protocol.startswith("SASL")

    @property
    def needs_anonymous_rules(self) -> bool:
        return self == (SUPER, PLAINTEXT)

    def names(self, topic_id: bytes = bytes(16)) -> Names:
        """Of what it asks about; no other cell has anything to do with it."""
        stem = f"{self.identity}-{self.protocol.lower()}-"
        return Names(f"{stem}orders", topic_id, f"{stem}app", f"{stem}shared", f"{stem}tx", f"{stem}new")


CELLS: Final = tuple(Cell(identity, protocol) for identity in IDENTITIES for protocol in PROTOCOLS)
FIRST_CELLS: Final = tuple(cell for cell in CELLS if not cell.needs_anonymous_rules)
LAST_CELLS: Final = tuple(cell for cell in CELLS if cell.needs_anonymous_rules)


def acls() -> list[AclCreation]:
    """The same for a user and for who comes from that identity's address."""
    made = [_acl(DESCRIBES, ResourceType.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE)]
    made += [_acl(DESCRIBES, kind, "*", AclOperation.DESCRIBE) for kind in KINDS]
    prefixed = {"resource_pattern_type": PatternType.PREFIXED}
    made += [_acl(NO_TOPICS, kind, "*", AclOperation.ALL) for kind in KINDS[1:]]
    made += [_acl(NO_TOPICS, ResourceType.CLUSTER, "kafka-cluster", AclOperation.CLUSTER_ACTION)]
    made += [_acl(PREFIX, kind, "pre", AclOperation.ALL, **prefixed) for kind in KINDS]
    made += [_acl(DENIED, kind, "*", AclOperation.ALL) for kind in KINDS]
    deny = {**prefixed, "permission_type": Permission.DENY}
    made += [_acl(DENIED, kind, "denied-", AclOperation.ALL, **deny) for kind in KINDS]
    by_address = [{"principal": ANONYMOUS, "host": ADDRESSES[identity]} for identity, _ in made]
    return [
        AclCreation(**{**fields, **changed})
        for (_, fields), address in zip(made, by_address, strict=True)
        for changed in ({}, address)
    ]


def _acl(
    identity: str, kind: ResourceType, name: str, operation: AclOperation, **changed: Any
) -> tuple[str, dict[str, Any]]:
    fields: dict[str, Any] = {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": f"User:{identity}",
        "host": "*",
        "operation": operation,
        "permission_type": Permission.ALLOW,
    }
    return identity, {**fields, **changed}


class Certificates:
    """What both brokers and all clients need for TLS, in files of that directory."""

    def __init__(self, path: Path) -> None:
        authority = Authority()
        self.keystore = authority.broker().write(path / "broker.pem")
        self.truststore = authority.write(path / "authority.pem")
        stranger = Authority()
        self._contexts: dict[str, ssl.SSLContext] = {}
        for identity in IDENTITIES:
            signs = stranger if identity == WRONG else authority
            file = signs.client(identity).write(path / f"{identity}.pem")
            self._contexts[identity] = client_context(authority, None if identity == NOBODY else file)
        self._without = client_context(authority)

    def context(self, cell: Cell) -> ssl.SSLContext | None:
        """A client's, with the certificate that says who it is; with SASL it has none."""
        if cell.protocol == SASL_SSL:
            return self._without
        return self._contexts[cell.identity] if cell.protocol == SSL else None


@dataclass
class Side:
    """A broker with a listener of each protocol, at these ports."""

    ports: Mapping[str, int]
    certificates: Certificates

    def connect(self, cell: Cell) -> RawClient:
        """Come in as that identity does. OSError if TLS is refused at once."""
        tls, source = self.certificates.context(cell), ADDRESSES[cell.identity] if cell.protocol == PLAINTEXT else None
        client = RawClient((HOST, self.ports[cell.protocol]), tls=tls, source=source)
        if cell.identity == WRONG or (cell.protocol.startswith("SASL") and cell.identity != NOBODY):
            is_in = _log_in(client, cell)
            assert is_in == (cell.is_let_in and cell.protocol != PLAINTEXT), cell
        return client

    def owner(self) -> RawClient:
        return self.connect(Cell(SUPER, SASL_PLAINTEXT))


def _log_in(client: RawClient, cell: Cell) -> bool:
    """Whether the login was taken. Where there is none to be had, the client asks all the same."""
    password = "wrong" if cell.identity == WRONG else PASSWORD
    token = f"\0{NO_ACL if cell.identity == WRONG else cell.identity}\0{password}".encode()
    try:
        begun = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
        assert begun == (0 if cell.protocol.startswith("SASL") else ErrorCode.ILLEGAL_SASL_STATE)
        if begun:
            return False
        return bool(client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0)
    except (OSError, ssl.SSLError):
        assert cell == (WRONG, SSL)  # the broker does not take the certificate
        return False


def prepare(side: Side, cells: Sequence[Cell]) -> dict[Cell, Names]:
    """The same topics, ACLs, groups and ids, once the broker knows them all; the names of each cell."""
    owner = side.owner()
    inside = [cell for cell in cells if cell.is_let_in]
    topics = [CreatableTopic(name=cell.names().topic, num_partitions=1, replication_factor=1) for cell in inside]
    assert not codes(owner.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7))
    wanted_acls = acls()
    assert not codes(owner.ask(CreateAclsRequest(creations=wanted_acls), VERSION))
    _wait(lambda: _acl_count(owner) >= len(wanted_acls))
    found = {cell: cell.names() for cell in cells}
    for cell in inside:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=cell.names().topic)])
        _until_right(owner, wanted, 12)
        found[cell] = cell.names(owner.ask(wanted, 12).topics[0].topic_id)
        for api in ("find_coordinator", "offset_commit", "init_producer_id"):
            for row in (row for row in ROWS if row.api == api):
                _until_right(owner, row.request(found[cell]), row.version)
    owner.close()
    return found


def _until_right(owner: RawClient, request: Request, version: int) -> None:
    """Ask until there is no error in the answer: Kafka tells its parts of a change one after the other."""
    _wait(lambda: not codes(owner.ask(request, version)))


def _acl_count(owner: RawClient) -> int:
    everything: Any = ANY_ACL
    answer = owner.ask(DescribeAclsRequest(**everything), VERSION)
    return sum(len(resource.acls) for resource in answer.resources)


def _wait(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s


Answers = dict[tuple[int, Cell], str]
"""What each row (by its place in ALL_ROWS) got in each cell: YES, CLOSED, or the refusals."""


def ask_all(side: Side, cells: Sequence[Cell]) -> Answers:
    """Every row in each of these cells."""
    names = prepare(side, cells)
    owner = side.owner()
    found: Answers = {}
    for cell in cells:
        client: RawClient | None = None
        for number, row in enumerate(ALL_ROWS):
            if cell.identity == SUPER:
                for before in BEFORE.get(row.api, ()):
                    owner.ask(before.request(names[cell]), before.version)
            try:
                client = client or side.connect(cell)
                found[number, cell] = _shown(client.ask(row.request(names[cell]), row.version), row, names[cell])
            except TimeoutError as error:
                raise AssertionError(f"{row.api} is not answered: {cell}") from error
            except (OSError, ssl.SSLError):
                found[number, cell] = CLOSED
            if client is not None and (found[number, cell] == CLOSED or row in FREE_ROWS or not cell.is_let_in):
                client.close()  # what it asked may have been the beginning of another login, or its end
                client = None
        if client is not None:
            client.close()
    owner.close()
    return found


def _shown(answer: Any, row: Row, names: Names) -> str:
    refused = [word for code, word in REFUSALS.items() if code in codes(answer)]
    if refused:
        return " ".join(refused)
    if row.code is HIDDEN and row.asks:
        data = encode(answer, row.version)
        shown = {
            "list_groups": names.group.encode() in data,
            "list_transactions": names.transactional_id.encode() in data,
            "describe_cluster": getattr(answer, "cluster_authorized_operations", 0) != 0,
        }
        return YES if shown[row.api] else LESS
    return YES


@contextmanager
def our_side(broker: Broker, certificates: Certificates, super_users: str) -> Iterator[Side]:
    """Our broker as the table wants it."""
    settings = {
        "listeners": ",".join(f"{protocol}://{HOST}:0" for protocol in PROTOCOLS),
        "sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": 0,
        "authorizer.class.name": "foldlog",
        "super.users": super_users,
        "ssl.keystore.location": str(certificates.keystore),
        "ssl.truststore.location": str(certificates.truststore),
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": MAPPING_RULES,
    }
    with Server.start(broker, ServerSettings.parse(settings)) as server:
        ports = {protocol: port for protocol, (_, port) in zip(PROTOCOLS, server.addresses, strict=True)}
        yield Side(ports, certificates)


def our_answers(directory: Path) -> Answers:
    """All cells of our broker, in memory; certificates are put into that directory."""
    certificates = Certificates(directory)
    found: Answers = {}
    with Broker.open(MEMORY_PATH) as broker:
        for user in USERS:
            set_password(broker, user, PASSWORD)
        for super_users, cells in ((SUPER_USERS, FIRST_CELLS), (ANONYMOUS_RULES, LAST_CELLS)):
            with our_side(broker, certificates, super_users) as side:
                found |= ask_all(side, cells)
    return found
