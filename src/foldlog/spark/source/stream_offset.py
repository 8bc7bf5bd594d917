"""A stream's position, as Spark keeps it in the query's checkpoint: JSON that people can read, in a stable form.

```json
{"$foldlog": {"version": 1, "skipped": 0, "topics": {"orders": {"id": "k3Vb…", "epochs": {"0": 4}}}},
 "orders": {"0": 23}}
```

The topics are in the form of Spark's Kafka source, with the next offset of each partition, so that they can be copied
into `startingOffsets`, and so that a query can continue from a checkpoint of that source. The rest is under a name that
no topic can have: the id of each topic, to detect a recreated one; the leader epoch under which each offset was
reached, to detect a truncated log; and how many offsets were skipped since the query began. Spark compares offsets
as text, so the same position is always written in the same way.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from foldlog.errors import UnreadableCheckpoint
from foldlog.spark.source.options import TopicPartition
from foldlog.views.bookmark import Position

OURS: Final = "$foldlog"
"""Not a possible topic name: '$' is not allowed there."""

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next offset of every partition of a stream. `topic_ids` may lack some: Kafka's source stores none."""

    positions: Mapping[TopicPartition, Position]
    topic_ids: Mapping[str, str]
    skipped: int = 0

    def topics(self) -> list[str]:
        """The names, sorted."""
        return sorted({topic for topic, _ in self.positions})

    def only(self, partitions: Container[TopicPartition]) -> StreamOffset:
        """Only the partitions among `partitions`."""
        return replace(
            self, positions={partition: at for partition, at in self.positions.items() if partition in partitions}
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON that Spark stores; in a fixed order.

        >>> StreamOffset({("b", 0): Position(7, 1)}, {"b": "x"}).to_json()["b"]
        {'0': 7}
        """
        about: dict[str, dict[str, Any]] = {}
        offsets: dict[str, dict[str, int]] = {}
        for topic, partition in sorted(self.positions):
            at = self.positions[topic, partition]
            offsets.setdefault(topic, {})[str(partition)] = at.offset
            known = about.setdefault(topic, {"id": self.topic_ids[topic]} if topic in self.topic_ids else {})
            if at.leader_epoch >= 0:
                known.setdefault("epochs", {})[str(partition)] = at.leader_epoch
        return {OURS: {"version": VERSION, "skipped": self.skipped, "topics": about}, **offsets}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> StreamOffset:
        """The inverse of `to_json`; UnreadableCheckpoint if it is malformed, or of a later version."""
        try:
            ours = fields.get(OURS, {"version": VERSION, "skipped": 0, "topics": {}})
            version = ours["version"]
            if version != VERSION:
                raise UnreadableCheckpoint(f"its offsets have version {version!r}, and this foldlog reads {VERSION}")
            about: Mapping[str, Mapping[str, Any]] = ours["topics"]
            return cls(
                dict(_positions(fields, about)),
                {topic: str(known["id"]) for topic, known in about.items() if "id" in known},
                int(ours["skipped"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableCheckpoint(f"its offsets cannot be understood ({error!r})") from error


def _positions(
    fields: Mapping[str, Any], about: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[TopicPartition, Position]]:
    for topic, partitions in fields.items():
        if topic == OURS:
            continue
        epochs = about.get(topic, {}).get("epochs", {})
        for number, offset in partitions.items():
            if type(offset) is not int or offset < 0:
                raise ValueError(f"{topic}-{number} is at {offset!r}")
            yield (topic, int(number)), Position(offset, int(epochs.get(number, -1)))
