"""A view's bookmark: how far into which topic the view has read, stored in the view with its contents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from foldlog.errors import MalformedBytes


class Position(NamedTuple):
    """The next offset to read of one partition, and the leader epoch under which the one before it was written."""

    offset: int
    leader_epoch: int = -1


class Logic(NamedTuple):
    """What a view was made with: fingerprints of the fold's plan, and of the versions of Spark and Python behind it.
    `mixes` counts the changes since the view was built: above 0, it has rows of older and of newer logic.
    """

    plan: int
    versions: int
    mixes: int = 0


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The view contains everything from `origins` up to `positions`. Two bookmarks are equal if their JSON is.

    `topic_id` distinguishes a topic from a later one of the same name. `epoch` rises whenever the bookmark is moved by
    hand or the view is rebuilt, so that a runner which has read on meanwhile cannot apply its change. `skipped` counts
    offsets that the log no longer held and that a user accepted to miss. `reached` is how far the view once had read in
    partitions that were moved back since: until it gets there again, its contents are newer than `positions`. `logic`
    is None in views from before it was stored.

    >>> Bookmark("orders", "ab12", {0: Position(7, 0)}, {0: 0}).to_json()
    '{"epoch":0,"origins":{"0":0},"positions":{"0":[7,0]},"skipped":0,"topic":"orders","topic_id":"ab12"}'
    """

    topic: str
    topic_id: str
    positions: Mapping[int, Position]
    origins: Mapping[int, int]
    epoch: int = 0
    skipped: int = field(default=0)
    reached: Mapping[int, int] = field(default_factory=dict)
    logic: Logic | None = None

    def offset(self, partition: int) -> int | None:
        """The next offset to read; None for a partition that the view does not know yet."""
        position = self.positions.get(partition)
        return None if position is None else position.offset

    @property
    def read(self) -> int:
        """How many offsets lie before it."""
        return sum(at.offset - self.origins[number] for number, at in self.positions.items())

    def advanced(self, positions: Mapping[int, Position], *, skipped: int = 0) -> Bookmark:
        """The bookmark after a range. A new partition begins at its origin: see `met`."""
        moved = {**self.positions, **positions}
        ahead = {number: offset for number, offset in self.reached.items() if offset > moved[number].offset}
        return replace(self, positions=moved, skipped=self.skipped + skipped, reached=ahead)

    def met(self, origins: Mapping[int, int]) -> Bookmark:
        """With new partitions added, each at its start."""
        new = {partition: start for partition, start in origins.items() if partition not in self.positions}
        return replace(
            self,
            positions={**self.positions, **{partition: Position(start) for partition, start in new.items()}},
            origins={**self.origins, **new},
        )

    def moved(self, positions: Mapping[int, Position]) -> Bookmark:
        """Moved by hand: a change that a runner has read from the previous position is refused from here on."""
        moved = {**self.positions, **positions}
        furthest = {number: max(at.offset, self.reached.get(number, 0)) for number, at in self.positions.items()}
        ahead = {number: offset for number, offset in furthest.items() if offset > moved[number].offset}
        return replace(self, positions=moved, epoch=self.epoch + 1, reached=ahead)

    def to_json(self) -> str:
        """Canonical: equal bookmarks have equal texts, so that a view may compare the texts."""
        fields = {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "positions": {str(number): list(self.positions[number]) for number in sorted(self.positions)},
            "origins": {str(number): self.origins[number] for number in sorted(self.origins)},
            "epoch": self.epoch,
            "skipped": self.skipped,
        }
        if self.reached:
            fields["reached"] = {str(number): self.reached[number] for number in sorted(self.reached)}
        if self.logic is not None:
            fields["logic"] = list(self.logic)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Bookmark:
        """The inverse of `to_json`; MalformedBytes if the text is not a bookmark."""
        try:
            fields = json.loads(text)
            return cls(
                topic=str(fields["topic"]),
                topic_id=str(fields["topic_id"]),
                positions={int(number): Position(*map(int, at)) for number, at in fields["positions"].items()},
                origins={int(number): int(at) for number, at in fields["origins"].items()},
                epoch=int(fields["epoch"]),
                skipped=int(fields["skipped"]),
                reached={int(number): int(at) for number, at in fields.get("reached", {}).items()},
                logic=Logic(*map(int, fields["logic"])) if "logic" in fields else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedBytes("bookmark", f"it cannot be understood ({error!r})", 0) from error
