"""The Log: one log as a program uses it, wherever it is. `foldlog.open` and `foldlog.connect` return one.

A Log checks arguments, documents what each call promises, and keeps track of its producers and consumers. Its backend
does the work: see `backends/backend.py` for the contract, and for the three kinds.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.eviction import HAS_MEMBERS
from foldlog.broker.groups.lag import partition_lags
from foldlog.broker.groups.messages import GroupType, check_group_name
from foldlog.broker.storage import READ_COMMITTED, READ_UNCOMMITTED
from foldlog.client.backends.backend import Backend, Sender
from foldlog.client.consumer.consumer import Consumer, checked_topics
from foldlog.client.consumer.settings import ConsumerSettings
from foldlog.client.descriptions import ConfigEntry, GroupDescription, Topic, not_empty
from foldlog.client.groups import is_of_a_queue, not_of_a_queue, resolve_offsets
from foldlog.client.handle_types import RecordMetadata, wall_ms
from foldlog.client.isolation import checked_isolation
from foldlog.client.outgoing import Headers, Outgoing, Partitioner, checked_headers, checked_timestamp
from foldlog.client.positions import (
    Place,
    TopicPartition,
    checked_count,
    checked_partitions,
    checked_timeout_ms,
)
from foldlog.client.producer import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_RECORDS,
    DEFAULT_LINGER_MS,
    Producer,
    ProducerSettings,
)
from foldlog.client.queue.queue import Queue, QueueSettings, Taking, check_reset
from foldlog.client.reader import ReadRequest
from foldlog.client.serializers import Deserializer, Serializer, deserializer, serialized
from foldlog.client.transactions import DEFAULT_TIMEOUT_MS, Transaction, TransactionSessions
from foldlog.clock import Clock, SystemClock
from foldlog.errors import DirectoryLocked, FoldlogError, InvalidArgument, UnknownGroup, brief_repr
from foldlog.files.base import Files
from foldlog.files.paths import PathLike, as_text
from foldlog.limits import ARROW_BATCH_BYTES, JOURNAL_ENABLED, PRODUCER_BUFFER_BYTES
from foldlog.log.compaction import CompactionReport
from foldlog.log.doctor.recompression import RecompressionReport
from foldlog.records.batch import MAX_INT64, Compression
from foldlog.records.loops import Record

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
)


def open_log(
    path: str | PathLike[str],
    mode: str = "w",
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    background: bool = True,
    isolation_level: str = READ_UNCOMMITTED,
    init: bool = False,
    journal: bool = JOURNAL_ENABLED,
    tier: str | None = None,
) -> Log:
    """`foldlog.open` without its listener: see there."""
    from foldlog.client.backends.local import LocalBackend

    plain = as_text(path)
    committed = isolation_level == READ_COMMITTED
    try:
        broker = Broker.open(
            plain,
            files=files,
            clock=clock,
            mode=mode,
            background=background,
            isolation_level=isolation_level,
            init=init,
            journal=journal,
            tier=tier,
        )
    except DirectoryLocked as error:
        if error.address is None:
            raise
        # Read beside the writer, and ask it for everything else.
        from foldlog.client.backends.served.backend import open_served

        return Log(open_served(plain, files, clock, error.address, committed=committed))
    return Log(LocalBackend(broker, files, committed=committed))


def open_shared(path: str | PathLike[str]) -> Log:
    """The log of an existing directory, without becoming its writer: reads come from the files; each call that writes
    goes to the process that writes the directory, if it listens, or takes the lock for the duration of the call.

    Raises LogNotFound if there is no log. If the writer does not listen, only calls that write raise DirectoryLocked.

    >>> import tempfile, foldlog
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with foldlog.open(path) as log:
    ...         _ = log.create_topic("orders")
    ...     with open_shared(path) as one, open_shared(path) as other:
    ...         _ = one.append("orders", "paid")
    ...         other.append("orders", "shipped").offset
    1
    """
    from foldlog.client.backends.served.backend import open_served

    return Log(open_served(as_text(path), None, None, None))


def connect_log(url: str, properties: Mapping[str, object] | None = None) -> Log:
    """`foldlog.connect`: see there."""
    from foldlog.client.backends.cluster.backend import connect_cluster

    return Log(connect_cluster(url, properties))


class Log:
    """Topics, records and groups of one log: in a directory, or on a Kafka cluster. Any thread may call it; use it in a
    `with` block, or close it.

    It does the same wherever the log is. "Durable on return" is synced to the disk for a directory, and acknowledged by
    the in-sync replicas for a cluster. What it cannot do there raises ReadOnly, which says why; docs/clusters.md has
    the table, and where else a directory and a cluster differ.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     _ = log.create_topic("orders", partitions=1)
    ...     log.append("orders", "paid", key="tx_001", timestamp_ms=5)
    RecordMetadata(topic='orders', partition=0, offset=0, timestamp_ms=5)
    """

    def __init__(self, backend: Backend) -> None:
        """Use `foldlog.open` or `foldlog.connect`."""
        if not isinstance(backend, Backend):
            raise InvalidArgument(
                f"Log({brief_repr(backend)}) opens nothing; use foldlog.open(path) for a directory, or"
                " foldlog.connect('kafka://host:9092') for a cluster"
            )
        self._backend = backend
        self._now_ms = wall_ms if type(backend.clock) is SystemClock else backend.clock.now_ms
        # Not the producers: records sent through one that is no longer referenced are written all the same.
        self._transactions = TransactionSessions(backend)
        self._senders: weakref.WeakSet[Sender] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self._queues: weakref.WeakSet[Queue] = weakref.WeakSet()
        self._dropped: deque[Taking] = deque()  # of queues that nobody closed: they leave with the next call

    @property
    def path(self) -> str:
        """The data directory; of a cluster its URL, without the properties: passwords are among them.

        >>> import foldlog
        >>> foldlog.open(":memory:").path
        ':memory:'
        """
        return self._backend.path

    @property
    def directory_id(self) -> str:
        """The id that the directory got when it was made; its broker has it as cluster id. Of a cluster, the cluster's.

        >>> import foldlog
        >>> len(foldlog.open(":memory:").directory_id)
        36
        """
        return self._backend.directory_id

    @property
    def bootstrap(self) -> str | None:
        """Where Kafka clients reach this log, as "host:port" or "host:port,host2:port"; None if it does not listen.

        >>> import foldlog
        >>> with foldlog.open(":memory:", listen=True) as log:
        ...     log.bootstrap.startswith("127.0.0.1:")
        True
        """
        return self._backend.bootstrap

    @property
    def is_remote(self) -> bool:
        """Whether another process writes this log on behalf of this one; always true for a cluster.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     log.is_remote
        False
        """
        return self._backend.is_remote

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Append one record. Returns once fdatasync has covered it (concurrent callers share syncs), or a cluster has
        acknowledged it.

        Bytes are stored as they are, str as UTF-8, dict, list and numbers as JSON, None as a tombstone. For many
        records use a producer: one sync then serves a whole batch. On a cluster acks is all unless the URL says
        otherwise; with acks=0 there is no acknowledgement, and the offset is -1.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.append("orders", {"amount_paise": 1999900}, key="tx_001", headers={"source": "web"}).offset
        0
        """
        return self._backend.append(
            topic,
            Outgoing(
                self._now_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms),
                key if key is None or type(key) is bytes else serialized(None, key, "key", topic),
                value if type(value) is bytes else serialized(None, value, "value", topic),
                checked_headers(headers) if headers else (),
                partition,
            ),
        )

    def producer(
        self,
        *,
        linger_ms: float = DEFAULT_LINGER_MS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        batch_records: int = DEFAULT_BATCH_RECORDS,
        buffer_bytes: int = PRODUCER_BUFFER_BYTES,
        compression: str = "none",
        partitioner: Partitioner | str | None = None,
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
    ) -> Producer:
        """A producer: sends records in batches, and gives a future for each.

        A batch closes `linger_ms` after its first record, or when it holds `batch_bytes` or `batch_records`. With
        `linger_ms=0` it closes as soon as the producer's thread gets to it; records sent meanwhile share it. `send`
        waits while `buffer_bytes` are on their way to the disk; open batches come on top of that.
        `compression` is none, gzip, snappy, lz4 or zstd. `partitioner` is "sticky" (the default: keyless records stay
        with a partition until its batch closes), "round_robin", or a callable(topic, key, partition_count) that also
        decides for keyed ones. Serializers are callables or "json", "str", "bytes".

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.producer(linger_ms=10, batch_records=1000, compression="zstd") as producer:
        ...         producer.send("orders", value=b"...", key=b"k").result().offset
        0
        """
        self._backend.check_usable()
        settings = ProducerSettings(linger_ms, batch_bytes, batch_records, buffer_bytes, compression, partitioner)
        sender = self._backend.sender(settings)
        self._senders.add(sender)
        return Producer(sender, self._now_ms, key_serializer, value_serializer)

    def transaction(
        self,
        transactional_id: str,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        linger_ms: float = DEFAULT_LINGER_MS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        batch_records: int = DEFAULT_BATCH_RECORDS,
        buffer_bytes: int = PRODUCER_BUFFER_BYTES,
        compression: str = "none",
        partitioner: Partitioner | str | None = None,
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
    ) -> Transaction:
        """Begin a transaction, to use in a `with` block: leaving it commits, an exception aborts.

        `transactional_id` names who writes, over restarts: "orders-etl", or one for each of several workers. The first
        use in a log makes it the id's one holder: a holder before it, in any process, gets ProducerFenced from then on,
        and what that one left open is aborted. A log has one transaction of an id open at a time. After `timeout_ms`
        the log aborts by itself a transaction that is still open. The other settings are those of `producer`.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.transaction("orders-etl") as tx:
        ...         _ = tx.send("orders", "paid", key="tx_001")
        ...         _ = tx.send("orders", "shipped", key="tx_001")
        ...     [record.value for record in log.read("orders", isolation="read_committed")]
        [b'paid', b'shipped']
        """
        self._backend.check_usable()
        checked_count("timeout_ms", timeout_ms)
        settings = ProducerSettings(linger_ms, batch_bytes, batch_records, buffer_bytes, compression, partitioner)
        return self._transactions.begin(transactional_id, timeout_ms, settings, (key_serializer, value_serializer))

    def append_arrow(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        *,
        compression: str = "none",
        batch_bytes: int = ARROW_BATCH_BYTES,
    ) -> dict[int, tuple[int, int]]:
        """Append the rows of an Arrow table. Durable on return; per partition the first offset and one past the last.

        `value` is required; `key`, `headers`, `timestamp` and `partition` are used if present; `topic`, `offset` and
        `timestamp_type` are ignored, so that a table that was read can be appended; another column is refused rather
        than lost. Rows go to their `partition`, else by key, else in chunks to one partition after the other. Not a
        transaction: after an error (a full disk) the rows of some chunks may be in the log. On a cluster others may
        append meanwhile, so that these offsets may hold records of theirs.

        >>> import foldlog, pyarrow
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.append_arrow("orders", pyarrow.table({"key": ["a", "b"], "value": ["1", "2"]}))
        {0: (0, 2)}
        """
        codec = int(Compression.named(compression))
        return self._backend.append_table(topic, table, codec, checked_count("batch_bytes", batch_bytes))

    # --- reading ------------------------------------------------------------------------------------------------------

    def consumer(
        self,
        topics: Iterable[str] | str | None = None,
        group: str | None = None,
        *,
        auto_offset_reset: str = "latest",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        assignor: str | None = None,
        max_records: int = 500,
        key_deserializer: Deserializer | str | None = None,
        value_deserializer: Deserializer | str | None = None,
        max_poll_interval_ms: int = 300_000,
        group_instance_id: str | None = None,
        isolation: str | None = None,
    ) -> Consumer:
        """A consumer of these topics: alone, or as a member of `group`.

        `auto_offset_reset` says where to begin without a commit, or when the log no longer holds the offset:
        "latest" (the default), "earliest", or "none" for OffsetOutOfRange. `auto_commit` matters with a group only.
        `assignor` is "sticky" (the default: a rebalance moves as few partitions as it can), "range" or "roundrobin";
        on a cluster "sticky" is Kafka's cooperative-sticky, and without one "range" and "roundrobin" are offered.
        A member that does not poll for `max_poll_interval_ms` loses its membership, and joins again at its next poll.
        With a `group_instance_id`, closing keeps the membership for the next consumer that has it. Deserializers are
        callables or "json", "str", "bytes"; without them keys and values are bytes. `isolation` is "read_uncommitted"
        (the default) or "read_committed": no records of aborted transactions, and none behind an open one.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = log.append("orders", {"n": 1})
        ...     with log.consumer(["orders"], auto_offset_reset="earliest", value_deserializer="json") as consumer:
        ...         consumer.poll(timeout_ms=1000)[0].value
        {'n': 1}
        """
        self._backend.check_usable()
        settings = ConsumerSettings(
            group,
            auto_offset_reset,
            auto_commit,
            auto_commit_interval_ms,
            assignor,
            max_records,
            key_deserializer,
            value_deserializer,
            max_poll_interval_ms,
            group_instance_id,
            isolation,
        )
        named = None if topics is None else checked_topics(topics)
        made = Consumer(self._backend, self._backend.reading(settings), settings.max_records, named, group)
        self._consumers.add(made)
        return made

    def queue(
        self,
        topics: Iterable[str] | str,
        group: str,
        *,
        auto_offset_reset: str | None = None,
        isolation: str | None = None,
    ) -> Queue:
        """Take records of these topics as from a queue, as one of the workers of `group`: see Queue.

        Each record goes to one worker of the group at a time, however few partitions there are, and is acknowledged by
        itself. Where the group begins in a partition that it never read is its own setting: at the end, unless
        `auto_offset_reset` sets it, to "earliest", "latest" or "by_duration:PT1H". So is `isolation`, for all workers:
        "read_committed" gives out no records of transactions that are aborted or still open; it is set for the group
        also if the log was opened so, else the group keeps its own, at first "read_uncommitted".

        The group is a share group (KIP-932): Kafka's share consumers can be in it, too, consumers cannot. Raises
        InconsistentProtocol if there is a group of consumers of that name, with members or without.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.queue("orders", group="workers") as queue:
        ...         _ = log.append("orders", "pack it")
        ...         (record,) = queue.take(timeout_ms=1000)
        ...         queue.release(record)
        ...         (record,) = queue.take(timeout_ms=1000)
        ...         print(record.value, queue.deliveries(record))
        ...         queue.ack(record)
        b'pack it' 2
        """
        self._backend.check_usable()
        named = tuple(dict.fromkeys(checked_topics(topics)))
        if not named:
            raise InvalidArgument("a queue without topics has nothing to take; name one")
        checked_isolation(isolation)
        settings = QueueSettings(named, check_group_name(group), check_reset(auto_offset_reset), isolation)
        if is_of_a_queue(self._backend, group) is False:
            raise not_of_a_queue(group)  # before anything is set for the group
        self._close_dropped()
        made = Queue(self._backend.taking(settings), group, self._dropped.append)
        self._queues.add(made)
        return made

    def read(
        self,
        topic: str,
        partition: int | None = None,
        *,
        start: Place = "start",
        stop: Place | None = None,
        max_records: int | None = None,
        follow: bool = False,
        timeout_ms: float | None = None,
        key_deserializer: Deserializer | str | None = None,
        value_deserializer: Deserializer | str | None = None,
        isolation: str | None = None,
    ) -> Generator[Record, None, None]:
        """The records of one partition from `start` to `stop` (exclusive): no group, no state, a slice of the log.

        "start" and "end" are those at this call, so a tail from "end" misses nothing that is written after it returns.
        Without `follow` it ends where the log ended at this call. With `follow` it waits for more, and ends when
        nothing has come for `timeout_ms` (None: never) or the log is closed. `partition` may be left out if there is
        only one. OffsetOutOfRange says what happened to an offset that the log does not hold. `isolation` is as for
        `consumer`: with "read_committed", the end is where the oldest open transaction begins.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(5)]
        ...     [record.value for record in log.read("orders", 0, start=1, max_records=2)]
        [b'1', b'2']
        """
        if max_records is not None:
            checked_count("max_records", max_records)
        timeout_ms = checked_timeout_ms(timeout_ms)
        deserializers = (deserializer(key_deserializer), deserializer(value_deserializer))
        request = ReadRequest(start, stop, max_records, deserializers, checked_isolation(isolation))
        return self._backend.read(topic, partition, request, follow=follow, timeout_ms=timeout_ms)

    def read_arrow(
        self,
        topic: str,
        start: Mapping[int, Place] | Place | None = None,
        stop: Mapping[int, Place] | Place | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        partitions: Iterable[int] | None = None,
        isolation: str | None = None,
    ) -> pa.Table:
        """A range of the topic as an Arrow table, ordered by partition, then offset.

        `start` and `stop` (exclusive) are one place for all partitions or a mapping; other partitions are read from
        their start, or to their end. `partitions` limits which are read. Columns that are not requested cost nothing.
        `isolation` is as for `read`.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(5)]
        ...     log.read_arrow("orders", start={0: 3}, columns=["offset", "value"]).to_pylist()
        [{'offset': 3, 'value': b'3'}, {'offset': 4, 'value': b'4'}]
        """
        from foldlog.client.bulk import checked_columns

        wanted = checked_columns(columns)
        if partitions is not None and not isinstance(partitions, Iterable):
            raise InvalidArgument(f"partitions={brief_repr(partitions)} is not a list of partition numbers")
        return self._backend.read_table(topic, partitions, start, stop, wanted, checked_isolation(isolation))

    # --- topics -------------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> Topic:
        """Create a topic. Durable on return. Raises TopicExists, with nothing changed, if the name is taken.

        Settings have Kafka's names and defaults, `flush.*` apart: unset, every append is synced before it is
        acknowledged. A directory has each record once, so `replication_factor` is 1 here; a cluster takes more.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     log.create_topic("orders", partitions=3, config={"retention.ms": 604_800_000}).partition_count
        3
        """
        return self._backend.create_topic(name, partitions, config, replication_factor)

    def delete_topic(self, name: str) -> None:
        """Remove a topic, its records, and what groups committed in it. Durable on return.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.delete_topic("orders")
        ...     log.topics()
        []
        """
        self._backend.delete_topic(name)

    def grow_topic(self, name: str, partitions: int) -> Topic:
        """Add partitions until there are `partitions`. Durable on return. Keys move: order per key starts anew.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.grow_topic("orders", 3).partition_count
        3
        """
        return self._backend.grow_topic(name, partitions)

    def alter_topic(self, name: str, changes: Mapping[str, object | None]) -> Topic:
        """Change settings; None resets one to its default. Durable on return, and in force.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.alter_topic("orders", {"retention.ms": 1000}).config.log.retention_ms
        1000
        """
        return self._backend.alter_topic(name, changes)

    def topics(self, include_internal: bool = False) -> list[str]:
        """Their names, in order; with `include_internal` also of those that Kafka's brokers and foldlog keep, such as
        `__consumer_offsets` and `__folds`.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.topics()
        ['orders']
        """
        return self._backend.topics(include_internal)

    def topic(self, name: str) -> Topic:
        """A topic's id, partition count and settings. Raises UnknownTopic if there is none of that name.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", partitions=3)
        ...     log.topic("orders").partition_count
        3
        """
        return self._backend.topic(name)

    def topic_config(self, name: str) -> dict[str, ConfigEntry]:
        """Every setting in force, by Kafka's name, and whether the topic itself sets it.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", config={"retention.ms": 1000})
        ...     log.topic_config("orders")["retention.ms"], log.topic_config("orders")["segment.ms"]
        (ConfigEntry(value='1000', is_default=False), ConfigEntry(value='604800000', is_default=True))
        """
        return self._backend.topic_config(name)

    def offsets(self, topic: str, *, isolation: str | None = None) -> dict[int, tuple[int, int]]:
        """Per partition the log start offset and the end: what can be read is [start, end).

        Everything acknowledged before the call is below the end, with any `acks`. With `isolation="read_committed"` the
        end is the last stable offset: where the oldest open transaction begins.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", partitions=2)
        ...     _ = log.append("orders", "paid", partition=1)
        ...     log.offsets("orders")
        {0: (0, 0), 1: (0, 1)}
        """
        return self._backend.offsets(topic, checked_isolation(isolation))

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
        return self._backend.offsets_at(topic, timestamp_ms)

    def delete_records(self, topic: str, before: Mapping[int, Place]) -> dict[int, int]:
        """Delete everything below an offset, per partition, for good; "end" means all. Returns the new log starts.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     log.delete_records("orders", {0: 2})
        {0: 2}
        """
        if not isinstance(before, Mapping):
            raise InvalidArgument(f"delete_records() takes a dict such as {{0: 'end'}}, not {brief_repr(before)}")
        return self._backend.delete_records(topic, before)

    # --- upkeep -------------------------------------------------------------------------------------------------------

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
        reports = self._backend.compact(topic)
        return {TopicPartition(*partition): report for partition, report in reports.items()}

    def recompress(self, topic: str, codec: str) -> dict[TopicPartition, RecompressionReport]:
        """Store the present records of a topic in another codec, batch by batch, where that makes a batch smaller.

        `codec` as compression.type spells it: gzip, snappy, lz4, zstd, or none. Records, offsets and producer fields
        stay the same; after a crash each segment is either the old or the new one. Later records are compressed by
        their producers, or by the topic's compression.type.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = log.append("orders", "paid " * 1000)
        ...     report = log.recompress("orders", "zstd")["orders", 0]
        ...     report.batches_rewritten, report.bytes_after < report.bytes_before / 10
        (1, True)
        """
        reports = self._backend.recompress(topic, codec)
        return {TopicPartition(*partition): report for partition, report in reports.items()}

    def enforce_retention(self, topic: str | None = None) -> int:
        """Remove segments beyond retention.bytes or retention.ms now, in one topic or in all; returns how many. Sealed
        segments of topics with remote.storage.enable are copied to the store first.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders", config={"retention.bytes": 0, "foldlog.segment.records": 1})
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     _ = log.enforce_retention()
        ...     log.offsets("orders")[0][1]
        3
        """
        return self._backend.enforce_retention(topic)

    def warnings(self) -> list[str]:
        """Warnings for the owner: unknown directories, refused partitions, failed background work; on a cluster
        partitions without a leader, or with replicas that are behind.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     log.warnings()
        []
        """
        return self._backend.warnings()

    # --- groups -------------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """All groups that have members or committed offsets, sorted.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.consumer(["orders"], group="fraud"):
        ...         log.groups()
        ['fraud']
        """
        return self._backend.groups()

    def describe_group(self, group: str) -> GroupDescription:
        """State, protocol and members. Raises UnknownGroup if it has neither members nor committed offsets.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.consumer(["orders"], group="fraud"):
        ...         log.describe_group("fraud").members[0].assignment
        (TopicPartition(topic='orders', partition=0),)
        """
        return self._backend.describe_group(check_group_name(group))

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group. Works in reading processes too.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     log.committed("nobody")
        {}
        """
        return self._backend.committed(group)

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets a group has still to read, per partition that it has committed in or a member is assigned.

        Without a commit they are counted from the log start; if the member is a consumer of this Log on a directory,
        from where that consumer begins. Of a share group it is what nobody has accepted or rejected yet.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.reset_group("fraud", {("orders", 0): "start"})
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     log.lag("fraud")
        {TopicPartition(topic='orders', partition=0): 3}
        """
        check_group_name(group)
        committed = self._backend.committed(group)
        try:
            description = self._backend.describe_group(group)
            if description.group_type == GroupType.SHARE:
                return {place: lag for place, (_, lag) in self._backend.share_offsets(group).items()}
            members = description.members
        except UnknownGroup:
            members = ()
        assigned = {partition for member in members for partition in member.assignment}
        bounds = self._backend.bounds({*committed, *assigned})
        found = partition_lags(
            {partition: at.offset for partition, at in committed.items()},
            assigned,
            {partition: (one.log_start_offset, one.acknowledged_end()) for partition, one in bounds.items()},
            self._backend.members_begin(group),
        )
        return {TopicPartition(one.topic, one.partition): one.lag for one in found if one.lag is not None}

    def reset_group(self, group: str, offsets: Mapping[tuple[str, int], Place], *, evict: bool = False) -> None:
        """Move a group: consumers that join it next read on from these offsets. Durable on return.

        Raises GroupNotEmpty with the members while it has any: their next commits would overwrite it. With `evict` they
        are made to leave: they notice at their next poll or heartbeat, join again and read on from these offsets;
        commits of their old assignments are refused. GroupNotEmpty is still raised if they keep coming back before the
        commit. A share group begins anew at these offsets, whatever was done from there; its members are not evicted.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(3)]
        ...     log.reset_group("fraud", {("orders", 0): "end"})
        ...     with log.consumer(["orders"], group="fraud") as consumer:
        ...         log.reset_group("fraud", {("orders", 0): 1}, evict=True)
        ...         [record.value for record in consumer.poll(timeout_ms=10_000)]
        [b'1', b'2']
        """
        committed = resolve_offsets(self._backend, group, offsets)
        is_queue = bool(is_of_a_queue(self._backend, group))
        try:
            if is_queue:
                self._backend.move_share_group(group, {one: at.offset for one, at in committed.items()})
            else:
                self._backend.move_group(group, committed, evict=evict)
        except HAS_MEMBERS as error:
            members = self.describe_group(group).members
            evicting = "" if evict else "reset_group(evict=True)"
            raise not_empty(group, members, evicting, is_queue=is_queue) from error

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its commits. Durable on return. Raises UnknownGroup, GroupNotEmpty.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.reset_group("fraud", {("orders", 0): "start"})
        ...     log.delete_group("fraud")
        ...     log.groups()
        []
        """
        self._backend.delete_group(check_group_name(group))

    def delete_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Delete a group's commits in these partitions. Durable on return. Raises UnknownGroup, and GroupNotEmpty while
        members read them.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.reset_group("fraud", {("orders", 0): "start"})
        ...     log.delete_offsets("fraud", [("orders", 0)])
        ...     log.committed("fraud")
        {}
        """
        self._backend.delete_offsets(check_group_name(group), checked_partitions(partitions))

    # --- closing ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop listening, abort open transactions, close producers (which flush), consumers and queues (which leave
        their groups), then the log.

        Closing twice is fine.

        Raises the first error, after everything was closed.

        >>> import foldlog
        >>> log = foldlog.open(":memory:")
        >>> log.close()
        """
        self._backend.stop_listening()
        faults: list[FoldlogError] = []
        users: list[TransactionSessions | Sender | Consumer | Queue] = [
            self._transactions,
            *self._senders,
            *self._consumers,
            *self._queues,
        ]
        for close in (*(one.close for one in users), self._close_dropped):
            try:
                close()
            except FoldlogError as error:
                faults.append(error)
        self._backend.close()
        if faults:
            raise faults[0]

    def _close_dropped(self) -> None:
        while self._dropped:
            self._dropped.popleft().close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Log {self.path!r}>"
