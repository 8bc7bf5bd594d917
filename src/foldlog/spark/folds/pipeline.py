"""A running pipeline: the runner with its folds, the statuses it publishes, and the commands it takes meanwhile."""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from types import TracebackType
from typing import Any, Final

from pyspark.sql import SparkSession

from foldlog.client.fold_bulletin import MIXED, Command, Item, Status
from foldlog.client.fold_proof import FoldsKey, runners_key
from foldlog.client.places import topics_ranges_text
from foldlog.clock import Clock, SystemClock
from foldlog.errors import FoldError, FoldlogError, FoldPaused, FoldTimeout, StorageError
from foldlog.spark.change_topics.pipelines import bound, graph_of, wait_readable, written_by
from foldlog.spark.folds.bulletin import Bulletin, Publisher, entry_of
from foldlog.spark.folds.command_claims import CommandClaims
from foldlog.spark.folds.declaration import Fold, check_distinct
from foldlog.spark.folds.feed import Feed, State, topic_of
from foldlog.spark.folds.ranges import RANGE_BYTES
from foldlog.spark.folds.replay import Rewound, Verdict, Verification, rebuild_feeds, rewind
from foldlog.spark.folds.runner import OnProgress, Runner
from foldlog.spark.origins.ledger import LedgerEntry, open_ledger
from foldlog.spark.origins.origin import OriginSpec, for_folds, open_origin
from foldlog.spark.watch.watch import Watch
from foldlog.views.topic_lists import by_topic, located

ONCE_TRIES: Final = 4
"""With `once`, a fold is tried this often before the run gives up: the pauses in between add up to 3.5 s."""

_log = logging.getLogger("foldlog")


class Pipeline:
    """Folds that run. Use it in a `with` block. Any thread may set `stop`; everything else belongs to one thread."""

    def __init__(
        self,
        folds: Sequence[Fold],
        spec: OriginSpec,
        spark: SparkSession,
        *,
        strict: bool = False,
        skip_missing: bool = False,
        accept_change: bool = False,
        range_bytes: int | None = None,
        clock: Clock | None = None,
        on_progress: OnProgress | None = None,
        folds_key: str | None = None,
        watches: Sequence[Watch] = (),
    ) -> None:
        check_distinct(folds)
        self._watches = watches
        self.stop = Event()
        self._clock = clock or SystemClock()
        self._range_bytes = range_bytes
        self._told = on_progress or (lambda feed: None)
        key = _key_for(spec, folds_key)
        self._origin = open_origin(for_folds(spec))
        folds = bound(folds, self._origin.spec)
        self._graph = graph_of(folds)
        self._ledger = open_ledger(self._origin.spec)
        self._publisher = Publisher(self._ledger, self._clock, key)
        self._bulletin = Bulletin(self._origin, key)
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._runner = Runner(
            spark,
            self._origin,
            self._ledger,
            [
                Feed(part, part.view, strict=strict, skip_missing=skip_missing, accept_change=accept_change)
                for fold in folds
                for part in fold.parts
            ],
            range_bytes=range_bytes,
            clock=self._clock,
            on_progress=self._progressed,
            on_wait=lambda: self._publish(force=False),
        )
        feeds = iter(self._runner.feeds)
        self._own = {fold.name: [next(feeds) for _ in fold.parts] for fold in folds}
        self._folds = {fold.name: fold for fold in folds}
        self._commands = CommandClaims(uuid.uuid4().hex, (fold.name for fold in folds))
        self._rewound: dict[str, Rewound] = {}
        self._verifying: dict[int, Verification] = {}
        self._changed = True
        self._last_problem = ""
        self._depth = 0
        """With `once`: how deep in the graph the folds lie that are let run next."""

    @property
    def feeds(self) -> list[Feed]:
        """The folds' own feeds, and replays that are under way."""
        return list(self._runner.feeds)

    def run(
        self,
        *,
        once: bool = False,
        until_caught_up: bool = False,
        interval_s: float = 1.0,
        until_ms: float | None = None,
    ) -> None:
        """Move the folds until `stop` is set; with `once`, up to the ends at the start; with `until_caught_up`, until
        nothing is left to read. Not beyond `until_ms` of the clock: a range that is under way is finished.

        FoldError with the first failure if all folds have failed permanently, or, with `once` and `until_caught_up`, if
        one of them could not get there; FoldPaused if one is paused, FoldTimeout if the time was too short.
        """
        for watch in self._watches:
            watch.began(list(self._own_feeds()), self._origin)
        try:
            self._run(once=once, until_caught_up=until_caught_up, interval_s=interval_s, until_ms=until_ms)
        except BaseException as error:
            for watch in self._watches:
                watch.ended(list(self._own_feeds()), error)
            raise
        for watch in self._watches:
            watch.ended(list(self._own_feeds()), None)

    def _run(self, *, once: bool, until_caught_up: bool, interval_s: float, until_ms: float | None) -> None:
        self._take_commands()
        if once and not until_caught_up:
            self._stop_at_the_ends()
        once = once or until_caught_up
        self._runner.holds = not once
        while not self.stop.is_set() and not self._is_over(until_ms):
            moved = self._runner.step()
            self._finish_replays()
            self._take_commands()
            self._publish(force=False)
            if moved:
                continue
            if once and self._is_settled() and self._let_downstream_run():
                continue
            if all(feed.state is State.FAILED for feed in self.feeds) or (once and self._is_settled()):
                break
            self.stop.wait(self._pause_s(interval_s, until_ms))
        self._refuse_failed(once=once)
        if once and not self.stop.is_set():
            self._refuse_unfinished()

    def _refuse_failed(self, *, once: bool) -> None:
        failed = [feed for feed in self.feeds if feed.state is State.FAILED or (once and _is_given_up(feed))]
        if failed and (once or len(failed) == len(self.feeds)):
            others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            raise FoldError(f"{failed[0].error}{others}")

    def _is_over(self, until_ms: float | None) -> bool:
        return until_ms is not None and self._clock.monotonic_ms() >= until_ms

    def _refuse_unfinished(self) -> None:
        """Raise if a fold that was to be brought up to date is not: who waits for the run must not go on."""
        paused = [feed for feed in self._own_feeds() if feed.state is State.PAUSED]
        if paused:
            name = paused[0].fold.name
            raise FoldPaused(f"fold {name!r} is paused, and so not up to date: foldlog fold resume {name}")
        late = [feed for feed in self.feeds if feed.state is not State.CAUGHT_UP]
        if late:
            behind = ", ".join(f"{feed.name} ({feed.lag} records)" if feed.lag else feed.name for feed in late)
            raise FoldTimeout(
                f"the time is over, and not everything was read by {behind}; what was read is stored, and the next run"
                " goes on from there"
            )

    def close(self) -> None:
        """Publish that the folds have stopped, and close everything."""
        try:
            self._runner.close()
            for verification in self._verifying.values():
                verification.discard()
            self._publish(force=True, stopped=True)
        finally:
            self._ledger.close()
            self._origin.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stop_at_the_ends(self) -> None:
        """Of now: a topic with a steady writer never ends. A fold that reads what others write waits for those."""
        for feed in self._own_feeds():
            feed.stops = {}
        self._let_downstream_run()

    def _let_downstream_run(self) -> bool:
        """With `once`: the folds whose upstream is done read up to what that has written. Whether there are any."""
        feeds = [feed for feed in self._own_feeds() if self._graph.depth(feed.fold.name) == self._depth]
        self._depth += 1
        for feed in feeds:
            try:
                wait_readable(self._folds.values(), feed.fold.topic)
                bounds = self._origin.bounds(topic_of(feed, self._origin))
            except FoldlogError:
                feed.stops = None  # the first step reports it
            else:
                feed.stops = {number: bound.end for number, bound in bounds.items()}
            if feed.state is State.CAUGHT_UP:
                feed.state = State.RUNNING
        return bool(feeds)

    def _own_feeds(self) -> Iterator[Feed]:
        return (feed for feeds in self._own.values() for feed in feeds)

    def _is_settled(self) -> bool:
        still = (State.CAUGHT_UP, State.PAUSED, State.FAILED, State.DONE)
        return all(feed.state in still or _is_given_up(feed) for feed in self.feeds)

    def _pause_s(self, interval_s: float, until_ms: float | None) -> float:
        """The time until the next look at the log; shorter if a fold is to be retried, or the time is over."""
        now_ms = self._clock.monotonic_ms()
        due = [max(0.0, feed.retry_at_ms - now_ms) / 1000 for feed in self.feeds if feed.state == State.WAITING]
        if until_ms is not None:
            due.append(max(0.0, until_ms - now_ms) / 1000)
        return min([interval_s, *due])

    def _progressed(self, feed: Feed) -> None:
        self._changed = True
        self._told(feed)
        for watch in self._watches:
            watch.progressed(feed)

    # --- statuses -------------------------------------------------------------------------------------------------

    def _publish(self, *, force: bool, stopped: bool = False) -> None:
        if not force and not self._publisher.is_due(changed=self._changed):
            return
        self._changed = False
        for watch in self._watches:
            watch.looked(list(self._own_feeds()), self._origin)
        moved = [feed for feed in self._own_feeds() if feed.is_checked and feed.bookmark not in (None, feed.committed)]
        commits = [
            (feed.fold.group, topic, offsets)
            for feed in moved
            if feed.bookmark is not None
            for topic, offsets in by_topic(
                feed.bookmark.topic, {n: at.offset for n, at in feed.bookmark.positions.items()}
            ).items()
        ]
        statuses = [self._status(name, feeds, stopped=stopped) for name, feeds in self._own.items()]
        if self._publisher.publish(statuses, commits):
            for feed in moved:
                feed.committed = feed.bookmark

    def _status(self, name: str, feeds: Sequence[Feed], *, stopped: bool) -> Status:
        fold = self._folds[name]
        worst = max(feeds, key=lambda feed: _URGENCY.index(feed.state))
        standings = {topic: one for feed in feeds for topic, one in self._standings(feed).items()}
        bookmarks = [feed.bookmark for feed in feeds if feed.bookmark is not None]
        replay = self._replay_of(name)
        description = fold.view.description()
        state = worst.state.value if replay is None else f"{worst.state.value}, {replay.label} under way"
        return Status(
            fold=name,
            topic=next(iter(standings)),
            view=fold.view.place,
            kind=fold.view.kind,
            state="stopped" if stopped and worst.state is not State.FAILED else state,
            bookmark=next(iter(standings.values()))["bookmark"],
            end=next(iter(standings.values()))["end"],
            lag=sum(feed.lag for feed in feeds),
            records=sum(feed.records for feed in feeds),
            rows=sum(feed.rows for feed in feeds),
            rows_per_s=round(sum(feed.rows_per_s for feed in feeds), 1),
            dead_letters=sum(feed.dead for feed in feeds),
            skipped=sum(bookmark.skipped for bookmark in bookmarks),
            last_range=_last_ranges_text(feeds),
            error=next((feed.error for feed in feeds if feed.error), None),
            runner=self._name,
            updated_ms=self._clock.now_ms(),
            last_command=self._commands.handled.get(name),
            result=self._commands.results.get(name),
            engine=None if description is None else str(description["engine"]),
            view_description=description,
            doing=self._doing(name, feeds, replay),
            adds=fold.view.adds,
            file=fold.file,
            stopped=stopped,
            mixes=max((bookmark.logic.mixes for bookmark in bookmarks if bookmark.logic is not None), default=0),
            topics=standings if len(standings) > 1 else None,
            writes=written_by(feeds[0].fold),
        )

    def _standings(self, feed: Feed) -> dict[str, dict[str, Any]]:
        """Where a fold is in a topic, or in each of several that are read as one, and where that ends."""
        bookmark = feed.bookmark
        name = feed.fold.topic.name if bookmark is None else bookmark.topic
        at = {} if bookmark is None else {n: one.offset for n, one in sorted(bookmark.positions.items())}
        try:
            name = topic_of(feed, self._origin)
            end = {n: bound.end for n, bound in sorted(self._origin.bounds(name).items())}
        except FoldlogError:
            end = {}
        if bookmark is None and not end:
            return {name: {"bookmark": {}, "end": {}, "lag": feed.lag}}
        stands, ends = by_topic(name, at), by_topic(name, end)
        return {
            topic: {
                "bookmark": {str(n): offset for n, offset in stands[topic].items()},
                "end": {str(n): offset for n, offset in own.items()},
                "lag": feed.lag
                if len(ends) == 1
                else sum(max(0, offset - stands[topic].get(n, 0)) for n, offset in own.items()),
            }
            for topic, own in ends.items()
        }

    def _doing(self, name: str, feeds: Sequence[Feed], replay: Feed | None) -> dict[str, object] | None:
        """The replay or rewind of a fold that is under way, and its progress."""
        if replay is not None:
            parts = [one.progress for one in replay.peers]
            return {
                "verb": replay.label,
                "done": sum(done for done, _ in parts),
                "total": sum(all_ for _, all_ in parts),
            }
        rewound = self._rewound.get(name)
        if rewound is None:
            return None
        bookmarks = [feed.bookmark for feed in feeds if feed.bookmark is not None]
        left = rewound.left(bookmarks) if len(bookmarks) == len(feeds) else rewound.again
        if not left:
            del self._rewound[name]
            return None
        return {"verb": "rewind", "done": max(0, rewound.again - left), "total": rewound.again}

    # --- commands -------------------------------------------------------------------------------------------------

    def _take_commands(self) -> None:
        """Carry out the commands since the last call, and on the first call those that no runner has carried out."""
        self._commands.hear(self._news())
        claims = self._commands.to_claim(self._clock.now_ms())
        superseded = [LedgerEntry(key, None) for key in self._commands.superseded(claims)]
        if claims and self._publisher.append([*map(entry_of, claims), *superseded]):
            self._commands.sent(claims)
            self._commands.hear(self._news())
        for command in self._commands.due():
            try:
                told = self._carry_out(command.fold, command)
            except FoldlogError as error:
                told = str(error)
            self._commands.results[command.fold] = told
            self._publish(force=True)

    def _news(self) -> list[Item]:
        """The new records of `__folds`. If they cannot be read, the error is logged and the next call reads them."""
        try:
            return self._bulletin.news()
        except FoldlogError as error:
            if str(error) != self._last_problem:
                _log.warning("commands to the folds cannot be read, they go on without: %s", error)
            self._last_problem = str(error)
            return []

    def _carry_out(self, name: str, command: Command) -> str:
        actions: dict[str, Callable[[], str]] = {
            "pause": lambda: self._set(name, State.PAUSED, "paused"),
            "resume": lambda: self._set(name, State.RUNNING, "resumed"),
            "rewind": lambda: self._rewind(name, command.to or ""),
            "rebuild": lambda: self._begin_rebuild(name, accept_loss=command.accept_loss),
            "verify": lambda: self._begin_verify(name),
        }
        _log.info("fold %s: %s", name, command.verb)
        return actions[command.verb]()

    def _set(self, name: str, state: State | None, told: str) -> str:
        """Without a state, a paused feed stays paused, and others run."""
        for feed in self._own[name]:
            feed.state = state or (State.PAUSED if feed.state is State.PAUSED else State.RUNNING)
            feed.bookmark = None  # another process may have moved it
            feed.recovered()
            feed.rows_per_s = 0.0
            self._progressed(feed)
        return told

    def _rewind(self, name: str, to: str) -> str:
        rewound = rewind(self._folds[name], to, self._origin, clock=self._clock)
        self._rewound[name] = rewound
        self._go_on(name)
        return f"{rewound.again} to read again{self._told_downstream(name)}"

    def _told_downstream(self, name: str) -> str:
        names = [one.name for one in self._graph.downstream(name)]
        return f"; behind it: {', '.join(names)} (they read what it changes)" if names else ""

    def _go_on(self, name: str) -> None:
        """Continue, also after a permanent failure, which the command may have fixed; a paused fold stays paused."""
        self._set(name, None, "")

    def _begin_rebuild(self, name: str, *, accept_loss: bool) -> str:
        self._refuse_second(name)

        def swapped() -> None:
            self._go_on(name)
            self._rewound.pop(name, None)
            self._commands.results[name] = f"rebuilt{self._told_downstream(name)}"

        fold = self._folds[name]
        self._runner.feeds += rebuild_feeds(fold, self._origin, accept_loss=accept_loss, on_swapped=swapped)
        return "rebuilding"

    def _begin_verify(self, name: str) -> str:
        self._refuse_second(name)
        range_bytes = other_split(self._range_bytes or RANGE_BYTES)
        verification = Verification(self._folds[name], self._origin, range_bytes=range_bytes)
        replays = verification.feeds()
        if not replays:
            return told_verdict(verification.verdict())
        self._verifying[id(replays[0])] = verification
        self._runner.feeds += replays
        return "verifying"

    def _refuse_second(self, name: str) -> None:
        under_way = self._replay_of(name)
        if under_way is not None:
            raise FoldError(f"a {under_way.label} of fold {name!r} is under way; wait for its end")

    def _replay_of(self, name: str) -> Feed | None:
        return next((one for one in self.feeds if one.fold.name == name and one.label), None)

    def _finish_replays(self) -> None:
        """End the replays whose feeds are all done, or of which one has failed."""
        for feed in [one for one in self.feeds if one.label and one is one.peers[0]]:
            failed = next((one for one in feed.peers if one.state is State.FAILED), None)
            if failed is None and any(one.state is not State.DONE for one in feed.peers):
                continue
            for one in feed.peers:
                self._runner.feeds.remove(one)
            verification = self._verifying.pop(id(feed), None)
            name = feed.fold.name
            try:
                if failed is not None:
                    self._commands.results[name] = f"{feed.label} failed: {failed.error}"
                elif verification is not None:
                    self._commands.results[name] = told_verdict(verification.verdict())
            except FoldlogError as error:
                self._commands.results[name] = f"{feed.label} failed: {error}"
            finally:
                if verification is not None:
                    verification.discard()
                for one in feed.peers:
                    one.view.close()
            self._publish(force=True)


_URGENCY: Final = (State.DONE, State.CAUGHT_UP, State.RUNNING, State.PAUSED, State.WAITING, State.FAILED)
"""Of the states of a fold's feeds, the last one of these is the fold's."""


def _last_ranges_text(feeds: Sequence[Feed]) -> str:
    """What was read last; with the topics, if there are several."""
    ranges = (one for feed in feeds for one in feed.last_ranges)
    return topics_ranges_text((*located(one.topic, one.partition), one.start, one.stop) for one in ranges)


def _key_for(spec: OriginSpec, folds_key: str | None) -> FoldsKey | None:
    """The key for status records; None, with a warning, if this process may not read it. The folds run all the same."""
    try:
        return runners_key(spec.path, folds_key)
    except StorageError as error:
        _log.warning("the folds run, and their status may be refused: %s", error)
        return None


def _is_given_up(feed: Feed) -> bool:
    """Whether `once` gives up on a feed that keeps failing."""
    return feed.state is State.WAITING and feed.failures >= ONCE_TRIES


def other_split(range_bytes: int) -> int:
    """Another range size than the fold was run with: a view that depends on the split then comes out differently."""
    return max(4096, range_bytes // 3 + 1)


def told_verdict(verdict: Verdict) -> str:
    """A verification's answer in one sentence."""
    if verdict.answer == "equal" and verdict.view is not None:
        return f"equal: {verdict.view.rows} rows, digest {verdict.view.hexdigest[:16]}, replayed with another split"
    if verdict.answer == "not provable":
        return f"not provable: {verdict.missing}"
    if verdict.comparison is None:
        return "different: a replay with another split gives other rows; pause the fold and verify again to see which"
    one = verdict.comparison
    mixed = f"; {MIXED}" if verdict.bookmark.logic is not None and verdict.bookmark.logic.mixes else ""
    examples = one.examples_left or one.examples_right
    example = f"; for example {json.dumps(examples[0], default=str, ensure_ascii=False)[:500]}" if examples else ""
    return f"different: {one.only_left} rows are only in the view, {one.only_right} only in the replay{example}{mixed}"
