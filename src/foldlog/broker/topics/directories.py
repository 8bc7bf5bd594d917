"""The partition directories of a data directory: created before the catalog names them, moved before it drops them.

The order matters, because the catalog is replaced in between:
- creating: directories, sync, *catalog*. A cut before the catalog leaves empty directories it does not know;
  the next topic of that name adopts them.
- deleting: rename to `…-delete`, sync, *catalog*, remove. A cut before the catalog is undone at the next open
  (the catalog still knows the topic id in the name), one after it is finished there.
Any other directory is foreign: reported, never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from foldlog.broker.topics.catalog import Catalog, CatalogTopic
from foldlog.broker.topics.names import (
    deleted_directory,
    is_partition_directory,
    kafka_topic_id,
    parse_deleted_directory,
    partition_directory,
)
from foldlog.errors import DirectoryInUse, LogClosed
from foldlog.files.base import DirectoryEntry, Files
from foldlog.log.layout import create_partition

_EMPTY_PARTITION_FILES = ("partition.metadata", "leader-epoch-checkpoint")


@dataclass(frozen=True, slots=True)
class Settlement:
    """How an open deals with directories that an interrupted change left. Names, not paths."""

    rename_back: tuple[tuple[str, str], ...]
    remove: tuple[str, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]


def plan_settlement(entries: Iterable[DirectoryEntry], catalog: Catalog) -> Settlement:
    """Decide, from the names in the data directory alone, what belongs to the catalog and what is left over."""
    present = {entry.name for entry in entries if entry.is_directory}
    known = {
        partition_directory(topic.name, number)
        for topic in catalog.topics.values()
        for number in range(topic.partition_count)
    }
    topics_by_id = {topic.topic_id: topic for topic in catalog.topics.values()}
    rename_back: list[tuple[str, str]] = []
    remove: list[str] = []
    unknown: list[str] = []
    for name in sorted(present - known):
        deleted = parse_deleted_directory(name)
        if deleted is None:
            if is_partition_directory(name):
                unknown.append(name)
            continue
        topic = topics_by_id.get(deleted.topic_id)
        if topic is None:
            remove.append(name)
            continue
        back = partition_directory(topic.name, deleted.partition)
        if deleted.partition < topic.partition_count and back not in present:
            rename_back.append((name, back))
        else:
            unknown.append(name)
    missing = known - present - {back for _, back in rename_back}
    return Settlement(tuple(rename_back), tuple(remove), tuple(unknown), tuple(sorted(missing)))


class TopicDirectories:
    """Carries those steps out. Owned by the broker, which makes one change at a time."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def path_of(self, topic: str, number: int) -> str:
        return f"{self._path}/{partition_directory(topic, number)}"

    def make(
        self,
        topic: str,
        topic_id: str,
        numbers: Iterable[int],
        other_topics: Iterable[str],
        stopped: Callable[[], bool] = lambda: False,
    ) -> list[str]:
        """Create empty partitions, durable once `sync` has returned; returns the directories that did not exist before.
        The catalog does not name them yet.

        Raises DirectoryInUse if one exists and holds anything, LogClosed as soon as `stopped` returns true. After a
        failure nothing that was created stays.
        """
        numbers = list(numbers)
        made = [path for path in (self.path_of(topic, number) for number in numbers) if not self._files.exists(path)]
        if len(made) < len(numbers):
            self._refuse_other_case(topic, numbers, other_topics)
        for number in numbers:
            self._adopt(topic, number)
        try:
            for number in numbers:
                if stopped():
                    raise LogClosed(
                        f"the log is being closed, so topic {topic!r} was not made; ask again once it is open"
                    )
                create_partition(self._files, self.path_of(topic, number), topic_id=kafka_topic_id(topic_id))
        except BaseException:
            self.remove_made(made)
            raise
        return made

    def sync(self) -> None:
        """Make the names of created and moved directories durable, before the catalog relies on them."""
        self._files.sync_directory(self._path)

    def remove_made(self, paths: Iterable[str]) -> None:
        """Undo `make`. Directories that cannot be removed are left to the next open, which reports them."""
        with suppress(OSError):
            for path in paths:
                self._remove_tree(path)
            self._files.sync_directory(self._path)

    def _refuse_other_case(self, topic: str, numbers: list[int], other_topics: Iterable[str]) -> None:
        """Refuse a name that this file system does not tell from another topic's. One of the directories exists."""
        twins = [other for other in other_topics if other != topic and other.casefold() == topic.casefold()]
        if twins:
            raise DirectoryInUse(
                f"{self.path_of(topic, numbers[0])} is taken by topic {twins[0]!r}, as this file system"
                " does not tell capital letters from small ones; choose another name"
            )

    def _adopt(self, topic: str, number: int) -> None:
        """Clear a directory that a crash left before the catalog named it; refuse one with other content."""
        path = self.path_of(topic, number)
        try:
            entries = self._files.entries(path)
        except FileNotFoundError:
            return
        for entry in entries:
            if not _is_of_an_empty_partition(entry):
                raise DirectoryInUse(
                    f"{path} exists, is not in the catalog and holds {entry.name} ({entry.size_bytes} bytes);"
                    " move it away, or restore the catalog that names it"
                )
        for entry in entries:
            self._files.unlink(f"{path}/{entry.name}")

    def move_away(self, topic: CatalogTopic) -> None:
        """First half of deleting: durable once `sync` has returned, undone by `move_back` or by the next open."""
        for number in range(topic.partition_count):
            old = self.path_of(topic.name, number)
            # It may have been removed by hand, before the topic is deleted.
            if self._files.exists(old):
                self._files.rename(old, self._deleted_path(topic, number))

    def move_back(self, topics: Iterable[CatalogTopic]) -> None:
        """Undo `move_away`, also when it was interrupted."""
        for topic in topics:
            for number in range(topic.partition_count):
                away = self._deleted_path(topic, number)
                if self._files.exists(away):
                    self._files.rename(away, self.path_of(topic.name, number))
        self._files.sync_directory(self._path)

    def remove_moved(self, topic: CatalogTopic) -> None:
        """Second half of deleting, after the catalog dropped the topic."""
        self._remove(deleted_directory(topic.name, number, topic.topic_id) for number in range(topic.partition_count))

    def settle(self, settlement: Settlement) -> None:
        """Carry out a plan of `plan_settlement`; durable on return."""
        for old, new in settlement.rename_back:
            self._files.rename(f"{self._path}/{old}", f"{self._path}/{new}")
        if settlement.rename_back:
            self._files.sync_directory(self._path)
        self._remove(settlement.remove)

    def _remove(self, names: Iterable[str]) -> None:
        removed = [self._remove_tree(f"{self._path}/{name}") for name in names]
        if any(removed):
            self._files.sync_directory(self._path)

    def _remove_tree(self, path: str) -> bool:
        """Remove a directory with its content; False if it did not exist."""
        try:
            entries = self._files.entries(path)
        except FileNotFoundError:
            return False
        for entry in entries:
            if entry.is_directory:
                self._remove_tree(f"{path}/{entry.name}")
            else:
                self._files.unlink(f"{path}/{entry.name}")
        self._files.remove_directory(path)
        return True

    def _deleted_path(self, topic: CatalogTopic, number: int) -> str:
        return f"{self._path}/{deleted_directory(topic.name, number, topic.topic_id)}"


def _is_of_an_empty_partition(entry: DirectoryEntry) -> bool:
    """Whether a partition that was only just created may hold this file."""
    if entry.is_directory:
        return False
    return entry.size_bytes == 0 or entry.name.removesuffix(".tmp") in _EMPTY_PARTITION_FILES
