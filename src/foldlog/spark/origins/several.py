"""An origin that reads several topics as one, by the name of a list: see `foldlog.views.topic_lists`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, OriginSpec, TopicFacts
from foldlog.views.topic_lists import by_topic, listed, located, numbered, topics_in

if TYPE_CHECKING:
    import pyarrow as pa


class SeveralTopics:
    """See `Origin`. A topic's own name means that topic, as ever."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    @property
    def spec(self) -> OriginSpec:
        return self._origin.spec

    def topics(self) -> list[str]:
        return self._origin.topics()

    def topic(self, name: str) -> TopicFacts:
        names = topics_in(name)
        if len(names) == 1:
            return self._origin.topic(name)
        each = tuple(self._origin.topic(one) for one in names)
        return TopicFacts(
            name=name,
            topic_id=listed([one.topic_id for one in each]),
            partition_count=max(one.partition_count for one in each),
            is_compacted=any(one.is_compacted for one in each),
            each=each,
        )

    def bounds(self, name: str) -> dict[int, Bounds]:
        return {
            numbered(topic, partition): bound
            for topic, one in enumerate(topics_in(name))
            for partition, bound in self._origin.bounds(one).items()
        }

    def offsets_at(self, name: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        split = by_topic(name, times_ms)
        return {
            numbered(topic, partition): offset
            for topic, one in enumerate(topics_in(name))
            if split[one]
            for partition, offset in self._origin.offsets_at(one, split[one]).items()
        }

    def epoch_before(self, name: str, partition: int, offset: int) -> int:
        return self._origin.epoch_before(*located(name, partition), offset)

    def missing(
        self, name: str, topic_id: str | None, partition: int, offset: int, leader_epoch: int = -1
    ) -> str | None:
        topic, own = located(name, partition)
        return self._origin.missing(topic, _id_of(name, topic, topic_id), own, offset, leader_epoch)

    def read(
        self, wanted: OffsetRange, columns: Sequence[str], *, topic_id: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        own = _own(wanted)
        return self._origin.read(own, columns, topic_id=_id_of(wanted.topic, own.topic, topic_id))

    def read_all(
        self, wanted: Sequence[OffsetRange], columns: Sequence[str], *, topic_id: str | None = None
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        groups: dict[tuple[str, str], dict[OffsetRange, OffsetRange]] = {}
        for one in wanted:
            own = _own(one)
            groups.setdefault((one.topic, own.topic), {})[own] = one
        for (name, topic), ranges in groups.items():
            one_id = _id_of(name, topic, topic_id)
            for own, batch in self._origin.read_all(list(ranges), columns, topic_id=one_id):
                yield ranges[own], batch

    def close(self) -> None:
        self._origin.close()


def _own(wanted: OffsetRange) -> OffsetRange:
    """The range as its own topic has it."""
    topic, partition = located(wanted.topic, wanted.partition)
    return wanted._replace(topic=topic, partition=partition)


def _id_of(name: str, topic: str, topic_id: str | None) -> str | None:
    """The id of one topic of a list, of whose ids these are the first."""
    ids = [] if topic_id is None else topics_in(topic_id)
    number = topics_in(name).index(topic)
    return ids[number] if number < len(ids) else None
