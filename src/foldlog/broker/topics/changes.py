"""Creating, deleting, growing and reconfiguring topics: the steps on disk, in an order that survives a power cut.

A change takes effect when the catalog is replaced. The next open can undo or adopt everything before that; everything
after it only tidies up. Topics that are created, or deleted, together share one replacement: the file is written whole,
so one for each would cost the square of their number.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from foldlog import limits
from foldlog.broker.topics import catalog as catalogs
from foldlog.broker.topics.catalog import CATALOG_NAME, Catalog, CatalogTopic, RemovedTopic
from foldlog.broker.topics.config import DEFAULT_CONFIG, TopicConfig
from foldlog.broker.topics.directories import TopicDirectories
from foldlog.broker.topics.names import folded_name, is_internal, kafka_topic_id, refuse_collision, require_text
from foldlog.errors import (
    FoldlogError,
    InvalidArgument,
    InvalidConfig,
    LogClosed,
    StorageError,
    TooManyPartitions,
    TooManySettings,
    TopicExists,
    UnknownTopic,
    brief_repr,
)
from foldlog.files.base import Files, read_file, storage_error
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.partition import Partition

if TYPE_CHECKING:
    from foldlog.broker.storage import OpenPartitions


Stopped = Callable[[], bool]
"""Whether to begin nothing more, since the process is ending. Checked between topics, and between their partitions."""


def never() -> bool:
    return False


class NewTopic(NamedTuple):
    """A topic to be created."""

    name: str
    partitions: int
    config: TopicConfig


def plan_creation(catalog: Catalog, wanted: Iterable[NewTopic]) -> list[FoldlogError | None]:
    """For each topic the error, also with regard to those before it in the list; None if there is none. Pure."""
    known = {folded_name(name): name for name in catalog.topics}
    taken = set(catalog.topics)
    partitions = sum(topic.partition_count for topic in catalog.topics.values())
    settings_bytes = _settings_bytes(catalog)
    refusals: list[FoldlogError | None] = []
    for name, count, config in wanted:
        folded = folded_name(name)
        try:
            check_partition_count(count)
            if name in taken:
                raise TopicExists(name)
            refuse_collision(name, [known[folded]] if folded in known else [])
            if partitions + count > limits.PARTITIONS_OF_ALL_MAX:
                raise TooManyPartitions(partitions, count, limits.PARTITIONS_OF_ALL_MAX)
            _refuse_large_settings(name, config, settings_bytes)
        except FoldlogError as error:
            refusals.append(error)
            continue
        refusals.append(None)
        known[folded] = name
        taken.add(name)
        partitions += count
        settings_bytes += config.settings_bytes
    return refusals


def _settings_bytes(catalog: Catalog) -> int:
    return sum(topic.config.settings_bytes for topic in catalog.topics.values())


def _refuse_large_settings(
    name: str, config: TopicConfig, of_all_bytes: int, before: TopicConfig = DEFAULT_CONFIG
) -> None:
    """Raises InvalidConfig or TooManySettings. Settings no larger than before are allowed: a directory of an older
    foldlog may hold more than the limits."""
    if config.settings_bytes <= before.settings_bytes:
        return
    if config.settings_bytes > limits.TOPIC_SETTINGS_BYTES_MAX:
        longest = max(config.settings, key=lambda setting: len(config.settings[setting]))
        raise InvalidConfig(
            f"the settings of topic {name!r} take {config.settings_bytes} bytes, {longest} the most, and a topic's take"
            f" at most {limits.TOPIC_SETTINGS_BYTES_MAX}; set fewer, or shorter ones"
        )
    if of_all_bytes - before.settings_bytes + config.settings_bytes > limits.TOPIC_SETTINGS_OF_ALL_BYTES_MAX:
        raise TooManySettings(name, limits.TOPIC_SETTINGS_OF_ALL_BYTES_MAX)


class TopicChanges:
    """The catalog of a directory that this process writes. One change at a time; any thread may read `catalog`, which
    is always the durable one, with this process's `defaults` for topics.
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
        self._opened_with = self._defaults = defaults
        self.catalog = catalog.with_defaults(defaults)
        if catalog.slot_count():
            checkpoint.reserve(catalog.slot_count() - 1)

    def create(self, name: str, partitions: int, config: TopicConfig) -> CatalogTopic:
        """As `create_all` with one topic; raises the error."""
        (outcome,) = self.create_all([NewTopic(name, partitions, config)])
        if isinstance(outcome, FoldlogError):
            raise outcome
        return outcome

    def create_all(self, wanted: Sequence[NewTopic], stopped: Stopped = never) -> list[CatalogTopic | FoldlogError]:
        """Create the topics; for each the topic or the error. One that is refused, or whose directories the disk
        refuses, does not stop the others. The catalog is replaced once. Durable on return.

        Errors: TopicExists, with nothing touched, if the name is taken; InvalidTopicName if Kafka could not tell it
        from an existing one; LogClosed for those not begun, or not finished, when `stopped` returned true.
        """
        with self._changing:
            refusals = plan_creation(self.catalog, wanted)
            try:
                with _disk_faults(f"{these_topics([new.name for new in wanted])} could not be created"):
                    return self._create_planned(wanted, refusals, stopped)
            except StorageError as error:
                return [refusal or error for refusal in refusals]

    def _create_planned(
        self, wanted: Sequence[NewTopic], refusals: Sequence[FoldlogError | None], stopped: Stopped
    ) -> list[CatalogTopic | FoldlogError]:
        allowed = sum(new.partitions for new, refusal in zip(wanted, refusals, strict=True) if refusal is None)
        slots = iter(self._claim_slots(allowed) if allowed else ())
        outcomes: list[CatalogTopic | FoldlogError] = []
        names = set(self.catalog.topics)
        with self._new_directories() as made:
            for new, refusal in zip(wanted, refusals, strict=True):
                outcome = refusal or self._with_directories(
                    new, tuple(islice(slots, new.partitions)), made, names, stopped
                )
                if isinstance(outcome, CatalogTopic):
                    names.add(outcome.name)
                outcomes.append(outcome)
            topics = [outcome for outcome in outcomes if isinstance(outcome, CatalogTopic)]
            if topics:
                self._directories.sync()
                self._commit(self.catalog.with_topics(*topics))
        return outcomes

    def _with_directories(
        self, new: NewTopic, slots: tuple[int, ...], made: list[str], names: Collection[str], stopped: Stopped
    ) -> CatalogTopic | FoldlogError:
        """Create the topic's directories; `made` gets those that did not exist before."""
        topic = CatalogTopic(new.name, _new_topic_id(), new.config, slots).with_defaults(self._defaults)
        try:
            with _disk_faults(f"topic {new.name!r} could not be created"):
                made += self._directories.make(topic.name, topic.topic_id, range(new.partitions), names, stopped)
        except FoldlogError as error:
            return error
        return topic

    def _refuse_too_many(self, more: int) -> None:
        there = sum(topic.partition_count for topic in self.catalog.topics.values())
        if there + more > limits.PARTITIONS_OF_ALL_MAX:
            raise TooManyPartitions(there, more, limits.PARTITIONS_OF_ALL_MAX)

    def grow(self, name: str, partitions: int, end_of: Callable[[int], int]) -> CatalogTopic:
        """Add partitions until there are `partitions`. Durable on return.

        `end_of` returns an older partition's end. It is called last: a record that a producer still routes by the old
        count afterwards is not below the remembered end.
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
            with self._new_directories() as made:
                made += self._directories.make(topic.name, topic.topic_id, numbers, self.catalog.topics)
                self._directories.sync()
                ends = [end_of(number) for number in range(topic.partition_count)]
                grown = topic.grown(slots, ends)
                self._commit(self.catalog.with_topics(grown))
            return grown

    def configure(
        self,
        name: str,
        decide: Callable[[TopicConfig], TopicConfig],
        partitions: OpenPartitions,
        *,
        validate_only: bool = False,
    ) -> CatalogTopic:
        """Replace the topic's settings by what `decide` makes of them, with no other change in between. Durable on
        return, and in force for later appends. With `validate_only`, returns the topic as it would be."""
        with self._one_change(f"topic {name!r} could not be changed"):
            topic = self._known(name)
            changed = topic.configured(decide(topic.config)).with_defaults(self._defaults)
            _refuse_large_settings(name, changed.config, _settings_bytes(self.catalog), topic.config)
            if validate_only:
                return changed
            self._commit(self.catalog.with_topics(changed))
            for partition in partitions.each_open(keys_of(changed)):
                if isinstance(partition, Partition):
                    partition.reconfigure(changed.config.log)
            return changed

    def set_defaults(self, changes: Mapping[str, str], partitions: OpenPartitions) -> None:
        """Use the defaults that the directory was opened with, and over them these, for settings that topics do not
        set themselves. In force for later appends; not stored."""
        with self._changing:
            defaults = {**self._opened_with, **changes}
            if defaults == self._defaults:
                return
            self._defaults = defaults
            before, self.catalog = self.catalog, self.catalog.with_defaults(defaults)
            for topic in self.catalog.topics.values():
                if topic.config.log == before.topics[topic.name].config.log:
                    continue
                for partition in partitions.each_open(keys_of(topic)):
                    if isinstance(partition, Partition):
                        partition.reconfigure(topic.config.log)

    def delete_all(
        self, names: Sequence[str], partitions: OpenPartitions, stopped: Stopped = never
    ) -> list[CatalogTopic | FoldlogError]:
        """Delete the topics; for each the deleted topic or the error. The catalog is replaced once. Durable on return.

        Partitions are closed first: open handles of them raise LogClosed. Topics not begun when `stopped` returned true
        get LogClosed, too.
        """
        with self._changing:
            outcomes: dict[str, CatalogTopic | FoldlogError] = {}
            try:
                with _disk_faults(f"{these_topics(names)} could not be deleted"):
                    self._delete_each(names, partitions, stopped, outcomes)
            except StorageError as error:
                outcomes = {
                    name: error if isinstance(outcomes.get(name), CatalogTopic) else outcomes.get(name, error)
                    for name in names
                }
            gone = [topic for topic in outcomes.values() if isinstance(topic, CatalogTopic)]
            self._tidy(gone)
            return [outcomes[name] for name in names]

    def _delete_each(
        self,
        names: Sequence[str],
        partitions: OpenPartitions,
        stopped: Stopped,
        outcomes: dict[str, CatalogTopic | FoldlogError],
    ) -> None:
        going: list[CatalogTopic] = []
        with ExitStack() as held:
            try:
                for name in dict.fromkeys(names):
                    try:
                        if stopped():
                            raise _stopped_before(name)
                        topic = self._known(name)
                        # Kept closed until the catalog no longer names them: a thread that asks meanwhile waits, and
                        # then gets UnknownTopic, instead of opening a directory that is being moved.
                        held.enter_context(partitions.closed(keys_of(topic)))
                        with _disk_faults(f"topic {name!r} could not be deleted"):
                            self._directories_away(topic)
                        going.append(topic)
                        outcomes[name] = topic
                    except FoldlogError as error:
                        outcomes[name] = error
                if going:
                    self._directories.sync()
                    self._commit(self.catalog.without_topics({topic.name for topic in going}))
            except BaseException:
                # The new catalog may be in place or not. Only if the old one is surely in place may the topics go on;
                # else their directories stay moved away, and the next open decides by the catalog it finds.
                catalogs.store(self._files, self._path, self.catalog)
                self._directories.move_back(going)
                raise

    @contextmanager
    def _one_change(self, failure: str) -> Iterator[None]:
        """Hold the change lock; an OSError in the block is raised as our own error, with the text `failure`."""
        with self._changing, _disk_faults(failure):
            yield

    @contextmanager
    def _new_directories(self) -> Iterator[list[str]]:
        """The block lists the directories that it creates; they are removed if it fails before the catalog names them.

        Some belong to a topic that could not be created, and are gone already.
        """
        made: list[str] = []
        try:
            yield made
        except BaseException:
            # The new catalog may be in place without a durable name: then it names them until it is replaced again.
            if read_file(self._files, f"{self._path}/{CATALOG_NAME}") != catalogs.encode(self.catalog):
                catalogs.store(self._files, self._path, self.catalog)
            self._directories.remove_made(made)
            raise

    def _directories_away(self, topic: CatalogTopic) -> None:
        try:
            self._directories.move_away(topic)
        except BaseException:
            self._directories.move_back([topic])
            raise

    def _tidy(self, topics: Iterable[CatalogTopic]) -> None:
        """Clean up after a deletion: a fault here leaves files for the next open to remove, not a topic."""
        for topic in topics:
            try:
                # Readers in other processes keep using the slot; once cleared, it shows that the partition is gone.
                self._checkpoint.clear(*topic.slots)
                self._directories.remove_moved(topic)
            except (OSError, StorageError) as error:
                self._report(f"removing the files of deleted topic {topic.name!r}", error)

    def _claim_slots(self, count: int) -> tuple[int, ...]:
        """Free slots, durably stored as those of empty partitions.

        The state of a deleted partition must not be taken for the new one's, nor a new partition for one whose
        checkpoint was lost, which would have to be recovered.
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

    def forget_removed(self, topics: Iterable[RemovedTopic]) -> None:
        """The objects of these deleted topics are gone from the store. Durable on return."""
        with self._one_change("the catalog could not be changed"):
            self._commit(self.catalog.without_removed(topics))

    def _commit(self, catalog: Catalog) -> None:
        # One rename decides. Published afterwards: no caller sees a topic that a power cut could take back.
        catalogs.store(self._files, self._path, catalog)
        self.catalog = catalog

    def _known(self, name: str) -> CatalogTopic:
        topic = self.catalog.topics.get(require_text(name))
        if topic is None:
            raise UnknownTopic(name, [known for known in self.catalog.topics if not is_internal(known)])
        return topic


@contextmanager
def _disk_faults(failure: str) -> Iterator[None]:
    """Raise an OSError in the block as our own error, with the text `failure`."""
    try:
        yield
    except OSError as error:
        raise storage_error(f"{failure}; check the disk, and try again", error) from error


def these_topics(names: Sequence[str]) -> str:
    return f"topic {names[0]!r}" if len(names) == 1 else f"{len(names)} topics"


def _stopped_before(name: str) -> LogClosed:
    return LogClosed(f"the log is being closed, so topic {name!r} is as it was; ask again once it is open")


def _new_topic_id() -> str:
    """A random id. Kafka avoids those that begin with '-' in its spelling: they look like command line options."""
    while True:
        topic_id = uuid.uuid4().hex
        if not kafka_topic_id(topic_id).startswith("-"):
            return topic_id


def check_partition_count(partitions: object) -> None:
    if type(partitions) is not int or not 1 <= partitions <= limits.PARTITIONS_MAX:
        raise InvalidArgument(
            f"partitions={brief_repr(partitions)} is not allowed; it is an integer from 1 to {limits.PARTITIONS_MAX}"
        )


def keys_of(topic: CatalogTopic) -> list[tuple[str, int]]:
    return [(topic.name, number) for number in range(topic.partition_count)]
