"""Kafka's own command line tools, run as its scripts run them."""

from __future__ import annotations

import subprocess
from typing import Final

from clusters.maven import KAFKA, class_path, fetch

TOOLS: Final = {
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
"""The main class behind each script of Kafka's bin directory."""

TOOL_TIMEOUT_S: Final = 120


def tool_command(name: str, *arguments: object, jvm: tuple[str, ...] = ("-Xmx512M",)) -> list[str]:
    """What to run. JarsUnavailable without Maven."""
    options = ["-Dlog4j2.level=ERROR", "-XX:+UseSerialGC", *jvm]
    return ["java", *options, "-cp", class_path(fetch(KAFKA)), TOOLS[name], *map(str, arguments)]


def run_tool(
    name: str, *arguments: object, text: str | None = None, timeout_s: float = TOOL_TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with `text` for its standard input. It may fail: the caller looks at returncode."""
    return subprocess.run(
        tool_command(name, *arguments), input=text, capture_output=True, text=True, timeout=timeout_s, check=False
    )
