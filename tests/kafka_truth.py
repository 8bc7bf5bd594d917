"""A directory that Apache Kafka wrote, and what Kafka's own consumers read from it: what the tests of such files share.

tests/log/kafka_files/data was written by Kafka 4.3.1 and scripts/write_kafka_files.py; facts.jsonl beside it has the
truth. The tests with a running Kafka hold a fresh directory to a fresh truth.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from clusters.kafka_facts import Facts, Row, as_text

import foldlog

STORED = Path(__file__).parent / "log" / "kafka_files"
TOPICS = ("codecs", "expired", "orders.eu-west", "payments", "prices", "roomy", "stamped")


def stored_facts() -> Facts:
    return Facts.from_json_lines((STORED / "facts.jsonl").read_text(encoding="utf-8"))


def copied_to(directory: Path) -> Path:
    """The stored files at another place, for a test that changes some."""
    return Path(shutil.copytree(STORED / "data", directory / "kafka"))


def rows_of(log: foldlog.Log, topic: str) -> list[Row]:
    """All that can be read of a topic."""
    return [row_of(record) for number in log.offsets(topic) for record in log.read(topic, number)]


def row_of(record: foldlog.Record) -> Row:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "key": as_text(record.key),
        "value": as_text(record.value),
        "headers": [[name, as_text(value)] for name, value in record.headers],
    }


def read_all(data: Path, isolation_level: str = "read_uncommitted") -> dict[str, list[Row]]:
    """Every topic of a directory of Kafka's."""
    with foldlog.open(data, mode="r", isolation_level=isolation_level) as log:
        return {topic: rows_of(log, topic) for topic in log.topics()}


def committed_by_groups(data: Path) -> dict[str, dict[str, int]]:
    """What every group has committed, by "topic-partition"."""
    with foldlog.open(data, mode="r") as log:
        return {
            group: {f"{topic}-{number}": place.offset for (topic, number), place in log.committed(group).items()}
            for group in log.groups()
        }


def state_of(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Every name below a directory, with its bytes and the time it was last changed."""
    paths = [directory, *sorted(directory.rglob("*"))]
    return {str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns) for path in paths}


def last_segment(partition: Path) -> Path:
    return max(partition.glob("*.log"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
