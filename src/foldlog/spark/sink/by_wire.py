"""Writing by `kafka.bootstrap.servers`: each task appends its rows itself, to our broker or any Kafka cluster.

Acknowledged by all in-sync replicas, and once each as long as the task lives, whatever becomes of connections and
leaders. At least once beyond that: a task that Spark runs again appends its rows again, and so does a micro-batch that
is repeated after a crash. Nothing can be taken back: after an error, some of the rows are in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from foldlog.client.cluster import Cluster
from foldlog.client.numbered import TopicLimits
from foldlog.clock import SystemClock
from foldlog.errors import FoldlogError, InvalidArgument, UnknownTopic
from foldlog.spark.sink.options import SinkOptions, with_create_option
from foldlog.spark.sink.rows import RowPacker

if TYPE_CHECKING:
    import pyarrow as pa

_REQUEST_BYTES: Final = 1 << 20
"""max.request.size, Kafka's default: what a batch may have where the broker does not say what it takes."""

_SEGMENT_BYTES: Final = 1 << 30


def check_topics(told: SinkOptions) -> None:
    """On the driver, before any row is packed: BrokerUnreachable, or UnknownTopic for the topic of the option."""
    with _open(told) as cluster:
        if told.topic is not None:
            _find_limits(told, cluster, told.topic)


def send(told: SinkOptions, rows: Iterable[pa.RecordBatch]) -> int:
    """In a task: append the rows; how many. Acknowledged on return."""
    count = 0
    with _open(told, has_answered=True) as cluster:
        packer = RowPacker(
            lambda topic: _find_limits(told, cluster, topic),
            topic=told.topic,
            compression=told.compression,
            now_ms=SystemClock().now_ms(),
        )
        with cluster.producer() as producer:
            for packed in packer.pack(rows):
                producer.send(packed.topic, packed.partition, packed.buffer)
                count += packed.record_count
    return count


def _open(told: SinkOptions, *, has_answered: bool = False) -> Cluster:
    if told.origin.bootstrap is None:
        raise InvalidArgument("the address of a broker is needed")
    return Cluster.open(told.origin.bootstrap, told.origin.properties, has_answered=has_answered)


def _find_limits(told: SinkOptions, cluster: Cluster, name: str) -> TopicLimits:
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
        config = {}  # not everybody may ask; the broker refuses what it does not take
    limit_bytes = int(config.get("max.message.bytes", _REQUEST_BYTES))
    return TopicLimits(
        topic_id=topic.topic_id.hex(),
        partition_count=topic.partition_count,
        max_message_bytes=limit_bytes,
        segment_bytes=_SEGMENT_BYTES,
        is_compacted="compact" in config.get("cleanup.policy", ""),
    )
