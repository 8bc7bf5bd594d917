"""One record from the console into a topic. On a worker thread: it waits until the record is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldlog.broker.topic_names import refuse_user_write
from foldlog.client.partitioners import checked_partition, emptiest, partition_for_key
from foldlog.records.loops import BatchBuilder
from foldlog.server.console.parameters import Bytes, JsonBody, bad_request
from foldlog.server.console.topics import open_partition

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.catalog import Topic
    from foldlog.clock import Clock


class NewRecord:
    """What somebody wants to have appended, as the body of the request says. ApiError if it says something else."""

    def __init__(self, body: JsonBody) -> None:
        self.key = body.data("key")
        self.value = body.data("value")
        self.headers: list[tuple[str, Bytes]] = body.headers("headers")
        self.partition: int | None = body.integer("partition", 0, default=None)
        body.end()


def produce(broker: Broker, name: str, record: NewRecord, clock: Clock) -> dict[str, Any]:
    """Append it, and say where it went. Returns once it is acknowledged, as a producer with acks=all is told."""
    topic = broker.topic(name)
    refuse_user_write(name)
    number = _partition_for(broker, topic, record)
    partition = open_partition(broker, name, number)
    if record.key is None and partition.config.compact:
        raise bad_request(f"topic {name!r} keeps the newest record of each key, so a record needs a key there")
    builder = BatchBuilder(partition.config.max_message_bytes)
    now_ms = clock.now_ms()
    if builder.append(now_ms, record.key, record.value, record.headers) < 0:
        # Too large for one batch: built all the same, so that the log says it in its own words.
        builder = BatchBuilder(1 << 30)
        builder.append(now_ms, record.key, record.value, record.headers)
    appended = partition.append(builder.build())
    partition.wait_acknowledged(appended.next_offset)
    timestamp = appended.append_time_ms if partition.config.log_append_time else now_ms
    return {"partition": number, "offset": appended.base_offset, "timestamp": timestamp}


def _partition_for(broker: Broker, topic: Topic, record: NewRecord) -> int:
    """The one that is named, else by the key as all clients do, else the one with the fewest records."""
    if record.partition is not None:
        return checked_partition(topic.name, record.partition, topic.partition_count)
    if record.key is not None:
        return partition_for_key(record.key, topic.partition_count)
    ends = [open_partition(broker, topic.name, number).log_end_offset for number in range(topic.partition_count)]
    return emptiest(ends)
