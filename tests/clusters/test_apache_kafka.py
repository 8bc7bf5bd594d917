"""The cluster that the other tests stand on: it comes up, serves users, and survives the loss of a broker."""

from __future__ import annotations

from clusters.apache_kafka import ApacheKafka
from clusters.kafka_tools import run_tool

import foldlog


def test_kafkas_own_tools_see_what_we_write(apache_kafka: ApacheKafka) -> None:
    with foldlog.connect(apache_kafka.url) as log:
        log.create_topic("seen_by_tools", partitions=2)
        log.append("seen_by_tools", b"first", key="a", partition=1)
    done = run_tool("kafka-get-offsets", "--bootstrap-server", apache_kafka.bootstrap, "--topic", "seen_by_tools")
    assert done.stdout.split() == ["seen_by_tools:0:0", "seen_by_tools:1:1"], done.stderr


def test_three_brokers_go_on_with_two(kafka_trio: ApacheKafka) -> None:
    with foldlog.connect(kafka_trio.url) as log:
        log.create_topic("orders", partitions=3)
        kafka_trio.brokers[0].kill()
        for number in range(3):
            log.append("orders", str(number).encode(), partition=number)
        kafka_trio.brokers[0].start()
        kafka_trio.wait_until_whole()
        assert [record.value for partition in range(3) for record in log.read("orders", partition)] == [
            b"0",
            b"1",
            b"2",
        ]
