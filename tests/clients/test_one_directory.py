"""One directory, whoever writes and reads it: a client over the wire, another client, a program that embeds it.

Each client writes, every other one and the library read, in the same moment and after the directory was closed and
opened the other way. Groups are the same groups: what one committed is where another goes on, and members over the
wire share partitions with members inside the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import foldlog
from clients.any_client import AnyClient, Header, Outgoing, Place, Received, Refused, at_once, eventually, read_count
from clients.conftest import CLIENTS, NewTopic
from clients.group_work import PARTITIONS, Work, is_shared
from foldlog.client.consumer.consumer import Consumer
from foldlog.client.log import Log
from foldlog.errors import GroupError

NOON_MS = 1_760_000_000_000
HEADERS: tuple[Header, ...] = (("trace", b"1"), ("trace", b"2"))

by_client = pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.name)


def outgoing(codec: str) -> list[Outgoing]:
    """Records of every kind, which name who compressed them."""
    return [
        Outgoing(b"value", b"key", HEADERS, 0, NOON_MS),
        Outgoing(None, b"key", (), 0, NOON_MS + 1),
        Outgoing(b"", None, (), 0, NOON_MS + 2),
        *(Outgoing(f"{codec} {number}".encode(), b"key", (), 0, NOON_MS + 3) for number in range(50)),
    ]


def as_sent(records: list[Received]) -> list[Outgoing]:
    return [Outgoing(one.value, one.key, one.headers, one.partition, one.timestamp_ms) for one in records]


def embedded(log: Log, topic: str) -> list[Outgoing]:
    return [Outgoing(one.value, one.key, one.headers, one.partition, one.timestamp_ms) for one in log.read(topic, 0)]


@contextmanager
def served(path: Path, kind: type[AnyClient]) -> Iterator[tuple[AnyClient, Log]]:
    """The directory, opened and served, with a client of it."""
    with foldlog.open(path, listen=True) as log:
        assert log.bootstrap is not None
        client = kind(log.bootstrap)
        yield client, log
        client.close()


def test_what_one_client_writes_the_others_and_the_library_read(
    client: AnyClient, clients: list[AnyClient], log: Log, topic: str
) -> None:
    written: list[Outgoing] = []
    for codec in client.codecs:
        written += outgoing(codec)
        client.producer(codec=codec).send(topic, outgoing(codec))
    assert embedded(log, topic) == written
    for reader in clients:
        assert as_sent(read_count(reader.reader(topic), len(written))) == written


@by_client
def test_what_a_client_wrote_is_there_when_the_directory_is_opened_without_a_broker(
    kind: type[AnyClient], tmp_path: Path, topic: str, group: str
) -> None:
    with served(tmp_path, kind) as (client, log):
        log.create_topic(topic)
        client.producer(codec="zstd", is_idempotent=True).send(topic, outgoing("zstd"))
        member = client.member(topic, group)
        read_count(member, 53)
        member.commit({(topic, 0): (51, "by wire")})
    with foldlog.open(tmp_path) as log:
        assert embedded(log, topic) == outgoing("zstd")
        assert log.committed(group)[foldlog.TopicPartition(topic, 0)].metadata.startswith("by wire")
        with log.consumer([topic], group=group, auto_offset_reset="none") as consumer:
            assert [record.offset for record in consumer.poll(timeout_ms=0)] == [51, 52]


@by_client
def test_what_the_library_wrote_a_client_reads_and_goes_on_where_it_was(
    kind: type[AnyClient], tmp_path: Path, topic: str, group: str
) -> None:
    with foldlog.open(tmp_path) as log, log.producer(compression="lz4") as producer:
        log.create_topic(topic)
        for record in outgoing("lz4"):
            producer.send(
                topic, record.value, record.key, headers=record.headers, timestamp_ms=record.timestamp_ms, partition=0
            )
        producer.flush()
        log.reset_group(group, {(topic, 0): 51})
    with served(tmp_path, kind) as (client, log):
        assert as_sent(read_count(client.reader(topic), 53)) == outgoing("lz4")
        member = client.member(topic, group, reset="none")
        assert [record.offset for record in read_count(member, 2)] == [51, 52]


class EmbeddedMember:
    """A member of a group inside the process, as `Work` wants its workers."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.taken: list[set[Place]] = []

    @property
    def read_after(self) -> int:
        return len(self.taken)

    def poll(self) -> list[Received]:
        return [
            Received(one.topic, one.partition, one.offset, one.timestamp_ms, one.key, one.value, tuple(one.headers))
            for one in self.consumer.poll(timeout_ms=50)
        ]

    def assignment(self) -> set[Place]:
        return {(place.topic, place.partition) for place in self.consumer.assignment()}

    def commit(self, offsets: Mapping[Place, tuple[int, str]]) -> None:
        try:
            self.consumer.commit({place: offset for place, (offset, _) in offsets.items()})
        except GroupError as error:
            self.taken.append(set(offsets))  # it joins again, and reads on from what is committed
            raise Refused(-1, str(error)) from error


def test_members_over_the_wire_and_inside_the_process_are_one_group(
    client: AnyClient, log: Log, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(PARTITIONS)
    places = {(topic, number) for number in range(PARTITIONS)}
    work = Work(log, topic)
    work.give(10)
    remote = client.member(topic, group)
    work.finish([remote])
    with log.consumer([topic], group=group, assignor="range", auto_offset_reset="earliest", auto_commit=False) as near:
        inside = EmbeddedMember(near)
        work.give(10)
        work.finish([remote, inside])
        polls = [remote.poll, inside.poll]
        eventually(lambda: at_once(polls) == [[], []] and is_shared([remote, inside], places), "partitions are shared")
        work.give(10)
        work.finish([remote, inside])
    work.give(10)
    work.finish([remote])
    assert remote.assignment() == places
    assert work.is_right
