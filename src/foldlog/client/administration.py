"""Topics, groups and upkeep: the part of a Log that is about no record in particular."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.broker.broker import Broker
from foldlog.broker.catalog import Topic
from foldlog.broker.group_messages import check_group_name
from foldlog.broker.topic_names import OwnTopicChange, refuse_own_topic
from foldlog.client.backend import Backend
from foldlog.client.descriptions import ConfigEntry, GroupDescription, config_entries, described_group, not_empty
from foldlog.client.evictions import HAS_MEMBERS
from foldlog.client.lanes import writable_partition
from foldlog.client.positions import Place, TopicPartition, check_one_replica, checked_partitions, resolve_place
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.log.compaction import CompactionReport
from foldlog.log.recompression import RecompressionReport
from foldlog.records.batch import MAX_INT64


class Administration:
    """What a Log can do to its topics and groups. Any thread."""

    def __init__(self, broker: Broker, remote: Backend | None = None) -> None:
        self._read_from = broker
        self._broker: Backend = broker if remote is None else remote

    @property
    def path(self) -> str:
        """The data directory.

        >>> import foldlog
        >>> foldlog.open(":memory:").path
        ':memory:'
        """
        return self._broker.path

    @property
    def broker(self) -> Broker:
        """What the log is made of, for servers and tools that drive it directly.

        Where another process writes the log, it is what reading here is made of, and it refuses to write.
        """
        return self._read_from

    @property
    def directory_id(self) -> str:
        """The id that the directory got when it was made; its broker has it as cluster id.

        >>> import foldlog
        >>> len(foldlog.open(":memory:").directory_id)
        36
        """
        return self._read_from.directory_id

    # --- topics ---------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> Topic:
        """Make a topic. Durable on return; TopicExists, and nothing touched, if there is one of that name.

        Settings have Kafka's names and defaults, `flush.*` apart: unset, every append is synced before it is
        acknowledged. A directory has each record once, so `replication_factor` is 1 here; a cluster takes more.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     log.create_topic("orders", partitions=3, config={"retention.ms": 604_800_000}).partition_count
        3
        """
        check_one_replica(replication_factor)
        return self._broker.create_topic(name, partitions, config)

    def delete_topic(self, name: str) -> None:
        """Remove a topic, its records, and what groups committed in it. Durable on return.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.delete_topic("orders")
        ...     log.topics()
        []
        """
        self._broker.delete_topic(name)

    def grow_topic(self, name: str, partitions: int) -> Topic:
        """Add partitions until there are `partitions`. Durable on return. Keys move: order per key starts anew.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.grow_topic("orders", 3).partition_count
        3
        """
        return self._broker.grow_topic(name, partitions)

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> Topic:
        """Change settings; None puts one back to its default. Durable on return, and in force.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.alter_topic("orders", {"retention.ms": 1000}).config.log.retention_ms
        1000
        """
        return self._broker.alter_topic(name, changes)

    def topics(self, include_internal: bool = False) -> list[str]:
        """Their names, in order.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.topics()
        ['orders']
        """
        return self._broker.topics(include_internal)

    def topic(self, name: str) -> Topic:
        """A topic's id, partition count and settings; UnknownTopic if there is none of that name.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", partitions=3)
        ...     log.topic("orders").partition_count
        3
        """
        return self._broker.topic(name)

    def topic_config(self, name: str) -> dict[str, ConfigEntry]:
        """Every setting in force, by Kafka's name, and whether the topic itself sets it.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", config={"retention.ms": 1000})
        ...     log.topic_config("orders")["retention.ms"], log.topic_config("orders")["segment.ms"]
        (ConfigEntry(value='1000', is_default=False), ConfigEntry(value='604800000', is_default=True))
        """
        return config_entries(self._broker.topic(name).config)

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Per partition the log start offset and the high watermark: what can be read is [start, end).

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", partitions=2)
        ...     _ = log.append("orders", "paid", partition=1)
        ...     log.offsets("orders")
        {0: (0, 0), 1: (0, 1)}
        """
        found: dict[int, tuple[int, int]] = {}
        for number in self._broker.topic(topic).held_partitions:
            log = self._broker.partition(topic, number)
            end = log.high_watermark
            found[number] = (min(log.log_start_offset, end), end)
        return found

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        """Per partition the offset of the first record at or after `timestamp_ms`; None where there is none.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", partitions=2)
        ...     _ = [log.append("orders", str(ms), partition=0, timestamp_ms=ms) for ms in (1000, 2000)]
        ...     log.offsets_at("orders", timestamp_ms=1500)
        {0: 1, 1: None}
        """
        if type(timestamp_ms) is not int or not -MAX_INT64 <= timestamp_ms <= MAX_INT64:
            raise InvalidArgument(
                f"timestamp_ms {brief_repr(timestamp_ms)} is not a time: an int, milliseconds since 1970, below 2**63"
            )
        found: dict[int, int | None] = {}
        for number in self._broker.topic(topic).held_partitions:
            hit = self._broker.partition(topic, number).offset_at_time(timestamp_ms)
            found[number] = None if hit is None else hit[0]
        return found

    def delete_records(self, topic: str, before: Mapping[int, Place]) -> dict[int, int]:
        """Delete everything below an offset, per partition, for good; "end" means all. Answers the new log starts.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     log.delete_records("orders", {0: 2})
        {0: 2}
        """
        if not isinstance(before, Mapping):
            raise InvalidArgument(f"delete_records() takes a dict such as {{0: 'end'}}, not {brief_repr(before)}")
        refuse_own_topic(topic, OwnTopicChange.DELETE_RECORDS)
        wanted = {
            number: resolve_place(self._broker.partition(topic, number), at, "before") for number, at in before.items()
        }
        return {
            number: writable_partition(self._broker, topic, number).delete_records(at) for number, at in wanted.items()
        }

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def compact(self, topic: str | None = None) -> dict[TopicPartition, CompactionReport]:
        """Keep only the newest record of each key, now: in one topic, or in all whose cleanup.policy says so.

        The active segment is never touched; offsets stay what they were.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("prices", config={"cleanup.policy": "compact", "foldlog.segment.records": 1})
        ...     _ = [log.append("prices", str(n), key="tea") for n in range(3)]
        ...     _ = log.compact("prices")
        ...     [record.value for record in log.read("prices")]
        [b'2']
        """
        reports = self._broker.compact(topic)
        return {TopicPartition(*partition): report for partition, report in reports.items()}

    def recompress(self, topic: str, codec: str) -> dict[TopicPartition, RecompressionReport]:
        """Store what a topic holds now in another codec, batch by batch, where that makes a batch smaller.

        `codec` as compression.type spells it: gzip, snappy, lz4, zstd, or none. Records, offsets and what producers
        are known by stay what they were; a crash leaves each segment as it was or as it is to be. Compressed is what
        is there; what comes is compressed by who sends it, or by the topic's compression.type.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = log.append("orders", "paid " * 1000)
        ...     report = log.recompress("orders", "zstd")["orders", 0]
        ...     report.batches_rewritten, report.bytes_after < report.bytes_before / 10
        (1, True)
        """
        reports = self._broker.recompress(topic, codec)
        return {TopicPartition(*partition): report for partition, report in reports.items()}

    def enforce_retention(self, topic: str | None = None) -> int:
        """Remove segments beyond retention.bytes or retention.ms now, in one topic or in all; returns how many.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", config={"retention.bytes": 0, "foldlog.segment.records": 1})
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     _ = log.enforce_retention()
        ...     log.offsets("orders")[0][1]
        3
        """
        return self._broker.enforce_retention(topic)

    def warnings(self) -> list[str]:
        """What the owner should know: unknown directories, refused partitions, background work that failed.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     log.warnings()
        []
        """
        return self._broker.warnings()

    # --- groups ---------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Every group that has members or committed offsets, in order.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.consumer(["orders"], group="fraud"):
        ...         log.groups()
        ['fraud']
        """
        return self._broker.group_names()

    def describe_group(self, group: str) -> GroupDescription:
        """State, protocol and members; UnknownGroup if it has neither members nor committed offsets.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.consumer(["orders"], group="fraud"):
        ...         log.describe_group("fraud").members[0].assignment
        (TopicPartition(topic='orders', partition=0),)
        """
        return described_group(self._broker.describe_group(check_group_name(group)))

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, durably. Works in reading processes too.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     log.committed("nobody")
        {}
        """
        return {TopicPartition(*partition): place for partition, place in self._broker.committed(group).items()}

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets lie between what a group has committed and the end, per partition it has committed in.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.reset_group("fraud", {("orders", 0): "start"})
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     log.lag("fraud")
        {TopicPartition(topic='orders', partition=0): 3}
        """
        return {
            partition: max(0, self._broker.partition(*partition).high_watermark - place.offset)
            for partition, place in sorted(self.committed(group).items())
        }

    def reset_group(self, group: str, offsets: Mapping[tuple[str, int], Place]) -> None:
        """Move a group without members: the next that joins reads on from these offsets. Durable on return.

        GroupNotEmpty, which names them, while it has members: they would overwrite it with their own next commit.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = log.append("orders", "paid")
        ...     log.reset_group("fraud", {("orders", 0): "end"})
        ...     log.committed("fraud")["orders", 0].offset
        1
        """
        self.move_group(group, offsets)

    def move_group(self, group: str, offsets: Mapping[tuple[str, int], Place], *, evict: bool = False) -> None:
        """Move a group; with `evict` also one that has members, who are made to leave and come back at these offsets.

        Durable on return. Without `evict`, GroupNotEmpty names the members. With it they lose their places, notice at
        their next poll or heartbeat, join again and read on from here; what they then commit of their old places is
        refused. GroupNotEmpty after all, if they come back before the commit again and again.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     with log.consumer(["orders"], group="fraud") as consumer:
        ...         log.move_group("fraud", {("orders", 0): 1}, evict=True)
        ...         [record.value for record in consumer.poll(timeout_ms=10_000)]
        [b'1', b'2']
        """
        places = self._resolved(group, offsets)
        try:
            self._broker.move_offsets(group, places, evict=evict)
        except HAS_MEMBERS as error:
            raise not_empty(group, self.describe_group(group).members) from error

    def _resolved(
        self, group: str, offsets: Mapping[tuple[str, int], Place]
    ) -> dict[tuple[str, int], OffsetAndMetadata]:
        check_group_name(group)
        if not isinstance(offsets, Mapping):
            raise InvalidArgument(
                f"a group is moved to a dict such as {{('orders', 0): 'start'}}, not to {brief_repr(offsets)}"
            )
        places: dict[tuple[str, int], OffsetAndMetadata] = {}
        for partition in checked_partitions(offsets):
            log = self._broker.partition(*partition)
            places[partition] = OffsetAndMetadata(resolve_place(log, offsets[partition], "offset"), log.leader_epoch)
        return places

    def delete_group(self, group: str) -> None:
        """Forget a group without members, and all it committed. Durable on return; UnknownGroup, GroupNotEmpty.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.reset_group("fraud", {("orders", 0): "start"})
        ...     log.delete_group("fraud")
        ...     log.groups()
        []
        """
        self._broker.delete_group(check_group_name(group))

    def delete_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget what a group committed in these partitions. Durable on return; UnknownGroup, and GroupNotEmpty while
        it reads them.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.reset_group("fraud", {("orders", 0): "start"})
        ...     log.delete_offsets("fraud", [("orders", 0)])
        ...     log.committed("fraud")
        {}
        """
        self._broker.delete_offsets(check_group_name(group), checked_partitions(partitions))
