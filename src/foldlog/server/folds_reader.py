"""Reads the topic `__folds` in the serving process, from where it last stopped, for the console and for metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from foldlog.client.fold_bulletin import FOLDS_TOPIC, Status
from foldlog.client.fold_runs import FoldRuns, is_of_a_fold
from foldlog.errors import FoldlogError, OffsetOutOfRange
from foldlog.limits import CONSOLE_EXPANDED_BYTES_MAX
from foldlog.records.loops import Record, decode

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.server.fold_guard import FoldGuard

_READ_BYTES: Final = 1 << 20


class FoldsReader:
    """Passes every record to `hear` once, in order; calls `forget` if the topic was deleted or made again. On a worker
    thread, one at a time."""

    def __init__(self, broker: Broker, hear: Callable[[Sequence[Record]], None], forget: Callable[[], None]) -> None:
        self._broker = broker
        self._hear = hear
        self._forget = forget
        self._topic_id: str | None = None
        self._at = 0

    @property
    def is_read(self) -> bool:
        """Whether nothing was written since the last read. From memory: any thread."""
        topic = self._broker.find_topic(FOLDS_TOPIC)
        if topic is None or topic.topic_id != self._topic_id:
            return topic is None and self._topic_id is None
        partition = self._broker.opened_partition(FOLDS_TOPIC, 0)
        return partition is not None and partition.high_watermark <= self._at

    def read(self) -> None:
        """Read everything written before the call. Opens the partition; raises FoldlogError if it is damaged."""
        topic = self._broker.find_topic(FOLDS_TOPIC)
        topic_id = None if topic is None else topic.topic_id
        if topic_id != self._topic_id:
            self._forget()
            self._topic_id, self._at = topic_id, 0
        if topic_id is not None:
            self._read_on()

    def _read_on(self) -> None:
        partition = self._broker.writable_partition(FOLDS_TOPIC, 0)
        end = partition.high_watermark
        self._at = max(self._at, partition.log_start_offset)
        while self._at < end:
            try:
                data, following, _ = partition.read(self._at, _READ_BYTES)
            except OffsetOutOfRange as error:
                if error.start <= self._at:
                    raise
                self._at = error.start
                continue
            records, decoded_to = decode(
                data,
                FOLDS_TOPIC,
                0,
                start_offset=self._at,
                end_offset=end,
                decompressed_limit=partition.decompressed_limit,
                enough_bytes=CONSOLE_EXPANDED_BYTES_MAX,
            )
            self._hear(records)
            following = min(following, decoded_to)
            self._at = min(following, end) if following > self._at else end


class ServedFoldRuns:
    """The runners of folds that are live now, for answers about groups. Any number of worker threads."""

    def __init__(
        self,
        broker: Broker,
        holding: Callable[[int], AbstractContextManager[None]] | None = None,
        guard: FoldGuard | None = None,
    ) -> None:
        """`holding` counts what a read may expand to as memory of requests; `guard` knows who has proven to be a
        runner."""
        self._broker = broker
        self._guard = guard
        self._holding = holding or (lambda _: nullcontext())
        self._lock = threading.Lock()
        self._runs = FoldRuns()
        self._reader = FoldsReader(broker, self._hear, self._runs.forget)

    def of(self, group: str) -> tuple[Status, ...] | None:
        """The live runners of the fold whose position the group shows; None if it is not a fold's, or not known."""
        if not is_of_a_fold(group):
            return None
        with self._lock:
            return self._runs.of(group, self._broker.clock.now_ms()) if self._is_read() else None

    def troubled(self) -> list[Status]:
        """Of each fold that fails, or whose runner has gone without a word, its last report; none if they cannot be
        read."""
        with self._lock:
            return self._runs.troubled(self._broker.clock.now_ms()) if self._is_read() else []

    def _is_read(self) -> bool:
        """Read on; whether that could be done."""
        try:
            if not self._reader.is_read:
                with self._holding(CONSOLE_EXPANDED_BYTES_MAX):
                    self._reader.read()
        except FoldlogError:
            return False
        return True

    def _hear(self, records: Sequence[Record]) -> None:
        guard = self._guard
        for record in records:
            is_proven = guard is not None and guard.is_proven(record.key, record.value, record.headers)
            self._runs.hear(record.key, record.value, is_proven=is_proven)
