"""A data directory with its topics, partitions and groups, as the client library and the server use it.

Reading path of a produce: `Broker.partition`, then `log.partition.Partition.append` and `wait_acknowledged`.
Of a commit: `commit_offsets`, then `groups/store.py`. Of a transaction: `transactions/store.py`. Of a new topic:
`create_topic`, then `topics/changes.py`. Of background jobs: `upkeep.py`.

Locks, in the order in which they may be taken; those of a partition (log/partition.py) come after all of them, and that
of `DynamicSettings` before:

    1. TransactionStore.lock    every decision about a transaction, and its markers until they are appended
    2. GroupStore.lock          every call of the coordinator, and commits until they are appended
    3. ShareStore.lock          what share groups do with records, until it is appended
    4. TopicChanges._changing   one change of the catalog at a time; held over its syncs
    5. a key's lock in OpenPartitions   opening, recovering and closing one partition

Transactions come before groups: an offset that is committed in a transaction is verified, then appended. All three come
before topics: the first transaction, commit and share create the topics that store them, and a commit must not go to a
topic that is being deleted. A deletion forgets its topic's offsets after the change, without the last two. The locks of
`Upkeep`'s deadlines and of the `WarningList` are leaves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar

from foldlog import limits
from foldlog.broker.access.store import AccessStore
from foldlog.broker.data_directory import address_text, cannot_open, check_path
from foldlog.broker.dynamic_settings import DynamicSettings
from foldlog.broker.groups.committed import CommittedOffsets, OffsetAndMetadata, TopicPartition, check_offsets
from foldlog.broker.groups.coordinator import GroupCoordinator
from foldlog.broker.groups.errors import GroupErrorCode, raise_for
from foldlog.broker.groups.eviction import commit_evicting
from foldlog.broker.groups.group_settings import GroupConfigs
from foldlog.broker.groups.messages import (
    GroupListing,
    GroupSettings,
    GroupSummary,
    MemberIdentity,
    MemberSummary,
)
from foldlog.broker.groups.offsets_format import CommittedOffset
from foldlog.broker.groups.store import Acknowledged, GroupStore
from foldlog.broker.kafka_files.directory import find_kafka
from foldlog.broker.share.store import ShareStore
from foldlog.broker.storage import (
    READ_UNCOMMITTED,
    AnyPartition,
    FollowedStorage,
    PartitionOverview,
    Storage,
    WrittenStorage,
    check_isolation_level,
    overview,
)
from foldlog.broker.tiers import TierJobs, TierOverview, TierSettings, check_change
from foldlog.broker.topics.catalog import Catalog, CatalogTopic
from foldlog.broker.topics.changes import NewTopic, Stopped, keys_of, never, plan_creation, these_topics
from foldlog.broker.topics.config import DEFAULT_CONFIG, TopicConfig
from foldlog.broker.topics.names import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    OwnTopicChange,
    check_user_topic_name,
    is_internal,
    refuse_own_topic,
    require_text,
)
from foldlog.broker.transactions.coordinator import TransactionSettings
from foldlog.broker.transactions.store import TransactionStore
from foldlog.broker.upkeep import Job, Upkeep, plan_compaction, plan_retention
from foldlog.clock import Clock, SystemClock
from foldlog.errors import (
    FoldlogError,
    InvalidArgument,
    InvalidConfig,
    LogClosed,
    ReadOnly,
    StorageError,
    WrongProcess,
    brief_repr,
)
from foldlog.files.base import Files, storage_error
from foldlog.files.paths import is_store_url
from foldlog.files.posix import PosixFiles
from foldlog.log.compaction import CompactionReport
from foldlog.log.doctor.recompression import RecompressionReport
from foldlog.log.durability import DescriptorThreads, OnSynced
from foldlog.log.follower import Hurry
from foldlog.log.journal.journal import JournalCounts, JournalSettings
from foldlog.log.partition import Partition
from foldlog.records.batch import Compression

MEMORY_PATH: Final = ":memory:"

Done = TypeVar("Done")


class Broker:
    """One data directory, open. Any thread may call it.

    With mode "w" this process is the directory's one writer; with "r" it takes no lock, changes nothing and follows the
    writer, if any. A forked child may go on reading partitions it had open, and is refused everything else. Opening
    reads names, and the states of transactions if there were any: a partition is opened, and recovered if need be, on
    first use.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        *,
        background: bool,
        group_settings: GroupSettings | None = None,
        offsets: CommittedOffsets | None = None,
        compaction_threads: int = limits.COMPACTION_THREADS,
        transaction_settings: TransactionSettings | None = None,
    ) -> None:
        """Use `Broker.open`."""
        self.path = storage.path
        self.clock = clock
        self.directory_id = storage.catalog().directory_id
        self._storage = storage
        self._partitions = storage.partitions
        self._by_id: tuple[Catalog | None, dict[str, CatalogTopic]] = (None, {})
        self.members_begin: Callable[[str], Mapping[TopicPartition, int]] = lambda group: {}
        """Start offsets of group members in this process that read from the end; set by the code that drives them."""
        self._closed = False
        self._closing = threading.Lock()
        self._written = storage if isinstance(storage, WrittenStorage) else None
        stored = None if self._written is None else self._written.dynamic_settings
        self.group_configs = GroupConfigs(stored, group_settings or GroupSettings())
        """What is set for single groups."""
        self._groups = GroupStore(storage, clock, self._written, group_settings, offsets, self.group_configs)
        self._shares = ShareStore(storage, clock, self._written, self.group_configs, self._groups.wait_stored)
        self._groups.watch_share_members(self._shares.member_gone)
        self._transactions = TransactionStore(
            storage, clock, self._written, self._groups, self.allocate_producer_id, transaction_settings
        )
        self._upkeep: Upkeep | None = None
        self._tiers: TierJobs | None = None
        if self._written is not None:
            self._tiers = None if self._written.tier is None else TierJobs(self._written, clock)
            self._upkeep = Upkeep(
                self._written,
                clock,
                self._written.checkpoint,
                self._groups,
                self._transactions,
                self._shares,
                self._written.producers,
                background=background,
                compaction_threads=compaction_threads,
                journal=self._written.journal,
                tiers=self._tiers,
            )
            self._written.on_open = self._upkeep.watch
            self._written.on_topics_changed = self._upkeep.topics_changed
            self._groups.on_deadline = self._upkeep.schedule_tick
            self._transactions.on_deadline = self._upkeep.schedule_transactions
            self._shares.on_deadline = self._upkeep.schedule_shares
            self._upkeep.topics_changed()
            self._recover_transactions()

    @classmethod
    def open(
        cls,
        path: str,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        mode: str = "w",
        background: bool = True,
        topic_defaults: Mapping[str, object] | None = None,
        group_settings: GroupSettings | None = None,
        offsets_retention_ms: int = limits.OFFSETS_RETENTION_MS,
        offset_metadata_bytes_max: int = limits.OFFSET_METADATA_BYTES_MAX,
        compaction_threads: int = limits.COMPACTION_THREADS,
        isolation_level: str = READ_UNCOMMITTED,
        init: bool = False,
        transaction_settings: TransactionSettings | None = None,
        journal: bool | JournalSettings = limits.JOURNAL_ENABLED,
        tier: str | TierSettings | None = None,
    ) -> Broker:
        """Open the data directory at `path`, or one in memory for ":memory:".

        With mode "w" it is created if it does not exist; DirectoryLocked names the pid of another writer. A directory
        with other content is refused with DirectoryNotEmpty, unless `init` asks for a log there. `background` false:
        retention, compaction and the like run only on request and by `run_due`. `topic_defaults` are settings for
        topics that do not set them; they are not stored, so the next writer brings its own. `isolation_level` is
        for a directory that Kafka wrote; readers of our own say with each read what they want to see. `journal`: small
        appends of all partitions are synced together, in one; not in memory, where there is nothing to sync. `tier`:
        the URL of the store for sealed segments of topics that use one; None for the one that the directory names.
        """
        if mode not in ("r", "w"):
            raise InvalidArgument(
                f"mode={brief_repr(mode)} is not allowed; it is 'w' to write and read, or 'r' to only read"
            )
        _check_place(path, mode)
        check_isolation_level(isolation_level)
        is_journaled = isinstance(journal, JournalSettings) or journal
        for name, flag in (("background", background), ("init", init), ("journal", is_journaled)):
            if type(flag) is not bool:
                raise InvalidArgument(f"{name}={brief_repr(flag)} is neither True nor False")
        if clock is not None and not (hasattr(clock, "now_ms") and hasattr(clock, "monotonic_ms")):
            raise InvalidArgument(f"clock={brief_repr(clock)} is not a Clock: it has no now_ms() and monotonic_ms()")
        _check_integer("offsets_retention_ms", offsets_retention_ms, 0, None)
        _check_integer("offset_metadata_bytes_max", offset_metadata_bytes_max, 0, None)
        _check_integer("compaction_threads", compaction_threads, 1, limits.COMPACTION_THREADS_MAX)
        defaults = TopicConfig.parse({} if topic_defaults is None else topic_defaults).settings
        if files is None:
            files = _memory_files() if path == MEMORY_PATH else PosixFiles()
        clock = clock or SystemClock()
        tiers = (tier if isinstance(tier, TierSettings) else TierSettings(tier)).checked(files)
        # The root directory keeps its name, and the URL of a store its slashes.
        path = path if is_store_url(path) else path.rstrip("/") or "/"
        storage: Storage
        try:
            if isinstance(files, PosixFiles) and not is_store_url(path):
                path = files.from_root(path)
            if mode == "w":
                kept = _journal_settings(files, journal)
                storage = WrittenStorage(files, path, clock, defaults, init=init, journal=kept, tier=tiers)
            else:
                storage = _read_storage(files, path, clock, isolation_level, tiers)
        except OSError as error:
            raise cannot_open(path, mode, error) from error
        offsets = CommittedOffsets(offset_metadata_bytes_max, offsets_retention_ms)
        return cls(
            storage,
            clock,
            background=background,
            group_settings=group_settings,
            offsets=offsets,
            compaction_threads=compaction_threads,
            transaction_settings=transaction_settings,
        )

    def _recover_transactions(self) -> None:
        try:
            self._transactions.recover()
        except FoldlogError as error:
            # Transactions are refused then, and all else works: committed records end before those in doubt.
            self._storage.report("loading transactions", error)

    @property
    def read_only(self) -> bool:
        return self._written is None

    def hurry_with(self, hurry: Hurry) -> None:
        """Set how a log that is only read asks its writer to sync, before it says where a partition ends."""
        if isinstance(self._storage, FollowedStorage):
            self._storage.hurry = hurry

    def publish_address(self, host: str, port: int) -> None:
        """Publish where other processes on this machine reach this writer: see `data_directory.writer_of`.

        `host` as they reach it, so never 0.0.0.0. Valid until it is withdrawn, or this process ends.
        """
        self._opened_for_writing().publish_address(address_text(host, port))

    def withdraw_address(self) -> None:
        """Publish that this process no longer listens. Closing does so, too."""
        self._opened_for_writing().publish_address(None)

    # --- settings -------------------------------------------------------------------------------------------------

    @property
    def dynamic_settings(self) -> DynamicSettings:
        """What was changed while brokers served this directory. Its meaning is the server's."""
        return self._opened_for_writing().dynamic_settings

    @property
    def access(self) -> AccessStore:
        """Users, ACLs and quotas of this directory. Who enforces them is the server: the library asks nobody."""
        return self._opened_for_writing().access

    def reconfigure(
        self, *, topic_defaults: Mapping[str, str], compaction_threads: int, producer_expiration_ms: int
    ) -> None:
        """Go on with other settings; `topic_defaults` go before those that `open` was given. Not stored."""
        storage = self._opened_for_writing()
        storage.producers.expiration_ms = producer_expiration_ms
        storage.changes.set_defaults(topic_defaults, storage.partitions)
        if self._upkeep is not None:
            self._upkeep.resize_compaction(compaction_threads)
        storage.on_topics_changed()

    # --- topics ---------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> CatalogTopic:
        """Create a topic. Durable on return. Raises TopicExists, with nothing changed, if the name is taken.

        Settings have Kafka's names, see `topics/config.py`.
        """
        self._writable()
        check_user_topic_name(name)
        parsed = DEFAULT_CONFIG if config is None else TopicConfig.parse(config)
        (outcome,) = self.create_topics([NewTopic(name, partitions, parsed)])
        if isinstance(outcome, FoldlogError):
            raise outcome
        return outcome

    def check_new_topics(self, wanted: Sequence[NewTopic]) -> list[FoldlogError | None]:
        """For each topic the error with which `create_topics` would refuse it, as far as known beforehand, or None."""
        storage = self._writable()
        planned = plan_creation(storage.catalog(), wanted)
        return [refusal or self._tier_refusal(new.config) for new, refusal in zip(wanted, planned, strict=True)]

    def _tier_refusal(self, config: TopicConfig) -> FoldlogError | None:
        try:
            check_change(None, config, has_store=self._writable().tier is not None)
        except InvalidConfig as error:
            return error
        return None

    def create_topics(
        self, wanted: Sequence[NewTopic], *, stopped: Stopped = never
    ) -> list[CatalogTopic | FoldlogError]:
        """Create several topics with one change of the catalog; for each the topic or the error. Durable on return. The
        caller has checked the names."""
        storage = self._writable()
        known = storage.catalog().topics
        refusals = [self._tier_refusal(new.config) for new in wanted]
        wanted = [new for new, refusal in zip(wanted, refusals, strict=True) if refusal is None]
        # A crash may have left commits of a deleted topic of that name; they must not become the new one's.
        self._forget_offsets({new.name for new in wanted if new.name not in known})
        outcomes = iter(storage.changes.create_all(wanted, stopped))
        storage.on_topics_changed()
        return [next(outcomes) if refusal is None else refusal for refusal in refusals]

    def delete_topic(self, name: str) -> None:
        """Remove a topic, its records and what groups committed in it. Durable on return.

        Open handles of its partitions raise LogClosed from now on.
        """
        (outcome,) = self.delete_topics([name])
        if outcome is not None:
            raise outcome

    def delete_topics(self, names: Sequence[str], *, stopped: Stopped = never) -> list[FoldlogError | None]:
        """As `delete_topic`, several with one change of the catalog: for each the error, or None if it is deleted."""
        storage = self._writable()
        for name in names:
            # The owner may remove a topic that an older broker let a client make under one of Kafka's own names.
            refuse_own_topic(name, OwnTopicChange.DELETE, own=(OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
            require_text(name)
        outcomes = storage.changes.delete_all(names, storage.partitions, stopped)
        self._forget_offsets({topic.name for topic in outcomes if isinstance(topic, CatalogTopic)})
        storage.on_topics_changed()
        return [outcome if isinstance(outcome, FoldlogError) else None for outcome in outcomes]

    def grow_topic(self, name: str, partitions: int) -> CatalogTopic:
        """Add partitions until there are `partitions`. Durable on return.

        Keys move when the count changes: `CatalogTopic.growths` records where the older partitions ended.
        """
        storage = self._writable()
        refuse_own_topic(name, OwnTopicChange.GROW)

        def durable_end(number: int) -> int:
            partition = storage.writable_partition((name, number))
            end = partition.log_end_offset
            partition.sync()
            return end

        topic = storage.changes.grow(name, partitions, durable_end)
        storage.on_topics_changed()
        return topic

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> CatalogTopic:
        """Change settings; None resets one to its default. Durable on return, and in force."""
        return self.configure_topic(name, lambda config: config.with_changes(changes))

    def configure_topic(
        self, name: str, decide: Callable[[TopicConfig], TopicConfig], *, validate_only: bool = False
    ) -> CatalogTopic:
        """As `alter_topic`, where `decide` maps the present settings to the new ones, with no other change in between.

        With `validate_only` nothing changes: returns the topic as it would be."""
        storage = self._writable()
        refuse_own_topic(name, OwnTopicChange.ALTER)
        has_store = storage.tier is not None

        def checked(config: TopicConfig) -> TopicConfig:
            return check_change(config, decide(config), has_store=has_store)

        topic = storage.changes.configure(name, checked, storage.partitions, validate_only=validate_only)
        storage.on_topics_changed()
        return topic

    def topics(self, include_internal: bool = False) -> list[str]:
        """The topics' names, sorted."""
        self._refuse_closed()
        return sorted(name for name in self._storage.catalog().topics if include_internal or not is_internal(name))

    @property
    def catalog(self) -> Catalog:
        """All topics at this moment: a new object after each change, the same one until then."""
        return self._storage.catalog()

    def topic(self, name: str) -> CatalogTopic:
        """The topic. Raises UnknownTopic if there is none of that name."""
        if self._closed:
            self._refuse_closed()
        if self._written is not None and type(name) is str:
            topic = self._written.changes.catalog.topics.get(name)
            if topic is not None:
                return topic
        return self._storage.topic(name)

    def find_topic(self, name: str) -> CatalogTopic | None:
        """The topic, or None if there is none of that name."""
        return self._storage.catalog().topics.get(name)

    def topic_with_id(self, topic_id: str) -> CatalogTopic | None:
        """The topic of that id, or None if there is none any more. Indexes all topics once after each change."""
        catalog = self._storage.catalog()
        indexed, by_id = self._by_id
        if indexed is not catalog:
            by_id = {topic.topic_id: topic for topic in catalog.topics.values()}
            self._by_id = (catalog, by_id)
        return by_id.get(topic_id)

    def opened_partition(self, topic: str, number: int) -> AnyPartition | None:
        """The partition if it is open already, without waiting; None if it is not open or does not exist."""
        return self._partitions.get((topic, number))

    def opened_partitions(self) -> list[AnyPartition]:
        """All open partitions, without waiting."""
        return self._partitions.opened()

    def overview(self) -> list[PartitionOverview]:
        """The state of every partition, in order of topic and number. Opens none; reads no file but the checkpoint."""
        self._refuse_closed()
        return list(overview(self._storage))

    def partition(self, topic: str, number: int) -> AnyPartition:
        """A partition to read and, unless the log was opened with mode "r", to append to.

        Raises UnknownTopic, UnknownPartition, or CorruptLog for one that cannot be served: the others go on.
        """
        if self._written is None and not self._closed:
            self._storage.catalog()  # looks for changes every now and then, and closes deleted topics
        if type(number) is int and type(topic) is str:  # True is 1 to a dictionary, and no partition
            partition = self._partitions.get((topic, number))
            if partition is not None:
                return partition
        self._refuse_closed()
        return self._storage.partition(topic, number)

    def writable_partition(self, topic: str, number: int) -> Partition:
        """A partition to append to; ReadOnly if the log was opened with mode "r"."""
        partition = self.partition(topic, number)
        if isinstance(partition, Partition):
            return partition
        raise ReadOnly(f"cannot append to the log in {self.path}: {self._storage.how_to_write}")

    def look_again(self) -> None:
        """With mode "r": read the writer's changes of the catalog now rather than a moment later."""
        self._storage.look_again()

    def allocate_producer_id(self, *, nowait: bool = False) -> int:
        """A producer id that was never given out in this directory, and never will be again, even after a crash.

        Most calls are quick; one in a thousand waits for the disk, and raises BlockingIOError with `nowait`.
        """
        storage = self._writable()
        try:
            return storage.producer_ids.allocate(nowait=nowait)
        except BlockingIOError:
            raise
        except OSError as error:
            raise storage_error(f"no producer id can be given out in {self.path}", error) from error

    def _forget_offsets(self, topics: Collection[str]) -> None:
        try:
            if topics:
                self._groups.forget_topics(topics)
                self._shares.forget_deleted()
        except StorageError as error:
            # While the topic of groups is refused, so are groups; changes of topics need not be.
            self._storage.report(f"deleting what was committed in {these_topics([*topics])}", error)

    # --- groups ---------------------------------------------------------------------------------------------------

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator itself, for callers that hold `group_lock`; `coordinator()` also stores its decisions."""
        self._writable()
        return self._groups.loaded_coordinator()

    @property
    def group_lock(self) -> threading.RLock:
        return self._groups.lock

    @contextmanager
    def coordinator(self) -> Iterator[GroupCoordinator]:
        """The group coordinator, locked and up to date with the clock; stores its decisions at the end of the block."""
        self._writable()
        with self._groups.coordinator() as coordinator:
            yield coordinator

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> None:
        """Commit all offsets or none; durable on return. A member of the group gives its id and generation: a commit of
        an older generation is refused with a GroupError, as is one from outside while the group has members.
        """
        self._writable()
        check_offsets(offsets)
        self._groups.commit(group, offsets, member_id=member_id, generation=generation, instance_id=instance_id)

    def begin_commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        acknowledged: Acknowledged,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> None:
        """As `commit_offsets`, without waiting: `acknowledged` is called once, from any thread, with the error or None.

        It may be called under the partition's locks: it must be quick, and must not call the log again.
        """
        self._writable()
        self._groups.begin_commit(
            group, offsets, acknowledged, member_id=member_id, generation=generation, instance_id=instance_id
        )

    def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        with_negative: bool = False,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, for `partitions` or for all; partitions without a commit are left out.

        So are negative offsets, which some clients commit to say that there is none, unless `with_negative`. With
        `require_stable` UnstableOffsets is raised if one of them has a commit in a transaction that is not ended.
        """
        self._refuse_unusable()
        return self._groups.committed(group, partitions, with_negative=with_negative, require_stable=require_stable)

    def unstable_offsets(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> set[TopicPartition]:
        """Of `partitions`, or of all, those in which the group has commits in transactions that are not ended.

        Ask this before `committed`, never after it: a transaction that ends in between is then in what is committed."""
        self._refuse_unusable()
        return self._groups.unstable(group, partitions)

    def commits(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """The group's commits as stored: with the time of each, and with negative offsets."""
        self._refuse_unusable()
        return self._groups.commits(group)

    def group_names(self) -> list[str]:
        """Every group that has members, a generation or committed offsets, in order."""
        return [listing.group for listing in self.list_groups()]

    def list_groups(self) -> list[GroupListing]:
        """Those of `group_names`, with state and protocol type; in a reading process both are as of the last look."""
        self._refuse_unusable()
        return self._groups.list_groups()

    def describe_group(self, group: str) -> GroupSummary:
        """State, protocol and members. An unknown group is Dead."""
        self._refuse_unusable()
        return self._groups.describe_group(group)

    def died_groups(self) -> dict[str, int]:
        """The groups whose last member timed out instead of leaving, since this process was started; and when."""
        with self.coordinator() as coordinator:
            return coordinator.died_groups()

    def evict_members(self, group: str) -> tuple[MemberSummary, ...]:
        """Remove all present members from the group, as Kafka's admin client does. They may join again."""
        with self.coordinator() as coordinator:
            members = coordinator.describe(group).members
            if members:
                coordinator.leave(group, [MemberIdentity(one.member_id, one.group_instance_id) for one in members])
        return members

    def move_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        evict: bool = False,
        on_evicted: Callable[[tuple[MemberSummary, ...]], None] = lambda members: None,
    ) -> None:
        """Commit without being a member; with `evict`, remove all members first, so that none joins again in between.

        Durable on return. One of HAS_MEMBERS where the group has members, or with `evict` still waits for some: those
        who were evicted are gone all the same, and `on_evicted` has heard of them.
        """
        if not evict:
            self.commit_offsets(group, offsets)
            return
        commit_evicting(
            lambda: self.commit_offsets(group, offsets), lambda: self._evict_and_commit(group, offsets, on_evicted)
        )

    def _evict_and_commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_evicted: Callable[[tuple[MemberSummary, ...]], None],
    ) -> None:
        done = threading.Event()
        failures: list[FoldlogError] = []

        def acknowledged(error: FoldlogError | None) -> None:
            if error is not None:
                failures.append(error)
            done.set()

        with self.group_lock:
            on_evicted(self.evict_members(group))
            self.begin_commit_offsets(group, offsets, acknowledged)
        done.wait()  # not under the lock: a sync takes long, and others commit meanwhile
        if failures:
            raise failures[0].with_traceback(None)

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets. Durable on return. Raises UnknownGroup or GroupNotEmpty."""
        self._writable()
        self._groups.delete_group(group)
        self._shares.delete(group)

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's commits in these partitions. Durable on return. Raises GroupNotEmpty while it reads them."""
        self._writable()
        self._groups.delete_offsets(group, partitions)

    def share_offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        """Where a share group is in each partition, and how many records there it has not done with."""
        return {(one.topic, one.partition): (one.start_offset, one.lag) for one in self.shares.describe(group)}

    def move_share_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a share group begin anew at these offsets. Durable on return. Raises GroupNotEmpty if it has members."""
        self._writable()
        with self.group_lock:  # so that nobody joins meanwhile
            if self.describe_group(group).members:
                raise_for(GroupErrorCode.NON_EMPTY_GROUP, group)
            self._shares.alter(group, offsets)

    @property
    def shares(self) -> ShareStore:
        """What share groups do with records; a log that is only read can describe it."""
        self._refuse_unusable()
        return self._shares

    # --- transactions -----------------------------------------------------------------------------------------------

    @property
    def transactions(self) -> TransactionStore:
        """Transactional ids and their transactions; a log that is only read can list and describe them."""
        if self.read_only:
            self._refuse_unusable()
        else:
            self._writable()
        return self._transactions

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def enforce_retention(self, topic: str | None = None) -> int:
        """Remove expired segments now, of one topic or of all; returns how many. Of topics that use a store, sealed
        segments are copied there first: only then may they leave the disk.

        A damaged partition does not stop the others: its error is raised once they are done.
        """
        storage = self._writable()
        topics = [storage.topic(topic)] if topic is not None else list(storage.catalog().topics.values())
        removed = _for_each(plan_retention(topics), lambda key: storage.writable_partition(key).enforce_retention())
        freed = 0 if self._tiers is None else self._tiers.work_now(topic)
        return sum(removed.values()) + freed

    def compact(self, topic: str | None = None, force: bool = True) -> dict[TopicPartition, CompactionReport]:
        """Compact one topic, whatever its policy, or all whose policy says so, now.

        `force` false: only where the dirty ratio and the lag call for it, as in the background. A damaged partition
        does not stop the others: its error is raised once they are done.
        """
        storage = self._writable()
        if topic is not None:
            keys = keys_of(storage.topic(topic))
        else:
            keys = plan_compaction(storage.catalog().topics.values())

        def compacted(key: TopicPartition) -> CompactionReport:
            return self._clean(key, lambda: storage.writable_partition(key).compact(force=force))

        return _for_each(keys, compacted)

    def recompress(self, topic: str, codec: str) -> dict[TopicPartition, RecompressionReport]:
        """Rewrite the records of a topic in another codec, now. Raises InvalidArgument for an unknown codec.

        A damaged partition does not stop the others: its error is raised once they are done.
        """
        storage, wanted = self._writable(), Compression.named(codec)

        def recompressed(key: TopicPartition) -> RecompressionReport:
            return self._clean(key, lambda: storage.writable_partition(key).recompress(wanted))

        return _for_each(keys_of(storage.topic(topic)), recompressed)

    def _clean(self, key: TopicPartition, act: Callable[[], Done]) -> Done:
        try:
            return act()
        finally:
            if self._upkeep is not None:
                self._upkeep.cleaned(key)

    def check_open(self) -> None:
        """Raises LogClosed if it is closed."""
        self._refuse_closed()

    def run_due(self) -> list[Job]:
        """Run the background jobs that are due, on this thread: for a log opened with background=False."""
        self._writable()
        return self._upkeep.run_due() if self._upkeep is not None else []

    def warnings(self) -> list[str]:
        """Warnings for the owner: directories that are not in the catalog, partitions that are refused, background jobs
        that failed. Oldest first, each once."""
        refused = [str(error) for error in self._partitions.refusals()]
        known = self._storage.warnings.texts()
        if self._written is not None and self._written.checkpoint.lost_lock is not None:
            known.append(str(self._written.checkpoint.lost_lock))
        return known + [text for text in refused if text not in known]

    def journal_counts(self) -> JournalCounts:
        """What the journal has done since the directory was opened; nothing where there is none."""
        journal = None if self._written is None else self._written.journal
        return JournalCounts() if journal is None else journal.counts

    def tier_overview(self) -> TierOverview | None:
        """How the store of segments stands, without asking it; None where there is none."""
        if self._tiers is None:
            return None
        return self._tiers.overview(one for one in self.opened_partitions() if isinstance(one, Partition))

    def watch_syncs(self, callback: OnSynced | None) -> None:
        """Call `callback` for every sync of a partition from now on, on the thread that ran or settled it; None to
        stop. It must be quick, and must not call the log."""
        self._opened_for_writing().syncer.on_synced = callback

    def lend_sync_threads(self, threads: DescriptorThreads) -> Callable[[], None] | None:
        """Sync on these threads until `return_sync_threads`. Returns the function to call when one has finished a sync;
        None, with nothing lent, if others are lent already."""
        syncer = self._opened_for_writing().syncer
        return syncer.settle if syncer.lend(threads) else None

    def return_sync_threads(self) -> None:
        """Returns when their syncs are done, and the threads are closed."""
        if self._written is not None:
            self._written.syncer.give_back()

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the background, close every partition so that the next open has nothing to recover, and release the
        directory. Idempotent. In a forked child it touches nothing: everything belongs to the parent.
        """
        if self._storage.files.forked:
            self._closed = True
            self._storage.close()
            return
        with self._closing:
            if self._closed:
                return
            self._closed = True
            if self._upkeep is not None:
                self._upkeep.stop()
            self._transactions.close()
            self._groups.close()
            self._shares.close()
            self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _writable(self) -> WrittenStorage:
        """The storage for a change; raises LockLost if another process may be the writer by now."""
        storage = self._opened_for_writing()
        storage.checkpoint.refuse_if_lost()
        return storage

    def _opened_for_writing(self) -> WrittenStorage:
        self._refuse_unusable()
        if self._written is None:
            raise ReadOnly(f"the log in {self.path} cannot be changed: {self._storage.how_to_write}")
        return self._written

    def _refuse_unusable(self) -> None:
        """Called before any lock is taken: in a forked child, a thread that is not there may hold it."""
        self._refuse_closed()
        if self._storage.files.forked:
            raise WrongProcess(f"the log in {self.path} was opened before a fork; open it again in this process")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise LogClosed(f"the log in {self.path} is closed; open it again")


def _for_each(keys: Iterable[TopicPartition], act: Callable[[TopicPartition], Done]) -> dict[TopicPartition, Done]:
    """Call `act` for all keys, also after a failure; the first error is raised at the end."""
    done: dict[TopicPartition, Done] = {}
    first: StorageError | None = None
    for key in keys:
        try:
            done[key] = act(key)
        except StorageError as error:
            first = first or error
    if first is not None:
        raise first
    return done


# Rarely needed modules are imported on use: without cached bytecode a start compiles every module that it loads.


def _check_integer(name: str, value: object, least: int, most: int | None) -> None:
    if type(value) is int and least <= value and (most is None or value <= most):
        return
    allowed = f"from {least} on" if most is None else f"from {least} to {most}"
    raise InvalidArgument(f"{name}={brief_repr(value)} is not allowed; it is an integer {allowed}")


def _journal_settings(files: Files, journal: bool | JournalSettings) -> JournalSettings | None:
    if isinstance(journal, JournalSettings):
        return journal
    return JournalSettings() if journal and isinstance(files, PosixFiles) else None


def _memory_files() -> Files:
    from foldlog.files.memory import MemoryFiles

    return MemoryFiles()


def _check_place(path: str, mode: str) -> None:
    if not is_store_url(path):
        check_path(path)
    elif mode != "r":
        raise InvalidArgument(f"{path} is a store, which is only read: open it with mode='r'")


def _read_storage(files: Files, path: str, clock: Clock, isolation_level: str, tiers: TierSettings) -> Storage:
    if is_store_url(path):
        from foldlog.broker.stored import StoreStorage

        return StoreStorage(files, tiers._replace(url=path).checked(files), clock)
    kafka = find_kafka(files, path)
    if kafka is None:
        return FollowedStorage(files, path, clock, tiers)
    from foldlog.broker.kafka_files.storage import KafkaStorage

    return KafkaStorage(files, kafka, clock, isolation_level)
