"""Kafka's own command line tools, run as its scripts run them, or many of them in one JVM."""

from __future__ import annotations

import base64
import os
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self, cast

from clusters.maven import KAFKA, class_path, fetch
from clusters.watchdog import watchdog

EXACTLY_ONCE: Final = Path(__file__).resolve().parent / "ExactlyOnce.java"
"""Java's own clients in transactions; the file says how it is called."""

TOOLS: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
"""The main class behind each script of Kafka's bin directory."""

TOOL_TIMEOUT_S: Final = 120
DESK_SOURCE: Final = Path(__file__).with_name("ToolDesk.java")
DESK_LOGGING: Final = Path(__file__).with_name("tool_desk_logging.xml")


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


class ToolDesk:
    """Runs tools one after the other in a JVM of its own: a tenth of a second each, where a JVM takes two to start.

    Their own main methods run, with the same words as on a command line; only the end of the JVM is left out.
    """

    def __init__(self) -> None:
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={DESK_LOGGING}"]
        command = ["java", *options, "-Xmx256M", "-cp", class_path(fetch(KAFKA)), str(DESK_SOURCE)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        watchdog().watch(process.pid)
        self._questions = cast("IO[bytes]", process.stdin)
        self._answers = cast("IO[bytes]", process.stdout)
        return process

    def run(
        self, name: str, *arguments: object, text: str = "", timeout_s: float = TOOL_TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end, with `text` for its standard input. It may fail: the caller looks at returncode.

        TimeoutExpired and ToolDeskEnded end the JVM with it; the next tool gets another.
        """
        if self._process.poll() is not None:
            self._process = self._start()
        words = [TOOLS[name], text, *map(str, arguments)]
        self._questions.write(b" ".join(b"=" + base64.b64encode(word.encode()) for word in words) + b"\n")
        self._questions.flush()
        code, output, errors = self._answer(words, timeout_s).split()
        texts = (base64.b64decode(text[1:]).decode() for text in (output, errors))
        return subprocess.CompletedProcess([name, *map(str, arguments)], int(code), *texts)

    def _answer(self, words: list[str], timeout_s: float) -> bytes:
        descriptor, answer = self._answers.fileno(), b""
        deadline_s = time.monotonic() + timeout_s
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                self.close()
                raise subprocess.TimeoutExpired(words, timeout_s)
            if not (part := os.read(descriptor, 1 << 16)):
                self.close()
                raise ToolDeskEnded(f"the JVM of Kafka's tools ended with {self._process.wait()} in {words}")
            answer += part
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        watchdog().forget(self._process.pid)
        self._questions.close()
        self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ToolDeskEnded(Exception):
    """The JVM ended where it should have answered. The text says how, and at which tool."""
