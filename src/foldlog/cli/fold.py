"""`foldlog fold`: run the folds of a pipeline, look at them, and replay them."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from foldlog.cli.client_properties import add_property_options, client_properties, refuse_properties
from foldlog.cli.exit_codes import DONE, FAILED, INTERRUPTED
from foldlog.cli.fold_progress import Progress, progress_for
from foldlog.cli.fold_signals import StopOnSignals
from foldlog.cli.fold_status import status_json, status_lines
from foldlog.cli.output import remark, say
from foldlog.cli.parsing import Verbs, add_verb, add_verbs
from foldlog.cli.places import broker_url
from foldlog.cli.tables import add_format_option
from foldlog.cli.wording import counted
from foldlog.errors import FoldError, InvalidArgument, MissingDependency

if TYPE_CHECKING:
    from foldlog.spark.folds.declaration import Fold
    from foldlog.spark.origins.origin import OriginSpec

DEFAULT_FILE: Final = "folds.py"

DESCRIPTION: Final = """\
A pipeline is a Python file that declares folds: functions from a topic's rows to a view of them, such as a table, a
search index or counters. Every view keeps its own bookmark, so a fold can be stopped, rewound, rebuilt and proven.

The log is a directory, -d data/, or a broker, -b 127.0.0.1:9092; --source and FOLDLOG_SOURCE take either."""

_INTERVAL: Final = re.compile(r"(?P<count>\d+(\.\d+)?)(?P<unit>ms|s|m)?")
_AGO: Final = re.compile(r"-\d.*")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    verbs = add_verbs(parser)

    run = _verb(verbs, "run", "read on from each view's bookmark, and keep the views up to date", run_folds)
    run.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help=f"the pipeline, a Python file (or FOLDLOG_FOLDS; default: {DEFAULT_FILE})",
    )
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
    add_format_option(status)

    rewind = _verb(verbs, "rewind", "move a fold's bookmark back, to read again from there", rewind_fold)
    _one_fold(rewind)
    rewind.add_argument(
        "--to",
        metavar="PLACE",
        required=True,
        help="an offset (1200), one per partition (0:1200,1:900), a time (2026-01-15T10:30: local time, or with Z or"
        " +05:30), -6h, or start",
    )
    rewind.add_argument("--dry-run", action="store_true", help="only say what would be read again")
    rewind._negative_number_matcher = _AGO  # argparse takes "-6h" for an option, and has no other way to tell it

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
    verbs: Verbs, name: str, summary: str, action: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, summary, action)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--source", metavar="LOG", help="the log: a directory, host:port, or kafka://host:port (or FOLDLOG_SOURCE)"
    )
    place.add_argument("-d", "--dir", dest="directory", metavar="DIR", help="the log's directory (or FOLDLOG_DIR)")
    place.add_argument(
        "-b",
        "--bootstrap-server",
        dest="bootstrap",
        metavar="HOST:PORT",
        help="a broker of the log (or FOLDLOG_BOOTSTRAP_SERVER)",
    )
    add_property_options(parser)
    return parser


def _file_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--file", metavar="FILE", help=f"the pipeline (or FOLDLOG_FOLDS; default: {DEFAULT_FILE})"
    )


def _one_fold(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the fold")
    _file_option(parser)


def _spark_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", metavar="URL", help="where Spark runs, such as spark://host:7077 (default: this machine)"
    )
    parser.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        help="a setting of Spark's, such as spark.executor.memory=2g; may be repeated",
    )
    parser.add_argument("--range-bytes", metavar="N", type=int, help="about how much is read at once (default: 64 MiB)")
    parser.add_argument("--spark-log", metavar="FILE", help="append what Spark itself says to this file")


# --- the verbs ------------------------------------------------------------------------------------------------------


def run_folds(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import run
    from foldlog.spark.folds.declaration import chosen_folds

    interval_s = _interval_s(arguments.interval)
    folds = chosen_folds(_folds(arguments), arguments.names)
    source = _source(arguments)
    with _running(arguments, [fold.name for fold in folds]) as under_way:
        feeds = run(
            folds,
            source,
            once=arguments.once,
            interval_s=interval_s,
            strict=arguments.strict,
            skip_missing=arguments.skip_missing,
            **under_way.options,
        )
    if under_way.is_interrupted and arguments.once:
        return INTERRUPTED
    return FAILED if any(feed.state == "failed" for feed in feeds) else DONE


def show_status(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import status
    from foldlog.spark.folds.declaration import chosen_folds

    folds = chosen_folds(_folds(arguments), arguments.names)
    states = status(folds, _source(arguments))
    is_wide = arguments.format == "wide"
    for line in [status_json(states)] if arguments.format == "json" else status_lines(states, is_wide=is_wide):
        say(line)
    return FAILED if any(state.error for state in states) else DONE


def rewind_fold(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import opened, rewind
    from foldlog.spark.folds.places import with_zone
    from foldlog.spark.folds.replay import described, planned_rewind

    fold, source, to = _fold(arguments), _source(arguments), with_zone(arguments.to)
    if to != arguments.to:
        remark(f"{arguments.to.removeprefix('@')} is taken as local time, {to}")
    if arguments.dry_run:
        with opened(source) as (origin, _):
            rewound = planned_rewind(fold, to, origin)
    else:
        rewound = rewind(fold, source, to)
    went = "would go" if arguments.dry_run else "went"
    say(
        f"{fold.name} {went} from {described(rewound.before)} to {described(rewound.now)}:"
        f" {counted(rewound.again, 'offset')} to read again"
    )
    return DONE


def rebuild_fold(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import rebuild

    fold, source = _fold(arguments), _source(arguments)
    with _running(arguments, [f"{fold.name} (rebuild)"]) as under_way:
        feed = rebuild(
            fold, source, accept_loss=arguments.accept_loss, drop_old=arguments.drop_old, **under_way.options
        )
    kept = "" if arguments.drop_old else f"; the old one is kept until 'foldlog fold drop {fold.name} --old'"
    say(f"{fold.view.place} is rebuilt from {counted(feed.records, 'record')}{kept}")
    return DONE


def verify_fold(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import verify
    from foldlog.spark.folds.pipeline import told_verdict

    fold, source = _fold(arguments), _source(arguments)
    with _running(arguments, [f"{fold.name} (verify)"]) as under_way:
        verdict = verify(fold, source, **under_way.options)
    say(f"{fold.name} is {told_verdict(verdict)}")
    return DONE if verdict.answer == "equal" else FAILED


def drop_fold(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import drop, status

    fold, source = _fold(arguments), _source(arguments)
    what = f"what the last rebuild of {fold.view.place} replaced" if arguments.old else fold.view.place
    (state,) = status([fold], source)
    if state.is_running and state.published is not None and not arguments.old:
        raise FoldError(
            f"fold {fold.name!r} is being run by {state.published.runner}, which would make its view anew;"
            " stop that runner, then drop the view"
        )
    if not arguments.dry_run:
        drop(fold, source, old_only=arguments.old)
    if state.bookmark is None and not arguments.old:
        say(f"there is no {what} to remove")
    else:
        say(f"would remove {what}" if arguments.dry_run else f"removed {what}; the log is as it was")
    return DONE


def ask_runner(arguments: argparse.Namespace) -> int:
    from foldlog.spark.folds.commands import ask, status

    fold, source = _fold(arguments), _source(arguments)
    (state,) = status([fold], source)
    ask(fold.name, source, arguments.verb)
    if state.is_running and state.published is not None:
        say(f"asked {state.published.runner}, which runs {fold.name}, to {arguments.verb} it")
    else:
        say(f"nobody runs {fold.name} now; whoever does next is asked to {arguments.verb} it")
    return DONE


# --- what they share ------------------------------------------------------------------------------------------------


class _UnderWay:
    """What a verb that runs Spark has at hand: `options` are those that such commands share."""

    def __init__(self, arguments: argparse.Namespace, progress: Progress, signals: StopOnSignals) -> None:
        self._arguments = arguments
        self._settings = _spark_settings(arguments.conf or ())
        self._progress = progress
        self._signals = signals

    @property
    def is_interrupted(self) -> bool:
        return self._signals.is_asked

    @property
    def options(self) -> dict[str, Any]:
        return {
            "range_bytes": _range_bytes(self._arguments),
            "spark": self._start,
            "stop": self._signals.stop,
            "on_progress": self._progress.show,
        }

    def _start(self) -> object:
        """The session. Called once everything else is found to be right: it takes seconds."""
        from foldlog.spark.session import fold_session

        log = self._arguments.spark_log
        self._progress.doing("starting Spark")
        session = fold_session(
            self._arguments.master,
            settings=self._settings,
            log=Path(log) if log else None,
            tell=self._progress.note,
        )
        self._progress.doing("Spark reads and folds the first range")
        self._signals.listen()
        return session


@contextmanager
def _running(arguments: argparse.Namespace, names: list[str]) -> Iterator[_UnderWay]:
    if find_spec("pyspark") is None:
        raise MissingDependency("running a fold", "pyspark", "spark")
    with progress_for(sys.stderr, names) as progress, StopOnSignals(progress.hear) as signals:
        try:
            yield _UnderWay(arguments, progress, signals)
        except FoldError as error:
            if not signals.is_asked:
                raise
            progress.note(str(error))
            raise KeyboardInterrupt from error


def _source(arguments: argparse.Namespace) -> OriginSpec:
    from foldlog.broker.data_directory import check_path
    from foldlog.spark.origins.origin import origin_spec

    source = arguments.source or arguments.directory
    if arguments.directory and not arguments.source:
        check_path(arguments.directory)
    elif not source and arguments.bootstrap:
        source = broker_url(arguments.bootstrap)
    if not source:
        raise InvalidArgument(
            "say where the log is: -d data/ or -b host:port, or FOLDLOG_DIR, FOLDLOG_BOOTSTRAP_SERVER or FOLDLOG_SOURCE"
        )
    spec = origin_spec(source)
    if spec.path is not None:
        refuse_properties(client_properties(arguments.properties, None))
        return spec
    return origin_spec(source, client_properties(arguments.properties, arguments.command_config))


def _folds(arguments: argparse.Namespace) -> list[Fold]:
    from foldlog.spark.folds.declaration import load_folds

    file = arguments.file or os.environ.get("FOLDLOG_FOLDS") or DEFAULT_FILE
    if not arguments.file and not Path(file).exists():
        raise InvalidArgument(f"there is no {file} here; say which file declares the folds: --file FILE")
    return load_folds(file)


def _fold(arguments: argparse.Namespace) -> Fold:
    from foldlog.spark.folds.declaration import chosen_folds

    return chosen_folds(_folds(arguments), [arguments.name])[0]


def _spark_settings(given: Iterable[str]) -> dict[str, str]:
    """
    >>> _spark_settings(["spark.executor.memory=2g", "spark.executor.extraJavaOptions=-Da=b"])
    {'spark.executor.memory': '2g', 'spark.executor.extraJavaOptions': '-Da=b'}
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidArgument(f"--conf {text} is no setting of Spark's, such as spark.executor.memory=2g")
        found[name] = value
    return found


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
