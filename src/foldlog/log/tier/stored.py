"""A partition that is read from a store alone, without a directory: it ends with its last segment there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from foldlog.clock import Clock
from foldlog.errors import LogClosed
from foldlog.files.base import Files
from foldlog.log.checkpoint import SlotState, out_of_range
from foldlog.log.epochs import parse_epochs
from foldlog.log.followed_transactions import Decided
from foldlog.log.follower import FollowedPartition
from foldlog.log.reading import Hit, LogView, SegmentInfo
from foldlog.log.tier.format import PartitionManifest
from foldlog.log.tier.partition import TieredPartition
from foldlog.log.transactions import AbortedIndex

Result = TypeVar("Result")

LOOK_AGAIN_MS: Final = 2000.0
"""How often a store is asked for what is new: each time is a request."""


class _NoSlot:
    """There is no checkpoint."""

    def load_live(self) -> SlotState | None:
        return None


class StoredPartition(FollowedPartition):
    """Reads what the newest manifest names. Any thread."""

    def __init__(self, files: Files, tier: TieredPartition, label: tuple[str, int], clock: Clock) -> None:
        super().__init__(files, f"{tier.tier.url}/{tier.prefix}".rstrip("/"), _NoSlot(), label)
        self._stored = self.tier = tier
        self._clock = clock
        self._looked_ms = float("-inf")
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def _manifest(self) -> PartitionManifest:
        if self._is_closed:
            raise LogClosed(f"{self.path} was closed; open the log again")
        now_ms = self._clock.monotonic_ms()
        known = self._stored.known
        if known is None or now_ms - self._looked_ms >= LOOK_AGAIN_MS:
            self._looked_ms = now_ms
            return self._stored.refresh(known)
        return known

    def _state(self) -> SlotState:
        manifest = self._manifest()
        end = manifest.end_offset
        return SlotState(
            log_start_offset=min(end, max(manifest.log_start_offset, manifest.first_offset)),
            high_watermark=end,
            durable_offset=end,
            synced_offset=end,
            active_base_offset=end,
            leader_epoch=max(0, manifest.leader_epoch),
            start_reason=manifest.start_reason,
            tiered_below=end,
        )

    def _state_and_start(self) -> SlotState:
        return self._state()

    def _decide(self) -> Decided:
        """A segment is copied when every transaction in it is decided."""
        return Decided(self._state().high_watermark, AbortedIndex())

    def acknowledged_end(self) -> int:
        return self._state().high_watermark

    def load_epoch_starts(self) -> tuple[tuple[int, int], ...]:
        entries = self._manifest().entries
        if not entries:
            return ((0, 0),)
        return parse_epochs(self._stored.segment_of(entries[-1]).section("epochs"))

    @property
    def size_bytes(self) -> int:
        manifest = self._manifest()
        return sum(chunk.size_bytes for chunk in manifest.chunks) + sum(one.batches.size for one in manifest.entries)

    @property
    def segment_count(self) -> int:
        return self._manifest().segment_count

    def segments(self) -> list[SegmentInfo]:
        found = self._stored.entries(self._state().log_start_offset)
        url = f"{self._stored.tier.url}/{self._stored.prefix}"
        return [
            SegmentInfo(one.base_offset, url + one.name, one.batches.size, one.largest_timestamp_ms, False)
            for one in found
        ]

    def offset_at_time(self, timestamp_ms: int, *, committed: bool = False) -> Hit | None:
        state = self._state()
        return self._stored.first_at_time(
            state.log_start_offset, state.high_watermark, timestamp_ms, self.decompressed_limit
        )

    def _with_view(self, look: Callable[[LogView], Result], offset: int | None = None) -> Result:
        state = self._state()
        end = state.high_watermark
        if offset is None or offset == end:
            return look(LogView((), (), 0, end, end))
        if not state.log_start_offset <= offset <= end:
            raise out_of_range(self.label, offset, state.log_start_offset, end, state.start_reason)
        return self._stored.look(look, offset)
