"""Retention, deletion of a head, compaction and recompression, carried out: what to do comes from the modules of
those names.

All of it runs under one lock per partition, beside appends and reads, which it never holds up for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from foldlog.files.base import storage_error
from foldlog.log import compaction, recompression
from foldlog.log.checkpoint import StartReason
from foldlog.log.compaction import CleanTime, CompactionReport
from foldlog.log.core import PartitionCore, out_of_range
from foldlog.log.layout import CLEANED_SUFFIX, SWAP_SUFFIX, swap_in
from foldlog.log.recompression import RecompressionReport
from foldlog.log.retention import RetentionPlan, SegmentAge, plan_retention
from foldlog.log.segment import Segment
from foldlog.records.batch import Compression
from foldlog.records.loops import KeyMap


class Cleanup:
    """One partition's housekeeper. `roll` seals the active segment, `append_lock` guards the list of segments."""

    def __init__(
        self,
        core: PartitionCore,
        append_lock: threading.Lock,
        roll: Callable[[], None],
        poison: Callable[[Exception], None],
    ) -> None:
        self._core = core
        self._append_lock = append_lock
        self._roll = roll
        self._poison = poison
        self.lock = threading.Lock()

    # The head

    def enforce_retention(self, now_ms: int) -> int:
        """Remove head segments beyond the topic's limits; how many."""
        with self.lock, self._our_errors():
            self._core.refuse_if_closed()
            segments = self._core.segments
            plan = self._plan_retention(self._durable(segments), now_ms)
            if plan.count == len(segments):
                self._roll()
                # Once more, now that nobody appends to them: what came since the first plan may be young.
                plan = self._plan_retention(self._core.segments[:-1], now_ms)
            if plan.count == 0:
                return 0
            return self._remove_head(self._core.segments[plan.count].base_offset, plan.reason)

    def _plan_retention(self, segments: Sequence[Segment], now_ms: int) -> RetentionPlan:
        ages = [SegmentAge(segment.size, segment.largest_timestamp()) for segment in segments]
        return plan_retention(ages, self._core.config, now_ms)

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(f"{self._core.path} could not be cleaned up", error) from error

    def _durable(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """The segments, without the active one while part of it is not synced."""
        state = self._core.state
        settled = state.active_base_offset == segments[-1].base_offset and state.active_position == segments[-1].size
        return segments if settled else segments[:-1]

    def delete_records(self, before_offset: int) -> int:
        """Move the log start up to `before_offset`; segments that end there or before are removed."""
        with self.lock:
            self._core.refuse_if_closed()
            state = self._core.state
            if not 0 <= before_offset <= state.high_watermark:
                raise out_of_range(self._core.label, before_offset, state)
            if before_offset > state.log_start_offset:
                if before_offset >= state.durable_offset and self._core.segments[-1].size:
                    self._roll()
                self._remove_head(before_offset, StartReason.DELETED)
            return self._core.state.log_start_offset

    def _remove_head(self, log_start: int, reason: StartReason) -> int:
        core = self._core
        with core.changing_names():
            with self._append_lock:
                segments = core.segments
                count = sum(1 for following in segments[1:] if following.base_offset <= log_start)
                removed, kept = segments[:count], segments[count:]
                # Durable before the first unlink: a missing head is then explained, and offsets are never used again.
                core.change(firmly=True, log_start_offset=log_start, start_reason=reason, segment_count=len(kept))
                core.segments = kept
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

    def compact(self, now_ms: int, force: bool, keep_batches: Callable[[], frozenset[int]]) -> CompactionReport:
        """As many passes as the key map needs. Without `force`, only where policy, lag and dirty ratio call for it."""
        with self.lock, self._our_errors():
            core = self._core
            core.refuse_if_closed()
            report = CompactionReport(cleaned_offset=core.state.cleaned_offset)
            if force:
                if core.segments[-1].size:
                    self._roll()
            elif not core.config.compact:
                return report
            end = compaction.end_of_cleanable(core.segments, core.config, now_ms, force=force)
            start = max(core.state.cleaned_offset, core.state.log_start_offset)
            ratio = core.config.min_cleanable_dirty_ratio
            if not force and not compaction.is_worthwhile(core.segments, start, end, ratio):
                return report
            time = CleanTime(now_ms, core.config.delete_retention_ms)
            while start < end:
                report = report.plus(self._clean_once(start, end, time, keep_batches()))
                start = report.cleaned_offset
            if force and report.segments_before == 0 and end > core.segments[0].base_offset:
                # Nothing new since the last time: tombstones may still have come of age.
                report = report.plus(self._rewrite_all(KeyMap(1), end, end, time, keep_batches()))
            return report

    def _clean_once(self, start: int, end: int, time: CleanTime, keep: frozenset[int]) -> CompactionReport:
        keys, mapped_end = compaction.map_keys(self._core.segments, start, end)
        report = self._rewrite_all(keys, mapped_end, end, time, keep)
        self._core.change(firmly=True, cleaned_offset=mapped_end)
        return report.plus(CompactionReport(cleaned_offset=mapped_end))

    def _rewrite_all(
        self, keys: KeyMap, mapped_end: int, end: int, time: CleanTime, keep: frozenset[int]
    ) -> CompactionReport:
        core = self._core
        report = CompactionReport()
        sealed = [segment for segment in core.segments[:-1] if segment.base_offset < mapped_end and segment.size]
        if core.state.gaps_below < end:
            # Durable before the first gap exists: readers take a gap above this for damage.
            core.change(firmly=True, gaps_below=end)
        end_of_sealed = core.segments[len(sealed)].base_offset
        for group in compaction.group_segments(sealed, end_of_sealed, core.config.segment_bytes):
            with self._removing_draft(group[0]):
                size, counts = compaction.rewrite(core.files, core.path, group, keys, mapped_end, time, keep)
            report = report.plus(counts)
            if (
                counts.bytes_after == counts.bytes_before
                and counts.records_before == counts.records_after
                and len(group) == 1
            ):
                core.files.unlink(group[0].stem + CLEANED_SUFFIX)
            else:
                self._swap(group, size)
        return report

    # Recompression

    def recompress(self, codec: Compression) -> RecompressionReport:
        """Every segment there is now in that codec, the active one sealed first, where it gets smaller by it."""
        with self.lock, self._our_errors():
            core = self._core
            core.refuse_if_closed()
            if core.segments[-1].size:
                self._roll()
            report = RecompressionReport()
            for segment in core.segments[:-1]:
                counts = recompression.untouched(segment, codec)
                report = report.plus(counts or self._recompress_one(segment, codec))
            return report

    def _recompress_one(self, segment: Segment, codec: Compression) -> RecompressionReport:
        core = self._core
        with self._removing_draft(segment):
            counts = recompression.rewrite(core.files, core.path, segment, codec)
        if counts.batches_rewritten:
            self._swap([segment], counts.bytes_after)
        else:
            core.files.unlink(segment.stem + CLEANED_SUFFIX)
        return counts

    # What the two share

    @contextmanager
    def _removing_draft(self, segment: Segment) -> Iterator[None]:
        """What is written beside a segment goes again where that fails."""
        try:
            yield
        except BaseException:
            with suppress(OSError):  # else the next pass, or the next open, does it
                self._core.files.unlink(segment.stem + CLEANED_SUFFIX)  # a full disk needs the space
            raise

    def _swap(self, group: Sequence[Segment], size: int) -> None:
        core = self._core
        fresh = core.segment(group[0].base_offset, size)
        for segment in group:
            segment.hold()  # who still reads the old list reads the old file, not the new one under its name
        with core.changing_names():
            try:
                core.files.rename(fresh.stem + CLEANED_SUFFIX, fresh.stem + SWAP_SUFFIX)
                swap_in(core.files, core.path, fresh.base_offset, [segment.base_offset for segment in group[1:]])
            except OSError as error:
                # Half swapped: the next open finishes it. Until then the old segments are read from their open files,
                # and reading processes are told to wait for that.
                core.names_are_unsettled = True
                self._poison(error)
                raise storage_error(f"{core.path}: a rewritten segment could not take its place", error) from error
            with self._append_lock:
                first = core.segments.index(group[0])
                core.segments = (*core.segments[:first], fresh, *core.segments[first + len(group) :])
                core.change(segment_count=len(core.segments))
            for segment in group:
                segment.forget()
            fresh.rebuild_indexes()  # here, or every reading process would make it for itself
