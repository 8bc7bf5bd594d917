"""The Log: one data directory, as a program uses it. `foldlog.open` makes one."""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from foldlog.broker.broker import Broker
from foldlog.broker.kafka_storage import READ_UNCOMMITTED
from foldlog.broker.topic_names import require_text
from foldlog.client.administration import Administration
from foldlog.client.arrivals import AnyPartition, Arrivals
from foldlog.client.backend import Listener, RemoteBackend
from foldlog.client.consumer import Consumer
from foldlog.client.consumer_settings import ConsumerSettings
from foldlog.client.forks import watch_forks
from foldlog.client.handle_types import RecordMetadata
from foldlog.client.lanes import Routes, writable_partition
from foldlog.client.membership import Memberships
from foldlog.client.outgoing import Headers, Outgoing, check_size, checked_headers, checked_timestamp
from foldlog.client.partitioners import Partitioner, checked_partition, partition_for_key
from foldlog.client.positions import Place, checked_count, checked_timeout_ms
from foldlog.client.producer import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_RECORDS, DEFAULT_LINGER_MS, Producer
from foldlog.client.reader import Slice
from foldlog.client.serializers import Deserializer, Serializer, deserializer, serialized
from foldlog.clock import Clock
from foldlog.errors import DirectoryLocked, FoldlogError, InvalidArgument, WrongProcess, brief_repr
from foldlog.files.base import Files
from foldlog.limits import ARROW_BATCH_BYTES, PRODUCER_BUFFER_BYTES
from foldlog.records.batch import Compression
from foldlog.records.loops import Record, pack

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
    path: str | os.PathLike[str],
    mode: str = "w",
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    background: bool = True,
    isolation_level: str = READ_UNCOMMITTED,
) -> Log:
    """`foldlog.open` without its listener: see there."""
    plain = os.fspath(path) if isinstance(path, os.PathLike) else path
    try:
        broker = Broker.open(
            plain, files=files, clock=clock, mode=mode, background=background, isolation_level=isolation_level
        )
        return Log(broker)
    except DirectoryLocked as error:
        if error.address is None:
            raise
        # Read beside the writer, and ask it for everything else.
        from foldlog.client.remote_broker import open_remote

        followed, remote = open_remote(plain, files, clock, error.address)
        return Log(followed, remote)


class Log(Administration):
    """Topics, records and groups in one directory. Any thread may call it; use it in a `with` block, or close it.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     _ = log.create_topic("orders", partitions=1)
    ...     log.append("orders", "paid", key="tx_001", timestamp_ms=5)
    RecordMetadata(topic='orders', partition=0, offset=0, timestamp_ms=5)
    """

    def __init__(self, broker: Broker, remote: RemoteBackend | None = None) -> None:
        """Use `foldlog.open`. With `remote`, another process writes the log, and `broker` only reads it."""
        super().__init__(broker, remote)
        self._remote = remote
        self._listener: Listener | None = None
        self._memberships = Memberships(broker) if remote is None else remote.memberships()
        self._routes = Routes(self._broker)
        self._routing = Lock()
        self._is_forked = False
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self._tails: weakref.WeakSet[Arrivals] = weakref.WeakSet()
        watch_forks(self)

    # --- writing --------------------------------------------------------------------------------------------------

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
        """Append one record. Returns once fdatasync has covered it; concurrent callers share syncs.

        Bytes go in as they are, str as UTF-8, dict, list and numbers as JSON, None as a tombstone. For many records use
        a producer: one sync then serves a whole batch.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.append("orders", {"amount_paise": 1999900}, key="tx_001", headers={"source": "web"}).offset
        0
        """
        key_bytes = serialized(None, key, "key", topic)
        record = Outgoing(
            self._broker.clock.now_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms),
            key_bytes,
            serialized(None, value, "value", topic),
            checked_headers(headers) if headers else (),
            partition,
        )
        number = self._partition_for(topic, record)
        log = writable_partition(self._broker, topic, number)
        appended = log.append(pack([record[:4]]), trusted=True)
        log.wait_acknowledged(appended.next_offset)
        timestamp_ms = appended.append_time_ms if appended.append_time_ms >= 0 else record.timestamp_ms
        return RecordMetadata(topic, number, appended.base_offset, timestamp_ms)

    def _partition_for(self, topic: str, record: Outgoing) -> int:
        """Where a single record goes; keyless ones go round, since each is a batch of its own."""
        if self._is_forked:
            raise WrongProcess(f"the log in {self.path} was opened before a fork; open it again in this process")
        with self._routing:
            route = self._routes.of(topic)
            check_size(record, route.max_message_bytes)
            route.check_key(record.key)
            if record.partition is not None:
                return checked_partition(topic, record.partition, route.count)
            if record.key is not None:
                return partition_for_key(record.key, route.count)
            number = route.keyless_lane(self._broker).number
            route.advance()
            return number

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
        `linger_ms=0` it closes as soon as the producer's thread gets to it, and what is sent meanwhile shares it.
        `send` waits while `buffer_bytes` are on their way to the disk; open batches come on top of that.
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
        self._broker.check_open()
        made = Producer(
            self._broker,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            batch_records=batch_records,
            buffer_bytes=buffer_bytes,
            compression=compression,
            partitioner=partitioner,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
        )
        self._producers.add(made)
        return made

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
        transaction: after an error (a full disk) the rows of some chunks may be in the log.

        >>> import foldlog, pyarrow
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     log.append_arrow("orders", pyarrow.table({"key": ["a", "b"], "value": ["1", "2"]}))
        {0: (0, 2)}
        """
        from foldlog.client.bulk import TableAppender

        codec = int(Compression.named(compression))
        return TableAppender(self._broker, topic, codec, checked_count("batch_bytes", batch_bytes)).append(table)

    # --- reading --------------------------------------------------------------------------------------------------

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
    ) -> Consumer:
        """A consumer of these topics: alone, or as a member of `group`.

        `auto_offset_reset` says where to begin without a commit, or when the log no longer holds the offset:
        "latest" (the default), "earliest", or "none" for OffsetOutOfRange. `auto_commit` matters with a group only.
        `assignor` is "sticky" (the default: a rebalance moves as few partitions as it can), "range" or "roundrobin".
        A member that does not poll for `max_poll_interval_ms` loses its place, and joins again at its next poll. With a
        `group_instance_id`, closing keeps the place for the next consumer that has it. Deserializers are callables or
        "json", "str", "bytes"; without them keys and values are bytes.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = log.append("orders", {"n": 1})
        ...     with log.consumer(["orders"], auto_offset_reset="earliest", value_deserializer="json") as consumer:
        ...         consumer.poll(timeout_ms=1000)[0].value
        {'n': 1}
        """
        self._broker.check_open()
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
        )
        made = Consumer(self._broker, self._memberships, _checked_topics(topics), settings)
        self._consumers.add(made)
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
    ) -> Generator[Record, None, None]:
        """The records of one partition from `start` to `stop` (exclusive): no group, no state, a slice of the log.

        "start" and "end" mean what they are at this call, so a tail from "end" misses nothing that is written after it
        returns. Without `follow` it ends where the log ended at this call. With `follow` it waits for more, and ends
        when nothing has come for `timeout_ms` (None: never) or the log is closed. `partition` may be left out where
        there is only one. OffsetOutOfRange says what became of an offset that the log does not hold.

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
        log = self._one_partition(topic, partition)
        wanted = Slice(
            log,
            start,
            stop,
            max_records,
            (deserializer(key_deserializer), deserializer(value_deserializer)),
            self._broker,
        )
        if not follow:
            return wanted.records()
        arrivals = Arrivals()
        self._tails.add(arrivals)
        return wanted.follow(self._broker.clock, arrivals, timeout_ms)

    def read_arrow(
        self,
        topic: str,
        start: Mapping[int, Place] | Place | None = None,
        stop: Mapping[int, Place] | Place | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        partitions: Iterable[int] | None = None,
    ) -> pa.Table:
        """A range of the topic as an Arrow table, ordered by partition, then offset.

        `start` and `stop` (exclusive) are one place for all partitions or a mapping; partitions it does not name are
        read from their start, or to their end. `partitions` limits which are read. Columns that are not asked for cost
        nothing.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(5)]
        ...     log.read_arrow("orders", start={0: 3}, columns=["offset", "value"]).to_pylist()
        [{'offset': 3, 'value': b'3'}, {'offset': 4, 'value': b'4'}]
        """
        from foldlog.client.bulk import checked_columns, per_partition, plan_ranges, read_table

        columns = checked_columns(columns)
        chosen = self._broker.topic(topic).held_partitions if partitions is None else partitions
        if not isinstance(chosen, Iterable):
            raise InvalidArgument(f"partitions={brief_repr(partitions)} is not a list of partition numbers")
        logs = {log.label[1]: log for log in (self._broker.partition(topic, number) for number in chosen)}
        ranges = plan_ranges(logs, per_partition(start, logs, "start"), per_partition(stop, logs, "stop"))
        return read_table(ranges, columns)

    def _one_partition(self, topic: str, partition: int | None) -> AnyPartition:
        if partition is None:
            count = self._broker.topic(topic).partition_count
            if count != 1:
                raise InvalidArgument(f"topic {topic!r} has {count} partitions; say which, from 0 to {count - 1}")
            partition = 0
        return self._broker.partition(topic, partition)

    # --- other processes ------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str | None:
        """Where Kafka clients reach this log, as "host:port"; None if nobody listens.

        >>> import foldlog
        >>> with foldlog.open(":memory:", listen=True) as log:
        ...     log.bootstrap.startswith("127.0.0.1:")
        True
        """
        if self._listener is not None:
            return self._listener.bootstrap
        return None if self._remote is None else self._remote.bootstrap

    @property
    def is_remote(self) -> bool:
        """Whether another process writes this log, and this one asks it to.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     log.is_remote
        False
        """
        return self._remote is not None

    def reached_through(self, listener: Listener) -> None:
        """The log is served from here on; closing it stops the listener first."""
        self._listener = listener
        self._memberships.meet_others()

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop listening, close producers (which flush) and consumers (which leave their groups), then the log.

        Closing twice is fine.

        Raises the first thing that went wrong, after everything was closed.

        >>> import foldlog
        >>> log = foldlog.open(":memory:")
        >>> log.close()
        """
        if self._listener is not None and not self._is_forked:
            self._listener.stop()
        faults: list[FoldlogError] = []
        users: list[Producer | Consumer] = [*self._producers, *self._consumers]
        for open_one in users:
            try:
                open_one.close()
            except FoldlogError as error:
                faults.append(error)
        for arrivals in list(self._tails):
            arrivals.close()
        self._broker.close()
        if faults:
            raise faults[0]

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Log {self.path!r}>"

    def forked(self) -> None:
        """In a forked child: the directory's writer is the parent, and locks may be held by its threads."""
        self._is_forked = True


def _checked_topics(topics: Iterable[str] | str | None) -> list[str] | str | None:
    """What a consumer is to read: names, each of which is text; whether there are such topics is looked up later."""
    if topics is None or isinstance(topics, str):
        return topics
    if not isinstance(topics, Iterable):
        raise InvalidArgument(f"topics={brief_repr(topics)} is neither a topic's name nor a list of names")
    return [require_text(name) for name in topics]
