"""`foldlog fold`: run the folds of a pipeline, show their state, and replay them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from foldlog.cli.client_properties import client_properties, property_options, refuse_properties
from foldlog.cli.exit_codes import DONE, FAILED, INTERRUPTED
from foldlog.cli.fold.graph import behind, downstream_option, place_behind, say_behind, tried
from foldlog.cli.fold.progress import FoldProgress, progress_for
from foldlog.cli.log_options import broker_url
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
    one_of,
    option,
    switch,
)
from foldlog.cli.signals import StopOnSignals
from foldlog.cli.tables import Column, format_option, print_table, show_json
from foldlog.cli.units import parse_duration_ms, parse_seconds, parse_size_bytes
from foldlog.cli.wording import counted
from foldlog.client.fold_bulletin import MIXED
from foldlog.client.places import BACK_HELP, POINTS_HELP, parse_topic_points, places_text, topics_ranges_text
from foldlog.errors import FoldError, FoldRunning, InvalidArgument, MissingDependency
from foldlog.limits import FOLD_PREVIEW_MAX
from foldlog.views.topic_lists import located

if TYPE_CHECKING:
    from foldlog.spark.folds.commands import FoldState, Preview
    from foldlog.spark.folds.declaration import Fold
    from foldlog.spark.origins.origin import OriginSpec

DEFAULT_FILE: Final = "folds.py"

DESCRIPTION: Final = """\
A pipeline is a Python file that declares folds: functions from a topic's rows to a view, such as a table, a search
index or counters. Every view keeps its own bookmark, so you can stop, rewind, rebuild and verify a fold.

The log is a directory, -d data/, or a broker, -b 127.0.0.1:9092; --source and FOLDLOG_SOURCE take either."""

NOUN: Final = Noun(
    {
        "run": LazyVerb("fold.fold:run_folds", "keep views up to date, from their bookmarks on"),
        "init": LazyVerb("fold.first:init_pipeline", "write a first pipeline for a topic, from its records"),
        "explain": LazyVerb("fold.first:explain_fold", "show what a run of a fold would read, shuffle and write"),
        "preview": LazyVerb("fold.fold:preview_fold", "show what a fold makes of the last records, without storing it"),
        "graph": LazyVerb("fold.graph:show_graph", "draw which folds read what others write"),
        "status": LazyVerb("fold.fold:show_status", "show bookmark, end, lag and last error of each fold"),
        "rewind": LazyVerb("fold.fold:rewind_fold", "move a fold's bookmark back, to read again from there"),
        "rebuild": LazyVerb("fold.fold:rebuild_fold", "build a new view beside the old one, then swap them"),
        "backfill": LazyVerb("fold.fold:backfill_fold", "recompute the rows of some keys, from all their records"),
        "verify": LazyVerb("fold.fold:verify_fold", "replay the log into a scratch view, and compare"),
        "compact": LazyVerb(
            "fold.fold:compact_fold", "join a lake's small files, and remove those that only old states need"
        ),
        "drop": LazyVerb("fold.fold:drop_fold", "remove a fold's view and its bookmark, but not the log"),
        "pause": LazyVerb("fold.fold:pause_fold", "ask the runner to pause a fold"),
        "resume": LazyVerb("fold.fold:resume_fold", "ask the runner to resume a fold"),
    },
    DESCRIPTION,
)


def source_options() -> list[Option]:
    return [
        *one_of(
            option(
                "--source",
                metavar="LOG",
                told="the log: a directory, host:port, or kafka://host:port (or FOLDLOG_SOURCE)",
            ),
            option("-d", "--dir", dest="directory", metavar="DIR", told="the log's directory (or FOLDLOG_DIR)"),
            option(
                "-b",
                "--bootstrap-server",
                dest="bootstrap",
                metavar="HOST:PORT",
                told="a broker of the log (or FOLDLOG_BOOTSTRAP_SERVER)",
            ),
        ),
        *property_options(),
    ]


def names_argument() -> Argument:
    return argument("names", "NAME", "only these folds (default: all)", is_many=True, is_needed=False)


def one_fold() -> Argument:
    return argument("name", "NAME", "the fold")


def file_option() -> Option:
    return option("-f", "--file", metavar="FILE", told=f"the pipeline (or FOLDLOG_FOLDS; default: {DEFAULT_FILE})")


def key_option() -> Option:
    return option(
        "--folds-key",
        metavar="FILE",
        told=(
            "folds.key of the served directory, or a copy, if the log is a broker: needed to publish the folds'"
            " status and to command them"
        ),
    )


def spark_options() -> list[Option]:
    return [
        option("--master", metavar="URL", told="where Spark runs, such as spark://host:7077 (default: this machine)"),
        option(
            "--conf",
            metavar="NAME=VALUE",
            told="a Spark setting, such as spark.executor.memory=2g; repeatable",
            is_repeated=True,
        ),
        option(
            "--range-bytes", metavar="N", read=count_value(1), told="about how much to read at once (default: 64 MiB)"
        ),
        option("--spark-log", metavar="FILE", told="append Spark's own output to this file"),
    ]


# --- the verbs ------------------------------------------------------------------------------------------------------


@command(
    argument(
        "file",
        "FILE",
        f"the pipeline, a Python file (or FOLDLOG_FOLDS; default: {DEFAULT_FILE})",
        is_needed=False,
    ),
    names_argument(),
    *source_options(),
    switch("--once", told="stop after reading everything that was there at the start"),
    switch("--until-caught-up", told="stop when nothing is left to read, including records that arrive meanwhile"),
    option(
        "--timeout",
        metavar="TIME",
        told=(
            "start no new range after this time, which includes Spark's start; the exit code is 124 if --once or"
            " --until-caught-up is not done"
        ),
    ),
    option("--interval", metavar="TIME", default="1s", told="how often to look for new records (default: 1s)"),
    switch("--strict", told="stop at a record that does not parse"),
    switch("--skip-missing", told="skip records that the log no longer holds, and count them"),
    switch(
        "--accept-change",
        told="continue although a fold's function has changed: old and new logic mix in its view until a rebuild",
    ),
    option(
        "--metrics",
        metavar="PLACE",
        told="metrics for Prometheus: serve them at HOST:PORT, or write them to a file *.prom for its node exporter",
    ),
    switch("--lineage", told="send OpenLineage events to OPENLINEAGE_URL, or as OPENLINEAGE_CONFIG says"),
    key_option(),
    *spark_options(),
)
def run_folds(arguments: Arguments) -> int:
    from foldlog.spark.folds.commands import run
    from foldlog.spark.folds.declaration import chosen_folds

    timeout_s = None if arguments.timeout is None else parse_seconds(arguments.timeout, "--timeout")
    interval_s = parse_seconds(arguments.interval, "--interval")
    folds = chosen_folds(_folds(arguments), arguments.names)
    source = chosen_source(arguments)
    with running_spark(arguments, [part.title for fold in folds for part in fold.parts]) as under_way:
        feeds = run(
            folds,
            source,
            once=arguments.once,
            until_caught_up=arguments.until_caught_up,
            timeout_s=timeout_s,
            metrics=arguments.metrics,
            lineage=arguments.lineage,
            interval_s=interval_s,
            strict=arguments.strict,
            skip_missing=arguments.skip_missing,
            accept_change=arguments.accept_change,
            folds_key=arguments.folds_key,
            **under_way.options,
        )
    if under_way.is_interrupted and (arguments.once or arguments.until_caught_up):
        return INTERRUPTED
    return FAILED if any(feed.state == "failed" for feed in feeds) else DONE


@command(
    argument("file", "FILE", "the pipeline, a Python file"),
    one_fold(),
    *source_options(),
    option(
        "--last",
        metavar="N",
        read=count_value(1, FOLD_PREVIEW_MAX),
        default="100",
        told="use this many records (default: 100)",
    ),
    option("--master", metavar="URL", told="where Spark runs (default: this machine)"),
    option("--conf", metavar="NAME=VALUE", told="a Spark setting; repeatable", is_repeated=True),
    option("--spark-log", metavar="FILE", told="append Spark's own output to this file"),
    format_option(),
)
def preview_fold(arguments: Arguments) -> int:
    from foldlog.spark.folds.commands import preview

    fold, source = chosen_fold(arguments), chosen_source(arguments)
    with running_spark(arguments, [fold.name]) as under_way:
        found = preview(fold, source, last=arguments.last, spark=under_way.start)
    each = (found, *found.others)
    if arguments.format == "json":
        shown = [_preview_json(one) for one in each]
        show_json(shown[0] if len(each) == 1 else {one.topic: part for one, part in zip(each, shown, strict=True)})
    else:
        for one in each:
            _show_preview(arguments, fold, one)
        if found.others:
            say(f"\n{fold.view.place} would join these rows with all that it has of the other topic.")
    return FAILED if any(one.dead is not None for one in each) else DONE


def _preview_json(found: Preview) -> dict[str, object]:
    dead = [] if found.dead is None else found.dead.to_pylist()
    records = topics_ranges_text(_spans(found))
    return {"records": records, "in": found.given.to_pylist(), "out": found.made.to_pylist(), "dead_letters": dead}


def _show_preview(arguments: Arguments, fold: Fold, found: Preview) -> None:
    given, made = found.given.to_pylist(), found.made.to_pylist()
    dead = [] if found.dead is None else found.dead.to_pylist()
    where = topics_ranges_text(_spans(found))
    say(f"{counted(len(given), 'row')} of {found.topic} ({where}), as {fold.name} gets them:")
    _print_rows(arguments, found.given.column_names, given)
    say(f"\n{counted(len(made), 'row')} that {fold.view.place} would get; nothing is stored:")
    _print_rows(arguments, found.made.column_names, made)
    if dead:
        say(f"\n{counted(len(dead), 'record')} that would be set aside as dead letters:")
        _print_rows(arguments, ["_partition", "_offset", "reason"], dead)


def _spans(found: Preview) -> Iterator[tuple[str, int, int, int]]:
    return ((*located(found.topic, number), *span) for number, span in sorted(found.ranges.items()))


def _print_rows(arguments: Arguments, names: Iterable[str], rows: Sequence[Mapping[str, object]]) -> None:
    """The coordinates last; the topic and the time only if all columns are wanted."""
    from foldlog.views.contract import META

    own = [Column(name, name) for name in names if name not in META]
    is_there = set(names)
    meta = [Column(name, name, is_wide=name in ("_topic", "_timestamp")) for name in META if name in is_there]
    if rows:
        print_table(arguments, [*own, *meta], rows)


@command(names_argument(), *source_options(), file_option(), format_option())
def show_status(arguments: Arguments) -> int:
    states = _states(arguments, arguments.names)
    if arguments.format == "json":
        show_json([asdict(state) for state in states])
    else:
        show_states(arguments, states)
    return FAILED if any(state.error for state in states) else DONE


@command(
    one_fold(),
    *source_options(),
    file_option(),
    option("--to", metavar="PLACE", told=f"where to, before the bookmark: {BACK_HELP}", is_needed=True),
    switch("--dry-run", told="only show what would be read again"),
    downstream_option(),
    key_option(),
)
def rewind_fold(arguments: Arguments) -> int:
    to = parse_topic_points(arguments.to)
    (fold, others), source = _fold_and_behind(arguments), chosen_source(arguments)
    if to.note:
        remark(f"note: {to.note}")
    _rewind_one(arguments, fold, source, to.text)
    if not arguments.downstream:
        say_behind(fold, others, "rewind")
        return DONE
    for other in others:
        try:
            _rewind_one(arguments, other, source, place_behind(to))
        except (FoldError, InvalidArgument) as error:
            tried("rewound", other, error)
    return DONE


def _rewind_one(arguments: Arguments, fold: Fold, source: OriginSpec, to: str) -> None:
    from foldlog.spark.folds.commands import opened, rewind
    from foldlog.spark.folds.replay import described, planned_rewind

    if arguments.dry_run:
        with opened(source, [fold]) as (origin, _):
            rewound = planned_rewind(fold, to, origin)
    else:
        rewound = rewind(fold, source, to, folds_key=arguments.folds_key)
    went = "would go" if arguments.dry_run else "went"
    for one in rewound.each:
        where = f" in {one.before.topic}" if len(fold.parts) > 1 else ""
        say(
            f"{fold.name} {went}{where} from {described(one.before)} to {described(one.now)}:"
            f" {counted(one.again, 'offset')} to read again"
        )


@command(
    one_fold(),
    *source_options(),
    file_option(),
    switch("--accept-loss", told="rebuild even if the log no longer holds everything"),
    switch("--drop-old", told="do not keep the old view"),
    option("--start", metavar="PLACE", told=f"begin there, and not where the view began: {POINTS_HELP}"),
    downstream_option(),
    key_option(),
    *spark_options(),
)
def rebuild_fold(arguments: Arguments) -> int:
    from foldlog.spark.folds.commands import rebuild

    (fold, others), source = _fold_and_behind(arguments), chosen_source(arguments)
    folds = [fold, *(others if arguments.downstream else [])]
    with running_spark(arguments, [f"{part.title} (rebuild)" for one in folds for part in one.parts]) as under_way:
        for one in folds:
            feed = rebuild(
                one,
                source,
                accept_loss=arguments.accept_loss,
                drop_old=arguments.drop_old,
                start=arguments.start if one is fold else None,
                folds_key=arguments.folds_key,
                **under_way.options,
            )
            records = sum(peer.records for peer in feed.peers)
            is_kept = one.view.keeps_old and not arguments.drop_old
            kept = f"; the old one is kept until 'foldlog fold drop {one.name} --old'" if is_kept else ""
            say(f"{one.view.place} is rebuilt from {counted(records, 'record')}{kept}")
    if not arguments.downstream:
        say_behind(fold, others, "rebuild")
    return DONE


@command(
    one_fold(),
    *source_options(),
    file_option(),
    option("--key", dest="keys", metavar="KEY", is_repeated=True, told="a record key, as text; repeatable"),
    option("--of", metavar="RANGE", told="all keys with a record in a range, such as 100:200 or @2026-01-15:1d"),
    *spark_options(),
)
def backfill_fold(arguments: Arguments) -> int:
    from foldlog.spark.backfill import backfill

    fold, source = chosen_fold(arguments), chosen_source(arguments)
    with running_spark(arguments, [f"{fold.name} (backfill)"]) as under_way:
        done = backfill(fold, source, keys=arguments.keys or (), of=arguments.of, spark=under_way.options["spark"])
    say(f"{fold.name}: {counted(done.keys, 'key')}, computed anew from {counted(done.records, 'record')}")
    return DONE


@command(one_fold(), *source_options(), file_option(), *spark_options())
def verify_fold(arguments: Arguments) -> int:
    from foldlog.spark.folds.commands import verify
    from foldlog.spark.folds.pipeline import told_verdict

    fold, source = chosen_fold(arguments), chosen_source(arguments)
    with running_spark(arguments, [f"{part.title} (verify)" for part in fold.parts]) as under_way:
        verdict = verify(fold, source, **under_way.options)
    say(f"{fold.name} is {told_verdict(verdict)}")
    return DONE if verdict.answer == "equal" else FAILED


@command(
    one_fold(),
    *source_options(),
    file_option(),
    switch("--old", told="only the view that the last rebuild replaced"),
    switch("--dry-run", told="only show what would be removed"),
    key_option(),
)
def drop_fold(arguments: Arguments) -> int:
    from foldlog.spark.folds.commands import drop, status

    fold, source = chosen_fold(arguments), chosen_source(arguments)
    what = f"what the last rebuild of {fold.view.place} replaced" if arguments.old else fold.view.place
    (state,) = status([fold], source)
    if state.is_running and state.published is not None and not arguments.old:
        raise FoldRunning(
            f"fold {fold.name!r} is being run by {state.published.runner}, which would make its view anew;"
            " stop that runner, then drop the view"
        )
    if not arguments.dry_run:
        drop(fold, source, old_only=arguments.old, folds_key=arguments.folds_key)
    if state.bookmark is None and not arguments.old:
        say(f"there is no {what} to remove")
    else:
        say(f"would remove {what}" if arguments.dry_run else f"removed {what}; the log is as it was")
    return DONE


@command(
    one_fold(),
    file_option(),
    option("--target-size", metavar="SIZE", default="128MiB", told="the size of joined files (default: 128MiB)"),
    option(
        "--keep",
        metavar="TIME",
        default="7d",
        told=(
            "how long to keep files that only older states of the table need, for readers and time travel (default: 7d)"
        ),
    ),
)
def compact_fold(arguments: Arguments) -> int:
    from foldlog.views.lake.compaction import CompactionGoal

    fold = chosen_fold(arguments)
    size = parse_size_bytes(arguments.target_size, "--target-size")
    if size < 1:
        raise InvalidArgument("--target-size is the size of a file, such as 128MiB")
    done = fold.view.compact(CompactionGoal(size, parse_duration_ms(arguments.keep, "--keep")))
    fold.view.close()
    joined = f"joined {counted(done.joined, 'file')} into {done.written}" if done.joined else "found no files to join"
    gone = f", removed {counted(done.removed, 'file')} of older states" if done.removed else ""
    say(f"{fold.view.place}: {joined}{gone}; {counted(done.files, 'file')} now")
    return DONE


def ask_runner(arguments: Arguments) -> int:
    from foldlog.spark.folds.commands import ask

    (state,) = _states(arguments, [arguments.name])
    ask(state.fold, chosen_source(arguments), arguments.verb, folds_key=arguments.folds_key)
    if state.is_running and state.published is not None:
        say(f"asked {state.published.runner}, which runs {state.fold}, to {arguments.verb} it")
    else:
        say(f"nobody runs {state.fold} now; whoever does next is asked to {arguments.verb} it")
    return DONE


pause_fold: Final = command(one_fold(), *source_options(), file_option(), key_option())(ask_runner)
resume_fold: Final = command(one_fold(), *source_options(), file_option(), key_option())(ask_runner)


# --- shared parts ---------------------------------------------------------------------------------------------------


class _UnderWay:
    """The context of a verb that runs Spark; `options` are the arguments that such commands share."""

    def __init__(self, arguments: Arguments, progress: FoldProgress, signals: StopOnSignals) -> None:
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
            "range_bytes": self._arguments.range_bytes,
            "spark": self.start,
            "stop": self._signals.stop,
            "on_progress": self._progress.show,
        }

    def start(self) -> Any:
        """The session. Called after everything else was checked: it takes seconds."""
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
def running_spark(arguments: Arguments, names: list[str]) -> Iterator[_UnderWay]:
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


def chosen_source(arguments: Arguments) -> OriginSpec:
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


def _states(arguments: Arguments, names: Sequence[str]) -> list[FoldState]:
    """Of the folds of the file; where there is none, of those that runners have published in the log: whoever operates
    a log need not have its pipeline."""
    from foldlog.spark.folds.commands import published_status, status
    from foldlog.spark.folds.declaration import chosen_folds

    source = chosen_source(arguments)
    if not _has_file(arguments) and (states := published_status(names, source)):
        return states
    return status(chosen_folds(_folds(arguments), names), source)


def _file(arguments: Arguments) -> str:
    return arguments.file or os.environ.get("FOLDLOG_FOLDS") or DEFAULT_FILE


def _has_file(arguments: Arguments) -> bool:
    return bool(arguments.file) or Path(_file(arguments)).exists()


def _folds(arguments: Arguments) -> list[Fold]:
    from foldlog.spark.folds.declaration import load_folds

    if not _has_file(arguments):
        raise InvalidArgument(f"there is no {_file(arguments)} here; say which file declares the folds: --file FILE")
    return load_folds(_file(arguments))


def chosen_fold(arguments: Arguments) -> Fold:
    from foldlog.spark.folds.declaration import chosen_folds

    return chosen_folds(_folds(arguments), [arguments.name])[0]


def _fold_and_behind(arguments: Arguments) -> tuple[Fold, list[Fold]]:
    """The fold, and those of its pipeline that lie behind it."""
    from foldlog.spark.folds.declaration import chosen_folds

    folds = _folds(arguments)
    fold = chosen_folds(folds, [arguments.name])[0]
    return fold, behind(fold, folds)


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


# --- how a status looks ---------------------------------------------------------------------------------------------


_STATUS_COLUMNS: Final = (
    Column("fold", "FOLD"),
    Column("doing", "STATE"),
    Column("lag", "LAG", is_number=True),
    Column("bookmark", "BOOKMARK"),
    Column("end", "END"),
    Column("dead_letters", "DEAD", is_number=True),
    Column("skipped", "SKIPPED", is_number=True),
    Column("view", "VIEW"),
    Column("topic", "TOPIC", is_wide=True),
    Column("kind", "KIND", is_wide=True),
    Column("runner", "RUNNER", is_wide=True),
)
_SHOWN_PARTITIONS: Final = 6


def show_states(arguments: Arguments, states: Sequence[FoldState]) -> None:
    """A table for people, and below it what is wrong. A wide one has more columns, and every partition."""
    print_table(arguments, _STATUS_COLUMNS, [_row(state, arguments.format == "wide") for state in states])
    for state in states:
        if state.error:
            say(f"{state.fold}: {state.error}")
    for state in states:
        if state.mixes:
            say(f"{state.fold}: {MIXED}: foldlog fold rebuild {state.fold}")


def _row(state: FoldState, is_wide: bool) -> dict[str, object]:
    shown = len(state.end) if is_wide else _SHOWN_PARTITIONS
    each = state.topics or (state,)
    before = {one.topic: f"{one.topic} " if state.topics else "" for one in each}
    return {
        "fold": state.fold,
        "doing": _doing(state),
        "lag": state.lag,
        "bookmark": "; ".join(before[one.topic] + offsets_text(one.bookmark or {}, shown) for one in each),
        "end": "; ".join(before[one.topic] + offsets_text(one.end, shown) for one in each),
        "dead_letters": state.dead_letters,
        "skipped": state.skipped,
        "view": state.view,
        "topic": ", ".join(one.topic for one in each),
        "kind": state.kind,
        "runner": state.published.runner if state.published else None,
    }


def _doing(state: FoldState) -> str:
    if state.lag is None:
        return "mismatch"
    told = state.published
    if told is not None and (state.is_running or told.state in ("failed", "paused")):
        return told.state
    if state.is_paused:
        return "paused"
    return "never run" if state.bookmark is None else "not running"


def offsets_text(offsets: Mapping[int, int], shown_partitions: int = _SHOWN_PARTITIONS) -> str:
    """
    >>> offsets_text({0: 7, 1: 9})
    '0=7,1=9'
    >>> offsets_text(dict.fromkeys(range(50), 3))
    '0=3,1=3,2=3,3=3,4=3,5=3 and 44 more'
    """
    shown = dict(sorted(offsets.items())[:shown_partitions])
    more = len(offsets) - len(shown)
    return (places_text(shown) or "-") + (f" and {more} more" if more else "")
