"""`foldlog topic latest` and `foldlog topic history`: the table behind a topic, and how a row came to be."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from foldlog.cli.exit_codes import DONE, NOT_FOUND
from foldlog.cli.output import remark
from foldlog.cli.parsing import CommandParser, Verbs, add_verb
from foldlog.cli.place_syntax import parse_place, take_places
from foldlog.cli.places import add_place_options, open_place
from foldlog.cli.record_options import add_output_options, bytes_value, count_value, place_value
from foldlog.cli.wording import counted
from foldlog.errors import InvalidArgument

if TYPE_CHECKING:
    from foldlog.cli.places import AnyLog
    from foldlog.cli.record_reading import Reach
    from foldlog.records.loops import Record

LATEST: Final = """\
The topic read as a table: of each key the newest record; a tombstone removes the key. Rows come in the order of their
last change. Memory grows with the number of keys, as all rows are held until the topic is read.

With --key it is one row, and exit code 3 if there is none; only the partition of that key is read, from its end.

  foldlog topic latest orders                     the table now
  foldlog topic latest orders --as-of @-1h        the table an hour ago
  foldlog topic latest orders --key u1 -f '%v\\n'  one value"""

HISTORY: Final = """\
Every record of one key, oldest first, tombstones included; exit code 3 if there is none. Only the partition of that key
is read."""

AS_OF_HELP: Final = (
    "the table as it was there: @-1h, @2026-01-15T10:30, or an offset in each partition; what lies before it counts"
    " (default: end)"
)
ALL_PARTITIONS_HELP: Final = (
    "look for the key in every partition: where the topic has grown, or producers place keys by rules of their own"
)


def configure(verbs: Verbs) -> None:
    latest = add_verb(verbs, "latest", "show the newest record of each key", run_latest, LATEST)
    latest.add_argument("topic", metavar="TOPIC", help="the topic")
    latest.add_argument("-k", "--key", metavar="KEY", type=bytes_value, help="only this key")
    latest.add_argument("-n", "--count", metavar="COUNT", type=count_value(1), help="only the rows that changed last")
    _add_table_options(latest)

    history = add_verb(verbs, "history", "show every record of a key", run_history, HISTORY)
    history.add_argument("topic", metavar="TOPIC", help="the topic")
    history.add_argument("-k", "--key", metavar="KEY", type=bytes_value, required=True, help="the key")
    history.add_argument("-n", "--count", metavar="COUNT", type=count_value(1), help="only the last records")
    _add_table_options(history)


def _add_table_options(parser: CommandParser) -> None:
    take_places(parser)
    parser.add_argument("--as-of", metavar="PLACE", type=place_value, help=AS_OF_HELP)
    parser.add_argument("--all-partitions", action="store_true", help=ALL_PARTITIONS_HELP)
    add_output_options(parser, text="key and value in columns")
    add_place_options(parser)


def run_latest(arguments: argparse.Namespace) -> int:
    from foldlog.cli.record_format import TABLE_COLUMNS
    from foldlog.cli.record_output import output_for
    from foldlog.cli.record_table import newest_of_key, newest_per_key

    output = output_for(arguments, TABLE_COLUMNS)
    with open_place(arguments, write=False) as log:
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


def run_history(arguments: argparse.Namespace) -> int:
    from foldlog.cli.record_format import HISTORY_COLUMNS
    from foldlog.cli.record_output import output_for
    from foldlog.cli.record_table import history_of_key

    output = output_for(arguments, HISTORY_COLUMNS)
    with open_place(arguments, write=False) as log:
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


def _wanted(arguments: argparse.Namespace, log: AnyLog) -> list[Reach]:
    """The partitions up to where the table is asked for."""
    from foldlog.cli.record_table import until

    as_of = arguments.as_of or parse_place("end")
    if as_of.is_range:
        raise InvalidArgument(f"--as-of {as_of.text} is a range; a table has one time, such as @-1h")
    wanted, told = until(log, arguments.topic, as_of)
    for line in told:
        remark(f"note: {line}")
    return wanted


def _parts(arguments: argparse.Namespace, log: AnyLog, wanted: list[Reach]) -> Iterator[list[Reach]]:
    """Where to look for the key: at home first, and elsewhere only if it is not there, unless that is asked for."""
    from foldlog.cli.record_table import home_of

    # A directory's catalog knows that keys have moved; a cluster does not tell.
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
