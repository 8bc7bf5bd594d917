"""A partition's producer state on disk: read when the first idempotent batch comes, written at roll and close."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.files.base import read_file, storage_error
from foldlog.log.core import PartitionCore
from foldlog.log.layout import read_layout
from foldlog.log.producer_state import ProducerState, SentBatch
from foldlog.log.segment import SNAPSHOT_SUFFIX, segment_stem
from foldlog.records.loops import BatchHeader

_SNAPSHOTS_KEPT = 2


class Producers:
    """Owned by the appender. Costs nothing where no producer is idempotent, and no scan of a log that never had one."""

    def __init__(self, core: PartitionCore) -> None:
        self._core = core
        self._state: ProducerState | None = None

    def duplicate_of(self, headers: Sequence[BatchHeader], end_offset: int) -> SentBatch | None:
        """The batch in the log that these repeat, if they do; see ProducerState."""
        for header in headers:
            if header.producer_id >= 0:
                return self.load(end_offset).duplicate_of(headers)
        return None

    def must_wait(self, headers: Sequence[BatchHeader]) -> bool:
        """Whether these need state that has to be read first, or are the first that need any: that is stored firmly."""
        is_ready = self._state is not None and self._core.state.has_producers
        return not is_ready and any(header.producer_id >= 0 for header in headers)

    def expect(self, headers: Sequence[BatchHeader]) -> None:
        """The batches are about to be written: from the first idempotent one on, the next open looks for such state."""
        if self._core.state.has_producers:
            return
        for header in headers:
            if header.producer_id >= 0:
                self._core.change(firmly=True, has_producers=True)
                return

    def note(self, headers: Sequence[BatchHeader]) -> None:
        """The batches are written."""
        if self._state is not None:
            self._state.replay(headers)

    def load(self, end_offset: int) -> ProducerState:
        """The state as of `end_offset`: the newest good snapshot, and the batches since."""
        if self._state is None:
            try:
                self._state = self._read(end_offset) if self._core.state.has_producers else ProducerState()
            except OSError as error:
                raise storage_error(f"what producers sent to {self._core.path} cannot be read", error) from error
        return self._state

    def _read(self, end_offset: int) -> ProducerState:
        state, offset = ProducerState(), self._core.state.log_start_offset
        for snapshot_offset in sorted(self._snapshots(), reverse=True):
            if snapshot_offset <= end_offset:
                known = ProducerState.from_snapshot(read_file(self._core.files, self._path(snapshot_offset)))
                if known is not None:
                    state, offset = known, max(offset, snapshot_offset)
                    break
        for segment in self._core.segments:
            following = [other.base_offset for other in self._core.segments if other.base_offset > segment.base_offset]
            if following and following[0] <= offset:
                continue
            found = segment.find(offset) if offset > segment.base_offset else (0, None)
            if found is not None:
                expected = segment.base_offset if found[0] == 0 else -1
                for _, headers in segment.scan(found[0], expected, self._core.state.gaps_below):
                    state.replay(header for header in headers if header.base_offset >= offset)
        return state

    def write_snapshot(self, end_offset: int, now_ms: int) -> None:
        """Not synced: it carries a CRC, and a lost one is made again from the log."""
        if self._state is None:
            return
        self._state.expire(now_ms)
        file = self._core.files.open(self._path(end_offset), write=True, create=True)
        data = self._state.snapshot()
        file.truncate(0)
        file.write(0, [data])
        for old in sorted(self._snapshots())[:-_SNAPSHOTS_KEPT]:
            self._core.files.unlink(self._path(old))

    def _snapshots(self) -> list[int]:
        return list(read_layout(self._core.files.entries(self._core.path)).snapshots)

    def _path(self, offset: int) -> str:
        return segment_stem(self._core.path, offset) + SNAPSHOT_SUFFIX
