"""Plans what each micro-batch of a stream reads. Runs in the one Python process that Spark keeps for planning a query.

Spark asks where to begin, how far a batch may go, and for the ranges of a batch, also of one that a crash left
unfinished. Everything that has to outlive the process is in the offsets that Spark stores; the state here only saves
requests to the log.

The size of a batch follows the rules of Spark's Kafka source, so that a query tuned for it behaves the same. Two things
differ: shares are computed in integers, so that rounding of floats never takes an offset too many; and a trigger that
found nothing does not count, so that records after a quiet time are not held back by it.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from foldlog.clock import Clock
from foldlog.errors import UnknownPartition, UnknownTopic
from foldlog.spark.origins.missing import records_missing
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin
from foldlog.spark.source.offsets import Assigned, PlannedRange, assigned, resolve, warn_skipped
from foldlog.spark.source.options import Assign, ReadOptions, Subscribe, SubscribePattern, TopicChoice, TopicPartition
from foldlog.spark.source.stream_losses import Loss, Missing, Resumed, lost_of_batch, resume
from foldlog.spark.source.stream_offset import StreamOffset
from foldlog.views.bookmark import Position

Json = dict[str, Any]
"""A stream offset as Spark stores it."""

_LOOKS_MAX: Final = 1000
"""Each attempt finds one more missing topic; a query names fewer, so the loop ends earlier in practice."""

_log = logging.getLogger("foldlog")


# --- the size of a batch ----------------------------------------------------------------------------------------------


def shares(limit: int, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many of the `waiting` offsets of each partition to take, in proportion, rounded down.

    A partition whose share would be less than one gets one, so that a small one is not starved by large ones: with more
    partitions than `limit`, a batch is larger than it by up to one offset a partition. Partitions where nothing waits
    are not in the answer.

    >>> shares(10, {("t", 0): 60, ("t", 1): 39, ("t", 2): 1, ("t", 3): 0})
    {('t', 0): 6, ('t', 1): 3, ('t', 2): 1}
    """
    backlog = {partition: count for partition, count in waiting.items() if count > 0}
    total = sum(backlog.values())
    return {partition: min(count, max(1, limit * count // total)) for partition, count in backlog.items()}


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits in the options. `max_delay_ms` only matters if `min_offsets` is set."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60 * 1000

    @property
    def is_unlimited(self) -> bool:
        return self.max_offsets is None and self.min_offsets is None


class TriggerPace:
    """Whether a batch is due: at least `min_offsets` wait, or some do and the last batch was long ago.

    The first batch of a run is due at once. Owned by one stream reader, in one thread.
    """

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._last_batch_ms: float | None = None

    def is_due(self, waiting: int) -> bool:
        """Called once per trigger; True counts as a batch."""
        if waiting <= 0:
            return False
        now_ms = self._clock.monotonic_ms()
        is_enough = self._limits.min_offsets is None or waiting >= self._limits.min_offsets
        is_late = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self._limits.max_delay_ms
        if not (is_enough or is_late):
            return False
        self._last_batch_ms = now_ms
        return True


# --- the ranges of a batch --------------------------------------------------------------------------------------------


class _Planned(NamedTuple):
    """The batch planned last, which Spark asks for next."""

    start: Json
    end: Json
    ranges: list[PlannedRange]


class StreamPlanner:
    """Plans the batches of one query. One thread at a time; owns the origin, and closes it."""

    def __init__(self, origin: Origin, options: ReadOptions, clock: Clock) -> None:
        self._origin = origin
        self._options = options
        self._limits = RateLimits(
            options.max_offsets_per_trigger, options.min_offsets_per_trigger, options.max_trigger_delay_ms
        )
        self._pace = TriggerPace(self._limits, clock)
        self._fixed: Assigned | None = None
        self._seen: Assigned | None = None
        self._planned: _Planned | None = None
        self._told: set[Loss] = set()
        self._fine: set[tuple[object, ...]] = set()

    @property
    def origin(self) -> Origin:
        return self._origin

    def initial(self) -> Json:
        """Where a new query begins. UnknownTopic if a topic does not exist: that is a typing error, not a loss.

        RecordsMissing if a given offset is not in the log; with failOnDataLoss=false the nearest one is used.
        """
        now = assigned(self._origin, self._options.topics)
        offsets = resolve(self._origin, now, self._options.starting, "starting", self._options.on_no_match)
        skipped = 0
        for partition, bounds in now.bounds.items():
            if not bounds.start <= offsets[partition] <= bounds.end:
                wanted = OffsetRange(*partition, offsets[partition], max(offsets[partition], bounds.start))
                self._refuse(wanted, bounds, now.topics[partition[0]].topic_id)
                offsets[partition] = min(max(offsets[partition], bounds.start), bounds.end)
                skipped += wanted.stop - wanted.start
        positions = {
            partition: Position(offsets[partition], bounds.leader_epoch) for partition, bounds in now.bounds.items()
        }
        return StreamOffset(positions, _ids(now, positions), skipped).to_json()

    def fix_end(self) -> None:
        """Fix the end of the run: records and partitions that are added later are not read."""
        self._fixed = self._look(is_strict=False)

    def latest(self, start: Json, *, unlimited: bool) -> Json:
        """The end of the batch that begins at `start`; `start` itself if no batch is due.

        RecordsMissing if a record that it would read is gone, unless failOnDataLoss is false.
        """
        begin = StreamOffset.from_json(start)
        now = self._look(is_strict=self._options.fail_on_data_loss, known=begin.topics())
        self._seen = now
        if self._fixed is not None:
            now = _only(now, {*begin.positions, *self._fixed.bounds})
        resumed = resume(begin, now, self._missing_unless_fine(now), self._origin.topics)
        self._refuse_or_tell(resumed.losses)
        waiting = {partition: self._end(partition, at, now) - at.offset for partition, at in resumed.positions.items()}
        if not unlimited:
            # A run with a fixed end must not wait for `min_offsets`: nothing more would come.
            can_wait = self._limits.min_offsets is not None and self._fixed is None
            if can_wait and not self._pace.is_due(sum(waiting.values())):
                return start
            if self._limits.max_offsets is not None:
                waiting = shares(self._limits.max_offsets, waiting)
        end = _advanced(begin, resumed, waiting, now)
        if end == begin:
            return start
        self._planned = _Planned(start, end.to_json(), _ranges(resumed, end))
        return self._planned.end

    def ranges(self, start: Json, end: Json) -> list[PlannedRange]:
        """The ranges of the batch between the two. RecordsMissing as for `latest`."""
        if start == end:
            return []
        if self._planned is not None and (self._planned.start, self._planned.end) == (start, end):
            return self._planned.ranges
        # A batch that an earlier run planned and did not finish: it has to read the same again.
        stop = StreamOffset.from_json(end)
        now = _only(self._look(is_strict=False), stop.positions)
        begin = StreamOffset.from_json(start).only(stop.positions)
        resumed = resume(begin, now, self._missing_unless_fine(now), self._origin.topics)
        cut = list(lost_of_batch(resumed, stop, now))
        self._refuse_or_tell([*resumed.losses, *cut])
        shorter = {
            (loss.topic, loss.partition): Position(loss.resume or 0, resumed.positions[loss.topic, loss.partition][1])
            for loss in cut
        }
        return _ranges(resumed, replace(stop, positions={**stop.positions, **shorter}, topic_ids=_ids(now, now.bounds)))

    def report(self) -> dict[str, dict[str, int]] | None:
        """The ends at the last trigger, in the form of Spark's Kafka source; None if there are none."""
        ends: dict[str, dict[str, int]] = {}
        for (topic, partition), bounds in sorted(self._seen.bounds.items()) if self._seen is not None else ():
            ends.setdefault(topic, {})[str(partition)] = bounds.end
        return ends or None

    def close(self) -> None:
        self._origin.close()

    def _look(self, *, is_strict: bool, known: Container[str] = ()) -> Assigned:
        """The current topics and bounds. A missing topic is an error only if `is_strict` and not among `known`: if the
        query has read it before, that is reported as a loss.
        """
        choice, looks = self._options.topics, 0
        while True:
            looks += 1
            try:
                return assigned(self._origin, choice)
            except (UnknownTopic, UnknownPartition) as error:
                is_wrong = is_strict and error.topic not in known and not isinstance(choice, SubscribePattern)
                if is_wrong or looks == _LOOKS_MAX:
                    raise
                choice = _without(choice, error)

    def _end(self, partition: TopicPartition, at: Position, now: Assigned) -> int:
        """How far a partition may be read: to its end, or to its end when the run's end was fixed."""
        end = now.bounds[partition].end
        if self._fixed is not None:
            fixed, topic = self._fixed.bounds.get(partition), partition[0]
            is_same = fixed is not None and self._fixed.topics[topic].topic_id == now.topics[topic].topic_id
            end = min(end, fixed.end) if fixed is not None and is_same else at.offset
        return max(at.offset, end)

    def _refuse(self, wanted: OffsetRange, bounds: Bounds, topic_id: str) -> None:
        """RecordsMissing, or a warning, for a starting offset that is not in the log."""
        if self._options.fail_on_data_loss:
            cause = self._origin.missing(wanted.topic, topic_id, wanted.partition, wanted.start) or "expired"
            raise records_missing(wanted, cause, bounds, self._origin.spec.location)
        warn_skipped(wanted, wanted.stop - wanted.start, f"the log holds {bounds.start} to {bounds.end}")

    def _refuse_or_tell(self, losses: Sequence[Loss]) -> None:
        """Raise, or log each loss once, however often Spark asks for the same batch."""
        if losses and self._options.fail_on_data_loss:
            raise losses[0].error(others=len(losses) - 1)
        for loss in losses:
            if loss not in self._told:
                _log.warning("%s, %d offsets are skipped (failOnDataLoss=false)", loss, loss.skipped)
        self._told = set(losses)

    def _missing_unless_fine(self, now: Assigned) -> Missing:
        """`Origin.missing`, which may cost a request per partition, with good answers cached per leader."""
        fine, self._fine = self._fine, set()

        def missing(topic: str, topic_id: str | None, partition: int, offset: int, leader_epoch: int) -> str | None:
            start, _, leader = now.bounds[topic, partition]
            question = (topic, topic_id, partition, offset, leader_epoch, start, leader)
            cause = None
            if question not in fine:
                cause = self._origin.missing(topic, topic_id, partition, offset, leader_epoch)
            if cause is None:
                self._fine.add(question)
            return cause

        return missing


def _without(choice: TopicChoice, gone: UnknownTopic | UnknownPartition) -> TopicChoice:
    match choice:
        case Subscribe(names):
            return Subscribe(tuple(name for name in names if name != gone.topic))
        case Assign(partitions):
            number = gone.partition if isinstance(gone, UnknownPartition) else None
            kept = (
                partition
                for partition in partitions
                if partition[0] != gone.topic or number not in (None, partition[1])
            )
            return Assign(tuple(kept))
        case SubscribePattern():
            return choice  # deleted after it was matched, and will not match again


def _only(now: Assigned, partitions: Container[TopicPartition]) -> Assigned:
    return replace(
        now, bounds={partition: bounds for partition, bounds in now.bounds.items() if partition in partitions}
    )


def _ids(now: Assigned, partitions: Iterable[TopicPartition]) -> dict[str, str]:
    return {topic: now.topics[topic].topic_id for topic, _ in partitions}


def _advanced(
    begin: StreamOffset, resumed: Resumed, taken: Mapping[TopicPartition, int], now: Assigned
) -> StreamOffset:
    """The end of a batch. A partition that does not move keeps its entry of `begin`, so that the texts are equal."""
    ids = _ids(now, resumed.positions)
    positions: dict[TopicPartition, Position] = {}
    for partition, at in resumed.positions.items():
        offset, old = at.offset + taken.get(partition, 0), begin.positions.get(partition)
        is_still = old is not None and old.offset == offset and begin.topic_ids.get(partition[0]) == ids[partition[0]]
        positions[partition] = (
            old if old is not None and is_still else Position(offset, now.bounds[partition].leader_epoch)
        )
    return StreamOffset(positions, ids, begin.skipped + sum(loss.skipped for loss in resumed.losses))


def _ranges(begin: Resumed, end: StreamOffset) -> list[PlannedRange]:
    return [
        PlannedRange(OffsetRange(topic, partition, begin.positions[topic, partition].offset, stop.offset), found)
        for (topic, partition), stop in sorted(end.positions.items())
        if (topic, partition) in begin.positions
        and begin.positions[topic, partition].offset < stop.offset
        and (found := end.topic_ids.get(topic)) is not None
    ]
