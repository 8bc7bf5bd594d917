"""A slice of one partition as records, or its tail: no group, no state, nothing to close."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, NoReturn

from foldlog.client.backends.backend import DirectoryBroker
from foldlog.client.consumer.arrivals import Arrivals
from foldlog.client.isolation import ReadablePartition, plain
from foldlog.client.positions import Bounded, resolve_place
from foldlog.client.serializers import Deserializer, deserialized
from foldlog.clock import Clock
from foldlog.errors import FoldlogError, InvalidArgument, LogClosed, OffsetOutOfRange, UnknownTopic
from foldlog.limits import DECODED_BYTES, READ_CHUNK_BYTES
from foldlog.log.checkpoint import out_of_range
from foldlog.log.partition import Partition
from foldlog.records.batch import MAX_INT64
from foldlog.records.loops import Record, decode

_FIRST_READ_BYTES = 64 << 10
"""A request for one record should not pay for a megabyte; further reads get larger, doubling each time."""

Deserializers = tuple[Deserializer | None, Deserializer | None]


class ReadRequest(NamedTuple):
    """The arguments of `Log.read`, with places as given."""

    start: object
    stop: object
    max_records: int | None
    deserializers: Deserializers
    committed: bool | None = None


class Slice:
    """A range to read, with "start" and "end" resolved to offsets at the moment of the call.

    `broker` distinguishes a deleted topic from a closed log. Without it a tail in the writing process still knows; a
    slice only reports that its partition was closed.
    """

    def __init__(
        self,
        log: ReadablePartition,
        start: object,
        stop: object,
        max_records: int | None,
        deserializers: Deserializers,
        broker: DirectoryBroker | None = None,
    ) -> None:
        self.log = log
        self.begins_at_start = start == "start"
        self.start = resolve_place(log, start, "start")
        self.stop = None if stop is None else resolve_stop(log, stop)
        self.max_records = max_records
        self._deserializers = deserializers
        self._broker = broker
        self._read_bytes = _FIRST_READ_BYTES

    def records(self) -> Generator[Record, None, None]:
        """Everything that was readable at the moment of the call, or up to `stop`."""
        if self.stop is not None and self.stop <= self.log.high_watermark:
            return self._records(self.stop)
        end = self.log.acknowledged_end()
        return self._records(min(end, self.stop) if self.stop is not None else end)

    def _records(self, stop: int) -> Generator[Record, None, None]:
        offset, left = self.start, self.max_records
        while offset < stop and (left is None or left > 0):
            try:
                records, offset = self._next(offset, stop, left)
            except FoldlogError as error:
                raise self._why(error) from error
            yield from records
            if left is not None:
                left -= len(records)

    def follow(self, clock: Clock, arrivals: Arrivals, timeout_ms: float | None) -> Generator[Record, None, None]:
        """Those records, and then new ones, until nothing has come for `timeout_ms` or the log is closed.

        Raises UnknownTopic once the topic is deleted.
        """
        offset, left = self.start, self.max_records
        arrivals.watch(plain(self.log))
        try:
            while not arrivals.is_closed and (left is None or left > 0) and (self.stop is None or offset < self.stop):
                try:
                    if not self._wait_beyond(offset, clock, arrivals, timeout_ms):
                        return
                    records, offset = self._next(offset, self.log.high_watermark, left)
                except FoldlogError as error:
                    fault = self._fault_of_tail(error, arrivals)
                    if fault is None:
                        return
                    raise fault from error
                yield from records
                if left is not None:
                    left -= len(records)
        finally:
            arrivals.close()

    def _wait_beyond(self, offset: int, clock: Clock, arrivals: Arrivals, timeout_ms: float | None) -> bool:
        """Wait until there is a record at `offset`. False if none came in time, or the log was closed."""
        deadline_ms = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        while True:
            arrivals.reset()
            if arrivals.is_closed:
                return False
            if self.log.high_watermark > offset:
                arrivals.found()
                return True
            self._refuse_deleted(offset)
            remaining_ms = None if deadline_ms is None else deadline_ms - clock.monotonic_ms()
            if (remaining_ms is not None and remaining_ms <= 0) or not arrivals.wait(remaining_ms):
                return self.log.acknowledged_end() > offset

    def _refuse_deleted(self, offset: int) -> None:
        """Raise if the topic was deleted: nothing more will ever come from its partition."""
        log = plain(self.log)
        if isinstance(log, Partition):
            log.read(offset, 1)  # raises LogClosed, before waiters are notified
        elif self._broker is not None and self._broker.partition(*log.label) is not log:
            raise UnknownTopic(self.log.label[0])

    def _fault_of_tail(self, error: FoldlogError, arrivals: Arrivals) -> FoldlogError | None:
        """The error that a tail raises; None if the log was closed, which is how a tail ends."""
        if isinstance(error, LogClosed):
            # Closing the log closes `arrivals` first; if that is open, only the topic is gone.
            if arrivals.is_closed:
                return None
            if self._broker is None:
                return UnknownTopic(self.log.label[0])
        return self._why(error)

    def _why(self, error: FoldlogError) -> FoldlogError:
        """The real cause of a failed read: often the topic's deletion, which closes its partitions."""
        if self._broker is None or isinstance(error, UnknownTopic):
            return error
        try:
            self._broker.topic(self.log.label[0])  # first: it surely raises if the log is closed
            now = self._broker.partition(*self.log.label)
        except FoldlogError as better:
            return better
        # A closed partition in an open log is just being deleted.
        is_deleted = now is not plain(self.log) or isinstance(error, LogClosed)
        return UnknownTopic(self.log.label[0]) if is_deleted else error

    def _next(self, offset: int, stop: int, left: int | None) -> tuple[list[Record], int]:
        """The records of the next slice of the log, and the offset to go on from."""
        if self.stop is not None:
            stop = min(stop, self.stop)
        try:
            data, next_offset, _ = self.log.read(offset, self._read_bytes)
        except OffsetOutOfRange as error:
            if self.begins_at_start and offset == self.start and error.start > offset:
                # Retention moved the start between the call and the first read; "start" is the new start.
                self.start = error.start
                return [], error.start
            raise
        if not data:
            # Kafka's compaction may leave nothing at the end of its files.
            return [], min(next_offset, stop) if next_offset > offset else refuse_end(self.log, offset)
        self._read_bytes = min(self._read_bytes * 2, READ_CHUNK_BYTES)
        topic, number = self.log.label
        records, decoded_to = decode(
            data,
            topic,
            number,
            start_offset=offset,
            end_offset=stop,
            max_records=MAX_INT64 if left is None else left,
            decompressed_limit=self.log.decompressed_limit,
            enough_bytes=DECODED_BYTES,
        )
        next_offset = min(next_offset, decoded_to)
        of_key, of_value = self._deserializers
        if records and (of_key is not None or of_value is not None):
            done = deserialized(records, of_key, of_value)
            if len(done) < len(records):
                next_offset = records[len(done)].offset
            records = done
        # The data may begin after `stop`, behind a gap of compaction: then nothing is left before it.
        return records, min(next_offset, stop) if next_offset > offset else stop


def refuse_end(log: ReadablePartition, offset: int) -> NoReturn:
    """Raise because the log ends at `offset`, where it went on before: it was cut short meanwhile."""
    raise out_of_range(log.label, offset, log.log_start_offset, offset)


def resolve_stop(log: Bounded, stop: object) -> int:
    """Where to stop, exclusive: an offset, which may be beyond the end, or "end" as of now."""
    if stop == "end":
        return log.acknowledged_end()
    if type(stop) is int and stop >= 0:
        return stop
    raise InvalidArgument(f"stop={stop!r} is not an offset or 'end'")
