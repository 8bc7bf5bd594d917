"""The fold commands, for Python and for the command line: each opens what it needs, does one thing, and closes it.

`source` names the log: a directory, "host:port", "kafka://host:port?name=value", or the result of `log_at`, which adds
properties such as a password. `spark` is a session, or a function that returns one, called after everything else was
checked; without it, the active session is used, or a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any

from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Command, Status
from foldlog.client.fold_proof import runners_key
from foldlog.client.places import parse_points, parse_topic_points
from foldlog.clock import SystemClock
from foldlog.errors import FoldError, FoldlogError, InvalidArgument, UnknownFold, UnknownTopic, brief_repr
from foldlog.files.paths import PathLike
from foldlog.limits import FOLD_PREVIEW_MAX
from foldlog.spark.change_topics.pipelines import bound, check_topics, ensure_topics
from foldlog.spark.folds import replay
from foldlog.spark.folds.bulletin import entry_of, latest, proven
from foldlog.spark.folds.declaration import Fold, check_order
from foldlog.spark.origins.ledger import Ledger, LedgerEntry, open_ledger
from foldlog.spark.origins.origin import Bounds, Origin, OriginSpec, TopicFacts, for_folds, open_origin, origin_spec
from foldlog.spark.topics_read import source_name
from foldlog.views.bookmark import Bookmark
from foldlog.views.topic_lists import by_topic, continues, located

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from foldlog.spark.advice.explanation import Explanation
    from foldlog.spark.advice.inference import Proposal
    from foldlog.spark.folds.feed import Feed
    from foldlog.spark.folds.runner import OnProgress
    from foldlog.spark.watch.watch import Watch

    Spark = SparkSession | Callable[[], SparkSession]

_log = logging.getLogger("foldlog")

Source = str | PathLike[str] | OriginSpec


@dataclass(frozen=True, slots=True)
class TopicState:
    """Where a fold is in one of its topics; fields as in FoldState."""

    topic: str
    bookmark: dict[int, int] | None
    end: dict[int, int]
    lag: int | None


@dataclass(frozen=True, slots=True)
class FoldState:
    """The state of a fold, from its view and the log; `published` is the last status of its runner."""

    fold: str
    topic: str
    view: str
    kind: str
    bookmark: dict[int, int] | None
    end: dict[int, int]
    lag: int | None
    """None if the bookmark does not belong to this log."""
    skipped: int
    dead_letters: int
    """The number of offsets in its dead letter topic: an upper bound."""
    published: Status | None
    is_running: bool
    error: str | None
    mixes: int = 0
    """How often the fold's function has changed since the view was built."""
    topics: tuple[TopicState, ...] = ()
    """Of a fold of several topics, each of them; `topic`, `bookmark` and `end` are the first one's."""
    is_paused: bool = False
    """The newest command is a pause; the next runner obeys it, too."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a fold makes of some records of a topic. Nothing of it was stored. `others` is what it makes of those of its
    other topics, if it joins several: the rows of each side, which the view joins.
    """

    topic: str

    ranges: dict[int, tuple[int, int]]
    """The offsets of each partition."""
    given: pa.Table
    """The rows that the function was given."""
    made: pa.Table
    """What its view would be given: rows with META, of which those with `_deleted` delete their key; or the groups of
    these records."""
    dead: pa.Table | None
    """The records that would be set aside: _partition, _offset, key, value, reason; None if there are none."""
    others: tuple[Preview, ...] = ()


def log_at(place: str | PathLike[str], properties: Mapping[str, str] | None = None) -> OriginSpec:
    """The log at `place`, with Kafka client properties that do not belong in a URL, such as a password.

    >>> log_at("kafka://one:9092", {"sasl.password": "secret"})
    OriginSpec(path=None, bootstrap='one:9092', directory_id=None, has_answered=False)
    """
    return origin_spec(place, properties)


@contextmanager
def opened(source: Source, folds: Sequence[Fold] = ()) -> Iterator[tuple[Origin, Ledger]]:
    """The log to read, and the ledger to write to, for one command on these folds."""
    origin = open_origin(for_folds(origin_spec(source)))
    try:
        bound(folds, origin.spec)
        ledger = open_ledger(origin.spec)
        try:
            yield origin, ledger
        finally:
            ledger.close()
    finally:
        origin.close()


def run(
    folds: Sequence[Fold],
    source: Source,
    *,
    once: bool = False,
    until_caught_up: bool = False,
    timeout_s: float | None = None,
    interval_s: float = 1.0,
    strict: bool = False,
    skip_missing: bool = False,
    accept_change: bool = False,
    range_bytes: int | None = None,
    spark: Spark | None = None,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
    folds_key: str | None = None,
    metrics: str | None = None,
    lineage: bool = False,
) -> list[Feed]:
    """Run folds: with `once` up to the current ends, with `until_caught_up` until nothing is left to read, else until
    `stop` is set. Returns their feeds.

    UnknownTopic if one of their topics does not exist; FoldError if all folds have failed permanently, or with `once`
    or `until_caught_up` if any has; FoldPaused if one of these is paused. After `timeout_s` seconds, counted from the
    call, no further range is begun: FoldTimeout if folds were to be brought up to date and are not.

    `strict` stops a fold at the first record that does not parse, instead of writing it to its dead letters.
    `skip_missing` continues where the log no longer holds the next records of a fold, and counts them. `accept_change`
    continues with views that another version of a fold's function has written: old and new logic then mix until a
    rebuild. `folds_key` names the directory's key file, or the directory, for a runner that reads from a broker.
    `metrics` serves metrics for Prometheus at an address, or writes them to a file that ends in .prom; `lineage` sends
    OpenLineage events: see docs/orchestration.md.
    """
    from foldlog.spark.folds.pipeline import Pipeline

    until_ms = None if timeout_s is None else SystemClock().monotonic_ms() + timeout_s * 1000
    spec = _checked_topics(folds, source)
    with ExitStack() as stack:
        watches = _watches(stack, metrics, lineage, streams=not (once or until_caught_up))
        pipeline = stack.enter_context(
            Pipeline(
                folds,
                spec,
                session_of(spark),
                strict=strict,
                skip_missing=skip_missing,
                accept_change=accept_change,
                range_bytes=range_bytes,
                on_progress=on_progress,
                folds_key=folds_key,
                watches=watches,
            )
        )
        if stop is not None:
            pipeline.stop = stop
        pipeline.run(once=once, until_caught_up=until_caught_up, interval_s=interval_s, until_ms=until_ms)
        return pipeline.feeds


def _watches(stack: ExitStack, metrics: str | None, lineage: bool, *, streams: bool) -> list[Watch]:
    """Before Spark is started: an address that is taken is told at once."""
    from foldlog.spark.watch.lineage import lineage_watch
    from foldlog.spark.watch.metrics import metrics_watch
    from foldlog.spark.watch.schema_versions import SchemaWatch

    found: list[Watch] = [SchemaWatch()]
    if metrics is not None:
        found.append(metrics_watch(metrics))
        stack.callback(found[-1].close)
    if lineage:
        found.append(lineage_watch(streams=streams))
        stack.callback(found[-1].close)
    return found


def preview(fold: Fold, source: Source, *, last: int = 100, spark: Spark | None = None) -> Preview:
    """Run a fold's function over the last records of its topic, an equal share of each partition, and store nothing:
    neither the view nor the log is touched. UnlawfulFold if the plan breaks the law.
    """
    from foldlog.spark.folds.ranges import last_ranges
    from foldlog.spark.folds.reading import TopicFrames
    from foldlog.spark.folds.runner import previewed

    if type(last) is not int or not 1 <= last <= FOLD_PREVIEW_MAX:
        raise InvalidArgument(f"last={brief_repr(last)} is not a number of records from 1 to {FOLD_PREVIEW_MAX}")
    origin = open_origin(for_folds(origin_spec(source)))
    try:
        names = {part: source_name(part, origin, None) for part in fold.parts}
        spans = {part: last_ranges(name, origin.bounds(name), last) for part, name in names.items()}
        if not any(spans.values()):
            raise FoldError(f"topic {fold.topic.name!r} has no records to show fold {fold.name!r} on; append some")
        session = session_of(spark)
        found: list[Preview] = []
        for part, ranges in spans.items():
            frames = TopicFrames(session, part.topic, origin.spec, origin.topic(names[part]).topic_id)
            found.append(Preview(names[part], *previewed(part, frames, origin, ranges)))
        return replace(found[0], others=tuple(found[1:]))
    finally:
        origin.close()
        fold.close()


def explain(fold: Fold, source: Source, *, spark: Spark | None = None) -> list[Explanation]:
    """What the next run of a fold would read, shuffle and write, for each topic that it reads. Reads no records, and
    stores nothing.
    """
    from foldlog.spark.advice.explanation import explained
    from foldlog.spark.folds.reading import TopicFrames

    origin = open_origin(for_folds(origin_spec(source)))
    try:
        bound([fold], origin.spec)
        facts = [origin.topic(source_name(part, origin, part.view.bookmark())) for part in fold.parts]
        session = session_of(spark)
        return [
            explained(part, TopicFrames(session, part.topic, origin.spec, one.topic_id), origin, one)
            for part, one in zip(fold.parts, facts, strict=True)
        ]
    finally:
        origin.close()
        fold.close()


def first_pipeline(topic: str, source: Source) -> tuple[str, Proposal]:
    """A pipeline for a topic as the text of a Python file, from its last records. Needs no Spark."""
    from foldlog.spark.advice.first_pipeline import pipeline_text, sampled_records

    origin = open_origin(for_folds(origin_spec(source)))
    try:
        return pipeline_text(topic, sampled_records(origin, topic))
    finally:
        origin.close()


def status(folds: Sequence[Fold], source: Source) -> list[FoldState]:
    """The state of each fold. Needs no Spark."""
    now_ms = SystemClock().now_ms()
    found: list[FoldState] = []
    with opened(source, folds) as (origin, _):
        published, commands = latest(origin)
        for fold in folds:
            told = published.get(fold.name)
            is_running = told is not None and told.is_live(now_ms)
            asked = commands.get(fold.name)
            state = _state_of(fold, origin, told, is_running=is_running)
            found.append(replace(state, is_paused=asked is not None and asked.verb == "pause"))
    return found


def published_status(names: Sequence[str], source: Source) -> list[FoldState]:
    """The state of folds as their runners last published it, with the log's ends of now: without the file that declares
    them, and without opening their views. All folds unless some are named; none if none was ever run. Needs no
    Spark."""
    now_ms = SystemClock().now_ms()
    origin = open_origin(for_folds(origin_spec(source)))
    try:
        published, commands = latest(origin)
        for name in names:
            if published and name not in published:
                raise UnknownFold(name, sorted(published))
        return [
            replace(
                _published_state(told, origin, is_running=told.is_live(now_ms)),
                is_paused=name in commands and commands[name].verb == "pause",
            )
            for name, told in sorted(published.items())
            if not names or name in names
        ]
    finally:
        origin.close()


def _published_state(told: Status, origin: Origin, *, is_running: bool) -> FoldState:
    each = told.topics or {told.topic: {"bookmark": told.bookmark, "end": told.end}}
    states = [_published_topic(topic, one, origin) for topic, one in each.items()]
    return FoldState(
        fold=told.fold,
        topic=told.topic,
        view=told.view,
        kind=told.kind,
        bookmark=states[0].bookmark,
        end=states[0].end,
        lag=sum(state.lag or 0 for state in states),
        skipped=told.skipped,
        dead_letters=_offsets_in(f"{told.fold}.dead", origin),
        published=told,
        is_running=is_running,
        error=told.error,
        mixes=told.mixes,
        topics=tuple(states) if len(states) > 1 else (),
    )


def _published_topic(topic: str, told: Mapping[str, Any], origin: Origin) -> TopicState:
    """With the ends that its runner saw last if the topic cannot be asked."""
    bookmark = {int(number): at for number, at in sorted(told["bookmark"].items())}
    starts: dict[int, int] = {}
    ends = {int(number): at for number, at in told["end"].items()}
    with suppress(FoldlogError):
        bounds = origin.bounds(topic)
        starts, ends = ({n: one.start for n, one in bounds.items()}, {n: one.end for n, one in bounds.items()})
    lag = sum(max(0, end - bookmark.get(number, starts.get(number, 0))) for number, end in ends.items())
    return TopicState(topic, bookmark, dict(sorted(ends.items())), lag)


def _state_of(fold: Fold, origin: Origin, told: Status | None, *, is_running: bool) -> FoldState:
    found: list[tuple[list[TopicState], Bookmark | None, str | None]] = []
    try:
        found = [_topic_states(part, origin) for part in fold.parts]
    finally:
        fold.close()
    states, bookmarks = (
        [state for some, _, _ in found for state in some],
        [one for _, one, _ in found if one is not None],
    )
    errors = [problem for _, _, problem in found if problem is not None]
    lags = [state.lag for state in states]
    return FoldState(
        fold=fold.name,
        topic=states[0].topic,
        view=fold.view.place,
        kind=fold.view.kind,
        bookmark=states[0].bookmark,
        end=states[0].end,
        lag=None if None in lags else sum(lag for lag in lags if lag is not None),
        skipped=sum(one.skipped for one in bookmarks),
        dead_letters=_offsets_in(fold.dead_letters, origin),
        published=told,
        is_running=is_running,
        error=errors[0] if errors else None if told is None else told.error,
        mixes=max((one.logic.mixes for one in bookmarks if one.logic is not None), default=0),
        topics=tuple(states) if len(states) > 1 else (),
    )


def _topic_states(fold: Fold, origin: Origin) -> tuple[list[TopicState], Bookmark | None, str | None]:
    """The state in a topic, or in each of several that are read as one; the bookmark, and what is wrong with it."""
    bookmark, bounds, mismatch, error = None, {}, None, None
    name = fold.topic.name
    try:
        if fold.topic.is_several:
            bookmark = fold.view.bookmark()
            name = fold.topic.name if bookmark is None else bookmark.topic
        name = source_name(fold, origin, bookmark)
        bounds = origin.bounds(name)
        bookmark = fold.view.bookmark()
        if bookmark is not None:
            # Read the ends again: the view may have been written past the ones read before its bookmark.
            mismatch = _mismatch(bookmark, origin.topic(name), origin.bounds(name))
        error = mismatch
    except FoldlogError as problem:
        error = str(problem)
    at = {} if bookmark is None else {number: one.offset for number, one in bookmark.positions.items()}
    if fold.topic.is_several and bookmark is None and not bounds:
        return [TopicState(name, None, {}, 0)], None, error  # a pattern names no topic
    ends, stands = by_topic(name, bounds), by_topic(name, at)
    states = [
        TopicState(
            topic=topic,
            bookmark=None if bookmark is None else dict(sorted(stands[topic].items())),
            end={number: bound.end for number, bound in sorted(own.items())},
            lag=_lag(None if bookmark is None else stands[topic], own) if mismatch is None else None,
        )
        for topic, own in ends.items()
    ]
    return states, bookmark, error


def _lag(stands: Mapping[int, int] | None, bounds: Mapping[int, Bounds]) -> int:
    """How many offsets are left to read; of a partition that is not known, or of which the first are gone, all."""
    return sum(max(0, one.end - max(one.start, (stands or {}).get(number, 0))) for number, one in bounds.items())


def _mismatch(bookmark: Bookmark, facts: TopicFacts, bounds: Mapping[int, Bounds]) -> str | None:
    """Why a bookmark does not belong to this log; None if it does."""
    if not continues(facts.topic_id, bookmark.topic_id):
        return (
            f"the bookmark is of another topic {facts.name}: this is another log, or the topic was deleted and created"
            " again; if it was copied, 'foldlog copy --folds FILE' brings the bookmark"
        )
    for number, position in sorted(bookmark.positions.items()):
        if number in bounds and position.offset > bounds[number].end:
            return (
                f"the bookmark lies at offset {position.offset} of {'-'.join(map(str, located(facts.name, number)))},"
                " and the log ends at"
                f" {bounds[number].end}: this is an older copy of the log, or it was cut"
            )
    return None


def _offsets_in(topic: str, origin: Origin) -> int:
    try:
        return sum(bound.end - bound.start for bound in origin.bounds(topic).values())
    except FoldlogError:
        return 0  # nothing was ever set aside


def rewind(fold: Fold, source: Source, to: str | int, *, folds_key: str | None = None) -> replay.Rewound:
    """Move a fold's bookmark back; the running runner, or the next one, reads again from there. Needs no Spark."""
    with opened(source, [fold]) as (origin, ledger):
        try:
            rewound = replay.rewind(fold, str(to), origin)
            _tell_position(fold, origin, ledger, folds_key)
            return rewound
        finally:
            fold.close()


def _tell_position(fold: Fold, origin: Origin, ledger: Ledger, folds_key: str | None) -> None:
    """Commit the view's position to its group and, if no runner is live, to its status in `__folds`. A failure is only
    logged: the view has been moved all the same.
    """
    try:
        bookmarks = [one for one in (part.view.bookmark() for part in fold.parts) if one is not None]
        if not bookmarks:
            return
        at: dict[str, dict[int, int]] = {}
        for one in bookmarks:
            offsets = {number: place.offset for number, place in sorted(one.positions.items())}
            at |= by_topic(one.topic, offsets)
        with ledger.together():
            for topic, own in at.items():
                ledger.commit(fold.group, topic, own)
            told = latest(origin)[0].get(fold.name)
            now_ms = SystemClock().now_ms()
            if told is None or told.is_live(now_ms):
                return
            lags = {topic: _lag(own, origin.bounds(topic)) for topic, own in at.items()}
            texts = {topic: {str(number): offset for number, offset in own.items()} for topic, own in at.items()}
            topics = told.topics and {
                name: {**one, "bookmark": texts.get(name, {}), "lag": lags.get(name, 0)}
                for name, one in told.topics.items()
            }
            moved = replace(told, bookmark=texts.get(told.topic, {}), lag=sum(lags.values()), topics=topics)
            key = runners_key(origin.spec.path, folds_key)
            ledger.append(FOLDS_TOPIC, proven([entry_of(moved)], key, now_ms))
    except FoldlogError as error:
        _log.warning("the view of fold %s has moved; its group and the console show it later: %s", fold.name, error)


def rebuild(
    fold: Fold,
    source: Source,
    *,
    accept_loss: bool = False,
    drop_old: bool = False,
    start: str | int | None = None,
    range_bytes: int | None = None,
    spark: Spark | None = None,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
    folds_key: str | None = None,
) -> Feed:
    """Replay the log into a shadow and swap it in as the view. The old view is kept, unless `drop_old`. It begins where
    the view began, or at the place `start`: an earlier one adds what came before. Returns the feed that did it; of a
    join, the left side's, whose `peers` are both.
    """
    place = None if start is None else parse_points(str(start)).portable
    with opened(source, [fold]) as (origin, ledger):
        feeds = replay.rebuild_feeds(fold, origin, accept_loss=accept_loss, on_swapped=lambda: None, start_at=place)
        _drain(feeds, origin, ledger, spark, stop, range_bytes, on_progress)
        if drop_old:
            fold.view.drop_old()
        _tell_position(fold, origin, ledger, folds_key)
        fold.close()
        return feeds[0]


def verify(
    fold: Fold,
    source: Source,
    *,
    range_bytes: int | None = None,
    spark: Spark | None = None,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
) -> replay.Verdict:
    """Replay what the view has read, split differently, into a scratch view, and compare. The view is not touched."""
    from foldlog.spark.folds.pipeline import other_split
    from foldlog.spark.folds.ranges import RANGE_BYTES

    with opened(source, [fold]) as (origin, ledger):
        verification = replay.Verification(fold, origin, range_bytes=range_bytes or other_split(RANGE_BYTES))
        try:
            feeds = verification.feeds()
            if feeds:
                _drain(feeds, origin, ledger, spark, stop, range_bytes, on_progress)
            return verification.verdict()
        finally:
            verification.discard()
            fold.close()


def drop(fold: Fold, source: Source, *, old_only: bool = False, folds_key: str | None = None) -> None:
    """Remove a fold's view with its bookmark, its group and its status; or only what the last rebuild kept."""
    with opened(source, [fold]) as (origin, ledger):
        replay.drop(fold, ledger, old_only=old_only)
        if not old_only and _has_bulletin(origin):
            key = runners_key(origin.spec.path, folds_key)
            gone = [LedgerEntry(f"{kind}/{fold.name}".encode(), None) for kind in ("status", "command")]
            ledger.append(FOLDS_TOPIC, proven(gone, key, SystemClock().now_ms()))
        fold.close()


def ask(
    fold: str,
    source: Source,
    verb: str,
    *,
    to: str | None = None,
    accept_loss: bool = False,
    folds_key: str | None = None,
) -> Command:
    """Ask the runner of a fold, wherever it runs, to pause, resume, rewind, rebuild or verify it.

    A time without a zone in `to` is in the caller's local time. `folds_key` as for `run`.
    """
    place = None if to is None else parse_topic_points(to).portable
    command = Command.ask(fold, verb, SystemClock().now_ms(), to=place, accept_loss=accept_loss)
    with opened(source) as (origin, ledger):
        key = runners_key(origin.spec.path, folds_key)
        ledger.ensure_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
        ledger.append(FOLDS_TOPIC, proven([entry_of(command)], key, command.asked_ms))
    return command


def _checked_topics(folds: Sequence[Fold], source: Source) -> OriginSpec:
    """Raise UnknownTopic before Spark is started, which takes seconds; and make the topics that these folds write."""
    check_order(folds)
    origin = open_origin(for_folds(origin_spec(source)))
    try:
        in_order = bound(folds, origin.spec)
        check_topics(in_order, origin)
        ensure_topics(in_order, origin)
        return origin.spec
    finally:
        origin.close()


def session_of(spark: Spark | None) -> SparkSession:
    """The session to use: the given one, the active one, or a new one."""
    from foldlog.spark.session import fold_session

    if spark is None:
        return fold_session()
    return spark() if callable(spark) else spark


def _has_bulletin(origin: Origin) -> bool:
    try:
        origin.topic(FOLDS_TOPIC)
    except UnknownTopic:
        return False
    return True


def _drain(
    feeds: Sequence[Feed],
    origin: Origin,
    ledger: Ledger,
    spark: Spark | None,
    stop: Event | None,
    range_bytes: int | None,
    on_progress: OnProgress | None,
) -> None:
    """Move the feeds of one replay to their end."""
    from foldlog.spark.folds.feed import State
    from foldlog.spark.folds.runner import Runner

    stop = stop or Event()
    first = feeds[0]
    with Runner(session_of(spark), origin, ledger, feeds, range_bytes=range_bytes, on_progress=on_progress) as runner:
        while not stop.is_set() and not any(feed.state is State.FAILED for feed in feeds):
            runner.drain(stop)
            if all(feed.state is State.DONE for feed in feeds):
                return
    failed = next((feed for feed in feeds if feed.state is State.FAILED), None)
    if failed is not None:
        raise FoldError(failed.error or f"the {failed.label} of fold {failed.fold.name!r} failed")
    raise FoldError(f"the {first.label} of fold {first.fold.name!r} was stopped; the view is as it was")
