"""What a group committed is where it goes on: by hand or by itself, waited for or not, with metadata, over a restart.

Each behaviour is written once and run with confluent-kafka, kafka-python and aiokafka, over TCP, against a broker on
real files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from clients.any_client import AnyClient, Outgoing, Received, Refused, eventually, read_count, read_until
from clients.conftest import CLIENTS
from foldlog.broker.broker import Broker
from foldlog.client.backends.local import LocalBackend
from foldlog.client.log import Log
from foldlog.limits import OFFSET_METADATA_BYTES_MAX
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode


def fill(log: Log, topic: str, count: int) -> None:
    with log.producer() as producer:
        producer.send_batch(topic, [{"value": b"value"} for _ in range(count)])


def offsets(records: list[Received]) -> list[int]:
    return [record.offset for record in records]


@pytest.fixture
def filled(log: Log, topic: str) -> str:
    """A topic with 20 records in one partition."""
    fill(log, topic, 20)
    return topic


def test_a_group_goes_on_where_it_committed(client: AnyClient, log: Log, filled: str, group: str) -> None:
    place = (filled, 0)
    first = client.member(filled, group)
    read_count(first, 20)
    assert first.committed(place) is None
    first.commit()
    assert first.committed(place) == 20
    client.close_one(first)
    fill(log, filled, 5)
    second = client.member(filled, group)
    assert offsets(read_count(second, 5)) == [20, 21, 22, 23, 24]
    second.commit({place: (22, "")})
    client.close_one(second)
    assert offsets(read_count(client.member(filled, group), 3)) == [22, 23, 24]


def test_a_commit_that_nobody_waits_for_is_kept(client: AnyClient, broker: Broker, filled: str, group: str) -> None:
    member = client.member(filled, group)
    read_count(member, 20)
    eventually(member.commit_later(), "the commit is done")
    assert broker.committed(group)[filled, 0].offset == 20


def test_metadata_is_kept_with_the_offset(client: AnyClient, broker: Broker, filled: str, group: str) -> None:
    member = client.member(filled, group)
    read_count(member, 20)
    member.commit({(filled, 0): (7, "Größe: 7")})
    kept = broker.committed(group)[filled, 0]
    # confluent-kafka sends the zero at the end of its string along.
    assert (kept.offset, kept.metadata.removesuffix("\0")) == (7, "Größe: 7")


def test_too_much_metadata_is_refused(client: AnyClient, broker: Broker, filled: str, group: str) -> None:
    member = client.member(filled, group)
    read_count(member, 20)
    member.commit({(filled, 0): (1, "x" * (OFFSET_METADATA_BYTES_MAX - 1))})
    with pytest.raises(Refused) as refusal:
        member.commit({(filled, 0): (2, "x" * (OFFSET_METADATA_BYTES_MAX + 1))})
    assert refusal.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert broker.committed(group)[filled, 0].offset == 1


def test_a_member_that_commits_by_itself_needs_no_help(
    client: AnyClient, broker: Broker, log: Log, filled: str, group: str
) -> None:
    member = client.member(filled, group, is_auto_committing=True)
    read_count(member, 20)
    read_until(member, lambda _: (filled, 0) in broker.committed(group))
    assert broker.committed(group)[filled, 0].offset == 20
    fill(log, filled, 5)
    read_count(member, 5)
    client.close_one(member)
    # What it read last it commits when it leaves.
    assert broker.committed(group)[filled, 0].offset == 25


def test_who_reads_alone_commits_for_a_group_without_members_and_is_refused_by_one_with(
    client: AnyClient, broker: Broker, filled: str, group: str
) -> None:
    alone = client.reader(filled, group=group)
    read_count(alone, 20)
    alone.commit({(filled, 0): (3, "")})
    assert broker.committed(group)[filled, 0].offset == 3
    member = client.member(filled, group)
    assert offsets(read_count(member, 17)) == list(range(3, 20))
    with pytest.raises(Refused):
        alone.commit({(filled, 0): (4, "")})
    assert broker.committed(group)[filled, 0].offset == 3


@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.name)
def test_clients_and_groups_live_through_a_restart_of_the_broker(
    kind: type[AnyClient], tmp_path: Path, topic: str, group: str
) -> None:
    broker = Broker.open(str(tmp_path))
    broker.create_topic(topic)
    server = Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"}))
    client = kind(server.bootstrap)
    producer, member = client.producer(is_idempotent=True), client.member(topic, group)
    producer.send(topic, [Outgoing(b"%d" % number) for number in range(5)])
    read_count(member, 5)
    member.commit()
    server.stop()
    broker.close()

    broker = Broker.open(str(tmp_path))
    server = Server.start(broker, ServerSettings.parse({"listeners": client.bootstrap}))
    producer.send(topic, [Outgoing(b"%d" % number) for number in range(5, 10)])
    assert offsets(read_count(member, 5)) == [5, 6, 7, 8, 9]
    member.commit()
    assert broker.committed(group)[topic, 0].offset == 10
    log = Log(LocalBackend(broker))
    assert [record.value for record in log.read(topic)] == [b"%d" % number for number in range(10)]
    client.close()
    server.stop()
    broker.close()
