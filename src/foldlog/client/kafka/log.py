"""The KafkaLog: a cluster, as a program uses it. `foldlog.connect` makes one."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from foldlog.broker.topic_names import refuse_user_write, require_text
from foldlog.client.consumer_settings import ConsumerSettings
from foldlog.client.handle_types import RecordMetadata
from foldlog.client.kafka.groups import KafkaGroups
from foldlog.client.kafka.handles import Handles
from foldlog.client.kafka.producer import KafkaProducer
from foldlog.client.kafka.reading import Slice
from foldlog.client.kafka.url import parse_url
from foldlog.client.log import DEFAULT_COLUMNS
from foldlog.client.outgoing import Headers
from foldlog.client.partitioners import Partitioner, checked_partition
from foldlog.client.positions import Place, checked_count, checked_timeout_ms, resolve_place
from foldlog.client.producer import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_RECORDS, DEFAULT_LINGER_MS
from foldlog.client.reader import resolve_stop
from foldlog.client.serializers import Deserializer, Serializer, deserializer
from foldlog.errors import FoldlogError, InvalidArgument, brief_repr
from foldlog.limits import ARROW_BATCH_BYTES, PRODUCER_BUFFER_BYTES
from foldlog.records.loops import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.client.kafka.consumer import KafkaConsumer


def connect_log(url: str, properties: Mapping[str, object] | None = None) -> KafkaLog:
    """`foldlog.connect`: see there."""
    handles = Handles(parse_url(url, properties))
    return KafkaLog(handles, handles.find_cluster())


class KafkaLog(KafkaGroups):
    """Topics, records and groups of one cluster. Any thread may call it; use it in a `with` block, or close it.

    The methods, values and errors of `Log`. Where the two cannot agree, docs/clusters.md has the row.

    >>> import foldlog
    >>> from foldlog.testing import KafkaBroker
    >>> with KafkaBroker.launch() as broker, foldlog.connect(f"kafka://{broker}") as log:
    ...     _ = log.create_topic("orders", partitions=1)
    ...     log.append("orders", "paid", key="tx_001", timestamp_ms=5)
    RecordMetadata(topic='orders', partition=0, offset=0, timestamp_ms=5)
    """

    def __init__(self, handles: Handles, cluster_id: str) -> None:
        """Use `foldlog.connect`."""
        self._handles = handles
        self.directory_id = cluster_id
        self._appending = Lock()
        self._appender: KafkaProducer | None = None
        self._producers: weakref.WeakSet[KafkaProducer] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[KafkaConsumer] = weakref.WeakSet()

    @property
    def path(self) -> str:
        """The cluster's URL, without its properties: passwords are among them."""
        return str(self._handles.url)

    @property
    def bootstrap(self) -> str:
        """Where Kafka clients reach this log, as "host:port,host2:port"."""
        return self._handles.url.bootstrap

    @property
    def is_remote(self) -> bool:
        """Whether other processes write this log: always."""
        return True

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
        """Append one record. Returns once the cluster has acknowledged it, with acks=all unless the URL says otherwise;
        with acks=0 nobody does, and the offset is -1.

        See `Log.append`. For many records use a producer: one answer then serves a whole batch.
        """
        self._handles.check_usable()
        with self._appending:
            if self._appender is None:
                # One record is a batch, so keyless ones go round.
                self._appender = self.producer(linger_ms=0, partitioner="round_robin")
        sent = self._appender.send(topic, value, key, headers, partition, timestamp_ms)
        return sent.result()

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
    ) -> KafkaProducer:
        """A producer: sends records in batches, and gives a future for each. See `Log.producer`.

        >>> import foldlog
        >>> from foldlog.testing import KafkaBroker
        >>> with KafkaBroker.launch() as broker, foldlog.connect(f"kafka://{broker}") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.producer(linger_ms=10, batch_records=1000, compression="zstd") as producer:
        ...         producer.send("orders", value=b"...", key=b"k").result().offset
        0
        """
        self._handles.check_usable()
        made = KafkaProducer(
            self,
            self._handles,
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
        """Append the rows of an Arrow table. Acknowledged on return; per partition the first offset and one past the
        last. See `Log.append_arrow`; others may append in between, so these offsets may hold records of theirs.
        """
        from foldlog.client.kafka import tables, tables_by_record

        checked_count("batch_bytes", batch_bytes)
        self._handles.check_usable()
        refuse_user_write(require_text(topic))
        if self._handles.speaks_wire:
            return tables.append_table(
                self._handles, self.topic(topic), table, compression=compression, batch_bytes=batch_bytes
            )
        with self.producer(
            linger_ms=20, batch_bytes=batch_bytes, compression=compression, partitioner="sticky"
        ) as producer:
            return tables_by_record.append_table(self.topic(topic), table, producer)

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
    ) -> KafkaConsumer:
        """A consumer of these topics: alone, or as a member of `group`. See `Log.consumer`.

        `assignor` "sticky" is Kafka's cooperative-sticky here; without one, "range" and "roundrobin" are offered.

        >>> import foldlog
        >>> from foldlog.testing import KafkaBroker
        >>> with KafkaBroker.launch() as broker, foldlog.connect(f"kafka://{broker}") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = log.append("orders", {"n": 1})
        ...     with log.consumer(["orders"], auto_offset_reset="earliest", value_deserializer="json") as consumer:
        ...         consumer.poll(timeout_ms=10_000)[0].value
        {'n': 1}
        """
        from foldlog.client.kafka.consumer import KafkaConsumer

        self._handles.check_usable()
        consumers = self._consumers
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
        if topics is not None and not isinstance(topics, str):
            if not isinstance(topics, Iterable):
                raise InvalidArgument(f"topics={brief_repr(topics)} is neither a topic's name nor a list of names")
            topics = [require_text(name) for name in topics]
        made = KafkaConsumer(self, self._handles, topics, settings, lambda: [one.reading for one in list(consumers)])
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

        See `Log.read`.

        >>> import foldlog
        >>> from foldlog.testing import KafkaBroker
        >>> with KafkaBroker.launch() as broker, foldlog.connect(f"kafka://{broker}") as log:
        ...     _ = log.create_topic("orders")
        ...     _ = [log.append("orders", str(n)) for n in range(5)]
        ...     [record.value for record in log.read("orders", 0, start=1, max_records=2)]
        [b'1', b'2']
        """
        if max_records is not None:
            checked_count("max_records", max_records)
        timeout_ms = checked_timeout_ms(timeout_ms)
        deserializers = (deserializer(key_deserializer), deserializer(value_deserializer))
        bounds = self.bounds_of(topic, self._one_partition(topic, partition))
        wanted = Slice(
            self._handles,
            bounds,
            resolve_place(bounds, start, "start"),
            None if stop is None else resolve_stop(bounds, stop),
            max_records,
            deserializers,
            self.bounds_of,
        )
        return wanted.follow(timeout_ms) if follow else wanted.records()

    def read_arrow(
        self,
        topic: str,
        start: Mapping[int, Place] | Place | None = None,
        stop: Mapping[int, Place] | Place | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        partitions: Iterable[int] | None = None,
    ) -> pa.Table:
        """A range of the topic as an Arrow table, ordered by partition, then offset. See `Log.read_arrow`."""
        from foldlog.client.bulk import checked_columns, per_partition
        from foldlog.client.kafka import tables, tables_by_record

        columns = checked_columns(columns)
        count = self.partition_count(topic)
        chosen = range(count) if partitions is None else partitions
        if not isinstance(chosen, Iterable):
            raise InvalidArgument(f"partitions={brief_repr(partitions)} is not a list of partition numbers")
        numbers = sorted({checked_partition(topic, number, count) for number in chosen})
        starts, stops = per_partition(start, numbers, "start"), per_partition(stop, numbers, "stop")
        bounds = self.bounds((topic, number) for number in numbers)
        ranges = [
            tables.TableRange(
                topic,
                number,
                resolve_place(one, starts.get(number, "start"), "start"),
                min(resolve_stop(one, stops.get(number, "end")), one.high_watermark),
            )
            for (_, number), one in bounds.items()
        ]
        if self._handles.speaks_wire:
            return tables.read_table(self._handles, ranges, columns)
        slices = [
            Slice(
                self._handles, bounds[one.topic, one.partition], one.start, one.stop, None, (None, None), self.bounds_of
            )
            for one in ranges
        ]
        return tables_by_record.read_table(slices, columns)

    def _one_partition(self, topic: str, partition: int | None) -> int:
        count = self.partition_count(topic)
        if partition is None and count != 1:
            raise InvalidArgument(f"topic {topic!r} has {count} partitions; say which, from 0 to {count - 1}")
        return checked_partition(topic, 0 if partition is None else partition, count)

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close producers (which flush) and consumers (which leave their groups), then let go of the cluster.

        Closing twice is fine. Raises the first thing that went wrong, after everything was closed.
        """
        faults: list[FoldlogError] = []
        users: list[KafkaProducer | KafkaConsumer] = [*self._producers, *self._consumers]
        for open_one in users:
            try:
                open_one.close()
            except FoldlogError as error:
                if open_one is not self._appender:  # each append has raised its own
                    faults.append(error)
        self._handles.close()
        if faults:
            raise faults[0]

    def __enter__(self) -> KafkaLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<KafkaLog {self.path!r}>"
