"""`foldlog fold init` and `foldlog fold explain`: a first pipeline, and what a fold would do."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from foldlog.cli.exit_codes import DONE, IN_THE_WAY
from foldlog.cli.fold.fold import DEFAULT_FILE, chosen_fold, chosen_source, one_fold, running_spark, source_options
from foldlog.cli.output import remark, say
from foldlog.cli.parsing import Arguments, argument, command, option, switch
from foldlog.cli.tables import format_option, show_json
from foldlog.cli.wording import counted

if TYPE_CHECKING:
    from foldlog.spark.advice.explanation import Explanation


@command(
    argument("topic", "TOPIC", "the topic to fold"),
    *source_options(),
    option("-f", "--file", metavar="FILE", told=f"the file to write (default: {DEFAULT_FILE}); '-' for the output"),
    switch("--force", told="replace the file if it is there"),
)
def init_pipeline(arguments: Arguments) -> int:
    from foldlog.spark.folds.commands import first_pipeline

    file = arguments.file or DEFAULT_FILE
    if file != "-" and Path(file).exists() and not arguments.force:
        remark(f"foldlog: there is a file {file} already; write another, --file FILE, or replace it, --force")
        return IN_THE_WAY
    text, found = first_pipeline(arguments.topic, chosen_source(arguments))
    if file == "-":
        say(text.rstrip())
        return DONE
    Path(file).write_text(text, encoding="utf-8")
    keyed = "records without keys" if found.key is None else f"the key is {found.key}"
    say(f"wrote {file}: {found.format}, {counted(len(found.columns), 'column')}, {keyed}")
    for note in found.notes:
        say(f"note: {note}")
    say(f"look at it, then: foldlog fold run {shlex.quote(file)} {_source_words(arguments)} --once")
    return DONE


def _source_words(arguments: Arguments) -> str:
    """The option that names the log, as somebody would type it again."""
    for option_name, value in (
        ("--source", arguments.source),
        ("-d", arguments.directory),
        ("-b", arguments.bootstrap),
    ):
        if value:
            return f"{option_name} {shlex.quote(value)}"
    return ""


@command(
    argument("file", "FILE", "the pipeline, a Python file"),
    one_fold(),
    *source_options(),
    option("--master", metavar="URL", told="where Spark runs (default: this machine)"),
    option("--conf", metavar="NAME=VALUE", told="a Spark setting; repeatable", is_repeated=True),
    option("--spark-log", metavar="FILE", told="append Spark's own output to this file"),
    format_option(),
)
def explain_fold(arguments: Arguments) -> int:
    from foldlog.spark.folds.commands import explain

    fold, source = chosen_fold(arguments), chosen_source(arguments)
    with running_spark(arguments, [fold.name]) as under_way:
        found = explain(fold, source, spark=under_way.start)
    if arguments.format == "json":
        show_json([asdict(one) for one in found])
    else:
        for line in (line for one in found for line in explanation_lines(one)):
            say(line)
    return DONE


def explanation_lines(found: Explanation) -> list[str]:
    """For people."""
    where = "from the start" if found.from_the_start else "from the bookmark"
    unread = f" (not: {', '.join(found.columns_unread)})" if found.columns_unread else ""
    steps = ", ".join(f"{told} x {count}" if count > 1 else told for told, count in found.steps.items())
    key = f", key {', '.join(found.key)}" if found.key else ""
    of = f"of {counted(found.partitions, 'partition')}, in about {counted(found.ranges, 'range')}"
    return [
        f"{found.fold}: {found.topic} -> {found.view}",
        f"  reads     {counted(found.records, 'record')} {where}, {of}; {found.format}",
        f"            columns {', '.join(found.columns_read) or 'none'}{unread}",
        f"  computes  {steps or 'rows as they are, without a shuffle'}",
        f"  writes    {found.kind}{' (new)' if found.is_new else ''}: {', '.join(found.columns_written)}{key}",
        f"            by {found.writers}",
        f"            {found.how}",
    ]
