"""`log.queue`: a member of a share group (KIP-932), wherever the log is. The records stay in the log for other readers.

A queue takes records, each of which is then its own until it says what became of it, or the lock times out. What is
asked of the broker of this process, of the process that writes a directory, or of a cluster is a `Taking`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol

from foldlog.broker.groups.group_settings import READ_COMMITTED, check_group_settings
from foldlog.broker.groups.messages import GroupSettings
from foldlog.broker.share.messages import AcknowledgedBatch, AcknowledgeType, AcquiredRange
from foldlog.client.positions import checked_count, checked_timeout_ms
from foldlog.errors import InvalidArgument, InvalidRecordState, LogClosed, brief_repr
from foldlog.records.loops import Record, decode

TAKE_MAX_BYTES = 16 << 20
"""What one take reads at most, but for a batch that is larger: it is unpacked in memory."""


class QueueSettings(NamedTuple):
    """The checked arguments of `Log.queue`. Where one of the last two is None, the group's own setting holds."""

    topics: tuple[str, ...]
    group: str
    auto_offset_reset: str | None = None
    isolation: str | None = None

    @property
    def group_settings(self) -> dict[str, str]:
        """What the group has to be set to before it is joined."""
        wanted = {"share.auto.offset.reset": self.auto_offset_reset, "share.isolation.level": self.isolation}
        return {name: value for name, value in wanted.items() if value is not None}

    def of_log(self, *, committed: bool) -> QueueSettings:
        """With the isolation of the log, if it reads committed records only and nothing else was said."""
        return self._replace(isolation=READ_COMMITTED) if committed and self.isolation is None else self


def check_reset(auto_offset_reset: object) -> str | None:
    """Raises InvalidArgument unless a share group can begin so."""
    if auto_offset_reset is None:
        return None
    if not isinstance(auto_offset_reset, str):
        raise InvalidArgument(f"auto_offset_reset={brief_repr(auto_offset_reset)} is not 'latest' or 'earliest'")
    check_group_settings({"share.auto.offset.reset": auto_offset_reset}, GroupSettings())
    return auto_offset_reset


class TakenRecord(NamedTuple):
    """A record, and how often it was delivered, this time included."""

    record: Record
    delivery_count: int


class Taking(Protocol):
    """What a queue asks of where its log is. One thread at a time."""

    def take(self, max_records: int, timeout_ms: float | None) -> list[TakenRecord]:
        """Acquire records; waits for a first one."""
        ...

    def acknowledge(self, records: Sequence[Record], kind: AcknowledgeType) -> None:
        """Say what became of records. Durable on return. Raises InvalidRecordState if one is not this member's."""
        ...

    def renew(self, records: Sequence[Record]) -> None:
        """Let the locks of records begin anew. Raises InvalidRecordState if one is not this member's, ReadOnly if that
        cannot be asked for."""
        ...

    def close(self) -> None:
        """Leave the group: what is held is available to others."""
        ...


class Queue:
    """Takes records of a log as from a queue, as one of a group of workers. Made by `Log.queue`. One thread at a time:
    open one for each worker.

    A record that is taken goes to nobody else until it is given back: by `release`, by closing, or when its lock times
    out (30 s, unless the group is set otherwise; `renew` lets it begin anew). Accepted and rejected records are not
    given out again; one that was delivered five times is not, either. In the log they all stay.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     _ = log.create_topic("orders")
    ...     _ = log.append("orders", "pack it")
    ...     with log.queue("orders", group="workers", auto_offset_reset="earliest") as queue:
    ...         for record in queue.take(max_records=10, timeout_ms=1000):
    ...             print(record.value)
    ...             queue.ack(record)
    b'pack it'
    """

    def __init__(self, taking: Taking, group: str, dropped: Callable[[Taking], None]) -> None:
        """Use `Log.queue`. `dropped` is called with `taking` if nobody closes this; the garbage collector calls it, so
        it must take no lock."""
        self._taking = taking
        self._group = group
        self._dropped = weakref.finalize(self, dropped, taking)
        self._dropped.atexit = False
        self._counts: dict[tuple[str, int, int], int] = {}
        self._is_closed = False

    def take(self, max_records: int = 500, timeout_ms: float | None = 0) -> list[Record]:
        """Take up to `max_records` records that nobody else has. Waits up to `timeout_ms` for a first one (None: until
        there is one), and returns [] if none came."""
        self._refuse_closed()
        taken = self._taking.take(checked_count("max_records", max_records), checked_timeout_ms(timeout_ms))
        self._counts.update({_place(record): count for record, count in taken})
        return [record for record, _ in taken]

    def ack(self, *records: Record) -> None:
        """Mark records as done: nobody gets them again. Durable on return. Raises InvalidRecordState if the lock of one
        timed out."""
        self._acknowledge(records, AcknowledgeType.ACCEPT)

    def release(self, *records: Record) -> None:
        """Give these records back, for another worker or this one."""
        self._acknowledge(records, AcknowledgeType.RELEASE)

    def reject(self, *records: Record) -> None:
        """Give up on these records: nobody gets them again. Durable on return."""
        self._acknowledge(records, AcknowledgeType.REJECT)

    def renew(self, *records: Record) -> None:
        """Renew the locks of these records, as if you had just taken them. Raises
        InvalidRecordState if the lock of one timed out, InvalidArgument if the group is set not to allow it, and
        ReadOnly on a cluster, whose client library cannot ask for it."""
        self._check_held(records)
        if records:
            self._taking.renew(records)

    def deliveries(self, record: Record) -> int:
        """How often a record that this queue holds was taken, by anybody; 1 the first time."""
        return self._count_of(record)

    def _acknowledge(self, records: Sequence[Record], kind: AcknowledgeType) -> None:
        self._check_held(records)
        if not records:
            return
        try:
            self._taking.acknowledge(records, kind)
        finally:
            for record in records:
                self._counts.pop(_place(record), None)

    def _check_held(self, records: Sequence[Record]) -> None:
        self._refuse_closed()
        for record in records:
            self._count_of(record)

    def _count_of(self, record: Record) -> int:
        if not isinstance(record, Record):
            raise InvalidArgument(
                f"{brief_repr(record)} is not a record: name one record at a time, or several as in ack(*records)"
            )
        try:
            return self._counts[_place(record)]
        except KeyError:
            raise InvalidRecordState(
                f"{brief_repr(record)} is not a record that this queue of group {brief_repr(self._group)} holds; take"
                " it first, and say once what became of it"
            ) from None

    def close(self) -> None:
        """Leave the group; what is held goes to others. Closing twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            self._dropped.detach()
            self._taking.close()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise LogClosed(f"the queue of group {brief_repr(self._group)} is closed; open another with log.queue()")

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


# --- what both kinds of directories need ------------------------------------------------------------------------------


class Unpacked(NamedTuple):
    """Acquired records, and acquired offsets that have no record: they were compacted away."""

    records: list[TakenRecord]
    gaps: list[AcknowledgedBatch]


def unpacked(topic: str, number: int, data: memoryview | bytes, acquired: Sequence[AcquiredRange]) -> Unpacked:
    """What of these batches was acquired."""
    if not acquired:
        return Unpacked([], [])
    found = {record.offset: record for record in decode(data, topic, number, start_offset=acquired[0].first)[0]}
    records: list[TakenRecord] = []
    gaps: list[AcknowledgedBatch] = []
    for first, last, count in acquired:
        for offset in range(first, last + 1):
            record = found.get(offset)
            if record is not None:
                records.append(TakenRecord(record, count))
            elif gaps and gaps[-1].last == offset - 1:
                gaps[-1] = gaps[-1]._replace(last=offset)
            else:
                gaps.append(AcknowledgedBatch(offset, offset, (AcknowledgeType.GAP,)))
    return Unpacked(records, gaps)


def by_partition(records: Iterable[Record], kind: AcknowledgeType) -> dict[tuple[str, int], list[AcknowledgedBatch]]:
    """Acknowledgements in the order of their offsets, neighbours together."""
    found: dict[tuple[str, int], list[AcknowledgedBatch]] = {}
    for topic, number, offset in sorted({_place(record) for record in records}):
        batches = found.setdefault((topic, number), [])
        if batches and batches[-1].last == offset - 1:
            batches[-1] = batches[-1]._replace(last=offset)
        else:
            batches.append(AcknowledgedBatch(offset, offset, (kind,)))
    return found
