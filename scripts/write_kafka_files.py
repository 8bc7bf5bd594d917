"""Write tests/log/kafka_files with Apache Kafka: `python -m scripts.write_kafka_files`, at the repository's root.

The broker is killed at the end, so the files are those of a crash. `facts.jsonl` is what Kafka's own consumers read
from it before. Room that Kafka makes ahead, megabytes of zeroes, is cut short; nothing else is changed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from clusters.apache_kafka import ApacheKafka
from clusters.kafka_files import PROPERTIES, KafkaFiles, ask_facts

TARGET: Final = Path(__file__).parents[1] / "tests" / "log" / "kafka_files"
ROOM_BYTES: Final = 240
ENTRY_BYTES: Final = 24
"""A whole number of entries of either index."""

_HAS_ROOM: Final = (".log", ".index", ".timeindex")


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as scratch,
        ApacheKafka.launch(Path(scratch), properties=PROPERTIES) as kafka,
    ):
        files = KafkaFiles(kafka)
        files.write()
        facts = ask_facts(kafka)
        kafka.brokers[0].kill()
        files.close()
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(kafka.brokers[0].data, TARGET / "data")
    for path in (TARGET / "data").rglob("*"):
        if path.suffix in _HAS_ROOM:
            cut_room(path)
    (TARGET / "facts.jsonl").write_text(facts.to_json_lines(), encoding="utf-8")
    return 0


def cut_room(path: Path) -> None:
    """Leave a little of the zeroes at the end."""
    data = path.read_bytes()
    used_bytes = len(data.rstrip(b"\0"))
    path.write_bytes(data[: -(-used_bytes // ENTRY_BYTES) * ENTRY_BYTES + ROOM_BYTES])


if __name__ == "__main__":
    sys.exit(main())
