"""Writing by `kafka.bootstrap.servers`, in the tasks: to a foldlog broker, or any Kafka cluster.

Exactly once, a task stages its rows in a topic of the cluster (`stage`), and changes nothing else, except for creating
a topic if `createTopic` allows it; wire_committing.py appends them. With exactlyOnce=false a task appends its rows
itself (`send`): acknowledged by all in-sync replicas, and once while the task lives, even if connections break or
leaders change. At least once beyond that: a task that Spark runs again appends its rows again, and so does a
micro-batch that is repeated after a crash. Nothing can be undone: after an error, some of the rows are in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from foldlog.client.backends.served.resumable import TopicLimits
from foldlog.client.wire.cluster import STAGED_TOPIC, Cluster
from foldlog.clock import SystemClock
from foldlog.errors import FoldlogError, InvalidArgument, RecordTooLarge, UnknownTopic
from foldlog.limits import PRODUCE_REQUEST_BYTES
from foldlog.spark.origins.origin import ISOLATION_LEVEL
from foldlog.spark.sink.options import SinkOptions, with_create_option
from foldlog.spark.sink.rows import Packed, RowPacker
from foldlog.spark.sink.wire_staging import StagedAttempt, ensure_staging, largest_staged_bytes, stage_batches

if TYPE_CHECKING:
    import pyarrow as pa

_REQUEST_BYTES: Final = 1 << 20
"""max.request.size, Kafka's default: the limit for a batch if the broker does not report its own."""

_SEGMENT_BYTES: Final = 1 << 30


def open_cluster(told: SinkOptions, *, has_answered: bool = False) -> Cluster:
    """Reads uncommitted: see wire_commits.py. What is staged is written without transactions."""
    if told.origin.bootstrap is None:
        raise InvalidArgument("the address of a broker is needed")
    properties = {name: value for name, value in told.origin.properties.items() if name != ISOLATION_LEVEL}
    return Cluster.open(told.origin.bootstrap, properties, has_answered=has_answered)


def check_topics(told: SinkOptions) -> None:
    """On the driver, before any row is packed: BrokerUnreachable, or UnknownTopic for the topic of the option."""
    with open_cluster(told) as cluster:
        if told.topic is not None:
            _find_limits(told, cluster, told.topic)


def stage(told: SinkOptions, task_number: int, rows: Iterable[pa.RecordBatch]) -> StagedAttempt:
    """In a task: pack the rows, and stage them. Acknowledged on return; an error leaves nothing that counts."""
    with open_cluster(told, has_answered=True) as cluster:
        ensure_staging(cluster)
        largest_bytes = largest_staged_bytes(cluster)
        packer = _packer(told, cluster, largest_bytes)
        ids: dict[str, str] = {}

        def batches() -> Iterator[Packed]:
            try:
                for packed in packer.pack(rows):
                    ids[packed.topic] = packer.limits[packed.topic].topic_id
                    yield packed
            except RecordTooLarge as error:
                if error.limit_bytes == largest_bytes:
                    error.args = (f"{error}: that of {STAGED_TOPIC!r}, in which rows are staged",)
                raise

        return stage_batches(cluster, batches(), task_number, ids, SystemClock().now_ms())


def send(told: SinkOptions, rows: Iterable[pa.RecordBatch]) -> int:
    """In a task: append the rows; returns how many. Acknowledged on return."""
    count = 0
    with open_cluster(told, has_answered=True) as cluster:
        packer = _packer(told, cluster)
        with cluster.producer() as producer:
            for together in by_requests(packer.pack(rows)):
                producer.send_all((one.topic, one.partition, one.buffer) for one in together)
                count += sum(one.record_count for one in together)
    return count


def _packer(told: SinkOptions, cluster: Cluster, limit_bytes: int | None = None) -> RowPacker:
    return RowPacker(
        lambda topic: _find_limits(told, cluster, topic, limit_bytes),
        topic=told.topic,
        compression=told.compression,
        now_ms=SystemClock().now_ms(),
    )


def by_requests(batches: Iterable[Packed]) -> Iterator[list[Packed]]:
    """As many as a request may carry, at least one: those of several partitions then share requests."""
    together: list[Packed] = []
    size_bytes = 0
    for batch in batches:
        size_bytes += len(batch.buffer)
        if together and size_bytes > PRODUCE_REQUEST_BYTES:
            yield together
            together, size_bytes = [], len(batch.buffer)
        together.append(batch)
    if together:
        yield together


def _find_limits(told: SinkOptions, cluster: Cluster, name: str, limit_bytes: int | None = None) -> TopicLimits:
    try:
        topic = cluster.topic(name)
    except UnknownTopic as error:
        if told.partitions_of_new_topics is None:
            raise with_create_option(error) from None
        cluster.ensure_topic(name, told.partitions_of_new_topics)
        topic = cluster.topic(name)
    try:
        config = cluster.topic_config(name, ("max.message.bytes", "cleanup.policy"))
    except FoldlogError:
        config = {}  # this client may not ask; the broker refuses what is too large
    largest_bytes = int(config.get("max.message.bytes", _REQUEST_BYTES))
    return TopicLimits(
        topic_id=topic.topic_id.hex(),
        partition_count=topic.partition_count,
        max_message_bytes=largest_bytes if limit_bytes is None else min(largest_bytes, limit_bytes),
        segment_bytes=_SEGMENT_BYTES,
        is_compacted="compact" in config.get("cleanup.policy", ""),
    )
