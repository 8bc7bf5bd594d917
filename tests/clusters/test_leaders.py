"""One reader, three brokers of Apache Kafka: every partition from its leader, whoever that is at the moment.

Leaders die, come back and give up their partitions in the middle of a read, and records are deleted under the reader.
What it gives is what was written, in order, once; or an error that says what the log holds.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest
from clusters.apache_kafka import ApacheKafka
from clusters.kafka_tools import run_tool
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from foldlog.client.wire.cluster import Cluster
from foldlog.client.wire.fetch import Fetched
from foldlog.client.wire.ranges import WantedRange
from foldlog.clock import SystemClock
from foldlog.errors import OffsetOutOfRange
from foldlog.records.loops import decode, pack

TOPIC = "led.by.three"
PARTITIONS = 6
BATCHES = 30
SMALL = {"max.partition.fetch.bytes": "4096"}
"""One batch is more: each fetch brings one, so that a read takes long enough for leaders to change in it."""

Answers = Generator[tuple[WantedRange, Fetched], None, None]


class Reading:
    """A read of the whole topic, in as many parts as the test likes. `values` are those that came, by partition."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.values: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}

    def take(self, count: int | None = None) -> None:
        """So many answers, or all that are left."""
        for taken, (wanted, fetched) in enumerate(self._answers, 1):
            values = self.values[wanted.partition]
            for piece in fetched.pieces:
                records, _ = decode(piece, TOPIC, wanted.partition, start_offset=len(values), end_offset=wanted.stop)
                values += [(record.value or b"").lstrip(b".") for record in records]
            if taken == count:
                return


def written() -> dict[int, list[bytes]]:
    return {number: [b"%d-%d" % (number, batch) for batch in range(BATCHES)] for number in range(PARTITIONS)}


def fill(cluster: Cluster) -> None:
    cluster.create_topic(TOPIC, PARTITIONS)
    now_ms = SystemClock().now_ms()
    with cluster.producer() as producer:
        for batch in range(BATCHES):
            for number in range(PARTITIONS):
                value = b"%d-%d" % (number, batch)
                producer.send(TOPIC, number, pack([(now_ms, None, value.rjust(6000, b"."), ())]))


def leaders(cluster: Cluster) -> dict[int, int]:
    return {number: leader.node_id for number, leader in cluster.topic(TOPIC).leaders.items()}


def test_a_read_goes_on_whoever_leads(kafka_trio: ApacheKafka) -> None:
    whole = [WantedRange(TOPIC, number, 0, BATCHES) for number in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": kafka_trio.bootstrap, "log_level": 0})
    with Cluster.open(kafka_trio.bootstrap, SMALL) as cluster:
        fill(cluster)
        first = leaders(cluster)
        assert set(first.values()) == {1, 2, 3}

        # One is killed in the middle: its partitions go on with the new leaders, where they were.
        reading = Reading(cluster.fetch_ranges(whole))
        reading.take(40)
        kafka_trio.brokers[0].kill()
        reading.take()
        assert reading.values == written()
        assert set(leaders(cluster).values()) == {2, 3}

        # It comes back and, in the middle of the next read, leads again: those who led are there, and say no.
        kafka_trio.brokers[0].start()
        kafka_trio.wait_until_whole()
        reading = Reading(cluster.fetch_ranges(whole))
        reading.take(40)
        # A broker that is not in sync yet cannot lead; then the election says so, and is held again.
        while leaders(cluster) != first:
            run_tool(
                "kafka-leader-election", "--bootstrap-server", kafka_trio.bootstrap, "--election-type", "preferred",
                "--all-topic-partitions",
            )  # fmt: skip
        reading.take()
        assert reading.values == written()

        # What is deleted under a reader, and before one begins, is told with what there is.
        reading = Reading(cluster.fetch_ranges(whole))
        reading.take(PARTITIONS)
        (deleted,) = admin.delete_records([TopicPartition(TOPIC, 4, 25)]).values()
        assert deleted.result().low_watermark == 25
        with pytest.raises(OffsetOutOfRange, match=rf"of {TOPIC}-4 is not in the log, which holds 25 to {BATCHES} "):
            reading.take()
        with pytest.raises(OffsetOutOfRange, match=rf"offset {BATCHES + 4} of {TOPIC}-1 .* it is not written yet"):
            list(cluster.fetch_ranges([whole[1]._replace(stop=BATCHES + 5)]))
