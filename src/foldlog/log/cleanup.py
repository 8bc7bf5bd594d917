"""Carries out retention, deletion of records, compaction and recompression; the modules of those names decide.

All of it runs under one lock per partition, beside appends and reads, which it never delays for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from foldlog.errors import CorruptLog, DecompressedTooLarge, FoldlogError, InvalidArgument, LogClosed
from foldlog.files.base import replace_file, storage_error
from foldlog.log import compaction
from foldlog.log.checkpoint import StartReason, out_of_range
from foldlog.log.compaction import CleanTime, CompactionReport
from foldlog.log.doctor import recompression
from foldlog.log.doctor.recompression import RecompressionReport
from foldlog.log.layout import CLEANED_SUFFIX, SWAP_SUFFIX, swap_in
from foldlog.log.producers import Producers, ProducersNeed
from foldlog.log.reading import VerifiedSegments, check_boundary
from foldlog.log.retention import RetentionPlan, SegmentAge, plan_retention
from foldlog.log.segment import NO_TIMESTAMP, TRANSACTION_INDEX_SUFFIX, Segment
from foldlog.log.transactions import format_transaction_index
from foldlog.records.batch import Compression
from foldlog.records.loops import KeyMap

if TYPE_CHECKING:
    from foldlog.log.partition import PartitionCore


class Cleanup:
    """Cleans up one partition. `roll` seals the active segment, `append_lock` guards the list of segments.

    Any thread, one at a time: `lock`. Promises that only retention, a deletion, a newer record of its key or its end as
    a tombstone removes a record, and that a fault midway leaves the log as it was or as it was to be. Does not promise
    when the bytes of removed segments are free: readers may have them open.
    """

    def __init__(
        self,
        core: PartitionCore,
        append_lock: threading.Lock,
        roll: Callable[[], None],
        poison: Callable[[Exception], None],
        producers: Producers,
    ) -> None:
        self._core = core
        self._append_lock = append_lock
        self._roll = roll
        self._poison = poison
        self._producers = producers
        self._is_interrupted = False
        self._undated: Segment | None = None  # a damaged segment, whose age is unknown
        self._stopped: tuple[FoldlogError, Segment] | None = None  # why compaction stopped, and at which segment
        # First in partition.py's order, and held for as long as a compaction takes. Only its holder removes or replaces
        # segments; appends still add some at the end.
        self.lock = threading.Lock()

    # The head

    def enforce_retention(self, now_ms: int) -> int:
        """Remove head segments beyond the topic's limits; how many. Raises CorruptLog for a segment whose age cannot be
        read, after those before it are removed."""
        with self.lock:
            return self._enforce_retention(now_ms)

    def try_retention(self, now_ms: int) -> int | None:
        """As `enforce_retention`, without waiting: None while a compaction runs. A segment whose age could not be read
        before is not tried again."""
        if not self.lock.acquire(blocking=False):
            return None
        try:
            return self._enforce_retention(now_ms, self._undated)
        finally:
            self.lock.release()

    def _enforce_retention(self, now_ms: int, undated: Segment | None = None) -> int:
        with self._our_errors():
            self._core.refuse_if_closed()
            if self._core.state.local_start_offset > self._core.state.log_start_offset:
                return 0  # older records are in the store, and go first: see tier/tiering.py
            segments = self._core.segments
            plan, damage = self._plan_retention(self._durable(segments), now_ms, undated)
            if plan.count == len(segments):
                self._roll()
                # Plan again, now that these segments get no more appends: what came since the first plan may be young.
                plan, damage = self._plan_retention(self._core.segments[:-1], now_ms, undated)
            start = self._core.segments[plan.count].base_offset
            removed = self._remove_head(start, log_start_offset=start, start_reason=plan.reason) if plan.count else 0
        if damage is not None:
            raise damage
        return removed

    def _plan_retention(
        self, segments: Sequence[Segment], now_ms: int, undated: Segment | None
    ) -> tuple[RetentionPlan, CorruptLog | None]:
        """What to remove, and the damage that ended the plan, if any. A segment's age is read only once all before it
        have expired: damage further on does not keep the head."""
        config = self._core.config
        ages = [SegmentAge(segment.size, NO_TIMESTAMP) for segment in segments]
        plan = plan_retention(ages, config, now_ms)
        while config.delete and config.retention_ms >= 0 and plan.count < len(segments):
            segment = segments[plan.count]
            if segment is undated:
                break
            try:
                ages[plan.count] = SegmentAge(segment.size, segment.largest_timestamp())
                following = self._core.segments[plan.count + 1 : plan.count + 2]
                if following:
                    # A segment that lost its end looks older than it is.
                    check_boundary(segment, segment.latest_looked_to(), following[0])
            except CorruptLog as error:
                self._undated = segment
                return plan, error
            longer = plan_retention(ages, config, now_ms)
            if longer.count == plan.count:
                break
            plan = longer
        return plan, None

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(f"{self._core.path} could not be cleaned up", error) from error

    def _durable(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """The segments, without the active one while part of it is not durable."""
        state = self._core.state
        settled = state.active_base_offset == segments[-1].base_offset and state.durable_position == segments[-1].size
        return segments if settled else segments[:-1]

    def delete_records(self, before_offset: int) -> int:
        """Move the log start up to `before_offset`; segments that end there or before are removed."""
        with self.lock:
            self._core.refuse_if_closed()
            state = self._core.state
            if not 0 <= before_offset <= state.high_watermark:
                raise out_of_range(
                    self._core.label, before_offset, state.log_start_offset, state.high_watermark, state.start_reason
                )
            if before_offset > state.log_start_offset:
                if before_offset >= state.durable_offset and self._core.segments[-1].size:
                    self._roll()
                self._remove_head(before_offset, log_start_offset=before_offset, start_reason=StartReason.DELETED)
            return self._core.state.log_start_offset

    def move_start(self, log_start: int, reason: StartReason) -> None:
        """Let the log start at an offset that is in the store alone. Durable on return."""
        with self.lock:
            self._core.refuse_if_closed()
            if log_start > self._core.state.log_start_offset:
                self._remove_head(log_start, log_start_offset=log_start, start_reason=reason)

    def remove_local(self, before_offset: int) -> int:
        """Remove the files of segments below an offset, where one begins. The caller has seen them whole in the store.
        How many."""
        with self.lock, self._our_errors():
            self._core.refuse_if_closed()
            return self._remove_head(before_offset, tiered_below=before_offset)

    def find_start(self, log_start: int, reason: StartReason) -> None:
        """Let the log start at an older offset, from which on the store has all: the slot that said so was lost, or
        files were removed by hand. Durable on return."""
        with self.lock, self._append_lock:
            core = self._core
            core.refuse_if_closed()
            boundary = max(core.state.local_start_offset, core.segments[0].base_offset)
            core.change(firmly=True, log_start_offset=log_start, start_reason=reason, tiered_below=boundary)
        core.watchers.tell()

    def _remove_head(self, local_start: int, **changes: Any) -> int:
        """Store the changed start, then remove the segments that end at `local_start` or before."""
        core = self._core
        if changes.get("log_start_offset", 0) >= core.state.tiered_below:
            changes.setdefault("tiered_below", 0)
        with core.changing_names():
            with self._append_lock:
                segments = core.segments
                count = sum(1 for following in segments[1:] if following.base_offset <= local_start)
                removed, kept = segments[:count], segments[count:]
                # Durable before the first unlink: a missing head is then explained, and offsets are never used again.
                core.change(firmly=True, segment_count=len(kept), **changes)
                core.segments = kept
            # Without the append lock: removing a file of a gigabyte may take the file system a while. Threads that have
            # the old list find a file missing, and take the new list (`with_view`).
            core.watchers.tell()
            try:
                for segment in removed:
                    segment.unlink()
                    segment.forget()
                core.files.sync_directory(core.path)
            except OSError as error:
                # The log start has moved for good; what is still there is removed at the next open.
                raise storage_error(f"{core.path}: expired segments could not be removed", error) from error
        return len(removed)

    # Compaction

    def compact(
        self, now_ms: int, force: bool, needed: Callable[[], ProducersNeed], stable: Callable[[], int]
    ) -> CompactionReport:
        """Compact in as many passes as the key map needs. Without `force`, only if policy, lag and dirty ratio call for
        it, and not again after damage ended it. `stable`: the last stable offset."""
        with self.lock, self._our_errors():
            core = self._core
            core.refuse_if_closed()
            if force:
                self._refuse_stored()
            if not force and (not core.config.compact or self.fault is not None):
                return CompactionReport(cleaned_offset=core.state.cleaned_offset)
            with self._noting_damage():
                return self._compact(now_ms, force, needed, stable)

    def _refuse_stored(self) -> None:
        if self._core.config.remote:
            topic = self._core.label[0]
            raise InvalidArgument(f"topic {topic!r} has segments in a store, which are never rewritten; nor are these")

    def _compact(
        self, now_ms: int, force: bool, needed: Callable[[], ProducersNeed], stable: Callable[[], int]
    ) -> CompactionReport:
        core = self._core
        report = CompactionReport(cleaned_offset=core.state.cleaned_offset)
        if force and core.segments[-1].size:
            # Before anything is read: if damage stops the rest, the log has one more boundary and every byte it had.
            # The next try finds an empty active segment, and does not roll.
            self._roll()
        end = compaction.end_of_cleanable(core.segments, core.config, now_ms, stable(), force=force)
        start = max(core.state.cleaned_offset, core.state.log_start_offset)
        ratio, lag_ms = core.config.min_cleanable_dirty_ratio, core.config.max_compaction_lag_ms
        if (
            not force
            and not compaction.is_worthwhile(core.segments, start, end, ratio)
            and not compaction.is_overdue(core.segments, start, end, lag_ms, now_ms)
        ):
            return report
        time = CleanTime(now_ms, core.config.delete_retention_ms, core.config.read_decompressed_limit)
        # `needed` is called for each pass. What producers append during a pass is behind `end`, in segments that
        # no pass touches.
        while start < end:
            report = report.plus(self._clean_once(start, end, time, needed()))
            start = report.cleaned_offset
        if force and report.segments_before == 0 and end > core.segments[0].base_offset:
            # Nothing new since the last time, but tombstones may have expired.
            need = needed()
            compaction.map_keys(self._source(), core.segments, end, end, time.decompressed_limit, need.aborted)
            report = report.plus(self._rewrite_all(KeyMap(1), range(end, end), time, need))
        return report

    def _clean_once(self, start: int, end: int, time: CleanTime, need: ProducersNeed) -> CompactionReport:
        keys, mapped_end = compaction.map_keys(
            self._source(), self._core.segments, start, end, time.decompressed_limit, need.aborted
        )
        if mapped_end <= start:
            # The first key always fits, so this cannot happen; but the loop would never end.
            raise CorruptLog(self._core.path, 0, f"compaction does not get beyond offset {start}")
        report = self._rewrite_all(keys, range(start, mapped_end), time, need)
        # After the last swap. After a crash before this, the next pass does the same again, which changes nothing: the
        # newest record of each key is still the newest.
        self._core.change(firmly=True, cleaned_offset=mapped_end)
        return report.plus(CompactionReport(cleaned_offset=mapped_end))

    def _rewrite_all(self, keys: KeyMap, mapped: range, time: CleanTime, need: ProducersNeed) -> CompactionReport:
        core = self._core
        report = CompactionReport()
        sealed = [segment for segment in core.segments[:-1] if segment.base_offset < mapped.stop]
        following = {one.base_offset: other for one, other in pairwise(core.segments)}
        end_of_sealed = core.segments[len(sealed)].base_offset
        # Checked against the gaps that were legal before this pass: its own gaps are behind what it still reads.
        one_pass = compaction.Pass(self._source(), core.segments, core.state.gaps_below, keys, mapped, time, need)
        for group in compaction.group_segments(sealed, end_of_sealed, core.config.segment_bytes):
            after = following[group[-1].base_offset]
            with self._removing_draft(group[0]):
                size, counts, is_changed = one_pass.rewrite(core.files, core.path, group, after)
            report = report.plus(counts)
            if one_pass.transactions is not None:
                self._clean_transaction_index(group, after, one_pass.transactions.needed_aborts)
            if not is_changed:
                core.files.unlink(group[0].stem + CLEANED_SUFFIX)
            else:
                if core.state.gaps_below < after.base_offset:
                    # Durable before the first gap exists: readers take a gap above this for damage. And not before the
                    # segments below it were verified again: damage that looks like a gap would then pass for one.
                    core.change(firmly=True, gaps_below=after.base_offset)
                self._swap(group, size)
        return report

    def _clean_transaction_index(self, group: Sequence[Segment], after: Segment, needed: Set[int]) -> None:
        """Write the index of aborted transactions for a segment that is to replace a group: durable before the swap,
        which removes the others. Until then it names transactions that others name, too. Those without batches leave
        it."""
        start, end = group[0].base_offset, after.base_offset
        with self._append_lock:  # the appender writes such files, too
            entries = self._producers.aborted.ended_in(start, end)
            kept = [entry for entry in entries if entry.last_offset in needed]
            if len(kept) < len(entries):
                gone = {entry.last_offset for entry in entries} - needed
                self._producers.drop_aborted(lambda one: one.last_offset in gone)
            if len(kept) < len(entries) or (len(group) > 1 and kept):
                path = group[0].stem + TRANSACTION_INDEX_SUFFIX
                replace_file(self._core.files, path, format_transaction_index(kept))

    # Recompression

    def recompress(self, codec: Compression) -> RecompressionReport:
        """Rewrite every present segment in that codec if it gets smaller by it; the active one is sealed first."""
        with self.lock, self._our_errors():
            core = self._core
            core.refuse_if_closed()
            self._refuse_stored()
            if core.segments[-1].size:
                self._roll()
            report = RecompressionReport()
            source = self._source()
            # Check all of them before the first is changed: damage leaves the log as it is.
            found = [
                (segment, following, recompression.untouched(source, segment, following, codec))
                for segment, following in pairwise(core.segments)
            ]
            for segment, following, counts in found:
                report = report.plus(counts or self._recompress_one(source, segment, following, codec))
            return report

    def _recompress_one(
        self, source: VerifiedSegments, segment: Segment, following: Segment, codec: Compression
    ) -> RecompressionReport:
        core = self._core
        with self._removing_draft(segment):
            limit = core.config.read_decompressed_limit
            counts = recompression.rewrite(core.files, core.path, source, segment, following, codec, limit)
        if counts.batches_rewritten:
            self._swap([segment], counts.bytes_after)
        else:
            core.files.unlink(segment.stem + CLEANED_SUFFIX)
        return counts

    # What the two share

    def _source(self) -> VerifiedSegments:
        return VerifiedSegments(self._core.state.gaps_below, self._core.epochs.starts, self._refuse_if_interrupted)

    def interrupt(self) -> None:
        """End what runs before its next piece, with the log as it was: the log is being closed."""
        self._is_interrupted = True

    def _refuse_if_interrupted(self) -> None:
        if self._is_interrupted:
            raise LogClosed(
                f"{self._core.path} is being closed; its cleaning was not finished, and goes on another time"
            )

    @property
    def fault(self) -> FoldlogError | None:
        """Why the background does not compact this partition, as long as the segment where it stopped exists."""
        stop = self._stopped
        return stop[0] if stop is not None and stop[1] in self._core.segments else None

    def reconsider(self) -> None:
        """Allow compaction after a change of the settings: a batch that was too large to open may not be any more."""
        self._stopped = None

    @contextmanager
    def _noting_damage(self) -> Iterator[None]:
        """Remember the damage, so that the background does not go through the same input again and again."""
        try:
            yield
        except (CorruptLog, DecompressedTooLarge) as error:
            segments = self._core.segments
            path = error.path if isinstance(error, CorruptLog) else ""
            at = next((one for one in segments if path.startswith(one.stem)), segments[0])
            self._stopped = (error, at)
            raise
        else:
            self._stopped = None

    @contextmanager
    def _removing_draft(self, segment: Segment) -> Iterator[None]:
        """Remove the draft that is written beside a segment if that fails."""
        try:
            yield
        except BaseException:
            with suppress(OSError):  # else the next pass, or the next open, removes it
                self._core.files.unlink(segment.stem + CLEANED_SUFFIX)  # a full disk needs the space
            raise

    def _swap(self, group: Sequence[Segment], size: int) -> None:
        """Replace the group by the rewritten file.

        Three kinds of readers must never see a mixture. Threads of this process have the old list of segments, and read
        from the files that are held open for it, until the list is replaced. Other processes see an odd generation, and
        list the directory again. After a crash the names decide: a `.cleaned` file was not decided yet and is removed;
        a `.swap` file is whole and synced, and the next open puts it in place (layout.py has the order of the steps).
        """
        core = self._core
        if core.slot.firm_base_offset <= group[-1].base_offset:
            # A power cut may tear the hot sector. If the firm one then said that this segment is the active one,
            # entries of the journal would be written into it, at places that its new file does not have.
            core.change(firmly=True)
        fresh = core.segment(group[0].base_offset, size)
        for segment in group:
            segment.hold()  # readers of the old list read the old file, not the new one under its name
        with core.changing_names():
            try:
                core.files.rename(fresh.stem + CLEANED_SUFFIX, fresh.stem + SWAP_SUFFIX)
                swap_in(core.files, core.path, fresh.base_offset, [segment.base_offset for segment in group[1:]])
            except OSError as error:
                # Half swapped: the next open finishes it. Until then the old segments are read from their open files,
                # and the generation stays odd, so that reading processes wait.
                core.names_are_unsettled = True
                self._poison(error)
                raise storage_error(f"{core.path}: a rewritten segment could not take its place", error) from error
            # Looked up now: rolls have added segments at the end since the pass began; nothing else changes the list.
            with self._append_lock:
                first = core.segments.index(group[0])
                core.segments = (*core.segments[:first], fresh, *core.segments[first + len(group) :])
                core.change(segment_count=len(core.segments))
            for segment in group:
                segment.forget()
            fresh.rebuild_indexes()  # here, or every reading process would make its own
