"""What Kafka's own consumers read from the files of `clusters.kafka_files`: kept as JSON lines, or asked for anew."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
"""A record as JSON has it: keys, values and headers as text, one character a byte."""


@dataclass(frozen=True)
class Facts:
    """What a reader of the files has to find in them, as confluent-kafka read it from the broker."""

    records: dict[str, list[Row]]
    """Of every topic, in order of partition and offset; the first line of a JSON file has the other two."""
    read_committed: dict[str, list[list[int]]]
    """Partition and offset of those that are read with isolation.level=read_committed."""
    groups: dict[str, dict[str, int]]
    """What each group has committed, by "topic-partition"."""

    @classmethod
    def from_json_lines(cls, text: str) -> Facts:
        first, *rest = (json.loads(line) for line in text.splitlines())
        records: dict[str, list[Row]] = {}
        for row in rest:
            records.setdefault(row.pop("topic"), []).append(row)
        return cls(records, first["read_committed"], first["groups"])

    def to_json_lines(self) -> str:
        first = {"read_committed": self.read_committed, "groups": self.groups}
        rows = [{"topic": topic, **row} for topic, rows in self.records.items() for row in rows]
        return "".join(json.dumps(line) + "\n" for line in (first, *rows))

    def committed_records(self, topic: str) -> list[Row]:
        """Those of a topic that are read with isolation.level=read_committed."""
        kept = self.read_committed[topic]
        return [row for row in self.records[topic] if [row["partition"], row["offset"]] in kept]


def as_text(data: object) -> str | None:
    """
    >>> as_text(b"tea"), as_text(None)
    ('tea', None)
    """
    return None if data is None else bytes(data).decode("latin-1")  # type: ignore[call-overload]
