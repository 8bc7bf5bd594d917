"""The order in which the partitions of a grown topic are copied: the growth is repeated.

A log of ours remembers where the older partitions ended when new ones were added, and folds finish those before they
read on, since keys have moved. In a copy the older partitions are filled up to there, then the new ones are added; so
the target remembers the same point, in its own offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foldlog.broker.topics.catalog import Growth
from foldlog.client.copy.offsets import OffsetMap
from foldlog.client.copy.targets import Copied, CopySpan


class Stage(NamedTuple):
    """A number of partitions, and how far each is copied before there are more."""

    partitions: int
    spans: Sequence[CopySpan]


def stages_of(spans: Sequence[CopySpan], count: int, growths: Sequence[Growth] | None) -> list[Stage]:
    """The stages of copying to a topic that has `count` partitions already.

    A log that does not remember growths (None) has grown somewhere before its present ends, which are the best guess.
    """
    if growths is None:
        has_grown = count < len(spans)
        growths = [Growth(len(spans), tuple(span.stop for span in spans[:count]))] if has_grown else []
    stages: list[Stage] = []
    for growth in growths:
        if growth.partitions > count:
            older = [_until(span, end) for span, end in zip(spans, growth.ends, strict=False)]
            stages.append(Stage(max(count, len(older)), older))
    return [*stages, Stage(len(spans), spans)]


def _until(span: CopySpan, end: int) -> CopySpan:
    return span._replace(stop=max(span.start, min(span.stop, end)))


def joined(before: Copied | None, after: Copied) -> Copied:
    """The results of two stages for one partition, joined."""
    if before is None:
        return after
    later = tuple(point for point in after.offsets.points if point > before.offsets.end)
    offsets = OffsetMap((*before.offsets.points, *later), before.offsets.is_kept and after.offsets.is_kept)
    records, size_bytes = before.records + after.records, before.size_bytes + after.size_bytes
    return Copied(offsets, before.checked_from, records, size_bytes)
