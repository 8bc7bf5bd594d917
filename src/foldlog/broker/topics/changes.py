"""Creating, deleting, growing and reconfiguring topics: the steps on disk, in the order that survives a cut.

Replacing the catalog is the moment a change happens. Everything before it can be undone or adopted by the next
open, everything after it only tidies up.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from foldlog import limits
from foldlog.broker.topics import catalog as catalogs
from foldlog.broker.topics.catalog import CATALOG_NAME, Catalog, Topic
from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.directories import TopicDirectories
from foldlog.broker.topics.names import is_internal, kafka_topic_id, refuse_collision, require_text
from foldlog.errors import InvalidArgument, StorageError, TooManyPartitions, TopicExists, UnknownTopic, brief_repr
from foldlog.files.base import Files, read_file, storage_error
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.partition import Partition

if TYPE_CHECKING:
    from foldlog.broker.storage import OpenPartitions


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
        self._changing = threading.Lock()  # second in broker.py's order
        self._defaults = defaults
        self.catalog = catalog.with_defaults(defaults)
        if catalog.slot_count():
            checkpoint.reserve(catalog.slot_count() - 1)

    def create(self, name: str, partitions: int, config: TopicConfig) -> Topic:
        """Durable on return. TopicExists, and nothing touched, if there is one of that name; InvalidTopicName if there
        is one whose name Kafka would not tell from it."""
        check_partition_count(partitions)
        with self._one_change(f"topic {name!r} could not be created"):
            if name in self.catalog.topics:
                raise TopicExists(name)
            refuse_collision(name, self.catalog.topics)
            self._refuse_too_many(partitions)
            topic = Topic(name, _new_topic_id(), config, self._claim_slots(partitions)).with_defaults(self._defaults)
            with self._new_directories(topic, range(partitions)):
                self._commit(self.catalog.with_topic(topic))
            return topic

    def _refuse_too_many(self, more: int) -> None:
        there = sum(topic.partition_count for topic in self.catalog.topics.values())
        if there + more > limits.PARTITIONS_OF_ALL_MAX:
            raise TooManyPartitions(there, more, limits.PARTITIONS_OF_ALL_MAX)

    def grow(self, name: str, partitions: int, end_of: Callable[[int], int]) -> Topic:
        """Add partitions until there are `partitions`. Durable on return.

        `end_of` gives an older partition's end. It is asked last: a record that a producer routes by the old count
        after that is not below the remembered end.
        """
        check_partition_count(partitions)
        with self._one_change(f"topic {name!r} could not be given {partitions} partitions"):
            topic = self._known(name)
            if partitions <= topic.partition_count:
                raise InvalidArgument(
                    f"topic {name!r} has {topic.partition_count} partitions; it can only get more, not {partitions}"
                )
            numbers = range(topic.partition_count, partitions)
            self._refuse_too_many(len(numbers))
            slots = self._claim_slots(len(numbers))
            with self._new_directories(topic, numbers):
                ends = [end_of(number) for number in range(topic.partition_count)]
                grown = topic.grown(slots, ends)
                self._commit(self.catalog.with_topic(grown))
            return grown

    def configure(self, name: str, decide: Callable[[TopicConfig], TopicConfig], partitions: OpenPartitions) -> Topic:
        """Give the topic the settings that `decide` makes of those it has, with no other change in between. Durable on
        return, and in force for what is appended from then on."""
        with self._one_change(f"topic {name!r} could not be changed"):
            topic = self._known(name)
            changed = topic.configured(decide(topic.config)).with_defaults(self._defaults)
            self._commit(self.catalog.with_topic(changed))
            for partition in partitions.each_open(keys_of(changed)):
                if isinstance(partition, Partition):
                    partition.reconfigure(changed.config.log)
            return changed

    def delete(self, name: str, partitions: OpenPartitions) -> Topic:
        """Durable on return. The topic's partitions are closed first: who still holds one gets LogClosed from it."""
        with self._one_change(f"topic {name!r} could not be deleted"):
            topic = self._known(name)
            # Closed, and kept so, until the catalog no longer names them: whoever asks meanwhile waits, and is then
            # told that there is no such topic, instead of opening a directory that is being moved.
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

    @contextmanager
    def _one_change(self, failure: str) -> Iterator[None]:
        """Nobody else changes anything meanwhile. What the disk refuses is `failure`, as an error of ours."""
        with self._changing:
            try:
                yield
            except OSError as error:
                raise storage_error(f"{failure}; check the disk, and try again", error) from error

    @contextmanager
    def _new_directories(self, topic: Topic, numbers: Iterable[int]) -> Iterator[None]:
        """Empty partitions, which go again if the catalog does not get to name them inside the block."""
        made = self._directories.make(topic.name, topic.topic_id, numbers, self.catalog.topics)
        try:
            yield
        except BaseException:
            # The new catalog may be in place, and only its name not durable: then it names them until it is undone.
            if read_file(self._files, f"{self._path}/{CATALOG_NAME}") != catalogs.encode(self.catalog):
                catalogs.store(self._files, self._path, self.catalog)
            self._directories.remove_made(made)
            raise

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
        # One rename decides. In memory afterwards: nobody is told of a topic that a cut could take back.
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
