"""A running pipeline: the runner with its folds, the statuses it publishes, and the commands it takes meanwhile."""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from threading import Event
from types import TracebackType
from typing import Final

from pyspark.sql import SparkSession

from foldlog.client.fold_bulletin import MIXED, Command, Item, Status
from foldlog.client.fold_proof import FoldsKey, runners_key
from foldlog.client.places import ranges_text
from foldlog.clock import Clock, SystemClock
from foldlog.errors import FoldError, FoldlogError, FoldPaused, FoldTimeout, StorageError
from foldlog.spark.folds.bulletin import Bulletin, Publisher, entry_of
from foldlog.spark.folds.command_claims import CommandClaims
from foldlog.spark.folds.declaration import Fold, check_distinct
from foldlog.spark.folds.feed import Feed, State
from foldlog.spark.folds.ranges import RANGE_BYTES
from foldlog.spark.folds.replay import Rewound, Verdict, Verification, rebuild_feed, rewind
from foldlog.spark.folds.runner import OnProgress, Runner
from foldlog.spark.origins.ledger import LedgerEntry, open_ledger
from foldlog.spark.origins.origin import OriginSpec, for_folds, open_origin
from foldlog.spark.watch.watch import Watch

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
        self._ledger = open_ledger(self._origin.spec)
        self._publisher = Publisher(self._ledger, self._clock, key)
        self._bulletin = Bulletin(self._origin, key)
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._runner = Runner(
            spark,
            self._origin,
            self._ledger,
            [
                Feed(fold, fold.view, strict=strict, skip_missing=skip_missing, accept_change=accept_change)
                for fold in folds
            ],
            range_bytes=range_bytes,
            clock=self._clock,
            on_progress=self._progressed,
            on_wait=lambda: self._publish(force=False),
        )
        self._own = list(self._runner.feeds)
        self._commands = CommandClaims(uuid.uuid4().hex, (fold.name for fold in folds))
        self._rewound: dict[str, Rewound] = {}
        self._verifying: dict[int, Verification] = {}
        self._changed = True
        self._last_problem = ""

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
            watch.began(self._own, self._origin)
        try:
            self._run(once=once, until_caught_up=until_caught_up, interval_s=interval_s, until_ms=until_ms)
        except BaseException as error:
            for watch in self._watches:
                watch.ended(self._own, error)
            raise
        for watch in self._watches:
            watch.ended(self._own, None)

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
        paused = [feed for feed in self._own if feed.state is State.PAUSED]
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
        """Of now: a topic with a steady writer never ends."""
        for feed in self._own:
            try:
                bounds = self._origin.bounds(feed.fold.topic.name)
            except FoldlogError:
                continue  # the first step reports it
            feed.stops = {number: bound.end for number, bound in bounds.items()}

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
            watch.looked(self._own, self._origin)
        moved = [feed for feed in self._own if feed.is_checked and feed.bookmark not in (None, feed.committed)]
        commits = [
            (feed.fold.group, feed.bookmark.topic, {n: at.offset for n, at in feed.bookmark.positions.items()})
            for feed in moved
            if feed.bookmark is not None
        ]
        statuses = [self._status(feed, stopped=stopped) for feed in self._own]
        if self._publisher.publish(statuses, commits):
            for feed in moved:
                feed.committed = feed.bookmark

    def _status(self, feed: Feed, *, stopped: bool) -> Status:
        bookmark = feed.bookmark
        at = {} if bookmark is None else {str(n): one.offset for n, one in sorted(bookmark.positions.items())}
        try:
            end = {str(n): bound.end for n, bound in sorted(self._origin.bounds(feed.fold.topic.name).items())}
        except FoldlogError:
            end = {}
        replay = self._replay_of(feed)
        description = feed.fold.view.description()
        state = feed.state.value if replay is None else f"{feed.state.value}, {replay.label} under way"
        return Status(
            fold=feed.fold.name,
            topic=feed.fold.topic.name,
            view=feed.fold.view.place,
            kind=feed.fold.view.kind,
            state="stopped" if stopped and feed.state is not State.FAILED else state,
            bookmark=at,
            end=end,
            lag=feed.lag,
            records=feed.records,
            rows=feed.rows,
            rows_per_s=round(feed.rows_per_s, 1),
            dead_letters=feed.dead,
            skipped=0 if bookmark is None else bookmark.skipped,
            last_range=ranges_text((one.partition, one.start, one.stop) for one in feed.last_ranges),
            error=feed.error,
            runner=self._name,
            updated_ms=self._clock.now_ms(),
            last_command=self._commands.handled.get(feed.fold.name),
            result=self._commands.results.get(feed.fold.name),
            engine=None if description is None else str(description["engine"]),
            view_description=description,
            doing=self._doing(feed, replay),
            adds=feed.fold.view.adds,
            file=feed.fold.file,
            stopped=stopped,
            mixes=0 if bookmark is None or bookmark.logic is None else bookmark.logic.mixes,
        )

    def _doing(self, feed: Feed, replay: Feed | None) -> dict[str, object] | None:
        """The replay or rewind of a fold that is under way, and its progress."""
        if replay is not None:
            done, total = replay.progress
            return {"verb": replay.label, "done": done, "total": total}
        rewound = self._rewound.get(feed.fold.name)
        if rewound is None:
            return None
        left = rewound.again if feed.bookmark is None else rewound.left(feed.bookmark)
        if not left:
            del self._rewound[feed.fold.name]
            return None
        return {"verb": "rewind", "done": max(0, rewound.again - left), "total": rewound.again}

    # --- commands -------------------------------------------------------------------------------------------------

    def _take_commands(self) -> None:
        """Carry out the commands since the last call, and on the first call those that no runner has carried out."""
        own = {feed.fold.name: feed for feed in self._own}
        self._commands.hear(self._news())
        claims = self._commands.to_claim(self._clock.now_ms())
        superseded = [LedgerEntry(key, None) for key in self._commands.superseded(claims)]
        if claims and self._publisher.append([*map(entry_of, claims), *superseded]):
            self._commands.sent(claims)
            self._commands.hear(self._news())
        for command in self._commands.due():
            try:
                told = self._carry_out(own[command.fold], command)
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

    def _carry_out(self, feed: Feed, command: Command) -> str:
        name = feed.fold.name
        actions: dict[str, Callable[[], str]] = {
            "pause": lambda: self._set(feed, State.PAUSED, "paused"),
            "resume": lambda: self._set(feed, State.RUNNING, "resumed"),
            "rewind": lambda: self._rewind(feed, command.to or ""),
            "rebuild": lambda: self._begin_rebuild(feed, accept_loss=command.accept_loss),
            "verify": lambda: self._begin_verify(feed),
        }
        _log.info("fold %s: %s", name, command.verb)
        return actions[command.verb]()

    def _set(self, feed: Feed, state: State, told: str) -> str:
        feed.state = state
        feed.bookmark = None  # another process may have moved it
        feed.recovered()
        feed.rows_per_s = 0.0
        self._progressed(feed)
        return told

    def _rewind(self, feed: Feed, to: str) -> str:
        rewound = rewind(feed.fold, to, self._origin, clock=self._clock)
        self._rewound[feed.fold.name] = rewound
        self._go_on(feed)
        return f"{rewound.again} to read again"

    def _go_on(self, feed: Feed) -> None:
        """Continue, also after a permanent failure, which the command may have fixed; a paused fold stays paused."""
        self._set(feed, State.PAUSED if feed.state is State.PAUSED else State.RUNNING, "")

    def _begin_rebuild(self, feed: Feed, *, accept_loss: bool) -> str:
        self._refuse_second(feed)

        def swapped() -> None:
            self._go_on(feed)
            self._rewound.pop(feed.fold.name, None)
            self._commands.results[feed.fold.name] = "rebuilt"

        self._runner.feeds.append(rebuild_feed(feed.fold, self._origin, accept_loss=accept_loss, on_swapped=swapped))
        return "rebuilding"

    def _begin_verify(self, feed: Feed) -> str:
        self._refuse_second(feed)
        verification = Verification(feed.fold, self._origin, range_bytes=other_split(self._range_bytes or RANGE_BYTES))
        replay = verification.feed()
        if replay is None:
            return told_verdict(verification.verdict())
        self._verifying[id(replay)] = verification
        self._runner.feeds.append(replay)
        return "verifying"

    def _refuse_second(self, feed: Feed) -> None:
        under_way = self._replay_of(feed)
        if under_way is not None:
            raise FoldError(f"a {under_way.label} of fold {feed.fold.name!r} is under way; wait for its end")

    def _replay_of(self, feed: Feed) -> Feed | None:
        return next((one for one in self.feeds if one.fold is feed.fold and one.label), None)

    def _finish_replays(self) -> None:
        for feed in [one for one in self.feeds if one.label and one.state in (State.DONE, State.FAILED)]:
            self._runner.feeds.remove(feed)
            verification = self._verifying.pop(id(feed), None)
            try:
                if feed.state is State.FAILED:
                    self._commands.results[feed.fold.name] = f"{feed.label} failed: {feed.error}"
                elif verification is not None:
                    self._commands.results[feed.fold.name] = told_verdict(verification.verdict())
            except FoldlogError as error:
                self._commands.results[feed.fold.name] = f"{feed.label} failed: {error}"
            finally:
                if verification is not None:
                    verification.discard()
                feed.view.close()
            self._publish(force=True)


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
