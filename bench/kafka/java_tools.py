"""Kafka's own performance tools, run as its scripts run them, and what they print."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from clusters.kafka_tools import tool_command

_PRODUCED = re.compile(r"^(?P<records>\d+) (?:steady state )?records sent, (?P<speed>[\d.]+) records/sec")
_TIMEOUT_S = 300
_JVM = ("-Xmx512M", "-Xms512M")
"""What kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh give to the JVM."""


class ToolFailed(Exception):
    """A tool ended badly, or printed something else than its figures."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What a tool measured."""

    records: int
    records_per_s: float


def produce(
    bootstrap: str, topic: str, records: int, value_bytes: int, warm_up_records: int, **settings: object
) -> Speed:
    """kafka-producer-perf-test, without a limit. The first records warm up the tool's JVM and do not count."""
    properties = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    text = _run(
        "kafka-producer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic, "--throughput", -1,
        "--num-records", records + warm_up_records, "--warmup-records", warm_up_records,
        "--record-size", value_bytes, "--command-property", *properties,
    )  # fmt: skip
    return produced(text)


def consume(bootstrap: str, topic: str, group: str, records: int) -> Speed:
    """kafka-consumer-perf-test, one consumer, from the beginning; the time of its joining the group does not count."""
    text = _run(
        "kafka-consumer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", records,
        "--group", group, "--timeout", 60_000,
    )  # fmt: skip
    return consumed(text)


def produced(text: str) -> Speed:
    """The last line of figures, which is that of the whole run without its warm-up.

    >>> produced("5 records sent, 9.0 records/sec\\n7 steady state records sent, 11.5 records/sec (1.1 MB/sec), 1 ms")
    Speed(records=7, records_per_s=11.5)
    """
    found = [match for line in text.splitlines() if (match := _PRODUCED.match(line.strip()))]
    if not found:
        raise ToolFailed(f"kafka-producer-perf-test printed no figures: {text[-1000:]}")
    return Speed(int(found[-1]["records"]), float(found[-1]["speed"]))


def consumed(text: str) -> Speed:
    """By the names in its heading, as the order of its columns has changed before.

    >>> consumed("start.time, data.consumed.in.nMsg, fetch.nMsg.sec\\n2026-01-01 00:00:00:000, 10, 200.5")
    Speed(records=10, records_per_s=200.5)
    """
    lines = [line for line in text.splitlines() if ", " in line]
    heads = [number for number, line in enumerate(lines) if "fetch.nMsg.sec" in line]
    if not heads or heads[0] + 1 >= len(lines):
        raise ToolFailed(f"kafka-consumer-perf-test printed no figures: {text[-1000:]}")
    names, cells = (line.strip().split(", ") for line in lines[heads[0] : heads[0] + 2])
    row = dict(zip(names, cells, strict=True))
    return Speed(int(row["data.consumed.in.nMsg"]), float(row["fetch.nMsg.sec"]))


def _run(tool: str, *arguments: object) -> str:
    command = tool_command(tool, *arguments, jvm=_JVM)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise ToolFailed(f"{tool} failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done.stdout
