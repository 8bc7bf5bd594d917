"""Logins and changes are written down with who asked for them, where clients say who they are; secrets are not.

A line is read back by a parser of this test's own: key=value pairs, each value JSON.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import struct
from typing import Any

import pytest

from foldlog.broker.access.acls import AclOperation, Identity, ResourceType
from foldlog.broker.broker import Broker
from foldlog.server import process_log
from foldlog.server.access.audit import AUDITED, RefusedLogins
from foldlog.server.access.logins import FailedLogins
from foldlog.server.authorizer import AllowEverything
from foldlog.testing.sim_clock import SimClock
from foldlog.wire.messages import APIS
from foldlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from foldlog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from foldlog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from foldlog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from foldlog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from foldlog.wire.messages.delete_groups import DeleteGroupsRequest
from foldlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest
from server.access.sasl_broker import SIMPLE_USER, sasl_broker
from server.access.test_logins import log_in, plain
from server.raw_client import RawClient

BOB = {"principal": "User:bob", "address": "127.0.0.1"}
_PAIR = re.compile(r"([a-z]+)=")


def parsed(line: str) -> dict[str, Any]:
    decoder = json.JSONDecoder()
    fields: dict[str, Any] = {}
    position = 0
    while position < len(line):
        key = _PAIR.match(line, position)
        assert key is not None, line[position:]
        fields[key[1]], position = decoder.raw_decode(line, key.end())
        assert position == len(line) or line[position] == " "
        position += 1
    return fields


def audited(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [parsed(record.getMessage()) for record in caplog.records if record.name == "foldlog.audit"]


def changes(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [line for line in audited(caplog) if not line["action"].startswith("login")]


class NoDeleting(AllowEverything):
    def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return operation != AclOperation.DELETE


def known(server: Any) -> RawClient:
    raw = RawClient(server.addresses[0])
    assert log_in(raw, plain(SIMPLE_USER)).error_code == 0
    return raw


def topic(name: str, **configs: str) -> CreatableTopic:
    found = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=found)


def test_each_change_is_a_line_with_who_what_from_where_and_the_result(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker(authorizer=NoDeleting()) as (_, server):
        raw = known(server)
        raw.ask(CreateTopicsRequest(topics=[topic("a", retention_ms="86400123"), topic("b")]), 5)
        raw.ask(DeleteTopicsRequest(topic_names=["a\nb"]), 4)
        raw.ask(MetadataRequest(topics=None), 12)
        raw.close()
    assert changes(caplog) == [
        {**BOB, "action": "CreateTopics", "names": ["a", "retention.ms", "b"], "result": "done"},
        {**BOB, "action": "DeleteTopics", "names": ["a\nb"], "result": "refused"},
    ]
    assert "86400123" not in caplog.text


def test_the_lines_are_as_the_documentation_shows_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker() as (_, server):
        raw = known(server)
        raw.ask(CreateTopicsRequest(topics=[topic("invoices")]), 5)
        raw.close()
    lines = [record.getMessage() for record in caplog.records if record.name == "foldlog.audit"]
    assert lines == [
        'principal="User:bob" address="127.0.0.1" action="login" names=["PLAIN"] result="done"',
        'principal="User:bob" address="127.0.0.1" action="CreateTopics" names=["invoices"] result="done"',
    ]


def test_a_topic_that_is_deleted_by_its_id_has_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker() as (broker, server):
        raw = known(server)
        found, unknown = bytes.fromhex(broker.topic("orders").topic_id), bytes(15) + b"\x07"
        asked = [DeleteTopicState(name=None, topic_id=one) for one in (found, unknown)]
        raw.ask(DeleteTopicsRequest(topics=asked), 6)
        raw.close()
    named = ["orders", f"the topic with id {unknown.hex()}"]
    assert changes(caplog) == [{**BOB, "action": "DeleteTopics", "names": named, "result": "in part"}]


def test_a_name_cannot_forge_a_line_or_a_field(caplog: pytest.LogCaptureFixture) -> None:
    evil = 'x"] result="done"\nprincipal="User:admin" address="10.0.0.1" action="DeleteTopics" names=["y\u202e\x1b[2J'
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker() as (_, server):
        raw = known(server)
        raw.ask(DeleteGroupsRequest(groups_names=[evil]), 1)
        raw.close()
    record = next(one for one in caplog.records if "DeleteGroups" in one.getMessage())
    assert record.getMessage().isascii()
    assert record.getMessage().isprintable()
    assert changes(caplog) == [{**BOB, "action": "DeleteGroups", "names": [evil], "result": "refused"}]


def test_what_was_done_is_told_whole_however_long_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a name that matters could stand behind many that do not."""
    names = [f"t{number}" for number in range(100)]
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker() as (_, server):
        raw = known(server)
        raw.ask(CreateTopicsRequest(topics=[topic(name) for name in names]), 5)
        raw.ask(DeleteTopicsRequest(topic_names=[*names, "orders"]), 4)
        raw.ask(DeleteTopicsRequest(topic_names=names), 4)
        raw.close()
    lines = changes(caplog)
    deleted = [
        name for line in lines if (line["action"], line["result"]) == ("DeleteTopics", "done") for name in line["names"]
    ]
    assert deleted == [*names, "orders"]
    refused = [line["names"] for line in lines if line["result"] == "refused"]
    assert refused == [[*names[:20], "and 80 more"]]


def test_users_acls_and_quotas_are_told_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    acl: dict[str, Any] = {"resource_type": 2, "operation": 3, "permission_type": 3, "host": "*"}
    with (
        caplog.at_level(logging.INFO, "foldlog.audit"),
        sasl_broker({"authorizer.class.name": "foldlog", "super.users": "User:bob"}) as (_, server),
    ):
        raw = known(server)
        made = [AclCreation(resource_name="ord", resource_pattern_type=4, principal="User:eve", **acl)]
        raw.ask(CreateAclsRequest(creations=made), 3)
        all_of_eve = DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter="User:eve",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        raw.ask(DeleteAclsRequest(filters=[all_of_eve]), 3)
        upsertion = ScramCredentialUpsertion(
            name="eve", mechanism=1, iterations=4096, salt=b"thesaltofeve", salted_password=b"\x07" * 32
        )
        raw.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        raw.ask(AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="eve", mechanism=1)]), 0)
        entities = [
            EntityData(entity_type="user", entity_name="eve"),
            EntityData(entity_type="client-id", entity_name=None),
        ]
        ops = [OpData(key="producer_byte_rate", value=1024.0), OpData(key="consumer_byte_rate", remove=True)]
        raw.ask(AlterClientQuotasRequest(entries=[EntryData(entity=entities, ops=ops)]), 1)
        raw.ask(AlterClientQuotasRequest(entries=[EntryData(entity=entities, ops=ops)], validate_only=True), 1)
        raw.close()
    told = [(line["action"], line["names"], line["result"]) for line in changes(caplog)]
    rule = "ALLOW READ on TOPIC 'ord' PREFIXED to 'User:eve' from '*'"
    quotas = [
        f"user 'eve' and client-id by default: {one}"
        for one in ("producer_byte_rate = 1024", "consumer_byte_rate deleted")
    ]
    assert told == [
        ("CreateAcls", [rule], "done"),
        ("DeleteAcls", [rule], "done"),
        ("AlterUserScramCredentials", ["'eve': SCRAM-SHA-256 set"], "done"),
        ("AlterUserScramCredentials", ["'eve': SCRAM-SHA-256 deleted"], "done"),
        ("AlterClientQuotas", quotas, "done"),
        ("AlterClientQuotas", quotas, "only checked"),
    ]
    assert "thesaltofeve" not in caplog.text


def test_a_topic_that_is_made_by_asking_about_it_is_a_change(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker() as (_, server):
        raw = known(server)
        raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True), 8)
        raw.close()
    assert [(line["action"], line["names"]) for line in changes(caplog)] == [("CreateTopics", ["new"])]


def test_a_login_is_a_line_and_logging_in_again_another(caplog: pytest.LogCaptureFixture) -> None:
    ends = {"connections.max.reauth.ms": 3_600_000}  # nobody else logs in again
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker(ends) as (_, server):
        raw = known(server)
        assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert raw.ask(SaslAuthenticateRequest(auth_bytes=plain(SIMPLE_USER)), 2).error_code == 0
        for _ in range(3):
            raw.ask(MetadataRequest(topics=None), 12)
        raw.close()
    assert audited(caplog) == [
        {**BOB, "action": "login", "names": ["PLAIN"], "result": "done"},
        {**BOB, "action": "login again", "names": ["PLAIN"], "result": "done"},
    ]


def test_refused_logins_are_told_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker() as (_, server):
        for _ in range(20):
            raw = RawClient(server.addresses[0])
            assert log_in(raw, plain("nobody", "hunter2")).error_code
            raw.close()
    lines = [line for line in audited(caplog) if line["result"] == "refused"]
    assert len(lines) == 1
    reason = "wrong password for 'nobody', or no such user"
    assert lines == [
        {"principal": "", "address": "127.0.0.1", "action": "login", "names": [], "result": "refused", "reason": reason}
    ]
    assert "hunter2" not in caplog.text


def test_refused_logins_of_many_addresses_stay_bounded_and_none_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    refused = RefusedLogins(clock, 10_000, 3)
    with caplog.at_level(logging.INFO, "foldlog.audit"):
        for number in range(10):
            for _ in range(5):
                refused.add(Identity("", f"10.0.0.{number}"), "wrong")
        clock.advance(10_000)
        refused.sweep()
        refused.sweep()
    lines = audited(caplog)
    assert sum(line.get("count", 1) for line in lines) == 50
    assert len(lines) == 20


def test_a_change_is_written_down_also_where_its_client_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker() as (broker, server):
        names = [f"t{number}" for number in range(20)]
        for name in names:
            raw = known(server)
            raw.send(CreateTopicsRequest(topics=[topic(name)]), 5)
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.close()  # a reset: nobody waits for the answer
        made = {name for name in names if _exists(broker, name)}
    told = {name for line in changes(caplog) for name in line["names"]}
    assert made <= told


def _exists(broker: Broker, name: str) -> bool:
    return broker.catalog.topics.get(name) is not None


def test_the_level_of_the_log_does_not_switch_the_audit_log_off(capsys: pytest.CaptureFixture[str]) -> None:
    root, levels = (
        logging.getLogger(),
        {name: logging.getLogger(name).level for name in ("", "foldlog", "foldlog.audit")},
    )
    handlers = list(root.handlers)
    try:
        process_log.configure("json", "error")
        logging.getLogger("foldlog.server").warning("not told")
        with sasl_broker() as (_, server):
            known(server).close()
    finally:
        root.handlers[:] = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["logger"], line["principal"], line["action"]) for line in lines] == [
        ("foldlog.audit", "User:bob", "login")
    ]


def test_addresses_of_one_network_of_ipv6_are_slowed_together() -> None:
    failures = FailedLogins(100, lambda: 0.0)
    delays = [failures.failed(f"2001:db8:0:1::{number:x}") for number in range(1, 5)]
    assert delays == [0.1, 0.2, 0.4, 0.8]
    assert failures.failed("2001:db8:0:2::1") == 0.1


def test_every_api_that_changes_something_is_written_down() -> None:
    """By name, and so by whoever adds one: its name says that it changes something."""
    changing = re.compile(r"(create|alter|delete|write|elect|update|incremental)_|offset_delete")
    by_name = {api.key for api in APIS.values() if changing.match(api.module)}
    assert {APIS[key].module for key in AUDITED & APIS.keys()} == {APIS[key].module for key in by_name}
