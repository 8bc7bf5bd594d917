"""MirrorMaker 2 between two brokers of ours, killed in between: records, settings of topics, offsets of groups arrive.

It copies at least once, or with exactly.once.source.support once, as here. The offsets of a group that reads at the
source are translated to those of the copy, so that the group can go on there where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from clusters.connect import CONNECT, MirrorMaker
from clusters.processes import free_ports
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from faults.committed_reader import CommittedReader
from faults.served import ServedDirectory

RECORDS = 3000
PARTITIONS = 2
TOPIC, COPY = "orders", "east.orders"
RETENTION_MS = "987654321"
GROUP = "readers"
READ = RECORDS // PARTITIONS // 2
"""Of each partition, by the group."""


def properties(source: str, target: str) -> dict[str, object]:
    per_cluster = {
        f"{cluster}.{name}": value
        for cluster in ("east", "west")
        for name, value in (
            ("config.storage.replication.factor", 1),
            ("offset.storage.replication.factor", 1),
            ("status.storage.replication.factor", 1),
            ("offset.storage.partitions", 1),
            ("exactly.once.source.support", "enabled"),
            ("scheduled.rebalance.max.delay.ms", 0),
            ("session.timeout.ms", 3000),
            ("heartbeat.interval.ms", 300),
        )
    }
    flow = {
        "enabled": "true",
        "topics": "orders",
        "groups": GROUP,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "emit.checkpoints.interval.seconds": 1,
        "emit.heartbeats.interval.seconds": 1,
        "emit.offset-syncs.interval.ms": 100,
        "refresh.topics.interval.seconds": 1,
        "refresh.groups.interval.seconds": 1,
        "sync.topic.configs.interval.seconds": 1,
        "offset.lag.max": 0,
    }
    return {
        "clusters": "east, west",
        "east.bootstrap.servers": source,
        "west.bootstrap.servers": target,
        "replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "heartbeats.topic.replication.factor": 1,
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
        "west->east.enabled": "false",
        "west->east.emit.heartbeats.enabled": "false",
        **per_cluster,
        **{f"east->west.{name}": value for name, value in flow.items()},
    }


def served(path: Path, *arguments: str) -> ServedDirectory:
    path.mkdir()
    return ServedDirectory(path, *arguments, "-X", "group.initial.rebalance.delay.ms=0")


def create(bootstrap: str) -> None:
    topic = NewTopic(TOPIC, PARTITIONS, config={"retention.ms": RETENTION_MS})
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (future,) = admin.create_topics([topic]).values()
    future.result(30)


def write(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(TOPIC, str(number), key=f"key {number}", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def commit(bootstrap: str, offset: int) -> None:
    """As a member of the group that has read both partitions up to there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(TOPIC, number, offset) for number in range(PARTITIONS)], asynchronous=False)
    consumer.close()


def unread(bootstrap: str) -> list[list[str]]:
    """What the group has still to read of each partition of the copy; nothing known of a partition is all of it."""
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0})
    found: list[list[str]] = []
    for number in range(PARTITIONS):
        (committed,) = consumer.committed([TopicPartition(COPY, number)], 30)
        consumer.assign([TopicPartition(COPY, number, max(committed.offset, 0))])
        found.append([])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found[-1].append((message.value() or b"").decode())
        assert message is not None, f"the end of {COPY}-{number} did not come"
        consumer.unassign()
    consumer.close()
    return found


def setting(bootstrap: str, topic: str, name: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (future,) = admin.describe_configs([resource]).values()
    return str(future.result(30)[name].value)


def test_records_settings_and_offsets_of_groups_arrive_while_the_mirror_is_killed(
    tmp_path: Path, need_jars: Callable[[tuple[str, ...]], None]
) -> None:
    need_jars(CONNECT)
    wanted = [[str(number) for number in range(RECORDS) if number % PARTITIONS == at] for at in range(PARTITIONS)]
    with (
        served(tmp_path / "east") as east,
        served(tmp_path / "west") as west,
        MirrorMaker(tmp_path / "mirror", properties(east.bootstrap, west.bootstrap)) as mirror,
        CommittedReader(west.bootstrap, COPY, PARTITIONS) as reader,
    ):
        create(east.bootstrap)
        write(east.bootstrap, range(RECORDS // 2))
        reader.wait_more(1)
        mirror.process.kill()
        write(east.bootstrap, range(RECORDS // 2, RECORDS))
        commit(east.bootstrap, READ)
        mirror.process.start()
        reader.wait_until(lambda: len(reader.records) >= RECORDS)
        copied = [
            [value for _, value in reader.records if int(value or "") % PARTITIONS == at] for at in range(PARTITIONS)
        ]
        assert copied == wanted
        assert setting(west.bootstrap, COPY, "retention.ms") == RETENTION_MS
        wait_for_offsets(west.bootstrap, wanted, mirror)


def wait_for_offsets(bootstrap: str, wanted: list[list[str]], mirror: MirrorMaker) -> None:
    """Until the group can go on at the copy, behind the start of each partition.

    The mirror translates only some offsets, and takes one before the right one otherwise: a group may read records
    again, and never misses any.
    """

    def has_come() -> bool:
        left = unread(bootstrap)
        assert all(values == every[-len(values) :] for values, every in zip(left, wanted, strict=True))
        assert min(map(len, left)) >= len(wanted[0]) - READ
        return max(map(len, left)) < len(wanted[0])

    mirror.process.wait_until(has_come)
