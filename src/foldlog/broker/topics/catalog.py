"""catalog.json: which topics there are, with their settings, partitions and growths.

Replacing the file is the commit point for creating, deleting, growing and reconfiguring a topic: a topic exists if the
catalog names it, whatever directories there are.

The file is JSON, a topic a line, and ends with the CRC-32C of every byte before that last member:

    {"version":1,"directory_id":"<uuid>","topics":{
    "orders":{"id":"<32 hex digits>","config":{"retention.ms":"1000"},"partitions":[0,1],"growths":[]}},
    "crc32c":"89abcdef"}

A topic that was deleted, and whose objects in a store of segments are not all gone yet, is named behind the id of the
directory, as `"removed":[["orders","<32 hex digits>"]]`.

`partitions` holds each partition's slot in the checkpoint. `growths` has, for each time partitions were added, the
count from then on and where the older partitions ended: keys move when the count changes, and a reader that needs the
order of a key has to read those ends before the newer partitions.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from foldlog.broker.checked_json import compact, lines_of, sealed, unsealed
from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS, check_topic_name
from foldlog.errors import CorruptLog, FoldlogError, NewerVersion, brief_repr
from foldlog.files.base import Files, read_file, replace_file

CATALOG_NAME: Final = "catalog.json"
ABSENT: Final = -1
"""The slot of a partition that is not here: other brokers, or other directories, hold some of Kafka's partitions."""

VERSION: Final = 1

# No advice to use 'foldlog check --cut-out': that needs the catalog itself.
_RESTORE: Final = "restore it from a backup; the topic directories beside it are untouched"

GROWTHS_SETTING: Final = "foldlog.growths"
"""The read-only setting with which brokers report a topic's growths to clients."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Partitions were added: `partitions` is the count from then on, `ends` where each older partition ended."""

    partitions: int
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CatalogTopic:
    """One topic as the catalog has it. `slots` are its partitions' places in the checkpoint."""

    name: str
    topic_id: str
    config: TopicConfig
    slots: tuple[int, ...]
    growths: tuple[Growth, ...] = ()

    @property
    def partition_count(self) -> int:
        """How many partitions it has."""
        return len(self.slots)

    @property
    def held_partitions(self) -> Sequence[int]:
        """The partitions in this directory: all of them, unless the directory is Kafka's."""
        return [number for number, slot in enumerate(self.slots) if slot != ABSENT]

    def growths_text(self) -> str:
        """The growths as JSON, as in the catalog and for clients."""
        return compact(_growths_fields(self.growths))

    def grown(self, new_slots: Iterable[int], ends: Iterable[int]) -> CatalogTopic:
        """A copy with partitions added; `ends` is where the older ones ended."""
        slots = (*self.slots, *new_slots)
        return replace(self, slots=slots, growths=(*self.growths, Growth(len(slots), tuple(ends))))

    def configured(self, config: TopicConfig) -> CatalogTopic:
        """A copy with other settings."""
        return replace(self, config=config)

    def with_defaults(self, defaults: Mapping[str, str]) -> CatalogTopic:
        """A copy with the broker's defaults; the log's own topics stay as they are: they need theirs."""
        return self if self.name in KAFKA_OWN_TOPICS else self.configured(self.config.with_defaults(defaults))


class RemovedTopic(NamedTuple):
    """A deleted topic that may have objects in the store."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """All topics at one moment. Immutable: a change is a new catalog, in force once `store` has returned."""

    directory_id: str
    topics: Mapping[str, CatalogTopic]
    removed: tuple[RemovedTopic, ...] = ()

    @classmethod
    def empty(cls) -> Catalog:
        return cls(str(uuid.uuid4()), {})

    def with_defaults(self, defaults: Mapping[str, str]) -> Catalog:
        """A copy with the broker's defaults for every topic. They are not stored: they belong to the process."""
        return replace(self, topics={name: topic.with_defaults(defaults) for name, topic in self.topics.items()})

    def with_topics(self, *topics: CatalogTopic) -> Catalog:
        """A copy with these topics added, each replacing one of the same name."""
        return replace(self, topics={**self.topics, **{topic.name: topic for topic in topics}})

    def without_topics(self, names: Container[str]) -> Catalog:
        gone = [topic for topic in self.topics.values() if topic.name in names]
        tiered = [topic for topic in gone if topic.config.log.remote or topic.config.log.deletes_remote]
        return replace(
            self,
            topics={other: topic for other, topic in self.topics.items() if other not in names},
            removed=(*self.removed, *(RemovedTopic(topic.name, topic.topic_id) for topic in tiered)),
        )

    def without_removed(self, topics: Iterable[RemovedTopic]) -> Catalog:
        """A copy that has forgotten topics whose objects are gone."""
        gone = set(topics)
        return replace(self, removed=tuple(topic for topic in self.removed if topic not in gone))

    def free_slots(self, count: int) -> list[int]:
        """The lowest unused slot numbers. They may still hold the state of a deleted partition."""
        taken = {slot for topic in self.topics.values() for slot in topic.slots}
        free: list[int] = []
        number = 0
        while len(free) < count:
            if number not in taken:
                free.append(number)
            number += 1
        return free

    def slot_count(self) -> int:
        """One more than the highest slot in use."""
        return 1 + max((slot for topic in self.topics.values() for slot in topic.slots), default=-1)


def load(files: Files, directory: str) -> Catalog:
    """The catalog of a data directory. Raises FileNotFoundError if there is none, CorruptLog if a byte is wrong."""
    path = f"{directory}/{CATALOG_NAME}"
    return decode(read_file(files, path), path)


def store(files: Files, directory: str, catalog: Catalog) -> None:
    """Put the catalog in force. A power cut leaves the old one or this one; durable on return."""
    replace_file(files, f"{directory}/{CATALOG_NAME}", encode(catalog))


def encode(catalog: Catalog) -> bytes:
    topics = lines_of({name: fields_of(topic) for name, topic in catalog.topics.items()})
    removed = f'"removed":{compact(catalog.removed)},' if catalog.removed else ""
    return sealed(f'{{"version":{VERSION},"directory_id":"{catalog.directory_id}",{removed}"topics":{{{topics}}}')


def decode(data: bytes, path: str) -> Catalog:
    """The inverse of `encode`. Raises CorruptLog, naming `path`, if any byte differs from what `encode` wrote,
    NewerVersion if a newer foldlog wrote it."""
    try:
        fields = unsealed(data, path, VERSION, _RESTORE)
        topics = {name: _topic_of(name, topic) for name, topic in fields["topics"].items()}
        removed = tuple(RemovedTopic(name, topic_id) for name, topic_id in fields.get("removed", ()))
        return Catalog(str(uuid.UUID(fields["directory_id"])), topics, removed)
    except (NewerVersion, CorruptLog):
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, FoldlogError) as error:
        raise NewerVersion(path, None, VERSION, f"its checksum is right, and {error!r} is not known here") from error


def fields_of(topic: CatalogTopic) -> dict[str, Any]:
    """What is stored of a topic, besides its name."""
    return {
        "id": topic.topic_id,
        "config": dict(topic.config.settings),
        "partitions": topic.slots,
        "growths": _growths_fields(topic.growths),
    }


def _topic_of(name: str, fields: dict[str, Any]) -> CatalogTopic:
    return CatalogTopic(
        name=check_topic_name(name),
        topic_id=fields["id"],
        config=TopicConfig.parse(fields["config"]),
        slots=tuple(fields["partitions"]),
        growths=growths_of(fields["growths"]),
    )


def _growths_fields(growths: Iterable[Growth]) -> list[dict[str, Any]]:
    return [{"partitions": growth.partitions, "ends": growth.ends} for growth in growths]


def growths_of(fields: Iterable[dict[str, Any]]) -> tuple[Growth, ...]:
    return tuple(Growth(growth["partitions"], tuple(growth["ends"])) for growth in fields)


def parse_growths(text: str) -> tuple[Growth, ...]:
    """Parse the text of `CatalogTopic.growths_text`. Raises ValueError if it is something else.

    >>> parse_growths('[{"partitions":4,"ends":[10,12]}]')
    (Growth(partitions=4, ends=(10, 12)),)
    """
    try:
        return growths_of(json.loads(text))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a list of growths: {brief_repr(text)}") from error
