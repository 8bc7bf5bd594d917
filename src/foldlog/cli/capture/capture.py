"""`foldlog capture`: a database's own log as topics, how far it is, and its end."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from foldlog.cli.confirmation import is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, INTERRUPTED
from foldlog.cli.log_options import init_option, log_options, open_log
from foldlog.cli.output import remark, say
from foldlog.cli.parsing import (
    Argument,
    Arguments,
    LazyVerb,
    Noun,
    Option,
    argument,
    command,
    count_value,
    option,
    switch,
)
from foldlog.cli.signals import StopOnSignals
from foldlog.cli.tables import Column, format_option, print_table, show_json
from foldlog.cli.units import size_text
from foldlog.cli.wording import counted
from foldlog.errors import InvalidArgument

if TYPE_CHECKING:
    from foldlog.capture import Capture, CaptureStatus

DESCRIPTION: Final = """\
A capture writes every change of a database's tables into topics: first a snapshot, then what commits, a transaction of
the log for each of the database's, each change once. A table's topic holds the table: its keys are the primary key.

  foldlog capture run postgresql://postgres@localhost/shop -d data/
  foldlog capture status postgresql://postgres@localhost/shop -d data/

PostgreSQL needs wal_level=logical. A password is best kept in ~/.pgpass or PGPASSWORD. In place of the URL there may be
a Python file that declares captures: shop = foldlog.capture.postgres("postgresql://…", tables=[...])."""

NOUN: Final = Noun(
    {
        "run": LazyVerb("capture.capture:run_capture", "write what changes in a database into the log"),
        "status": LazyVerb("capture.capture:show_status", "how far a capture is, and what the database keeps for it"),
        "drop": LazyVerb("capture.capture:drop_capture", "remove from the database what a capture has made there"),
    },
    DESCRIPTION,
)

_FOR_A_URL: Final = ("table", "name", "values", "keys", "numeric", "partitions")


def _target() -> list[Argument | Option]:
    return [
        argument("target", "URL|FILE", "postgresql://user@host/database, or a Python file that declares captures"),
        option("--name", metavar="NAME", told="the capture (default: named after the database); of a file, which one"),
    ]


@command(
    *_target(),
    option(
        "--table",
        metavar="TABLE[=TOPIC]",
        is_repeated=True,
        told="a table, and the topic it goes into (default: all with a primary key, into NAME.SCHEMA.TABLE); may be"
        " repeated",
    ),
    option(
        "--values",
        metavar="FORM",
        choices=("plain", "debezium"),
        told="plain (the default): the row as JSON; debezium: before, after, source, op, ts_ms",
    ),
    option(
        "--keys",
        metavar="FORM",
        choices=("plain", "json"),
        told="plain: the text of a key of one column; json: an object (default: what goes with the values)",
    ),
    option(
        "--numeric",
        metavar="FORM",
        choices=("string", "number"),
        told="how exact numbers are written: string (the default) or number, with all digits",
    ),
    option("--partitions", metavar="N", read=count_value(1), told="of topics that are made (default: 1)"),
    switch("--once", told="stop when everything is written that has committed so far"),
    option(
        "--snapshot",
        metavar="again",
        choices=("again",),
        told="again: compare every table with its topic first, and write what differs",
    ),
    init_option(),
    *log_options(),
)
def run_capture(arguments: Arguments) -> int:
    from foldlog.capture import run

    capture = _chosen(arguments)
    with open_log(arguments, write=True, make=True) as log, StopOnSignals(remark) as signals:
        signals.listen()
        done = run(
            capture,
            log,
            once=arguments.once,
            snapshot_again=arguments.snapshot is not None,
            stop=signals.stop,
            tell=lambda sentence: remark(f"capture {capture.name}: {sentence}"),
        )
    say(
        f"{capture.name}: {counted(done.records, 'record')} written, of"
        f" {counted(done.snapshot_rows, 'row')} that a snapshot read and {counted(done.transactions, 'transaction')}"
    )
    return INTERRUPTED if signals.is_asked and arguments.once else DONE


_COLUMNS: Final = (
    Column("capture", "CAPTURE"),
    Column("state", "STATE"),
    Column("bookmark", "BOOKMARK"),
    Column("lag", "LAG", is_number=True),
    Column("kept", "KEPT BY THE DATABASE", is_number=True),
    Column("reader", "READER"),
    Column("source", "SOURCE"),
)
_TABLE_COLUMNS: Final = (
    Column("table", "TABLE"),
    Column("topic", "TOPIC"),
    Column("key", "KEY"),
    Column("snapshot", "SNAPSHOT"),
)


@command(
    *_target(),
    format_option(),
    *log_options(),
    more="LAG is how much of the database's log is not in the topics yet, KEPT how much it cannot forget before: both"
    " grow while nobody runs the capture.",
)
def show_status(arguments: Arguments) -> int:
    from foldlog.capture import status

    capture = _chosen(arguments)
    with open_log(arguments, write=False) as log:
        found = status(capture, log)
    if arguments.format == "json":
        show_json({**asdict(found), "tables": [asdict(table) for table in found.tables]})
        return DONE
    print_table(arguments, _COLUMNS, [_row(found)])
    if found.tables:
        say("")
        rows = [
            {
                "table": table.title,
                "topic": table.topic,
                "key": ", ".join(table.keys),
                "snapshot": "none" if table.since is None else "done",
            }
            for table in found.tables
        ]
        print_table(arguments, _TABLE_COLUMNS, rows)
    if found.source.warning is not None:
        remark(found.source.warning)
    return DONE


def _row(found: CaptureStatus) -> dict[str, object]:
    source = found.source
    lag = None if source.lag_bytes is None else size_text(source.lag_bytes)
    if source.lag_changes is not None:
        lag = counted(source.lag_changes, "change")
    return {
        "capture": found.name,
        "state": source.state,
        "bookmark": found.bookmark,
        "lag": lag,
        "kept": None if source.kept_bytes is None else size_text(source.kept_bytes),
        "reader": source.reader,
        "source": found.place,
    }


@command(
    *_target(),
    yes_option(),
    more="The log keeps the topics. A run after this needs --snapshot again.",
)
def drop_capture(arguments: Arguments) -> int:
    from foldlog.capture import drop

    capture = _chosen(arguments)
    question = (
        f"remove what capture {capture.name!r} has made in the database? What changes from now on is not kept for it"
    )
    if not is_confirmed(arguments, question):
        return DONE
    done = drop(capture)
    say(f"removed: {', '.join(done)}" if done else f"capture {capture.name} has nothing in the database")
    return DONE


def _chosen(arguments: Arguments) -> Capture:
    """The capture that the command line declares, or names of a file."""
    from foldlog.capture import load_captures, of_url

    given: dict[str, Any] = {
        name: value for name in _FOR_A_URL if (value := getattr(arguments, name, None)) is not None
    }
    if not arguments.target.endswith(".py"):
        tables = [word.partition("=") for word in given.pop("table", ())]
        chosen = {name: topic for name, _, topic in tables}
        return of_url(arguments.target, chosen or None, **given)
    name = given.pop("name", None)
    if given:
        raise InvalidArgument(f"--{next(iter(given))} is for a URL; {arguments.target} says how its captures are")
    found = {capture.name: capture for capture in load_captures(arguments.target)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        raise InvalidArgument(f"say which capture of {arguments.target}: --name {' or '.join(found)}")
    return found[name]
