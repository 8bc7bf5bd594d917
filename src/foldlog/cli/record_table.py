"""The table behind a log: of each key the newest record, and a key's history.

A table is made by reading the topic once, so memory grows with the number of keys, not with that of records. Within a
partition the later offset is newer. Where a key has records in several partitions (the topic has grown, or producers
place keys by different rules), the later timestamp decides. A tombstone removes its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from foldlog.cli.place_syntax import PlaceSpec, Span
from foldlog.cli.record_reading import Reach, reaches, read_reaches, windows_back
from foldlog.client.partitioners import partition_for_key
from foldlog.client.positions import TopicPartition
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from foldlog.cli.places import AnyLog


class Newest(NamedTuple):
    """A table: its rows, oldest first, and how many records had no key and so no place in it."""

    rows: list[Record]
    keyless: int


def until(log: AnyLog, topic: str, as_of: PlaceSpec) -> tuple[list[Reach], list[str]]:
    """Each partition up to the place, exclusive: the log as it was then. And what there is to say of it."""
    found, told = reaches(log, [topic], as_of)
    return [
        Reach(partition, Span(bounds[0], span.start), (bounds[0], span.start)) for partition, span, bounds in found
    ], told


def newest_per_key(log: AnyLog, wanted: Iterable[Reach]) -> Newest:
    """The table of all keys."""
    newest: dict[bytes, Record] = {}
    keyless = 0
    for reach in wanted:
        number = reach.partition.partition
        for record in read_reaches(log, [reach]):
            key = record.key
            if key is None:
                keyless += 1
                continue
            before = newest.get(key)
            if before is None or before.partition == number or before.timestamp_ms <= record.timestamp_ms:
                newest[key] = record
    rows = [record for record in newest.values() if record.value is not None]
    rows.sort(key=when)
    return Newest(rows, keyless)


def when(record: Record) -> tuple[int, int, int]:
    """The order of a table: by time, and by place where times are equal."""
    return record.timestamp_ms, record.partition, record.offset


def home_of(wanted: Iterable[Reach], topic: str, key: bytes) -> tuple[list[Reach], list[Reach]]:
    """The partition that a key belongs to, by the rule of Java clients and foldlog, and the others."""
    parts = list(wanted)
    home = TopicPartition(topic, partition_for_key(key, len(parts)))
    return [reach for reach in parts if reach.partition == home], [reach for reach in parts if reach.partition != home]


def newest_of_key(log: AnyLog, wanted: Iterable[Reach], key: bytes) -> Record | None:
    """The key's newest record, a tombstone included; None if there is none. Reads back from the end of partitions."""
    found = [record for record in (_newest_in(log, reach, key) for reach in wanted) if record is not None]
    return max(found, key=when, default=None)


def _newest_in(log: AnyLog, reach: Reach, key: bytes) -> Record | None:
    for window in windows_back(log, reach):
        newest = None
        for record in window:
            if record.key == key:
                newest = record
        if newest is not None:
            return newest
    return None


def history_of_key(log: AnyLog, wanted: Iterable[Reach], key: bytes) -> Iterator[Record]:
    """Every record of the key, tombstones included, partition by partition in order."""
    return (record for record in read_reaches(log, wanted) if record.key == key)
