"""The cluster that the other tests stand on: it comes up, and Kafka's own tools find in it what we write."""

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
