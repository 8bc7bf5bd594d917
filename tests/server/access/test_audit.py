"""Changes are written down with who asked for them, where clients say who they are; secrets are not."""

from __future__ import annotations

import logging
import socket
import struct

import pytest

from foldlog.broker.access.acls import AclOperation, Identity, ResourceType
from foldlog.server.authorizer import AllowEverything
from foldlog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from foldlog.wire.messages.delete_topics import DeleteTopicsRequest
from foldlog.wire.messages.metadata import MetadataRequest
from server.access.sasl_broker import SIMPLE_USER, sasl_broker
from server.access.test_logins import log_in, plain
from server.raw_client import RawClient


class NoDeleting(AllowEverything):
    def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return operation != AclOperation.DELETE


def test_each_change_is_a_line_with_who_and_what(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker(authorizer=NoDeleting()) as (_, server):
        raw = RawClient(server.addresses[0])
        log_in(raw, plain(SIMPLE_USER))
        configs = [CreatableTopicConfig(name="retention.ms", value="86400123")]
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs) for name in "ab"]
        raw.ask(CreateTopicsRequest(topics=topics), 5)
        raw.ask(DeleteTopicsRequest(topic_names=["a\nb"]), 4)
        raw.ask(MetadataRequest(topics=None), 12)
        raw.close()
    lines = [record.getMessage() for record in caplog.records if record.name == "foldlog.audit"]
    assert lines == [
        "User:bob from 127.0.0.1: CreateTopics a, retention.ms, b, retention.ms: done",
        r"User:bob from 127.0.0.1: DeleteTopics a\nb: refused",
    ]


def test_a_change_is_written_down_also_where_its_client_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foldlog.audit"), sasl_broker() as (broker, server):
        names = [f"t{number}" for number in range(20)]
        for name in names:
            raw = RawClient(server.addresses[0])
            log_in(raw, plain(SIMPLE_USER))
            raw.send(CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]), 5)
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.close()  # a reset: nobody waits for the answer
    made = {name for name in names if broker.catalog.topics.get(name) is not None}
    told = {record.getMessage().split("CreateTopics ")[1].split(":")[0] for record in caplog.records}
    assert made <= told
