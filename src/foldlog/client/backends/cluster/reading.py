"""`Log.read` of a cluster: one partition as records, or its tail, over our own connections."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from typing import Final

from foldlog.client.backends.cluster.handles import Handles
from foldlog.client.backends.cluster.topics import PartitionOffsets
from foldlog.client.serializers import Deserializer, deserialized
from foldlog.client.wire.fetch import Fetched
from foldlog.client.wire.ranges import TailReader, fetch_range
from foldlog.limits import DECODED_BYTES
from foldlog.records.batch import MAX_INT64
from foldlog.records.loops import Record, decode

_PAUSE_S: Final = 0.2
"""How long one wait is: in between, a closed log and Ctrl-C are noticed."""


class ClusterSlice:
    """What `Log.read` was asked for, with "start" and "end" made offsets at the moment of the call."""

    def __init__(
        self,
        handles: Handles,
        bounds: PartitionOffsets,
        start: int,
        stop: int | None,
        max_records: int | None,
        deserializers: tuple[Deserializer | None, Deserializer | None],
        committed: bool | None,
    ) -> None:
        self._handles = handles
        self._bounds = bounds
        self._offset = start
        self._stop = stop
        self._left = MAX_INT64 if max_records is None else max_records
        self._deserializers = deserializers
        self._committed = committed

    def records(self) -> Generator[Record, None, None]:
        """Everything that was readable at the moment of the call, or up to `stop`."""
        end = self._bounds.high_watermark
        return self._records(end if self._stop is None else min(end, self._stop))

    def _records(self, stop: int) -> Generator[Record, None, None]:
        self._handles.check_usable()
        if self._offset >= stop or not self._left:
            return
        wanted = (*self._bounds.label, self._offset, stop)
        with self._handles.wire(self._committed) as links, closing(fetch_range(links, *wanted)) as answers:
            for fetched in answers:
                self._handles.check_usable()
                yield from self._decoded(fetched, stop)
                if not self._left:
                    return

    def follow(self, timeout_ms: float | None) -> Generator[Record, None, None]:
        """Those, and then whatever is written, until nothing has come for `timeout_ms` or the log is closed."""
        if self._handles.is_closed:
            return
        stop = MAX_INT64 if self._stop is None else self._stop
        with (
            self._handles.wire(self._committed) as links,
            closing(TailReader(links, *self._bounds.label, self._offset)) as tail,
        ):
            quiet_since_s = time.monotonic()
            while self._offset < stop and self._left and not self._handles.is_closed:
                remaining_s = _PAUSE_S
                if timeout_ms is not None:
                    remaining_s = min(_PAUSE_S, timeout_ms / 1000 - (time.monotonic() - quiet_since_s))
                    if remaining_s <= 0:
                        return
                fetched = tail.next(remaining_s)
                if fetched is not None:
                    yield from self._decoded(fetched, stop)
                    quiet_since_s = time.monotonic()

    def _decoded(self, fetched: Fetched, stop: int) -> Generator[Record, None, None]:
        """The records of an answer that are wanted, a bounded part at a time: few bytes may hold many."""
        topic, number = self._bounds.label
        for piece in fetched.pieces:
            is_whole = False
            while not is_whole and self._left:
                records, next_offset = decode(
                    piece,
                    topic,
                    number,
                    start_offset=self._offset,
                    end_offset=stop,
                    max_records=self._left,
                    enough_bytes=DECODED_BYTES,
                )
                is_whole = next_offset <= self._offset
                self._offset = max(self._offset, next_offset)
                self._left -= len(records)
                yield from self._deserialized(records)
        if self._left:
            self._offset = fetched.next_offset

    def _deserialized(self, records: list[Record]) -> Generator[Record, None, None]:
        """What comes before a record that cannot be read is given before that is raised."""
        of_key, of_value = self._deserializers
        while records and (of_key is not None or of_value is not None):
            done = deserialized(records, of_key, of_value)
            yield from done
            records = records[len(done) :]
        yield from records
