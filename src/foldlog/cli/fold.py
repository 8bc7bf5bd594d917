"""`foldlog fold`: run the folds of a pipeline, look at them, and replay them."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from foldlog.cli.exit_codes import DONE, FAILED, INTERRUPTED
from foldlog.cli.fold_progress import progress_for
from foldlog.cli.fold_signals import StopOnSignals
from foldlog.cli.output import say
from foldlog.cli.wording import ParagraphFormatter, counted
from foldlog.errors import InvalidArgument, MissingDependency

if TYPE_CHECKING:
    from foldlog.spark.folds.commands import FoldState
    from foldlog.spark.folds.declaration import Fold

DEFAULT_FILE: Final = "folds.py"

DESCRIPTION: Final = """\
A pipeline is a Python file that declares folds: functions from a topic's rows to a view of them, such as a table, a
search index or counters. Every view keeps its own bookmark, so a fold can be stopped, rewound, rebuilt and proven.

The log is a directory, or a broker: --source data/, --source kafka://127.0.0.1:9092, or FOLDLOG_SOURCE."""

_INTERVAL: Final = re.compile(r"(?P<count>\d+(\.\d+)?)(?P<unit>ms|s|m)?")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    verbs = parser.add_subparsers(title="verbs", required=True, dest="verb")

    run = _verb(verbs, "run", "read on from each view's bookmark, and keep the views up to date", run_folds)
    run.add_argument("file", metavar="FILE", help="the pipeline, a Python file")
    run.add_argument("names", metavar="NAME", nargs="*", help="only these folds (default: all)")
    run.add_argument("--once", action="store_true", help="stop when everything there is has been read")
    run.add_argument("--interval", metavar="TIME", default="1s", help="how often to look for more (default: 1s)")
    run.add_argument("--strict", action="store_true", help="stop at a record that does not parse")
    run.add_argument(
        "--skip-missing", action="store_true", help="go on, counting, where the log no longer holds what is next"
    )
    _spark_options(run)

    status = _verb(verbs, "status", "bookmark, end, lag and last error of each fold", show_status)
    _file_option(status)
    status.add_argument("names", metavar="NAME", nargs="*", help="only these folds (default: all)")
    status.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")

    rewind = _verb(verbs, "rewind", "move a fold's bookmark back, to read again from there", rewind_fold)
    _one_fold(rewind)
    rewind.add_argument(
        "--to",
        metavar="PLACE",
        required=True,
        help="an offset (1200), one per partition (0:1200,1:900), a time (2026-01-15T10:30), -6h, or start",
    )
    rewind.add_argument("--dry-run", action="store_true", help="only say what would be read again")

    rebuild = _verb(verbs, "rebuild", "build a view anew beside the old one, then swap them", rebuild_fold)
    _one_fold(rebuild)
    rebuild.add_argument("--accept-loss", action="store_true", help="also if the log no longer holds everything")
    rebuild.add_argument("--drop-old", action="store_true", help="do not keep what was replaced")
    _spark_options(rebuild)

    verify = _verb(verbs, "verify", "replay with another split into a scratch view, and compare", verify_fold)
    _one_fold(verify)
    _spark_options(verify)

    drop = _verb(verbs, "drop", "remove a fold's view and its bookmark; the log is not touched", drop_fold)
    _one_fold(drop)
    drop.add_argument("--old", action="store_true", help="only what the last rebuild replaced")
    drop.add_argument("--dry-run", action="store_true", help="only say what would be removed")

    for name, told in (
        ("pause", "ask the running runner to leave a fold alone"),
        ("resume", "ask the running runner to go on with a fold"),
    ):
        asked = _verb(verbs, name, told, ask_runner)
        _one_fold(asked)


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    told: str,
    action: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(
        name, help=told, description=told[0].upper() + told[1:] + ".", formatter_class=ParagraphFormatter
    )
    parser.add_argument(
        "--source", metavar="LOG", help="the log: a directory, host:port, or kafka://host:port (or FOLDLOG_SOURCE)"
    )
    parser.add_argument("-d", dest="directory", metavar="DIR", help="the log's directory")
    parser.add_argument("-b", "--bootstrap-server", dest="bootstrap", metavar="HOST:PORT", help="a broker of the log")
    parser.set_defaults(run=action)
    return parser


def _file_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--file", metavar="FILE", help=f"the pipeline (or FOLDLOG_FOLDS; default: {DEFAULT_FILE})"
    )


def _one_fold(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the fold")
    _file_option(parser)


def _spark_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", metavar="URL", help="the Spark master (default: this machine)")
    parser.add_argument("--range-bytes", metavar="N", type=int, help="about how much is read at once (default: 64 MiB)")


# --- the verbs ------------------------------------------------------------------------------------------------------


def run_folds(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.declaration import chosen_folds, load_folds

    interval_s = _interval_s(arguments.interval)
    folds = chosen_folds(load_folds(arguments.file), arguments.names)
    source = _source(arguments)
    _need_spark()
    from foldlog.spark.folds.commands import run
    from foldlog.spark.session import fold_session

    spark = fold_session(arguments.master)
    with StopOnSignals() as signals, progress_for(sys.stderr) as progress:
        run(
            folds,
            source,
            once=arguments.once,
            interval_s=interval_s,
            strict=arguments.strict,
            skip_missing=arguments.skip_missing,
            range_bytes=_range_bytes(arguments),
            spark=spark,
            stop=signals.stop,
            on_progress=progress.show,
        )
    return INTERRUPTED if signals.is_asked and arguments.once else DONE


def show_status(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import status
    from foldlog.spark.folds.declaration import chosen_folds

    folds = chosen_folds(_folds(arguments), arguments.names)
    states = status(folds, _source(arguments))
    if arguments.format == "json":
        say(json.dumps([asdict(state) for state in states], indent=2))
    else:
        for line in _table([_status_row(state) for state in states]):
            say(line)
        for state in states:
            if state.error:
                say(f"{state.fold}: {state.error}")
    return FAILED if any(state.error for state in states) else DONE


def rewind_fold(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import opened, rewind
    from foldlog.spark.folds.replay import described, planned_rewind

    fold, source = _fold(arguments), _source(arguments)
    if arguments.dry_run:
        with opened(source) as (origin, _):
            rewound = planned_rewind(fold, arguments.to, origin)
        say(
            f"{fold.name} would go from {described(rewound.before)} to {described(rewound.now)}:"
            f" {counted(rewound.again, 'offset')} to read again"
        )
        return DONE
    rewound = rewind(fold, source, arguments.to)
    say(
        f"{fold.name} went from {described(rewound.before)} to {described(rewound.now)}:"
        f" {counted(rewound.again, 'offset')} to read again"
    )
    return DONE


def rebuild_fold(arguments: argparse.Namespace) -> int:
    fold, source = _fold(arguments), _source(arguments)
    _need_spark()
    from foldlog.spark.folds.commands import rebuild
    from foldlog.spark.session import fold_session

    spark = fold_session(arguments.master)
    with StopOnSignals() as signals, progress_for(sys.stderr) as progress:
        feed = rebuild(
            fold,
            source,
            accept_loss=arguments.accept_loss,
            drop_old=arguments.drop_old,
            range_bytes=_range_bytes(arguments),
            spark=spark,
            stop=signals.stop,
            on_progress=progress.show,
        )
    kept = "" if arguments.drop_old else f"; the old one is kept until 'foldlog fold drop {fold.name} --old'"
    say(f"{fold.view.place} is rebuilt from {counted(feed.records, 'record')}{kept}")
    return DONE


def verify_fold(arguments: argparse.Namespace) -> int:
    fold, source = _fold(arguments), _source(arguments)
    _need_spark()
    from foldlog.spark.folds.commands import verify
    from foldlog.spark.folds.pipeline import told_verdict
    from foldlog.spark.session import fold_session

    spark = fold_session(arguments.master)
    with StopOnSignals() as signals, progress_for(sys.stderr) as progress:
        verdict = verify(
            fold, source, range_bytes=_range_bytes(arguments), spark=spark, stop=signals.stop, on_progress=progress.show
        )
    say(f"{fold.name} is {told_verdict(verdict)}")
    return DONE if verdict.answer == "equal" else FAILED


def drop_fold(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import drop

    fold, source = _fold(arguments), _source(arguments)
    what = f"what the last rebuild of {fold.view.place} replaced" if arguments.old else fold.view.place
    if arguments.dry_run:
        say(f"would remove {what}")
        return DONE
    drop(fold, source, old_only=arguments.old)
    say(f"removed {what}; the log holds everything it was made of")
    return DONE


def ask_runner(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import ask

    fold = _fold(arguments)
    ask(fold.name, _source(arguments), arguments.verb)
    say(f"asked the runner of {fold.name} to {arguments.verb} it")
    return DONE


# --- what they share ------------------------------------------------------------------------------------------------


def _need_spark() -> None:
    if find_spec("pyspark") is None:
        raise MissingDependency("running a fold", "pyspark", "spark")


def _source(arguments: argparse.Namespace) -> str:
    given = [one for one in (arguments.source, arguments.directory, arguments.bootstrap) if one]
    if len(given) > 1:
        raise InvalidArgument("say where the log is once: with --source, -d or -b")
    source = given[0] if given else os.environ.get("FOLDLOG_SOURCE", "")
    if not source:
        raise InvalidArgument("say where the log is: --source data/, or --source kafka://host:port, or FOLDLOG_SOURCE")
    return str(source)


def _folds(arguments: argparse.Namespace) -> list[Fold]:
    from foldlog.spark.folds.declaration import load_folds

    file = arguments.file or os.environ.get("FOLDLOG_FOLDS") or DEFAULT_FILE
    if not arguments.file and not Path(file).exists():
        raise InvalidArgument(f"there is no {file} here; say which file declares the folds: --file FILE")
    return load_folds(file)


def _fold(arguments: argparse.Namespace) -> Fold:
    from foldlog.spark.folds.declaration import chosen_folds

    return chosen_folds(_folds(arguments), [arguments.name])[0]


def _interval_s(text: str) -> float:
    """
    >>> _interval_s("250ms"), _interval_s("2")
    (0.25, 2.0)
    """
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise InvalidArgument(f"--interval {text} is not a time, such as 1s or 250ms")
    return float(found["count"]) * _UNIT_S[found["unit"]]


def _range_bytes(arguments: argparse.Namespace) -> int | None:
    if arguments.range_bytes is not None and arguments.range_bytes < 1:
        raise InvalidArgument(f"--range-bytes {arguments.range_bytes} is not a size: 1 or more")
    return int(arguments.range_bytes) if arguments.range_bytes is not None else None


def _status_row(state: FoldState) -> tuple[str, ...]:
    told = state.published
    doing = "never run" if state.bookmark is None else "not running"
    if told is not None and (state.is_running or told.state in ("failed", "paused")):
        doing = told.state
    at = "-" if state.bookmark is None else " ".join(f"{n}:{offset}" for n, offset in state.bookmark.items())
    end = " ".join(f"{n}:{offset}" for n, offset in state.end.items()) or "-"
    dead = str(told.dead_letters) if told is not None else "-"
    return (state.fold, doing, str(state.lag), at, end, dead, str(state.skipped), state.view)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns under their names, as wide as they need to be."""
    heads = ("FOLD", "STATE", "LAG", "BOOKMARK", "END", "DEAD", "SKIPPED", "VIEW")
    widths = [max(len(row[index]) for row in [heads, *rows]) for index in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [heads, *rows]
    ]
