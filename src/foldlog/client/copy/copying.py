"""Copies of topics, from one log into another: a directory, a broker, a cluster, in any direction.

To follow one: `Copying.plan`, then `prepare` (the topics), then `copy_all` (growths.py), which is `copy` for each
partition (directory.py, cluster.py), then `check_all` (check.py), and `move_groups`.

Kept: records, their order in each partition, keys, values, headers, times and tombstones; partitions; the settings that
the target knows; offsets in a directory, and at a broker if the source has neither lost nor compacted anything. Not
kept: producer ids, and open transactions, which are copied once they have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from foldlog.broker.topics.names import check_user_topic_name
from foldlog.client.copy.check import CopyVerdict, compare
from foldlog.client.copy.cluster import ClusterTarget
from foldlog.client.copy.directory import DirectoryTarget
from foldlog.client.copy.groups import MOVED, QUEUE, GroupMove, committed_in, move_groups, taken_in, translate
from foldlog.client.copy.growths import joined, stages_of
from foldlog.client.copy.notes import checked_up_to, note_checked
from foldlog.client.copy.offsets import CopyPoint, OffsetMap
from foldlog.client.copy.parallel import check_in_parallel, copy_in_parallel
from foldlog.client.copy.sides import ClusterSide, DirectorySide, compacts, open_cluster, open_side
from foldlog.client.copy.targets import Copied, CopySpan, OnProgress, Resume, Route, Target, nothing_yet
from foldlog.client.fold_bulletin import FOLDS_TOPIC
from foldlog.client.positions import TopicPartition
from foldlog.clock import SystemClock
from foldlog.errors import (
    CopyConflict,
    CorruptLog,
    FoldlogError,
    InvalidArgument,
    RefusedByBroker,
    TopicExists,
    UnknownTopic,
)
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.client.copy.sides import Side
    from foldlog.client.log import Log

_TIME_KIND: Final = "message.timestamp.type"
"""Not copied: the target would set its own times in the records."""

_RETENTION: Final = "retention.ms"

_OWN_TOPICS: Final = {"__transaction_state", "__share_group_state", "__cluster_metadata", FOLDS_TOPIC}
"""Topics that brokers and runners keep for themselves, besides that of committed offsets, which is always refused."""


class Pair(NamedTuple):
    """A topic, and its name in the target."""

    topic: str
    to_topic: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The remaining work for one partition."""

    span: CopySpan
    resume: Resume
    is_new: bool  # the topic has to be created

    @property
    def remaining(self) -> int:
        """Offsets of the source that are still to be copied."""
        return max(0, self.span.stop - self.resume.at.source)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was done about the topic of a pair. `left` has the settings that were not copied, each with the reason."""

    pair: Pair
    is_made: bool
    settings: Mapping[str, str]
    left: Mapping[str, str]
    outlived: int | None = None  # the target's retention.ms, if records of the source are past it


class Copying:
    """One copy of some topics. Used by one thread, in a `with` block; does not close the logs."""

    def __init__(self, source: Log, target: Log, pairs: Sequence[Pair], *, passes_damage: bool = False) -> None:
        """Raises UnknownTopic if the source lacks one; InvalidArgument if the pairs are invalid.

        With `passes_damage`, a partition that cannot be read is noted in `damages`, by its name or its topic's, and the
        others are copied; else its CorruptLog is raised.
        """
        names = [pair.to_topic for pair in pairs]
        is_one_log = source.directory_id == target.directory_id
        for pair in pairs:
            check_user_topic_name(pair.topic)
            if pair.topic in _OWN_TOPICS:
                raise InvalidArgument(
                    f"topic {pair.topic!r} is what a log keeps for itself; copy the others: groups come with them"
                )
            check_user_topic_name(pair.to_topic)
            if names.count(pair.to_topic) > 1:
                raise InvalidArgument(f"two topics would be copied to {pair.to_topic!r}; say each name once")
            if is_one_log and pair.topic == pair.to_topic:
                raise InvalidArgument(f"topic {pair.topic!r} cannot be copied to itself; say {pair.topic}=NAME")
            source.topic(pair.topic)
        self.pairs = tuple(pairs)
        self.damages: dict[str, CorruptLog] = {}
        self._passes_damage = passes_damage
        self._source_log = source
        self._target_log = target
        self.source, self.target = _open_sides(source, target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.close()
        self.target.side.close()

    # --- before ---------------------------------------------------------------------------------------------------

    def plan(self) -> list[Plan]:
        """How far each partition is, and what is left. Writes nothing. CopyConflict if the target has other records."""
        plans: list[Plan] = []
        for pair in self.pairs:
            spans: list[CopySpan] = []
            with self.passing_damage(pair.topic):
                spans = self._spans(pair)
            if pair.topic in self.damages:
                continue
            count = self._target_partitions(pair.to_topic)
            self._check_partitions(pair, count, len(spans))
            for span in spans:
                is_there = count is not None and span.route.partition < count
                with self.passing_damage(str(span.route)):
                    resume = self.target.find(self.source, span) if is_there else nothing_yet(span, 0)
                    plans.append(Plan(span, resume, is_new=count is None))
        return plans

    def _check_partitions(self, pair: Pair, count: int | None, source_count: int) -> None:
        if count is not None and count > source_count:
            raise CopyConflict(
                f"topic {pair.to_topic!r} of {self._target_log.path} has {count} partitions, and its source"
                f" {source_count}; keys would not be where the copy has them: copy to a topic of another name"
            )

    @contextmanager
    def passing_damage(self, name: str) -> Iterator[None]:
        """Note damage that is found in the block under a name, if it is to be skipped."""
        try:
            yield
        except CorruptLog as error:
            if not self._passes_damage:
                raise
            self.damages.setdefault(name, error)

    def _sound_pairs(self) -> list[Pair]:
        """The pairs whose topics have known bounds."""
        return [pair for pair in self.pairs if pair.topic not in self.damages]

    def _spans(self, pair: Pair) -> list[CopySpan]:
        bounds = self.source.bounds(pair.topic)
        return [CopySpan(Route(*pair, number), start, end) for number, (start, end) in sorted(bounds.items())]

    def _target_partitions(self, topic: str) -> int | None:
        """The partition count of a topic; None if it does not exist."""
        try:
            return self._target_log.topic(topic).partition_count
        except UnknownTopic:
            return None

    def undecided(self) -> dict[Route, tuple[int, int]]:
        """The ranges behind an open transaction, which are left for a later copy."""
        return {
            Route(*pair, number): stretch
            for pair in self._sound_pairs()
            for number, stretch in self.source.undecided(pair.topic).items()
        }

    def plan_groups(self) -> list[GroupMove]:
        """What `move_groups` would do for the groups of the source, as far as it is known before the copy."""
        routes = self._routes()
        found = ((MOVED, committed_in(self.source, routes)), (QUEUE, taken_in(self.source, routes)))
        return [
            GroupMove(group, route, offset, None, outcome)
            for outcome, groups in found
            for group, offsets in groups.items()
            for route, offset in offsets.items()
        ]

    def _routes(self) -> dict[TopicPartition, Route]:
        return {
            TopicPartition(pair.topic, span.route.partition): span.route
            for pair in self._sound_pairs()
            for span in self._spans(pair)
        }

    def prepare(self) -> list[Prepared]:
        """Create the topics that the target lacks, with the settings that it knows and their first partitions.

        While a topic is empty, its settings are adapted to the source; later they are the target's own.
        """
        return [self._prepared(pair) for pair in self._sound_pairs()]

    def _prepared(self, pair: Pair) -> Prepared:
        is_made = self._target_partitions(pair.to_topic) is None and self._made(pair)
        settings: dict[str, str] = {}
        left: dict[str, str] = {}
        if all(start == end for start, end in self.target.side.bounds(pair.to_topic).values()):
            settings, left = self._bring_settings(pair)
        told = self._target_log.topic_config(pair.to_topic).get(_TIME_KIND)
        if told is not None and told.value == "LogAppendTime":
            raise CopyConflict(
                f"topic {pair.to_topic!r} of {self._target_log.path} would put its own time into every record"
                f" ({_TIME_KIND}=LogAppendTime); set it to CreateTime until the copy is done"
            )
        return Prepared(pair, is_made, settings, left, self._outlived(pair))

    def _outlived(self, pair: Pair) -> int | None:
        """The retention.ms of a broker's topic that would delete some of the copy at once. A directory of this process
        reports that itself, when such records are appended."""
        if isinstance(self.target, DirectoryTarget):
            return None
        config = self._target_log.topic_config(pair.to_topic)
        kept_ms = int(config[_RETENTION].value) if _RETENTION in config else -1
        if kept_ms < 0 or "delete" not in config["cleanup.policy"].value:
            return None
        kept_from = self._source_log.offsets_at(pair.topic, max(0, SystemClock().now_ms() - kept_ms))
        for number, (start, end) in self.source.bounds(pair.topic).items():
            first = kept_from.get(number)
            if start < (end if first is None else first):
                return kept_ms
        return None

    def _made(self, pair: Pair) -> bool:
        """False if it exists already: most likely by an interrupted copy whose request was still on its way."""
        growths = self.source.growths(pair.topic)
        source_count = len(self.source.bounds(pair.topic))
        first = len(growths[0].ends) if growths else source_count
        try:
            self._target_log.create_topic(pair.to_topic, partitions=first)
        except TopicExists:
            self._check_partitions(pair, self._target_partitions(pair.to_topic), source_count)
            return False
        return True

    def _bring_settings(self, pair: Pair) -> tuple[dict[str, str], dict[str, str]]:
        known = self._target_log.topic_config(pair.to_topic)
        settings: dict[str, str] = {}
        left: dict[str, str] = {}
        for name, entry in sorted(self.source.log.topic_config(pair.topic).items()):
            # What is kept for ever by default must not be lost because the target has another default.
            if entry.is_default and (name, entry.value) != (_RETENTION, "-1"):
                continue
            if name == _TIME_KIND:
                left[name] = "records keep the times they have"
            elif name not in known:
                left[name] = "the target does not know it"
            elif known[name].value == entry.value and (entry.is_default or not known[name].is_default):
                settings[name] = entry.value
            else:
                try:
                    self._target_log.alter_topic(pair.to_topic, {name: entry.value})
                    settings[name] = entry.value
                except FoldlogError as error:
                    left[name] = str(error)
        return settings, left

    # --- the copy, and what comes after it ------------------------------------------------------------------------

    def copy_all(self, on_progress: OnProgress) -> dict[Route, Copied]:
        """Copy everything that is not in the target yet; acknowledged on return. Call `prepare` before.

        If a topic has gained partitions, the copy gains them at the same points, since folds and other readers that
        depend on keys have to read the older partitions up to there before the new ones.
        """
        done: dict[Route, Copied] = {}
        for pair in self._sound_pairs():
            count = self._target_log.topic(pair.to_topic).partition_count
            spans = self._spans(pair)
            for stage in stages_of(spans, count, self.source.growths(pair.topic)):
                if stage.partitions > self._target_log.topic(pair.to_topic).partition_count:
                    self._target_log.grow_topic(pair.to_topic, stage.partitions)
                for route, copied in self._copied(stage.spans, on_progress).items():
                    done[route] = joined(done.get(route), copied)
                if any(str(span.route) in self.damages for span in spans):
                    break  # later partitions belong behind all of these
        return {route: copied for route, copied in done.items() if str(route) not in self.damages}

    def _copied(self, spans: Sequence[CopySpan], on_progress: OnProgress) -> dict[Route, Copied]:
        is_over_network = isinstance(self.source, ClusterSide) or isinstance(self.target, ClusterTarget)
        if len(spans) > 1 and is_over_network:
            return copy_in_parallel(self._more_sides, spans, on_progress, self.passing_damage)
        done: dict[Route, Copied] = {}
        for span in spans:
            with self.passing_damage(str(span.route)):
                resume = self.target.find(self.source, span)
                done[span.route] = self.target.copy(self.source, span, resume, on_progress)
        return done

    def copy(self, plan: Plan, on_progress: OnProgress) -> Copied:
        """Copy the rest of one partition; acknowledged on return."""
        return self.target.copy(self.source, plan.span, plan.resume, on_progress)

    def checked(self, copies: Iterable[Route]) -> dict[Route, CopyPoint]:
        """How far each was compared and found the same, by this copy or an earlier one."""
        return checked_up_to(self.source, self.target.side, copies)

    def check_all(
        self,
        copies: Mapping[Route, Copied],
        on_progress: OnProgress,
        since: Mapping[Route, CopyPoint] = MappingProxyType({}),
    ) -> dict[Route, CopyVerdict]:
        """Read both sides of the result of `copy_all` again, several partitions at a time, and compare them: from the
        point `since` on, if there is one."""
        verdicts: dict[Route, CopyVerdict] = {}
        if len(copies) > 1:
            verdicts = check_in_parallel(self._more_sides, copies, on_progress, self.passing_damage, since)
        else:
            for route, copied in copies.items():
                with self.passing_damage(str(route)):
                    verdicts[route] = compare(
                        self.source, self.target.side, route, copied, on_progress, since.get(route)
                    )
        same = {route: copies[route].offsets.end for route, verdict in verdicts.items() if verdict.is_same}
        known = self.checked(same)
        note_checked(
            self.source, self.target.side, {route: end for route, end in same.items() if known.get(route) != end}
        )
        return verdicts

    def _more_sides(self) -> tuple[Side, Target]:
        """Sides for another thread, which closes them."""
        return _open_sides(self._source_log, self._target_log)

    def follow_starts(self, maps: Mapping[Route, OffsetMap]) -> None:
        """Delete from the copy what the source has deleted or expired since, and nothing that the source still has: in
        a topic with holes whose offsets were not kept, perhaps not all. A broker that refuses, since the topic is only
        compacted, keeps them."""
        for pair in self._sound_pairs():
            there = self.target.side.bounds(pair.to_topic)
            before: dict[int, int] = {}
            for number, (start, _) in self.source.bounds(pair.topic).items():
                route = Route(*pair, number)
                if route not in maps:
                    continue
                translated = translate(self.source, route, maps[route], start)
                # The rest from the start on is at the end of the copy, unless there are holes in it by now.
                at = translated.earliest if compacts(self.source, pair.topic) else translated.latest
                if at > there[number][0]:
                    before[number] = at
            if before:
                self._delete_before(pair.to_topic, before)

    def _delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        try:
            self._target_log.delete_records(topic, offsets)
        except RefusedByBroker as error:
            if error.code != ErrorCode.POLICY_VIOLATION:
                raise

    def move_groups(self, maps: Mapping[Route, OffsetMap], *, mirrors: bool = False) -> list[GroupMove]:
        """Move the groups in the copy to their positions in the source; with `mirrors`, also back, and delete positions
        that they no longer have in the source."""
        return move_groups(self.source, self.target.side, maps, mirrors=mirrors)


def _open_sides(source: Log, target: Log) -> tuple[Side, Target]:
    side = open_side(source)
    try:
        return side, _open_target(target)
    except BaseException:
        side.close()
        raise


def _open_target(log: Log) -> Target:
    """A directory of this process takes batches as they are. Whoever else writes one gives the offsets itself."""
    from foldlog.client.backends.backend import backend_of
    from foldlog.client.backends.local import LocalBackend

    if isinstance(backend_of(log), LocalBackend):
        return DirectoryTarget(DirectorySide(log))
    return ClusterTarget(ClusterSide(log, open_cluster(log)))
