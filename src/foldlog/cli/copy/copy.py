"""`foldlog copy`: topics from one log into another, with what groups and folds need to continue there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import foldlog
from foldlog.broker.topics.catalog import CATALOG_NAME
from foldlog.cli.client_properties import client_properties, property_options
from foldlog.cli.confirmation import dry_run_option
from foldlog.cli.copy.report import CopyReport, damage_text, report_plan, show_report
from foldlog.cli.exit_codes import DONE, FAILED, IN_THE_WAY, UNREACHABLE, code_of
from foldlog.cli.log_options import ISOLATION_LEVEL, SCHEME, init_option, is_kafkas, open_named
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, argument, command, one_of, option, switch
from foldlog.cli.progress_bar import ProgressBar
from foldlog.cli.signals import StopOnSignals
from foldlog.cli.tables import format_option
from foldlog.cli.units import parse_seconds
from foldlog.client.copy.check import unchecked
from foldlog.client.copy.copying import Copying, Pair, Plan
from foldlog.errors import CopyConflict, FoldlogError, InvalidArgument, LogNotFound
from foldlog.log.retention import outlived_text

if TYPE_CHECKING:
    from foldlog.cli.copy.folds import FoldMove
    from foldlog.client.copy.offsets import OffsetMap
    from foldlog.client.copy.targets import Route
    from foldlog.client.log import Log
    from foldlog.spark.folds.declaration import Fold
    from foldlog.spark.origins.origin import OriginSpec

DESCRIPTION: Final = """\
Copies topics between directories, brokers and Kafka clusters, in any direction. It keeps order, keys, headers, times,
tombstones and partitions, and the settings that the target knows. A directory keeps offsets; a broker does too, unless
the source has expired or compacted records. Otherwise offsets are mapped.

A log is a directory, HOST:PORT, or kafka://HOST:PORT?property=value with properties of Kafka clients. Keep passwords
in a file: --from-config and --to-config.

  foldlog copy orders payments --from data/ --to kafka://broker:9092
  foldlog copy orders=orders-2025 --from data/ --to archive/

It translates the committed offsets of groups, so that they continue in the copy; with --folds, also the bookmarks of a
pipeline's views. At the end it reads both sides again and compares what is new; --check-all compares everything.

You can stop it at any time, and run it again: it continues, and doubles nothing. Run it later to copy what is new, or
use --follow to keep copying, a second or so behind: a warm standby. Nobody else may write to the copies meanwhile."""

_ADDRESSES: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):\d+(,(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):\d+)*")


@command(
    argument(
        "topics",
        "TOPIC[=NAME]",
        "a topic, and its name in the target",
        is_many=True,
        is_needed=False,
    ),
    option("--from", dest="source", metavar="LOG", told="the log to copy from", is_needed=True),
    option("--to", dest="target", metavar="LOG", told="the log to copy to", is_needed=True),
    init_option(),
    *property_options(prefix="from", of=" for the log to copy from"),
    *property_options(prefix="to", of=" for the log to copy to"),
    switch("--all", told="all topics of the source"),
    option(
        "--folds", metavar="FILE", told="the pipeline whose views shall continue in the copy; stop its runner first"
    ),
    switch("--no-groups", told="do not copy the committed offsets of groups"),
    *one_of(
        switch("--no-check", told="do not read both sides again at the end"),
        switch("--check-all", told="compare everything at the end, not only what is new since the last check"),
    ),
    switch(
        "--follow",
        told=(
            "keep copying new records and groups until a signal ends it; not with --dry-run, --folds and --no-groups"
        ),
    ),
    option("--interval", metavar="TIME", told="with --follow, how often to look for new records (default: 1s)"),
    dry_run_option(),
    format_option(),
    description=DESCRIPTION,
)
def run(arguments: Arguments) -> int:
    interval_s = parse_seconds(arguments.interval or "1s", "--interval")
    if arguments.follow:
        return follow(arguments, interval_s)
    if arguments.interval is not None:
        raise InvalidArgument("--interval needs --follow; add --follow, or leave --interval out")
    folds = _declared(arguments)
    with (
        opened(arguments) as (source, target),
        Copying(source, target, pairs_of(arguments, source), passes_damage=True) as copying,
    ):
        if arguments.dry_run:
            return _plan(arguments, copying, folds)
        report = copied(arguments, copying, folds)
    show_report(arguments, report)
    return told_outcome(report)


def told_outcome(report: CopyReport) -> int:
    """The exit code of a copy; prints a sentence that explains one that is not 0."""
    if report.damages:
        remark(damage_text(report.damages))
        return FAILED
    if not report.is_same:
        names = ", ".join(str(route) for route, verdict in report.verdicts.items() if not verdict.is_same)
        remark(
            f"foldlog: the copy is not the same as its source in {names}; groups and folds were left where they are:"
            " look who else writes there, then copy to a topic of another name"
        )
        return FAILED
    return _told_folds(report.folds)


def _told_folds(folds: Sequence[FoldMove]) -> int:
    left = [move.fold for move in folds if move.is_left]
    if not left:
        return DONE
    remark(f"foldlog: {', '.join(left)} did not go on in the copy, for the reasons above; the records are there")
    return IN_THE_WAY


def _declared(arguments: Arguments) -> list[Fold]:
    """The folds of the named pipeline. Called first: a file that cannot be read fails before anything is written."""
    if not arguments.folds:
        return []
    from foldlog.spark.folds.declaration import load_folds

    return load_folds(arguments.folds)


def _plan(arguments: Arguments, copying: Copying, declared: Sequence[Fold]) -> int:
    """Show what would be done."""
    plans = copying.plan()
    groups = [] if arguments.no_groups else copying.plan_groups()
    folds = _planned_folds(arguments, copying, plans, declared)
    report_plan(arguments, plans, groups, folds, copying.undecided())
    if copying.damages:
        remark(damage_text(copying.damages, would=True))
        return FAILED
    return _told_folds(folds)


def copied(arguments: Arguments, copying: Copying, folds: Sequence[Fold] = ()) -> CopyReport:
    """Copy, check, and move groups and folds; returns what was done."""
    plans = copying.plan()
    report = CopyReport(copying.prepare())
    for prepared in report.prepared:
        for name, reason in prepared.left.items():
            remark(f"{prepared.pair.to_topic}: {name} is not copied: {reason}")
        if prepared.outlived is not None:
            remark(f"foldlog: {outlived_text(prepared.pair.to_topic, prepared.outlived)}")
    _copy(copying, sum(plan.remaining for plan in plans), report)
    if not arguments.no_check:
        _check(copying, report, is_whole=arguments.check_all)
    report.undecided, report.damages = copying.undecided(), copying.damages
    # Groups and folds must not continue on a copy that differs or is incomplete.
    if report.is_same and not report.damages:
        _move_readers(arguments, copying, report, folds)
    return report


def _copy(copying: Copying, offsets: int, report: CopyReport) -> None:
    bar = _bar("copying", offsets)
    try:
        report.copied = copying.copy_all(bar.advance)
    finally:
        bar.hide()


def _check(copying: Copying, report: CopyReport, *, is_whole: bool) -> None:
    since = {} if is_whole else copying.checked(report.copied)
    offsets = sum(
        one.offsets.end.source - unchecked(one, since.get(route)).source for route, one in report.copied.items()
    )
    bar = _bar("checking", offsets)
    try:
        report.verdicts = copying.check_all(report.copied, bar.advance, since)
    finally:
        bar.hide()


def _bar(doing: str, total: int) -> ProgressBar:
    return ProgressBar(sys.stderr, doing, total, amount=lambda count: f"{count:,}", unit="offsets")


def _move_readers(arguments: Arguments, copying: Copying, report: CopyReport, folds: Sequence[Fold]) -> None:
    maps = {route: one.offsets for route, one in report.copied.items()}
    if not arguments.no_groups:
        report.groups = copying.move_groups(maps)
    if folds:
        from foldlog.cli.copy.folds import move_folds

        report.folds = move_folds(folds, copying, maps, _origin(arguments))


def _planned_folds(
    arguments: Arguments, copying: Copying, plans: Sequence[Plan], folds: Sequence[Fold]
) -> Sequence[FoldMove]:
    if not folds or copying.damages:  # nothing is moved to an incomplete copy
        return ()
    from foldlog.cli.copy.folds import plan_folds

    return plan_folds(folds, copying, plans, _origin(arguments))


def _origin(arguments: Arguments) -> OriginSpec:
    from foldlog.spark.origins.origin import origin_spec

    return origin_spec(arguments.source, _from_properties(arguments) if is_broker(arguments.source) else {})


# --- what is copied, and where --------------------------------------------------------------------------------------


def pairs_of(arguments: Arguments, source: Log) -> list[Pair]:
    if arguments.all == bool(arguments.topics):
        raise InvalidArgument("say which topics to copy, or --all; not both")
    names = source.topics() if arguments.all else arguments.topics
    pairs: list[Pair] = []
    for word in names:
        topic, sign, name = word.partition("=")
        if sign and not name:
            raise InvalidArgument(f"{word!r} has no new name; say {topic}=NAME, or {topic} to keep it")
        pairs.append(Pair(topic, name or topic))
    return pairs


@contextmanager
def opened(arguments: Arguments) -> Iterator[tuple[Log, Log]]:
    """Both logs; the same one twice if a topic is copied within a directory."""
    source, target = arguments.source, arguments.target
    is_one = not is_broker(source) and not is_broker(target) and os.path.realpath(source) == os.path.realpath(target)
    if is_one:
        with open_side(source, {}, write=not arguments.dry_run) as log:
            yield log, log
        return
    with open_side(source, _from_properties(arguments), write=False) as from_log:
        for pair in pairs_of(arguments, from_log):
            from_log.topic(pair.topic)  # before a directory is created for a missing topic
        with _open_target(arguments) as to_log:
            yield from_log, to_log


@contextmanager
def _open_target(arguments: Arguments) -> Iterator[Log]:
    target = arguments.target
    if arguments.dry_run and not is_broker(target) and not os.path.exists(os.path.join(target, CATALOG_NAME)):
        with foldlog.open(":memory:") as nothing_there:  # a dry run does not create the directory
            yield nothing_there
        return
    properties = client_properties(arguments.to_properties, arguments.to_config)
    with open_side(target, properties, write=not arguments.dry_run, make=True, init=arguments.init) as log:
        yield log


def _from_properties(arguments: Arguments) -> dict[str, str]:
    return client_properties(arguments.from_properties, arguments.from_config)


@contextmanager
def open_side(
    location: str, properties: Mapping[str, str], *, write: bool, make: bool = False, init: bool = False
) -> Iterator[Log]:
    """`properties` are for the clients of a broker; a directory does not use them."""
    if is_broker(location):
        with open_named(None, location, properties, write=write) as log:
            yield log
    else:
        # A copy is permanent: only committed records are copied, unless the user asks for all.
        level = {ISOLATION_LEVEL: properties.get(ISOLATION_LEVEL, "read_committed")}
        is_foreign = is_kafkas(location)
        properties = level if not make and not (is_foreign and write) else {}
        if not make and not is_foreign and not os.path.exists(os.path.join(location, CATALOG_NAME)):
            raise LogNotFound(f"there is no log in {location}; copy from the directory that holds its catalog.json")
        with open_named(location, None, properties, write=write, make=make and write, init=init) as log:
            yield log


def is_broker(location: str) -> bool:
    """
    >>> is_broker("kafka://one:9092"), is_broker("127.0.0.1:9092,[::1]:9093"), is_broker("data/")
    (True, True, False)
    """
    # A URL with a slash missing is not a directory: its name would be shown with the password in it.
    return location.startswith(SCHEME.rstrip("/")) or (
        _ADDRESSES.fullmatch(location) is not None and not os.path.exists(location)
    )


# --- following ------------------------------------------------------------------------------------------------------


FOLLOWING: Final = "following; SIGTERM or Ctrl-C ends it, and the same command continues from there"


def follow(arguments: Arguments, interval_s: float) -> int:
    """Copy what there is, tell of it, and go on until a signal comes, or what was copied turns out to be wrong."""
    if arguments.dry_run or arguments.folds or arguments.no_groups:
        raise InvalidArgument("--follow does not work with --dry-run, --folds and --no-groups; leave them out")
    with StopOnSignals(remark) as signals, opened(arguments) as (source, target):
        signals.listen()
        standby = _Standby(arguments, source, target)
        code = standby.round()
        show_report(arguments, standby.report)
        told = ""
        remark(FOLLOWING)
        while code == DONE and not signals.stop.wait(interval_s):
            try:
                code, told = standby.round(), ""
            except FoldlogError as error:
                if code_of(error) != UNREACHABLE:
                    raise
                if not told:  # once per outage
                    told = str(error)
                    remark(f"foldlog: {told}; trying again")
        return code if code != DONE or not standby.left else IN_THE_WAY


class _Standby:
    """The state of a followed copy, between two rounds."""

    def __init__(self, arguments: Arguments, source: Log, target: Log) -> None:
        self._arguments = arguments
        self._source = source
        self._target = target
        self._ends: dict[Pair, tuple[str, dict[int, tuple[int, int]]]] = {}  # with the id of the topic
        self._maps: dict[Route, OffsetMap] = {}
        self.report = CopyReport(())
        self.left: set[Pair] = set()  # their copies no longer match the source

    def round(self) -> int:
        """Copy everything that is new; returns the exit code as of now."""
        pairs = [pair for pair in pairs_of(self._arguments, self._source) if pair not in self.left]
        # Read before copying: what is written meanwhile counts as new in the next round.
        ends = {pair: (self._source.topic(pair.topic).topic_id, self._source.offsets(pair.topic)) for pair in pairs}
        changed = [pair for pair in pairs if self._ends.get(pair) != ends[pair]]
        if changed:
            code = self._bring(changed)
            if code != DONE:
                return code
            self._ends.update({pair: ends[pair] for pair in changed})
        if self._maps:
            followed = [pair for pair in pairs if pair not in self.left]
            topics = {pair.topic for pair in followed}  # a group may have offsets only in a topic that is gone
            with Copying(self._source, self._target, followed, passes_damage=True) as copying:
                maps = {route: one for route, one in self._maps.items() if route.topic in topics}
                copying.move_groups(maps, mirrors=True)
        return DONE

    def _bring(self, changed: list[Pair]) -> int:
        """Copy what is new of these topics. A topic that was deleted and recreated has other records at the same
        offsets: it is left, and the others are followed. In the first round, with the user present, it is an error."""
        try:
            return self._copy(changed)
        except CopyConflict:
            if not self._ends:
                raise
        for pair in changed:
            try:
                code = self._copy([pair])
            except CopyConflict as error:
                self._leave(pair, error)
                continue
            if code != DONE:
                return code
        return DONE

    def _copy(self, pairs: list[Pair]) -> int:
        with Copying(self._source, self._target, pairs, passes_damage=True) as copying:
            self.report = copied(self._arguments, copying)
            maps = {route: one.offsets for route, one in self.report.copied.items()}
            code = told_outcome(self.report)
            if code == DONE:
                copying.follow_starts(maps)
        self._maps.update(maps)
        return code

    def _leave(self, pair: Pair, error: CopyConflict) -> None:
        self.left.add(pair)
        if self.left.issuperset(self._ends):
            raise error
        self._maps = {route: one for route, one in self._maps.items() if route.topic != pair.topic}
        remark(f"foldlog: {pair.topic} is not followed any more, the others are: {error}")
