"""The topics that exist, as a consumer group needs them, and the ones that a regular expression finds. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from foldlog.broker.regular_expressions import compile_regex
from foldlog.broker.topics.catalog import Catalog
from foldlog.broker.topics.names import is_internal


class ImagedTopic(NamedTuple):
    """One topic: its id, and how many partitions it has."""

    topic_id: bytes
    partition_count: int


class TopicsImage:
    """Names, ids and partition counts of all topics at one moment. Immutable: a change is another image."""

    __slots__ = ("by_name", "names")

    def __init__(self, by_name: Mapping[str, ImagedTopic]) -> None:
        self.by_name = by_name
        self.names: Mapping[bytes, str] = {facts.topic_id: name for name, facts in by_name.items()}

    @classmethod
    def of(cls, catalog: Catalog) -> TopicsImage:
        return cls(
            {
                name: ImagedTopic(bytes.fromhex(topic.topic_id), topic.partition_count)
                for name, topic in catalog.topics.items()
            }
        )

    def counts(self, names: Iterable[str]) -> dict[bytes, int]:
        """Partitions of those of the topics that exist, by id and in the order of their names."""
        found = (self.by_name.get(name) for name in sorted(names))
        return {facts.topic_id: facts.partition_count for facts in found if facts is not None}

    def ids(self, names: Iterable[str]) -> frozenset[bytes]:
        return frozenset(self.by_name[name].topic_id for name in names if name in self.by_name)

    def fingerprint(self, names: Iterable[str]) -> int:
        """A number that changes when one of the topics is created, deleted or grows; 0 if none exists.

        It is stored with the group, so that changes while no broker ran are noticed, too.
        """
        counts = self.counts(names)
        if not counts:
            return 0
        digest = hashlib.blake2b(digest_size=8)
        for topic_id, count in counts.items():
            digest.update(topic_id + count.to_bytes(4, "big"))
        return int.from_bytes(digest.digest(), "big", signed=True)

    def matching(self, regex: str, sees: Callable[[str], bool]) -> frozenset[str]:
        """The topics whose whole name matches; not internal ones. Raises InvalidArgument, see `compile_regex`."""
        pattern = compile_regex(regex)
        return frozenset(
            name for name in self.by_name if not is_internal(name) and pattern.fullmatch(name) and sees(name)
        )


NO_TOPICS: Final = TopicsImage({})
