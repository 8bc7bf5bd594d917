"""The store of a data directory: where it is, whose it is, and the jobs that copy topics there.

`tier.json` in the directory names the store, so that whoever opens the directory later, or only reads it, finds it. In
the store `foldlog.json` names the directory, and each topic has a `topic.json`: what the catalog says of it, so that a
directory can be made from the store alone. A deleted topic stays in the catalog, under `removed`, until its objects are
gone: so a crash in between loses none of them.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from foldlog import limits
from foldlog.broker.checked_json import compact, sealed, unsealed
from foldlog.broker.topics.catalog import Catalog, CatalogTopic, RemovedTopic, fields_of, growths_of
from foldlog.broker.topics.config import TopicConfig
from foldlog.clock import Clock
from foldlog.errors import (
    CorruptLog,
    InvalidArgument,
    InvalidConfig,
    LogClosed,
    ObjectMissing,
    StoreError,
    UnknownPartition,
    UnknownTopic,
    brief_repr,
)
from foldlog.files.base import Files, read_file, replace_file
from foldlog.files.paths import STORE_MARK

# What a store needs is imported on use: most logs have none.
if TYPE_CHECKING:
    from foldlog.files.objects import ObjectStore
    from foldlog.log.partition import Partition
    from foldlog.log.tier.partition import TieredPartition
    from foldlog.log.tier.standing import StoredStanding, TierCounts, TierFault
    from foldlog.log.tier.tier import Tier

TIER_NAME: Final = "tier.json"
TOPIC_KEY: Final = "topic.json"
_VERSION: Final = 1
_ADVICE: Final = "restore it from a backup, or open the log with tier= once, which writes it again"

NO_STORE: Final = (
    "remote.storage.enable=true needs a store, and this log has none; serve it with --tier s3://bucket/prefix, or open"
    " it with tier="
)


def load_url(files: Files, path: str) -> str | None:
    """The store that the directory names; None if it has none."""
    name = f"{path}/{TIER_NAME}"
    try:
        data = read_file(files, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return str(unsealed(data, name, _VERSION, _ADVICE)["url"])


class TierSettings(NamedTuple):
    """How a directory is opened. `url`: None for the store that the directory names. `store`: for tests, in place of
    what the URL names."""

    url: str | None = None
    cache_bytes: int = limits.TIER_CACHE_BYTES
    store: ObjectStore | None = None

    def checked(self, files: Files) -> TierSettings:
        """Raises InvalidArgument for what is no URL of a store, and MissingDependency without the package it needs."""
        if self.url is None:
            return self
        if not isinstance(self.url, str):
            raise InvalidArgument(
                f"tier={brief_repr(self.url)} is not the URL of a store, such as 's3://bucket/prefix'"
            )
        from foldlog.files.objects import open_store

        return self._replace(url=open_store(self.url, files).url)

    def open(self, files: Files, path: str, *, write: bool) -> Tier | None:
        """The store; None if there is none. A writer notes it in the directory, durably. Nothing is asked of it yet."""
        known = load_url(files, path)
        url = self.url or known
        if url is None:
            return None
        from foldlog.log.tier.tier import Tier

        tier = Tier(url, files, self.cache_bytes, self.store)
        if write and url != known:
            replace_file(files, f"{path}/{TIER_NAME}", sealed(f'{{"version":{_VERSION},"url":{json.dumps(url)}'))
        return tier


def tiered_partition(tier: Tier, files: Files, topic: CatalogTopic, number: int) -> TieredPartition:
    from foldlog.log.tier.format import PartitionId
    from foldlog.log.tier.partition import TieredPartition, topic_folder

    of = PartitionId(uuid.UUID(topic.topic_id).bytes, number)
    return TieredPartition(tier, files, topic_folder(topic.name, topic.topic_id), of)


def check_change(before: TopicConfig | None, after: TopicConfig, *, has_store: bool) -> TopicConfig:
    """The new settings. Raises InvalidConfig where Kafka refuses them: without a store, and for a topic that leaves the
    store without a word about what is there."""
    was_remote = before is not None and before.log.remote
    if after.log.remote and not has_store:
        raise InvalidConfig(NO_STORE)
    if was_remote and not after.log.remote and not after.log.deletes_remote:
        raise InvalidConfig(
            "remote.storage.enable=false is not allowed without remote.log.delete.on.disable=true, which deletes what"
            " is in the store; to keep it and copy no more, set remote.log.copy.disable=true"
        )
    return after


def topic_text(topic: CatalogTopic) -> bytes:
    """What the store has to know of a topic."""
    fields = {"name": topic.name, **fields_of(topic), "partitions": topic.partition_count}
    return sealed(f'{{"version":{_VERSION},"topic":{compact(fields)}')


def read_topic(data: bytes, path: str) -> dict[str, Any]:
    """The inverse of `topic_text`."""
    fields: dict[str, Any] = unsealed(data, path, _VERSION, "the object in the store is not what was written")["topic"]
    return fields


def read_topics(tier: Tier) -> dict[str, CatalogTopic]:
    """The topics that the store has, by name; their slots are numbered as they come."""
    topics: dict[str, CatalogTopic] = {}
    slots = count()
    for folder in tier.store.folders("topics/"):
        key = f"topics/{folder}/{TOPIC_KEY}"
        try:
            fields = read_topic(tier.store.get(key), f"{tier.url}/{key}")
        except ObjectMissing:
            continue  # it is being deleted
        config = TopicConfig.parse(fields["config"])
        growths = growths_of(fields["growths"])
        numbers = tuple(next(slots) for _ in range(fields["partitions"]))
        topics[fields["name"]] = CatalogTopic(fields["name"], fields["id"], config, numbers, growths)
    return topics


class TierOverview(NamedTuple):
    """How the store of a directory stands. `standings`: of partitions that are open, and whose manifest is known;
    `failures`: of rounds over a partition."""

    url: str
    counts: TierCounts
    cache_bytes: int
    failures: int
    faults: tuple[TierFault, ...]
    standings: Mapping[tuple[str, int], StoredStanding]


class TieredStorage(Protocol):
    """What the jobs need of the directory."""

    tier: Tier | None

    def catalog(self) -> Catalog: ...

    def writable_partition(self, key: tuple[str, int]) -> Partition: ...

    def has_tiered_records(self) -> bool: ...

    def forget_removed(self, topics: Iterable[RemovedTopic]) -> None: ...

    def report(self, doing: str, error: Exception) -> None: ...


class TierJobs:
    """Copies, expires and frees, partition by partition. One thread at a time."""

    def __init__(self, storage: TieredStorage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._is_ours = False
        self._told: dict[str, bytes] = {}  # topic.json of each folder, as last written
        self._working = threading.Lock()  # before all locks of partitions
        self._first_fault: Exception | None = None
        self._removed = 0
        self._failures = 0
        self._faults: dict[str, TierFault] = {}  # by what was being done
        self.is_stopping: Callable[[], bool] = lambda: False

    @property
    def are_needed(self) -> bool:
        catalog = self._storage.catalog()
        return bool(catalog.removed) or any(_is_tiered(topic) for topic in catalog.topics.values())

    def work(self) -> float | None:
        """One round over all topics; when to come again."""
        with self._working:
            self._first_fault = None
            return self._work()

    def work_now(self, topic: str | None = None) -> int:
        """One round, over one topic or all; how many segments left the disk or the store. Raises the first error once
        it is done."""
        with self._working:
            self._first_fault, self._removed = None, 0
            self._work(topic)
            if self._first_fault is not None:
                raise self._first_fault
            return self._removed

    def _work(self, only: str | None = None) -> float | None:
        if not self.are_needed:
            self._faults.clear()
            return None
        try:
            self._claim()
        except Exception as error:
            self._note("asking whose store it is", None, error)
            raise
        self._faults.pop("asking whose store it is", None)
        for removed in self._storage.catalog().removed:
            self._each(f"deleting the objects of {removed.name!r}", None, lambda: self._remove(removed))  # noqa: B023
        for topic in list(self._storage.catalog().topics.values()):
            if not _is_tiered(topic) or only not in (None, topic.name) or self.is_stopping():
                continue
            if topic.config.log.remote:
                name = topic.name
                self._each(f"describing {name!r} in the store", name, lambda: self._tell(topic))  # noqa: B023
            for number in range(topic.partition_count):
                if not self.is_stopping():
                    doing = f"copying {topic.name}-{number} to the store"
                    self._each(doing, topic.name, lambda: self._work_on(topic, number))  # noqa: B023
        return limits.TIER_CHECK_MS

    def overview(self, opened: Iterable[Partition]) -> TierOverview | None:
        """Without asking the store. Any thread."""
        from foldlog.log.tier.standing import TierFault

        tier = self._storage.tier
        if tier is None:
            return None
        topics = self._storage.catalog().topics
        faults = [one for one in list(self._faults.values()) if one.topic is None or one.topic in topics]
        standings = {}
        for partition in opened:
            standing = None if partition.tiering is None else partition.tiering.standing()
            if partition.tiering is None or standing is None:
                continue
            damaged = list(partition.tiering.tier.damaged.values())
            faults += [TierFault(partition.label[0], str(error), None, is_damage=True) for error in damaged]
            if partition.config.remote or standing.segments:
                standings[partition.label] = standing
        return TierOverview(tier.url, tier.counts, tier.cache.held_bytes, self._failures, tuple(faults), standings)

    def _note(self, doing: str, topic: str | None, error: Exception) -> None:
        from foldlog.log.tier.standing import TierFault

        self._failures += 1
        before = self._faults.get(doing)
        since_ms = self._clock.now_ms() if before is None else before.since_ms
        self._faults[doing] = TierFault(topic, f"{doing} failed: {error}", since_ms)

    def _each(self, doing: str, topic: str | None, act: Callable[[], object]) -> None:
        """A fault of one does not stop the others; it is tried again with the next round."""
        try:
            act()
            self._faults.pop(doing, None)
        except (UnknownTopic, UnknownPartition, LogClosed):
            self._faults.pop(doing, None)
        except Exception as error:  # noqa: BLE001  reported, and tried again
            self._first_fault = self._first_fault or error
            self._note(doing, topic, error)
            if not self.is_stopping():
                self._storage.report("" if isinstance(error, CorruptLog) else doing, error)

    def _claim(self) -> None:
        """Find out, once, that the store is this directory's; an empty one becomes so."""
        tier = self._storage.tier
        if self._is_ours or tier is None:
            return
        from foldlog.files.objects import retried

        tier.store.claim()
        ours = self._storage.catalog().directory_id
        mark = sealed(f'{{"version":{_VERSION},"directory_id":"{ours}"')
        try:
            found = retried(lambda: tier.store.get(STORE_MARK))
        except ObjectMissing:
            if self._storage.has_tiered_records():
                raise StoreError(
                    f"{tier.url} is empty, and this directory has records that are in a store alone; copy the old store"
                    " there, or open the log with tier= of the old one"
                ) from None
            retried(lambda: tier.store.create(STORE_MARK, mark))
            found = retried(lambda: tier.store.get(STORE_MARK))
        owner = unsealed(found, f"{tier.url}/{STORE_MARK}", _VERSION, "another program wrote it")["directory_id"]
        if owner != ours:
            raise StoreError(
                f"{tier.url} is the store of another directory ({owner}); give this one a prefix of its own"
            )
        self._is_ours = True

    def _tell(self, topic: CatalogTopic) -> None:
        tier, key, text = self._storage.tier, _folder(topic) + TOPIC_KEY, topic_text(topic)
        if tier is not None and self._told.get(key) != text:
            tier.store.put(key, [text])
            self._told[key] = text

    def _work_on(self, topic: CatalogTopic, number: int) -> None:
        tiering = self._storage.writable_partition((topic.name, number)).tiering
        if tiering is not None:
            tiering.is_interrupted = self.is_stopping
            report = tiering.work(self._clock.now_ms())
            self._removed += report.freed + report.expired

    def _remove(self, topic: RemovedTopic) -> None:
        tier = self._storage.tier
        if tier is not None:
            from foldlog.log.tier.partition import topic_folder
            from foldlog.log.tier.tiering import remove_below

            remove_below(tier.store, topic_folder(topic.name, topic.topic_id))
            self._storage.forget_removed([topic])


def _is_tiered(topic: CatalogTopic) -> bool:
    return topic.config.log.remote or topic.config.log.deletes_remote


def _folder(topic: CatalogTopic) -> str:
    from foldlog.log.tier.partition import topic_folder

    return topic_folder(topic.name, topic.topic_id)
