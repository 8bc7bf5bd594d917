"""The settings with which the two brokers are compared: alike where a default of either is meant to be another."""

from __future__ import annotations

from pathlib import Path
from typing import Final

OURS: Final = {
    "group.min.session.timeout.ms": 6_000,
    "foldlog.client.telemetry": "true",
}
"""What docs/kafka_compatibility.md names as another default; with Kafka's, the rest can be compared."""

KAFKAS: Final = {
    "group.consumer.assignment.interval.ms": 0,
    "group.share.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 3,
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,ClientMetricsSink",
}
"""Kafka assigns partitions at most once a second unless told otherwise, and asks for metrics with a plugin only."""

PLUGINS: Final = (Path(__file__).resolve().parents[2] / "clusters" / "ClientMetricsSink.java",)

HEAP: Final = "384M"
