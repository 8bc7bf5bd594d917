"""Creating, deleting, growing and reconfiguring topics: the steps on disk, in the order that survives a cut.

Replacing the catalog is the moment a change happens. Everything before it can be undone or adopted by the next
open, everything after it only tidies up.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping

from foldlog import limits
from foldlog.broker import catalog as catalogs
from foldlog.broker.catalog import Catalog, Topic
from foldlog.broker.open_partitions import OpenPartitions
from foldlog.broker.topic_config import TopicConfig
from foldlog.broker.topic_directories import TopicDirectories
from foldlog.broker.topic_names import is_internal, kafka_topic_id, refuse_collision, require_text
from foldlog.errors import InvalidArgument, StorageError, TopicExists, UnknownTopic, brief_repr
from foldlog.files.base import Files
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.partition import Partition


class TopicChanges:
    """The catalog of a directory this process writes. One change at a time; `catalog` may be read by any thread,
    and is always what is durable, over the `defaults` that this process has for topics.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        catalog: Catalog,
        checkpoint: Checkpoint,
        report: Callable[[str, Exception], None],
        defaults: Mapping[str, str],
    ) -> None:
        self._files = files
        self._path = path
        self._checkpoint = checkpoint
        self._report = report
        self._directories = TopicDirectories(files, path)
        self._changing = threading.Lock()
        self._defaults = defaults
        self.catalog = catalog.with_defaults(defaults)
        if catalog.slot_count():
            checkpoint.reserve(catalog.slot_count() - 1)

    def create(self, name: str, partitions: int, config: TopicConfig) -> Topic:
        """Durable on return. TopicExists, and nothing touched, if there is one of that name; InvalidTopicName if there
        is one whose name Kafka would not tell from it."""
        check_partition_count(partitions)
        with self._changing:
            if name in self.catalog.topics:
                raise TopicExists(name)
            refuse_collision(name, self.catalog.topics)
            topic = Topic(name, _new_topic_id(), config, self._claim_slots(partitions)).with_defaults(self._defaults)
            self._directories.make(name, topic.topic_id, range(partitions), self.catalog.topics)
            self._commit(self.catalog.with_topic(topic))
            return topic

    def grow(self, name: str, partitions: int, end_of: Callable[[int], int]) -> Topic:
        """Add partitions until there are `partitions`. Durable on return.

        `end_of` gives an older partition's end. It is asked last: a record that a producer routes by the old count
        after that is not below the remembered end.
        """
        check_partition_count(partitions)
        with self._changing:
            topic = self._known(name)
            if partitions <= topic.partition_count:
                raise InvalidArgument(
                    f"topic {name!r} has {topic.partition_count} partitions; it can only get more, not {partitions}"
                )
            numbers = range(topic.partition_count, partitions)
            slots = self._claim_slots(len(numbers))
            self._directories.make(name, topic.topic_id, numbers, self.catalog.topics)
            ends = [end_of(number) for number in range(topic.partition_count)]
            grown = topic.grown(slots, ends)
            self._commit(self.catalog.with_topic(grown))
            return grown

    def configure(self, name: str, decide: Callable[[TopicConfig], TopicConfig], partitions: OpenPartitions) -> Topic:
        """Give the topic the settings that `decide` makes of those it has, with no other change in between. Durable on
        return, and in force for what is appended from then on."""
        with self._changing:
            topic = self._known(name)
            changed = topic.configured(decide(topic.config)).with_defaults(self._defaults)
            self._commit(self.catalog.with_topic(changed))
            for partition in partitions.each_open(keys_of(changed)):
                if isinstance(partition, Partition):
                    partition.reconfigure(changed.config.log)
            return changed

    def delete(self, name: str, partitions: OpenPartitions) -> Topic:
        """Durable on return. The topic's partitions are closed first: who still holds one gets LogClosed from it."""
        with self._changing:
            topic = self._known(name)
            with partitions.closed(keys_of(topic)):
                self._directories_away(topic)
                try:
                    self._commit(self.catalog.without_topic(name))
                except BaseException:
                    # The new catalog may be in place or not. Only if the old one surely is may the topic go on;
                    # else its directories stay moved away, and the next open settles by what it finds.
                    catalogs.store(self._files, self._path, self.catalog)
                    self._directories.move_back(topic)
                    raise
            self._tidy(topic)
            return topic

    def _directories_away(self, topic: Topic) -> None:
        try:
            self._directories.move_away(topic)
        except BaseException:
            self._directories.move_back(topic)
            raise

    def _tidy(self, topic: Topic) -> None:
        """After the deletion happened: a fault here leaves rubbish for the next open, not a topic."""
        try:
            # Readers in other processes hold on to the slot; cleared, it tells them that the partition is gone.
            for slot in topic.slots:
                self._checkpoint.clear(slot)
            self._directories.remove_moved(topic)
        except (OSError, StorageError) as error:
            self._report(f"removing the files of deleted topic {topic.name!r}", error)

    def _claim_slots(self, count: int) -> tuple[int, ...]:
        """Free slots, durably those of empty partitions.

        What a deleted partition left there must not be taken for the new one's, and a new partition not for one
        whose checkpoint was lost, which would have to be recovered.
        """
        slots = self.catalog.free_slots(count)
        self._checkpoint.reserve(max(slots))
        for number in slots:
            slot = self._checkpoint.slot(number)
            if slot.load() is not None:
                self._checkpoint.clear(number)
            slot.store(SlotState(clean=True))
        self._checkpoint.sync()
        return tuple(slots)

    def _commit(self, catalog: Catalog) -> None:
        catalogs.store(self._files, self._path, catalog)
        self.catalog = catalog

    def _known(self, name: str) -> Topic:
        topic = self.catalog.topics.get(require_text(name))
        if topic is None:
            raise UnknownTopic(name, [known for known in self.catalog.topics if not is_internal(known)])
        return topic


def _new_topic_id() -> str:
    """Kafka avoids ids that begin with '-' in its own spelling: on a command line they look like an option."""
    while True:
        topic_id = uuid.uuid4().hex
        if not kafka_topic_id(topic_id).startswith("-"):
            return topic_id


def check_partition_count(partitions: object) -> None:
    if type(partitions) is not int or not 1 <= partitions <= limits.PARTITIONS_MAX:
        raise InvalidArgument(
            f"partitions={brief_repr(partitions)} is not allowed; it is an integer from 1 to {limits.PARTITIONS_MAX}"
        )


def keys_of(topic: Topic) -> list[tuple[str, int]]:
    return [(topic.name, number) for number in range(topic.partition_count)]
