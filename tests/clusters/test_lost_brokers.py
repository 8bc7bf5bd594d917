"""A log on three brokers goes on with two: every call is answered, nothing acknowledged is lost, nothing is doubled.

One cluster for all tests of the module, since three brokers take long to start: each test kills one and brings it back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pyarrow as pa
import pytest
from clusters.apache_kafka import ApacheKafka, KafkaNode
from clusters.maven import JarsUnavailable

import foldlog
from client.log_places import IN_A_HURRY, WAIT_MS, polled
from foldlog.client.wire.links import ClusterLinks
from foldlog.client.wire.properties import ClusterProperties, parse_addresses
from foldlog.errors import TopicExists

_numbers = itertools.count()

PATIENT = {**IN_A_HURRY, "default.api.timeout.ms": 120_000}
"""How long an election takes on a machine with other work is not what is tested."""


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    try:
        with ApacheKafka.launch(tmp_path_factory.mktemp("trio"), brokers=3) as kafka:
            yield kafka
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def log(trio: ApacheKafka) -> Iterator[foldlog.Log]:
    with foldlog.connect(trio.url, properties=PATIENT) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"orders-{next(_numbers)}"


@contextmanager
def links_to(trio: ApacheKafka) -> Iterator[ClusterLinks]:
    links = ClusterLinks(parse_addresses(trio.bootstrap), ClusterProperties.parse({}))
    links.open()
    try:
        yield links
    finally:
        links.close()


def leader_of(trio: ApacheKafka, topic: str, partition: int = 0) -> KafkaNode:
    with links_to(trio) as links:
        address = str(links.leader(topic, partition).address)
    return next(node for node in trio.brokers if node.address == address)


def coordinator_of(trio: ApacheKafka, group: str) -> KafkaNode:
    with links_to(trio) as links:
        address = str(links.retried(lambda: links.coordinator(group)))
    return next(node for node in trio.brokers if node.address == address)


def back(trio: ApacheKafka, node: KafkaNode) -> None:
    node.start()
    trio.wait_until_whole()


def test_a_topic_can_be_used_the_moment_it_is_made_grown_or_altered_by_anybody(
    trio: ApacheKafka, log: foldlog.Log, topic: str
) -> None:
    """Each broker is asked by a client that knows no other: none has yet to hear of a change that was answered."""
    others = [foldlog.connect(f"kafka://{node.address}") for node in trio.brokers]
    try:
        for number in range(3):
            name = f"{topic}-{number}"
            log.create_topic(name, partitions=3)
            for partition, other in enumerate(others):
                assert other.append(name, "first", partition=partition).offset == 0
            log.grow_topic(name, 4)
            assert [other.topic(name).partition_count for other in others] == [4, 4, 4]
            log.alter_topic(name, {"retention.ms": 1_000_000 + number, "cleanup.policy": ["compact", "delete"]})
            for other in others:
                config = other.topic_config(name)
                assert config["retention.ms"].value == str(1_000_000 + number)
                assert config["cleanup.policy"].value == "compact,delete"
            log.alter_topic(name, {"retention.ms": None})
            assert all(other.topic_config(name)["retention.ms"].is_default for other in others)
            log.delete_topic(name)
            assert all(name not in other.topics() for other in others)
    finally:
        for other in others:
            other.close()


def made_partitions(log: foldlog.Log, name: str) -> int:
    """A broker passes the request on to the controller, again if that is lost; the second time the topic exists."""
    try:
        return log.create_topic(name, 3).partition_count
    except TopicExists:
        return log.topic(name).partition_count


def test_every_call_is_answered_while_a_broker_is_away(trio: ApacheKafka, log: foldlog.Log, topic: str) -> None:
    """The broker that leads the topic's first partition is killed, and each call made at once by a log that knows it.

    The calls are made side by side, so that each finds the loss by itself and not what another has learned of it.
    """
    log.create_topic(topic, partitions=4)  # the last is for deleting from
    for number in range(4):
        log.append(topic, str(number), partition=number)
    group = f"group-of-{topic}"
    log.reset_group(group, {(topic, number): 1 for number in range(3)})
    log.reset_group(f"{group}-2", {(topic, 0): 0})
    table = pa.table({"value": [b"from a table"], "partition": pa.array([0], pa.int32())})
    calls: dict[str, tuple[Callable[[foldlog.Log], object], object]] = {
        "topics": (lambda one: topic in one.topics(), True),
        "topic": (lambda one: one.topic(topic).partition_count, 4),
        "topic_config": (lambda one: one.topic_config(topic)["min.insync.replicas"].value, "2"),
        "offsets": (lambda one: one.offsets(topic)[1], (0, 1)),
        "offsets_at": (lambda one: one.offsets_at(topic, 0)[2], 0),
        "read": (lambda one: [next(one.read(topic, number)).value for number in range(3)], [b"0", b"1", b"2"]),
        "read_arrow": (lambda one: one.read_arrow(topic, partitions=[1, 2]).column("value").to_pylist(), [b"1", b"2"]),
        "append": (lambda one: one.append(topic, "more", partition=0).partition, 0),
        "append_arrow": (lambda one: list(one.append_arrow(topic, table)), [0]),
        "create_topic": (lambda one: made_partitions(one, f"{topic}-made"), 3),
        "groups": (lambda one: group in one.groups(), True),
        "committed": (lambda one: len(one.committed(group)), 3),
        "describe_group": (lambda one: one.describe_group(group).state, "Empty"),
        "lag": (lambda one: one.lag(group)[foldlog.TopicPartition(topic, 1)], 0),
        "reset_group": (lambda one: one.reset_group(f"{group}-1", {(topic, 1): "start"}), None),
        "reset_group with evict": (lambda one: one.reset_group(f"{group}-2", {(topic, 0): 1}, evict=True), None),
        "delete_offsets": (lambda one: one.delete_offsets(f"{group}-2", [(topic, 0)]), None),
        "alter_topic": (lambda one: one.alter_topic(topic, {"retention.ms": -1}).name, topic),
        "delete_records": (lambda one: one.delete_records(topic, {3: 1}), {3: 1}),
    }
    logs = {name: foldlog.connect(trio.url, properties=PATIENT) for name in calls}
    for one in logs.values():
        one.offsets(topic)  # whoever has asked before knows who led
    killed = leader_of(trio, topic)
    killed.kill()
    try:
        with ThreadPoolExecutor(len(calls)) as pool:
            asked = {name: pool.submit(call, logs[name]) for name, (call, _) in calls.items()}
            answers = {name: future.result() for name, future in asked.items()}
        assert answers == {name: expected for name, (_, expected) in calls.items()}
    finally:
        for one in logs.values():
            one.close()
        back(trio, killed)


def test_a_producer_a_tail_and_a_group_go_on_while_leader_and_coordinator_die(
    trio: ApacheKafka, log: foldlog.Log, topic: str
) -> None:
    """First the broker that leads the partition, then the one that looks after the group: each record comes once, and
    the group's commits are kept."""
    log.create_topic(topic)
    group = f"group-of-{topic}"
    expected = [b"%d" % number for number in range(300)]
    seen: list[bytes | None] = []
    victims: list[Callable[[], KafkaNode] | None] = [
        None,
        lambda: leader_of(trio, topic),
        lambda: coordinator_of(trio, group),
    ]
    with (
        closing(log.read(topic, follow=True, timeout_ms=WAIT_MS)) as tail,
        log.producer() as producer,
        log.consumer([topic], group, auto_offset_reset="earliest", auto_commit=False) as consumer,
    ):
        for start, victim in zip(range(0, 300, 100), victims, strict=True):
            killed = None if victim is None else victim()
            sent = [producer.send(topic, value) for value in expected[start : start + 50]]
            if killed is not None:
                killed.kill()
            sent += [producer.send(topic, value) for value in expected[start + 50 : start + 100]]
            assert [one.result(WAIT_MS / 1000).offset for one in sent] == list(range(start, start + 100))
            assert [next(tail).value for _ in sent] == expected[start : start + 100]
            seen += [record.value for record in polled(consumer, 100)]
            consumer.commit()
            assert log.committed(group)[foldlog.TopicPartition(topic, 0)].offset == start + 100
            if killed is not None:
                back(trio, killed)
    assert seen == expected
    assert [record.value for record in log.read(topic)] == expected


def test_a_consumer_without_a_group_reads_all_partitions_on_while_their_leaders_die(
    trio: ApacheKafka, log: foldlog.Log, topic: str
) -> None:
    """The leaders of two partitions, one after the other: each record comes once, in the order of its partition."""
    log.create_topic(topic, partitions=6)
    expected: dict[int, list[bytes]] = {number: [] for number in range(6)}
    seen: dict[int, list[bytes | None]] = {number: [] for number in range(6)}
    with log.producer() as producer, log.consumer([topic], auto_offset_reset="earliest") as consumer:
        for partition in (0, 1):
            killed = leader_of(trio, topic, partition)
            sent = []
            for number in range(120):
                if number == 60:
                    assert polled(consumer, 1), "it has connections to lose"
                    consumer.seek_to_beginning()
                    killed.kill()
                value = b"%d %d" % (partition, number)
                expected[number % 6].append(value)
                sent.append(producer.send(topic, value, partition=number % 6))
            for one in sent:
                one.result(WAIT_MS / 1000)
            for record in polled(consumer, sum(map(len, expected.values()))):
                seen[record.partition].append(record.value)
            assert seen == expected
            seen = {number: [] for number in range(6)}
            back(trio, killed)
