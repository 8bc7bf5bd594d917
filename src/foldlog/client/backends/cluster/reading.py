"""Slices of a cluster's partitions, and their tails: no group, no state that outlives them.

A slice has a librdkafka consumer of its own, made when its first record is asked for and closed with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final

from foldlog.client.backends.cluster.faults import Where
from foldlog.client.backends.cluster.handles import Handles, Trouble
from foldlog.client.backends.cluster.records import record_of
from foldlog.client.backends.cluster.topics import PartitionOffsets
from foldlog.client.serializers import Deserializer, deserialized
from foldlog.errors import FoldlogError, UnknownTopic
from foldlog.log.checkpoint import out_of_range
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

_TAKE: Final = 1000
"""Messages per call: enough to make a call cheap, few enough for who breaks off the loop."""

_PAUSE_S: Final = 0.2
"""How long one wait is: in between, a closed log and Ctrl-C are noticed."""

READER_SETTINGS: Final[Mapping[str, object]] = {
    "group.id": "foldlog-reader",  # librdkafka wants one; nothing is asked of it, and nothing committed
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}

Look = Callable[[str, int], PartitionOffsets]
"""Where a partition begins and ends now; UnknownTopic if its topic is gone."""


class SliceReader:
    """Reads one partition from an offset on. One thread; close it."""

    def __init__(self, handles: Handles, topic: str, partition: int, offset: int, look: Look) -> None:
        from confluent_kafka import TopicPartition

        self._handles = handles
        self._where = Where(topic, partition)
        self._look = look
        self._trouble = Trouble()
        self._consumer: Consumer = handles.consumer(READER_SETTINGS, self._trouble)
        self.offset = offset
        self.is_at_end = False
        self._silent_since_s = time.monotonic()
        try:
            self._consumer.assign([TopicPartition(topic, partition, offset)])
        except handles.kafka_exception as error:
            self.close()
            raise handles.fault(error, self._where) from error

    def next(self, timeout_s: float) -> list[Record]:
        """What has come, after waiting for a first one; none after `timeout_s`, or at the end of the partition.

        After a long silence UnknownTopic if the topic is gone, BrokerUnreachable if nobody answers.
        """
        message = self._consumer.poll(timeout_s)
        if message is None:
            self._complain_of_silence()
            return []
        self._silent_since_s = time.monotonic()
        self.is_at_end = False
        found: list[Record] = []
        for one in [message, *self._consumer.consume(_TAKE, timeout=0)]:
            if one.error() is None:
                self.is_at_end = False
                found.append(record_of(one))
                self.offset = found[-1].offset + 1
            elif not self._is_end(one, found):
                break
        return found

    def _is_end(self, message: Message[Any, Any], found: list[Record]) -> bool:
        """Whether a message only says that this is the end. Anything else is raised, after what came before it."""
        error = message.error()
        if error is None or error.name() == "_PARTITION_EOF":
            self.is_at_end = True
            self.offset = max(self.offset, message.offset() or 0)
            return True
        if found:
            return False  # librdkafka says it again
        if error.retriable() or error.name() in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"):
            return True  # it asks again by itself; who waits too long is told
        raise self._fault(error)

    def _fault(self, error: KafkaError) -> FoldlogError:
        topic, partition = self._where.topic or "", self._where.partition or 0
        if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            bounds = self._look(topic, partition)
            return out_of_range(bounds.label, self.offset, bounds.log_start_offset, bounds.high_watermark)
        fault = self._handles.fault(self._handles.kafka_exception(error), self._where, self._trouble)
        return UnknownTopic(topic) if error.name() in ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID") else fault

    def _complain_of_silence(self) -> None:
        """librdkafka says neither that a topic at whose end it waits is gone, nor that nobody answers."""
        if time.monotonic() - self._silent_since_s >= self._handles.look_s:
            self._look(self._where.topic or "", self._where.partition or 0)  # says what is wrong, if something is
            self._silent_since_s = time.monotonic()

    def close(self) -> None:
        self._consumer.close()


class ClusterSlice:
    """What `Log.read` was asked for, with "start" and "end" made offsets at the moment of the call."""

    def __init__(
        self,
        handles: Handles,
        bounds: PartitionOffsets,
        start: int,
        stop: int | None,
        max_records: int | None,
        deserializers: tuple[Deserializer | None, Deserializer | None],
        look: Look,
    ) -> None:
        self._handles = handles
        self._bounds = bounds
        self._start = start
        self._stop = stop
        self._left = max_records
        self._deserializers = deserializers
        self._look = look

    def records(self) -> Generator[Record, None, None]:
        """Everything that was readable at the moment of the call, or up to `stop`."""
        end = self._bounds.high_watermark
        return self._records(end if self._stop is None else min(end, self._stop))

    def _records(self, stop: int) -> Generator[Record, None, None]:
        self._handles.check_usable()
        if self._start >= stop:
            return
        reader = self._reader()
        try:
            while reader.offset < stop and self._left != 0 and not reader.is_at_end:
                self._handles.check_usable()
                yield from self._wanted(reader.next(_PAUSE_S), stop)
        finally:
            reader.close()

    def follow(self, timeout_ms: float | None) -> Generator[Record, None, None]:
        """Those, and then whatever is written, until nothing has come for `timeout_ms` or the log is closed."""
        if self._handles.is_closed:
            return
        reader = self._reader()
        try:
            quiet_since_s = time.monotonic()
            while self._goes_on(reader.offset):
                remaining_s = _PAUSE_S
                if timeout_ms is not None:
                    remaining_s = min(_PAUSE_S, timeout_ms / 1000 - (time.monotonic() - quiet_since_s))
                    if remaining_s <= 0:
                        return
                found = reader.next(remaining_s)
                yield from self._wanted(found, self._stop)
                if found:
                    quiet_since_s = time.monotonic()
        finally:
            reader.close()

    def _goes_on(self, offset: int) -> bool:
        if self._handles.is_closed or self._left == 0:
            return False
        return self._stop is None or offset < self._stop

    def _reader(self) -> SliceReader:
        topic, number = self._bounds.label
        return SliceReader(self._handles, topic, number, self._start, self._look)

    def _wanted(self, records: list[Record], stop: int | None) -> Generator[Record, None, None]:
        """Those before `stop`, and no more than are left to give."""
        if stop is not None:
            records = [record for record in records if record.offset < stop]
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        of_key, of_value = self._deserializers
        while records and (of_key is not None or of_value is not None):
            done = deserialized(records, of_key, of_value)
            yield from done
            records = records[len(done) :]
        yield from records
