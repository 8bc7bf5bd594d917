"""`foldlog topic latest` and `foldlog topic history`: the table behind a topic, and the history of a row.

A table is made by reading the topic once, so memory grows with the number of keys, not of records. Within a partition
the later offset is newer. If a key has records in several partitions (the topic has grown, or producers place keys by
different rules), the later timestamp decides. A tombstone removes its key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.cli.exit_codes import DONE, NOT_FOUND
from foldlog.cli.log_options import log_options, open_log
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, Option, argument, command, count_value, option, switch
from foldlog.cli.records.options import bytes_value, output_options
from foldlog.cli.records.reading import Reach, reaches, read_reaches, windows_back
from foldlog.cli.wording import counted
from foldlog.client.outgoing import partition_for_key
from foldlog.client.places import PlaceSpec, Span, parse_point
from foldlog.client.positions import TopicPartition
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from foldlog.client.log import Log

LATEST: Final = """\
Reads the topic as a table: the newest record of each key; a tombstone removes the key. Rows come in the order of their
last change. Memory grows with the number of keys.

With --key it prints one row, or exits with 3 if there is none. It then reads only the key's partition, from its end.

  foldlog topic latest orders                     the table now
  foldlog topic latest orders --as-of @-1h        the table an hour ago
  foldlog topic latest orders --key u1 -f '%v\\n'  one value"""

HISTORY: Final = """\
Prints every record of one key, oldest first, tombstones included. Exits with 3 if there is none. It reads only the
key's partition."""

AS_OF_HELP: Final = (
    "the table before this place: @-1h, @2026-01-15T10:30, or an offset in each partition (default: end)"
)
ALL_PARTITIONS_HELP: Final = (
    "look for the key in every partition: use it if the topic has gained partitions, or producers place keys"
    " differently"
)


def table_options() -> list[Option]:
    return [
        option("--as-of", metavar="PLACE", read=parse_point, told=AS_OF_HELP),
        switch("--all-partitions", told=ALL_PARTITIONS_HELP),
        *output_options(text="key and value in columns"),
        *log_options(),
    ]


@command(
    argument("topic", "TOPIC", "the topic"),
    option("-k", "--key", metavar="KEY", read=bytes_value, told="only this key"),
    option("-n", "--count", metavar="COUNT", read=count_value(1), told="only the rows that changed last"),
    *table_options(),
    more=LATEST,
)
def latest(arguments: Arguments) -> int:
    from foldlog.cli.records.format import TABLE_COLUMNS
    from foldlog.cli.records.output import output_for

    output = output_for(arguments, TABLE_COLUMNS)
    with open_log(arguments, write=False) as log:
        output.of(log)
        wanted = _wanted(arguments, log)
        if arguments.key is None:
            table = newest_per_key(log, wanted)
            output.write_all(table.rows[-(arguments.count or 0) :])
            if table.keyless:
                verb = "is" if table.keyless == 1 else "are"
                remark(f"note: {counted(table.keyless, 'record')} without a key {verb} not in the table")
            if not table.rows:
                remark(f"the table of {arguments.topic} is empty")
            return DONE
        newest: Record | None = None
        for parts in _parts(arguments, log, wanted):
            newest = newest_of_key(log, parts, arguments.key)
            if newest is not None:
                break
    if newest is not None and newest.value is not None:
        output.write([newest])
        return DONE
    if newest is None:
        remark(f"{arguments.topic} has no record with that key")
    else:
        remark(f"that key was deleted at offset {newest.offset} of {newest.topic}-{newest.partition}")
    return NOT_FOUND


@command(
    argument("topic", "TOPIC", "the topic"),
    option("-k", "--key", metavar="KEY", read=bytes_value, told="the key", is_needed=True),
    option("-n", "--count", metavar="COUNT", read=count_value(1), told="only the last records"),
    *table_options(),
    more=HISTORY,
)
def history(arguments: Arguments) -> int:
    from foldlog.cli.records.format import HISTORY_COLUMNS
    from foldlog.cli.records.output import output_for

    output = output_for(arguments, HISTORY_COLUMNS)
    with open_log(arguments, write=False) as log:
        output.of(log)
        wanted = _wanted(arguments, log)
        for parts in _parts(arguments, log, wanted):
            records: Iterable[Record] = history_of_key(log, parts, arguments.key)
            if arguments.count is not None:
                records = deque(records, maxlen=arguments.count)
            output.write_all(records)
            if output.count:
                return DONE
    remark(f"{arguments.topic} has no record with that key")
    return NOT_FOUND


def _wanted(arguments: Arguments, log: Log) -> list[Reach]:
    """The partitions up to the point that the table is asked for."""

    as_of = arguments.as_of or parse_point("end")
    wanted, told = until(log, arguments.topic, as_of)
    for line in told:
        remark(f"note: {line}")
    return wanted


def _parts(arguments: Arguments, log: Log, wanted: list[Reach]) -> Iterator[list[Reach]]:
    """Where to look for the key: in its home partition, then in the others if it is not there; or in all at once."""

    # A directory's catalog knows whether keys have moved; a cluster does not tell.
    has_grown = bool(log.topic(arguments.topic).growths)
    if arguments.all_partitions or has_grown:
        yield wanted
        return
    home, others = home_of(wanted, arguments.topic, arguments.key)
    yield home
    if others:
        number = home[0].partition.partition
        remark(f"note: not in partition {number}, where that key belongs; looking in the others")
        yield others


# --- the table behind a topic ---------------------------------------------------------------------------------------


class NewestRows(NamedTuple):
    """A table: its rows, oldest first, and how many records had no key and so are not in it."""

    rows: list[Record]
    keyless: int


def until(log: Log, topic: str, as_of: PlaceSpec) -> tuple[list[Reach], list[str]]:
    """Each partition up to the place, exclusive: the log as it was then; and notes for the user."""
    found, told = reaches(log, [topic], as_of)
    return [
        Reach(partition, Span(bounds[0], span.start), (bounds[0], span.start)) for partition, span, bounds in found
    ], told


def newest_per_key(log: Log, wanted: Iterable[Reach]) -> NewestRows:
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
    return NewestRows(rows, keyless)


def when(record: Record) -> tuple[int, int, int]:
    """The order of a table: by time, and by partition and offset if times are equal."""
    return record.timestamp_ms, record.partition, record.offset


def home_of(wanted: Iterable[Reach], topic: str, key: bytes) -> tuple[list[Reach], list[Reach]]:
    """The home partition of a key, by the rule of Java clients and foldlog, and the others."""
    parts = list(wanted)
    home = TopicPartition(topic, partition_for_key(key, len(parts)))
    return [reach for reach in parts if reach.partition == home], [reach for reach in parts if reach.partition != home]


def newest_of_key(log: Log, wanted: Iterable[Reach], key: bytes) -> Record | None:
    """The key's newest record, tombstones included; None if there is none. Reads partitions backwards."""
    found = [record for record in (_newest_in(log, reach, key) for reach in wanted) if record is not None]
    return max(found, key=when, default=None)


def _newest_in(log: Log, reach: Reach, key: bytes) -> Record | None:
    for window in windows_back(log, reach):
        newest = None
        for record in window:
            if record.key == key:
                newest = record
        if newest is not None:
            return newest
    return None


def history_of_key(log: Log, wanted: Iterable[Reach], key: bytes) -> Iterator[Record]:
    """Every record of the key, tombstones included, partition by partition in order."""
    return (record for record in read_reaches(log, wanted) if record.key == key)
