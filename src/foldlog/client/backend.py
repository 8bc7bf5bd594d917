"""What the client needs of a log: the Broker of this process has it, and so has one that another process writes.

Consumers, producers and administration are written against these, so that they do not know which of the two it is.
Reading is always from the files. Nothing here is imported for its code: the remote half, with its sockets and
messages, is loaded by who needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from foldlog.log.partition import Appended, Partition
from foldlog.log.waiting import OnAcknowledged

if TYPE_CHECKING:
    from foldlog.broker.bookmarks import OffsetAndMetadata
    from foldlog.broker.catalog import Topic
    from foldlog.broker.group_messages import GroupDescription
    from foldlog.client.arrivals import AnyPartition
    from foldlog.client.assignments import Member
    from foldlog.client.positions import TopicPartition
    from foldlog.clock import Clock
    from foldlog.errors import FoldlogError
    from foldlog.log.compaction import CompactionReport
    from foldlog.log.recompression import RecompressionReport
    from foldlog.records.loops import Record

OnAppended = Callable[[Appended | None, "FoldlogError | None"], None]
"""Called once: with where the batch went, durably, or with what went wrong."""


class DistantPartition(Protocol):
    """A partition that another process writes. What it answers is durable already."""

    @property
    def label(self) -> tuple[str, int]: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, *buffers: bytearray, trusted: bool = False) -> Appended:
        """Returns once the batches are acknowledged. Not one unit: after an error some of them may be in the log."""
        ...

    def begin_append(self, buffer: bytearray, done: OnAppended) -> None:
        """Send one batch after those begun before it, without waiting. The buffer belongs to the log from here on.

        `done` runs on a thread of the log's, which has more to do: it must be quick. What is wrong already is raised.
        """
        ...

    def delete_records(self, before_offset: int) -> int: ...

    def wait_acknowledged(self, next_offset: int) -> None: ...

    def on_acknowledged(self, next_offset: int, callback: OnAcknowledged) -> None: ...


WritablePartition = Partition | DistantPartition


class Backend(Protocol):
    """A log as the client uses it; see `foldlog.broker.broker.Broker` for what each method promises."""

    @property
    def path(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def read_only(self) -> bool: ...

    def check_open(self) -> None: ...

    def close(self) -> None: ...

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> Topic: ...

    def delete_topic(self, name: str) -> None: ...

    def grow_topic(self, name: str, partitions: int) -> Topic: ...

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> Topic: ...

    def topics(self, include_internal: bool = False) -> list[str]: ...

    def topic(self, name: str) -> Topic: ...

    def partition(self, topic: str, number: int) -> AnyPartition:
        """To read."""
        ...

    def writable_partition(self, topic: str, number: int) -> WritablePartition:
        """To append; ReadOnly where this log cannot."""
        ...

    def compact(self, topic: str | None = None) -> dict[tuple[str, int], CompactionReport]: ...

    def recompress(self, topic: str, codec: str) -> dict[tuple[str, int], RecompressionReport]: ...

    def enforce_retention(self, topic: str | None = None) -> int: ...

    def warnings(self) -> list[str]: ...

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], OffsetAndMetadata],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> None: ...

    def committed(
        self, group: str, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[tuple[str, int], OffsetAndMetadata]: ...

    def group_names(self) -> list[str]: ...

    def describe_group(self, group: str) -> GroupDescription: ...

    def move_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata], *, evict: bool = False
    ) -> None: ...

    def delete_group(self, group: str) -> None: ...

    def delete_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None: ...


class Looked(Protocol):
    """What tells whether there is such a topic, or such a partition: UnknownTopic, UnknownPartition."""

    def topic(self, name: str) -> object: ...

    def partition(self, topic: str, number: int) -> object: ...


class ReadPartition(Protocol):
    """What a consumer asks of a partition that it reads."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None: ...


class ReaderCursor(Protocol):
    """A consumer's place in a partition, see `foldlog.client.cursors.Cursor`."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def log(self) -> ReadPartition: ...

    is_paused: bool

    def seek(self, offset: int) -> None: ...

    def known_position(self) -> int: ...

    def lag(self) -> int: ...


class ReaderBell(Protocol):
    """What wakes a consumer that waits."""

    def ring(self) -> object: ...

    def close(self) -> None: ...


class Reading(Protocol):
    """How a consumer reads: `consumption.Consumption` from a directory, `kafka.consumption` from a cluster."""

    @property
    def arrivals(self) -> ReaderBell: ...

    def subscribe(self, topics: tuple[str, ...]) -> None: ...

    def assign(self, partitions: list[TopicPartition]) -> None: ...

    def let_go(self) -> None: ...

    def assignment(self) -> set[TopicPartition]: ...

    def cursor(self, topic: str, number: int) -> ReaderCursor: ...

    def chosen(self, partitions: list[TopicPartition]) -> Sequence[ReaderCursor]: ...

    def next_records(self, limit: int, timeout_ms: float | None) -> list[Record]: ...

    def next_record(self) -> Record | None: ...

    def count_as_handled(self) -> None: ...

    def count_last_as_handled(self) -> None: ...

    def commit_all(self, metadata: str) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None: ...

    def forked(self) -> None: ...


class GroupMemberships(Protocol):
    """The places of a log's consumers in their groups. Any thread."""

    def join(self, member: Member) -> None:
        """Become a member. On return it holds its share, unless members of other processes are still awaited."""
        ...

    def leave(self, member: Member) -> None:
        """Give everything back."""
        ...

    def abandon(self, member: Member) -> None:
        """Note that a consumer was dropped without being closed. Takes no lock: the garbage collector calls it."""
        ...

    def bury_abandoned(self) -> None:
        """Let members leave whose consumers are gone."""
        ...

    def serve(self, member: Member) -> None:
        """A sign of life, from every poll or so."""
        ...

    def meet_others(self) -> None:
        """Members of other processes can reach the groups from now on."""
        ...

    def commit(self, member: Member, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Durable on return. NotAssigned, and nothing committed, if one of the partitions is not the member's."""
        ...


class RemoteBackend(Backend, Protocol):
    """A log that another process writes."""

    @property
    def bootstrap(self) -> str | None:
        """Where it was served when it was last asked, as "host:port"."""
        ...

    def memberships(self) -> GroupMemberships: ...


class Listener(Protocol):
    """What makes a log reachable for others: the server, which this room does not know."""

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as "host:port"."""
        ...

    def stop(self) -> None:
        """Answer what is under way, and listen no more."""
        ...
