"""The Backend contract: what a Log, its producers and its consumers ask of where the log is.

There are three. `local`: this process writes the directory. `served`: another process writes it; reading is from the
files, everything else is asked of that process. `cluster`: Apache Kafka, or any broker, over the network. The first two
are a `DirectoryBackend` over a `DirectoryBroker`: the Broker of this process, or one that asks the writer.

Nothing here is imported for its code: what has sockets, messages or librdkafka is loaded by who needs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from foldlog.client.positions import Bounded
from foldlog.log.durability import OnAcknowledged
from foldlog.log.partition import Appended, OnAppended, Partition

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.broker.groups import messages as group_messages
    from foldlog.broker.groups.committed import OffsetAndMetadata
    from foldlog.broker.topics.catalog import CatalogTopic
    from foldlog.client.access import AccessAdmin
    from foldlog.client.consumer.arrivals import AnyPartition
    from foldlog.client.consumer.assignments import Member, Since
    from foldlog.client.consumer.settings import ConsumerSettings
    from foldlog.client.descriptions import ConfigEntry, GroupDescription, OpenProducer, Topic, TransactionDescription
    from foldlog.client.handle_types import RecordMetadata, SendFuture
    from foldlog.client.log import Log
    from foldlog.client.outgoing import Outgoing
    from foldlog.client.positions import GroupOffsets, Place, TopicPartition
    from foldlog.client.producer import ProducerSettings
    from foldlog.client.queue.queue import QueueSettings, Taking
    from foldlog.client.reader import ReadRequest
    from foldlog.clock import Clock
    from foldlog.log.compaction import CompactionReport
    from foldlog.log.doctor.recompression import RecompressionReport
    from foldlog.records.loops import Record


def backend_of(log: Log) -> Backend:
    """What a log is made of, for the parts of foldlog that drive it directly."""
    return log._backend


class Backend(ABC):
    """Where a log is, as `Log` uses it, which checks the arguments and says what each method promises. Any thread."""

    LIMITS: ClassVar[Mapping[str, str]] = {}
    """What this kind of backend cannot do: a method of Log, or of what it opens ("Queue.renew"), and the sentence that
    its ReadOnly says. docs/clusters.md has them as a table, written by scripts/write_backends_table.py."""

    clock: Clock

    @property
    @abstractmethod
    def path(self) -> str:
        """The directory, or the URL without its properties."""

    @property
    @abstractmethod
    def directory_id(self) -> str:
        """What tells this log from every other."""

    @property
    @abstractmethod
    def bootstrap(self) -> str | None:
        """Where Kafka clients reach it; None if nobody listens."""

    @property
    @abstractmethod
    def is_remote(self) -> bool:
        """Whether other processes write it."""

    @abstractmethod
    def check_usable(self) -> None:
        """LogClosed after `close`, WrongProcess in a forked child."""

    # --- records --------------------------------------------------------------------------------------------------

    @abstractmethod
    def append(self, topic: str, record: Outgoing) -> RecordMetadata:
        """One record, acknowledged on return."""

    @abstractmethod
    def sender(self, settings: ProducerSettings) -> Sender:
        """What a new producer sends with."""

    @abstractmethod
    def transactions(self, transactional_id: str) -> TransactionSession:
        """What transactions with that id go through. Asks nothing yet."""

    @abstractmethod
    def append_table(
        self, topic: str, table: pa.Table | pa.RecordBatch, compression: int, batch_bytes: int
    ) -> dict[int, tuple[int, int]]:
        """Every row, acknowledged on return; per partition the first offset, and one past the last."""

    @abstractmethod
    def reading(self, settings: ConsumerSettings) -> Reading:
        """What a new consumer reads with."""

    @abstractmethod
    def taking(self, settings: QueueSettings) -> Taking:
        """Join the share group, to take records from then on."""

    @abstractmethod
    def read(
        self, topic: str, partition: int | None, request: ReadRequest, *, follow: bool, timeout_ms: float | None
    ) -> Generator[Record, None, None]:
        """The records of one partition; what "start" and "end" are is looked up before this returns."""

    @abstractmethod
    def read_table(
        self,
        topic: str,
        partitions: Iterable[int] | None,
        start: Mapping[int, Place] | Place | None,
        stop: Mapping[int, Place] | Place | None,
        columns: Sequence[str],
        committed: bool | None,
    ) -> pa.Table:
        """A range of these partitions, or of all. `committed` as `isolation.checked_isolation` gives it."""

    # --- topics ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, object] | None, replication_factor: int | None
    ) -> Topic: ...

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def grow_topic(self, name: str, partitions: int) -> Topic: ...

    @abstractmethod
    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> Topic: ...

    @abstractmethod
    def topics(self, include_internal: bool) -> list[str]: ...

    @abstractmethod
    def topic(self, name: str) -> Topic: ...

    @abstractmethod
    def topic_config(self, name: str) -> dict[str, ConfigEntry]: ...

    @abstractmethod
    def check_topic(self, name: str) -> None:
        """UnknownTopic if there is none of that name."""

    @abstractmethod
    def check_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """UnknownTopic, UnknownPartition, if there is not each of these."""

    @abstractmethod
    def bounds(self, partitions: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], LedPartition]:
        """Where each of these, which there are, begins and ends."""

    @abstractmethod
    def offsets(self, topic: str, committed: bool | None) -> dict[int, tuple[int, int]]: ...

    @abstractmethod
    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]: ...

    @abstractmethod
    def delete_records(self, topic: str, before: Mapping[int, Place]) -> dict[int, int]: ...

    # --- upkeep ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def compact(self, topic: str | None) -> dict[tuple[str, int], CompactionReport]: ...

    @abstractmethod
    def recompress(self, topic: str, codec: str) -> dict[tuple[str, int], RecompressionReport]: ...

    @abstractmethod
    def enforce_retention(self, topic: str | None) -> int: ...

    @abstractmethod
    def warnings(self) -> list[str]: ...

    # --- groups ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def groups(self) -> list[str]: ...

    @abstractmethod
    def describe_group(self, group: str) -> GroupDescription:
        """UnknownGroup if it has neither members nor committed offsets."""

    @abstractmethod
    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]: ...

    @abstractmethod
    def share_offsets(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        """Where a share group is in each partition, and how many records there it has not done with."""

    @abstractmethod
    def move_share_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a share group begin anew at these offsets. Durable on return; one of HAS_MEMBERS if it has members."""

    def members_begin(self, group: str) -> Mapping[tuple[str, int], int]:
        """Where this log's own members begin that read from the end on, if nothing is committed there. Not known of a
        cluster's, which begin on their own."""
        return {}

    @abstractmethod
    def move_group(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, evict: bool) -> None:
        """Commit as nobody's member, with `evict` after sending the members away; one of HAS_MEMBERS while
        there are some."""

    @abstractmethod
    def delete_group(self, group: str) -> None: ...

    @abstractmethod
    def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> None: ...

    # --- transactions, for operators ------------------------------------------------------------------------------

    @abstractmethod
    def list_transactions(self) -> list[TransactionDescription]:
        """Every transactional id, in order."""

    @abstractmethod
    def abort_transaction(self, found: TransactionDescription) -> None:
        """Abort the open transaction of an id, and fence its producer."""

    @abstractmethod
    def open_producers(self, topic: str, number: int) -> list[OpenProducer]:
        """Whose transactions are open in a partition, the oldest first; also where no coordinator knows of them."""

    @abstractmethod
    def abort_in_partition(self, topic: str, number: int, producer: OpenProducer) -> None:
        """End a transaction in one partition as aborted, whatever its coordinator says."""

    # --- who may do what ------------------------------------------------------------------------------------------

    @abstractmethod
    def access(self) -> AccessAdmin:
        """Its users, ACLs and quotas. Asks nothing yet."""

    # --- closing --------------------------------------------------------------------------------------------------

    def stop_listening(self) -> None:  # noqa: B027 most have no listener
        """Nobody else is let in any more: comes before producers and consumers are closed."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. Idempotent."""


class LedPartition(Bounded, Protocol):
    """Where a partition begins and ends, and in which epoch of its leader."""

    @property
    def leader_epoch(self) -> int: ...


class Sender(Protocol):
    """How a producer sends: in batches of our own to a directory, through librdkafka to a cluster. Any thread."""

    def enqueue(
        self,
        topic: str,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        partition: int | None,
    ) -> SendFuture:
        """Put a record on its way. Blocks only while too much is; raises at once what cannot work."""
        ...

    def checker(self, topic: str) -> Callable[[Outgoing], None]:
        """What raises for a record that `enqueue` would refuse; UnknownTopic if there is no such topic."""
        ...

    def flush(self) -> None:
        """Returns once everything sent so far is acknowledged; raises the first error since the last flush."""
        ...

    def close(self) -> None:
        """Flush, then refuse further records. Idempotent."""
        ...


class BegunTransaction(Protocol):
    """A transaction that was begun. `sender` takes records from any thread; one thread ends it."""

    is_over: bool

    @property
    def sender(self) -> Sender: ...

    def commit_offsets(self, wanted: GroupOffsets) -> None:
        """They count when the transaction is committed."""
        ...

    def commit(self) -> None:
        """Everything that was sent, then the transaction. If a record failed it is aborted, and that error raised;
        ProducerFenced if the transactional id has another holder."""
        ...

    def abort(self) -> None:
        """Also if it was aborted already, by another holder of the id."""
        ...


class TransactionSession(Protocol):
    """One transactional id, as a log holds it. One transaction at a time."""

    def begin(self, timeout_ms: int, settings: ProducerSettings) -> BegunTransaction:
        """The first call makes this log the id's holder: an earlier one is fenced, and what it left open aborted. After
        an error it goes on being it; ProducerFenced if another one came since."""
        ...

    def close(self) -> None: ...


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


class DirectoryBroker(Protocol):
    """A directory as the client uses it; see `foldlog.broker.broker.Broker` for what each method promises."""

    @property
    def path(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def read_only(self) -> bool: ...

    def check_open(self) -> None: ...

    def close(self) -> None: ...

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> CatalogTopic: ...

    def delete_topic(self, name: str) -> None: ...

    def grow_topic(self, name: str, partitions: int) -> CatalogTopic: ...

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> CatalogTopic: ...

    def topics(self, include_internal: bool = False) -> list[str]: ...

    def topic(self, name: str) -> CatalogTopic: ...

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

    def unstable_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]] | None = None
    ) -> set[tuple[str, int]]: ...

    def group_names(self) -> list[str]: ...

    def describe_group(self, group: str) -> group_messages.GroupSummary: ...

    def move_share_group(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None: ...

    def share_offsets(
        self, group: str
    ) -> Mapping[TopicPartition, tuple[int, int]] | Mapping[tuple[str, int], tuple[int, int]]: ...

    def move_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata], *, evict: bool = False
    ) -> None: ...

    def delete_group(self, group: str) -> None: ...

    def delete_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None: ...


class ReadPartition(Protocol):
    """What a consumer asks of a partition that it reads."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def acknowledged_end(self) -> int:
        """Where it ends now, with all that was acknowledged before the call."""
        ...

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None: ...


class ReaderCursor(Protocol):
    """A consumer's position in a partition, see `foldlog.client.consumer.cursors.Cursor`."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def log(self) -> ReadPartition: ...

    is_paused: bool

    def seek(self, offset: int) -> None: ...

    def known_position(self) -> int: ...

    def lag(self) -> int: ...


class Waker(Protocol):
    """What wakes a consumer that waits."""

    def ring(self) -> object: ...

    def close(self) -> None: ...


class Reading(Protocol):
    """How a consumer reads: `Consumption` from a directory; from a cluster `LibraryConsumption` with a group, and
    `DirectConsumption` without one."""

    @property
    def arrivals(self) -> Waker: ...

    def is_cut_off(self) -> bool:
        """Whether nobody answers whom it reads from."""
        ...

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

    def group_offsets(self) -> GroupOffsets:
        """Where it stands, to commit in a transaction. NotAssigned if it has handed out records of a partition that it
        has lost; InvalidArgument without a group, or if it commits by itself."""
        ...

    def count_as_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A transaction has committed these."""
        ...

    def commit_all(self, metadata: str) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None: ...

    def forked(self) -> None:
        """In a forked child, before anything else."""
        ...


class GroupMemberships(Protocol):
    """The memberships of a log's consumers in their groups. Any thread."""

    def begins(self, group: str) -> Mapping[TopicPartition, int]:
        """Where the members here begin that read from the end on, if nothing is committed there."""
        ...

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

    def commit(
        self,
        member: Member,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        since: Mapping[TopicPartition, Since],
    ) -> None:
        """Durable on return. NotAssigned, and nothing committed, if one of the partitions is not the member's, or is so
        again, but not without a break from when `since` names. If the group does not know the member any more, it is
        asked soon, so that the member joins again."""
        ...


class LogListener(Protocol):
    """What makes a log reachable for others: the server, which this room does not know."""

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as "host:port"."""
        ...

    def stop(self) -> None:
        """Answer what is under way, and listen no more."""
        ...
