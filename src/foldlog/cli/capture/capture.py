"""`foldlog capture`: a database's own log as topics, how far it is, and its end."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from foldlog.cli.confirmation import is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, FAILED, INTERRUPTED
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
from foldlog.exposition import Family, Sample, render

if TYPE_CHECKING:
    from foldlog.capture import Capture, CaptureStatus

DESCRIPTION: Final = """\
A capture writes every change of a database's tables into topics: first a snapshot, then each transaction that commits,
exactly once. A table's topic holds the table: its keys are the primary key.

  foldlog capture run postgresql://postgres@localhost/shop -d data/
  foldlog capture status postgresql://postgres@localhost/shop -d data/
  foldlog capture run mysql://root@localhost/shop -d data/
  foldlog capture run shop.db -d data/

PostgreSQL needs wal_level=logical; keep its password in ~/.pgpass or PGPASSWORD. MySQL and MariaDB need a binlog with
binlog_row_metadata=FULL; their password may be in ~/.my.cnf or MYSQL_PWD. SQLite gets triggers. Instead of the database
you can give a Python file that declares captures: shop = foldlog.capture.postgres("postgresql://…")."""

NOUN: Final = Noun(
    {
        "run": LazyVerb("capture.capture:run_capture", "write the changes of a database into the log"),
        "status": LazyVerb(
            "capture.capture:show_status", "show how far a capture is, and what the database keeps for it"
        ),
        "drop": LazyVerb("capture.capture:drop_capture", "remove a capture's slot and publication from the database"),
    },
    DESCRIPTION,
)

_FOR_A_URL: Final = ("table", "name", "values", "keys", "numeric", "partitions", "together")


def _target() -> list[Argument | Option]:
    return [
        argument(
            "target",
            "DATABASE|FILE",
            "postgresql:// or mysql://user@host/database, a SQLite file (*.db), or a Python file of captures",
        ),
        option(
            "--name", metavar="NAME", told="the capture's name (default: the database's), or which capture of a file"
        ),
    ]


@command(
    *_target(),
    option(
        "--table",
        metavar="TABLE[=TOPIC]",
        is_repeated=True,
        told="a table, and its topic (default: all with a primary key, into NAME.SCHEMA.TABLE); repeatable",
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
        told="how to write exact numbers: string (the default) or number, with all digits",
    ),
    option("--partitions", metavar="N", read=count_value(1), told="partitions of new topics (default: 1)"),
    option(
        "--together",
        metavar="N",
        read=count_value(1),
        told="while the capture is behind, write up to N of the database's transactions as one (default: 1)",
    ),
    switch("--once", told="stop after writing everything that has committed so far"),
    option(
        "--snapshot",
        metavar="again",
        choices=("again",),
        told="again: first compare every table with its topic, and write what differs",
    ),
    yes_option(),
    init_option(),
    *log_options(),
)
def run_capture(arguments: Arguments) -> int:
    from foldlog.capture import consent, run

    capture = _chosen(arguments)
    question = consent(capture)
    if question is not None and not is_confirmed(arguments, question):
        return FAILED
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
    switch("--metrics", told="print metrics for Prometheus, as a node exporter reads them from a file *.prom"),
    *log_options(),
    more=(
        "LAG is how much of the database's log is not in the topics yet; KEPT is how much of it the database has to"
        " keep. Both grow while nobody runs the capture."
    ),
)
def show_status(arguments: Arguments) -> int:
    from foldlog.capture import status

    capture = _chosen(arguments)
    with open_log(arguments, write=False) as log:
        found = status(capture, log)
    if arguments.metrics:
        say(render(_families(found)).decode().rstrip("\n"))
        return DONE
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


def _families(found: CaptureStatus) -> list[Family]:
    """What is not known is left out."""
    source = found.source
    numbers: dict[str, tuple[str, float | None]] = {
        "running": ("1 while a process reads the changes.", int(source.reader is not None)),
        "lost": ("1 if changes since the last run are lost.", int(source.state.endswith("lost"))),
        "lag_bytes": ("How much of the database's log is not in the topics.", source.lag_bytes),
        "lag_changes": ("Changes that are not in the topics.", source.lag_changes),
        "kept_bytes": ("How much of its log the database keeps for the capture.", source.kept_bytes),
    }
    return [
        Family(f"foldlog_capture_{name}", "gauge", text, [Sample(number, (("capture", found.name),))])
        for name, (text, number) in numbers.items()
        if number is not None
    ]


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
    more="The topics stay. The next run needs --snapshot again.",
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
        raise InvalidArgument(f"--{next(iter(given))} is for a database; {arguments.target} says how its captures are")
    found = {capture.name: capture for capture in load_captures(arguments.target)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        raise InvalidArgument(f"say which capture of {arguments.target}: --name {' or '.join(found)}")
    return found[name]
