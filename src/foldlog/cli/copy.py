"""`foldlog copy`: topics from one log into another, with what groups and folds need to go on there."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import foldlog
from foldlog.cli.client_properties import add_property_options, client_properties
from foldlog.cli.confirmation import add_dry_run_option
from foldlog.cli.copy_report import Report, damage_text, report_plan, show_report
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.output import remark
from foldlog.cli.places import ISOLATION_LEVEL, SCHEME, is_kafkas, open_named
from foldlog.cli.progress_bar import ProgressBar
from foldlog.cli.tables import add_format_option
from foldlog.client.copying import Copying, Pair, Plan
from foldlog.errors import InvalidArgument

if TYPE_CHECKING:
    from foldlog.cli.copy_folds import FoldMove
    from foldlog.cli.places import AnyLog
    from foldlog.spark.origins.origin import OriginSpec

DESCRIPTION: Final = """\
Copies topics between directories, brokers and Kafka clusters, in any direction, whole batches at a time. Order, keys,
headers, times, tombstones and partitions are kept; so are the settings that the target knows, and offsets where it
allows that: always in a directory, and at a broker where the source has neither expired nor compacted anything.
Elsewhere offsets are mapped.

A log is a directory, HOST:PORT, or kafka://HOST:PORT?property=value with properties of Kafka clients. A password is
best kept in a file: --from-config and --to-config.

  foldlog copy orders payments --from data/ --to kafka://broker:9092
  foldlog copy orders=orders-2025 --from data/ --to archive/

What groups have committed is translated, so that they go on in the copy where they stand; with --folds, so are the
bookmarks of a pipeline's views. At the end both sides are read again and compared.

It may be stopped at any time, also by a crash: called again, it goes on after what has arrived, and nothing is doubled.
Called later once more, it brings what has been written since. Nobody else may write to the copies meanwhile."""

_ADDRESSES: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):\d+(,(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):\d+)*")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "topics", metavar="TOPIC[=NAME]", nargs="*", help="a topic, and what it is to be called in the target"
    )
    parser.add_argument("--from", dest="source", metavar="LOG", required=True, help="the log to copy from")
    parser.add_argument("--to", dest="target", metavar="LOG", required=True, help="the log to copy to")
    add_property_options(parser, prefix="from", of=" for the log to copy from")
    add_property_options(parser, prefix="to", of=" for the log to copy to")
    parser.add_argument("--all", action="store_true", help="all topics of the source")
    parser.add_argument(
        "--folds", metavar="FILE", help="the pipeline whose views are to go on in the copy; its runner must not run"
    )
    parser.add_argument("--no-groups", action="store_true", help="leave out what groups have committed")
    parser.add_argument("--no-check", action="store_true", help="do not read both sides again at the end")
    add_dry_run_option(parser)
    add_format_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    report = _report(arguments)
    if isinstance(report, int):
        return report
    show_report(arguments, report)
    if report.damages:
        remark(damage_text(report.damages))
        return FAILED
    if report.is_same:
        return DONE
    names = ", ".join(str(route) for route, verdict in report.verdicts.items() if not verdict.is_same)
    remark(
        f"foldlog: the copy is not the same as its source in {names}; groups and folds were left where they are:"
        " look who else writes there, then copy to a topic of another name"
    )
    return FAILED


def _report(arguments: argparse.Namespace) -> Report | int:
    """What was done; the exit code if it was only to be told."""
    with (
        opened(arguments) as (source, target),
        Copying(source, target, _pairs(arguments, source), passes_damage=True) as copying,
    ):
        plans = copying.plan()
        if arguments.dry_run:
            groups = {} if arguments.no_groups else copying.group_places()
            report_plan(arguments, plans, groups, _planned_folds(arguments, copying, plans), copying.undecided())
            if copying.damages:
                remark(damage_text(copying.damages, would=True))
            return FAILED if copying.damages else DONE
        report = Report(copying.prepare())
        for prepared in report.prepared:
            for name, reason in prepared.left.items():
                remark(f"{prepared.pair.to_topic}: {name} is not copied: {reason}")
        _copy(copying, sum(plan.remaining for plan in plans), report)
        if not arguments.no_check:
            _check(copying, report)
        report.undecided, report.damages = copying.undecided(), copying.damages
        # A copy that differs, or lacks something, is nothing to go on with.
        if report.is_same and not report.damages:
            _move_readers(arguments, copying, report)
        return report


def _copy(copying: Copying, offsets: int, report: Report) -> None:
    bar = _bar("copying", offsets)
    try:
        report.copied = copying.copy_all(bar.advance)
    finally:
        bar.hide()


def _check(copying: Copying, report: Report) -> None:
    offsets = [one.offsets for one in report.copied.values()]
    bar = _bar("checking", sum(one.end.source - one.points[0].source for one in offsets))
    try:
        report.verdicts = copying.check_all(report.copied, bar.advance)
    finally:
        bar.hide()


def _bar(doing: str, total: int) -> ProgressBar:
    return ProgressBar(sys.stderr, doing, total, amount=lambda count: f"{count:,}", unit="offsets")


def _move_readers(arguments: argparse.Namespace, copying: Copying, report: Report) -> None:
    maps = {route: one.offsets for route, one in report.copied.items()}
    if not arguments.no_groups:
        report.groups = copying.move_groups(maps)
    if arguments.folds:
        from foldlog.cli.copy_folds import move_folds

        report.folds = move_folds(arguments.folds, copying, maps, _origin(arguments))


def _planned_folds(arguments: argparse.Namespace, copying: Copying, plans: Sequence[Plan]) -> Sequence[FoldMove]:
    if not arguments.folds or copying.damages:  # nothing is moved to a copy that would lack something
        return ()
    from foldlog.cli.copy_folds import plan_folds

    return plan_folds(arguments.folds, copying, plans, _origin(arguments))


def _origin(arguments: argparse.Namespace) -> OriginSpec:
    from foldlog.spark.origins.origin import origin_spec

    return origin_spec(arguments.source, _from_properties(arguments) if is_broker(arguments.source) else {})


# --- what is copied, and where --------------------------------------------------------------------------------------


def _pairs(arguments: argparse.Namespace, source: AnyLog) -> list[Pair]:
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
def opened(arguments: argparse.Namespace) -> Iterator[tuple[AnyLog, AnyLog]]:
    """Both logs; one, twice, where a topic is copied within a directory."""
    source, target = arguments.source, arguments.target
    is_one = not is_broker(source) and not is_broker(target) and os.path.realpath(source) == os.path.realpath(target)
    if is_one:
        with open_log(source, {}, write=not arguments.dry_run) as log:
            yield log, log
        return
    with open_log(source, _from_properties(arguments), write=False) as from_log:
        for pair in _pairs(arguments, from_log):
            from_log.topic(pair.topic)  # before a directory is made for what there is not
        with _open_target(arguments) as to_log:
            yield from_log, to_log


@contextmanager
def _open_target(arguments: argparse.Namespace) -> Iterator[AnyLog]:
    from foldlog.broker.catalog import CATALOG_NAME

    target = arguments.target
    if arguments.dry_run and not is_broker(target) and not os.path.exists(os.path.join(target, CATALOG_NAME)):
        with foldlog.open(":memory:") as nothing_there:  # the directory is not made for a look
            yield nothing_there
        return
    properties = client_properties(arguments.to_properties, arguments.to_config)
    with open_log(target, properties, write=not arguments.dry_run, make=True) as log:
        yield log


def _from_properties(arguments: argparse.Namespace) -> dict[str, str]:
    return client_properties(arguments.from_properties, arguments.from_config)


@contextmanager
def open_log(place: str, properties: Mapping[str, str], *, write: bool, make: bool = False) -> Iterator[AnyLog]:
    """`properties` are those that a broker's clients have; a directory has no use for them."""
    if is_broker(place):
        with open_named(None, place, properties, write=write) as log:
            yield log
    else:
        # What is copied stands in the copy for good: of a directory that Kafka wrote, only what was committed, unless
        # somebody wants the rest.
        level = {ISOLATION_LEVEL: properties.get(ISOLATION_LEVEL, "read_committed")}
        properties = level if is_kafkas(place) and not write else {}
        with open_named(place, None, properties, write=write, make=make and write) as log:
            yield log


def is_broker(place: str) -> bool:
    """
    >>> is_broker("kafka://one:9092"), is_broker("127.0.0.1:9092,[::1]:9093"), is_broker("data/")
    (True, True, False)
    """
    # Who forgets a slash means no directory, whose name would be shown with the password in it.
    return place.startswith(SCHEME.rstrip("/")) or (
        _ADDRESSES.fullmatch(place) is not None and not os.path.exists(place)
    )
