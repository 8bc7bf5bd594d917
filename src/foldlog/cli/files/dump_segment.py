"""The batches and records of a segment, in order; after damage, reading continues at the next batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from foldlog.cli.files.dump_items import TEXT_MAX, Item, Items, bytes_fields, bytes_text, damage, time_text
from foldlog.cli.files.dump_kafka import CONTROL_KINDS, group_item
from foldlog.cli.wording import counted
from foldlog.errors import DecompressedTooLarge, FoldlogError
from foldlog.files.base import File
from foldlog.limits import READ_CHUNK_BYTES
from foldlog.log.doctor.salvage import UNKNOWN_END, Piece, Salvage, SalvageBounds
from foldlog.log.doctor.segment_scan import is_room
from foldlog.log.transactions import markers_of
from foldlog.records.batch import Compression, TimestampType
from foldlog.records.loops import BatchHeader, Record, decode, walk


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted offsets, [start, stop), and the level of detail."""

    start: int = 0
    stop: int = UNKNOWN_END
    records: bool = False
    is_wide: bool = False
    are_groups: bool = False  # `__consumer_offsets`: records are shown decoded


@dataclass(slots=True)
class SegmentDump:
    """One file of batches. Call `items` once; the counts are complete when it has ended."""

    log: File
    base_offset: int
    wanted: Wanted
    batches: int = 0
    records: int = 0
    damaged_bytes: int = 0
    _lost: list[Piece] | None = field(default=None, init=False)

    def items(self) -> Items:
        position, end, chunk_bytes = 0, self.log.size(), READ_CHUNK_BYTES
        expected = self.base_offset
        while position < end:
            data = memoryview(self.log.read(position, min(chunk_bytes, end - position)))
            found = walk(data)
            for header in found.headers:
                if header.base_offset >= self.wanted.stop:
                    return
                if header.next_offset > self.wanted.start:
                    yield from self._batch(data, position, header)
            if found.headers:
                position, chunk_bytes = position + found.end, max(READ_CHUNK_BYTES, found.needed_bytes)
                expected = found.headers[-1].next_offset
            elif not found.problem and chunk_bytes < found.needed_bytes <= end - position:
                chunk_bytes = found.needed_bytes
            elif is_room(self.log, position, end):
                room = end - position
                yield Item("room", f"  @{position}  {counted(room, 'byte')} of room for more", {"size_bytes": room})
                return
            else:
                reason = found.problem or "it is cut off by the end of the file"
                piece = self._piece_at(position, end, expected, reason)
                self.damaged_bytes += piece.end - piece.position
                yield damage(piece.position, piece.end, piece.reason, is_mendable=piece.mended is not None)
                position = piece.end

    def summary(self) -> Item:
        batches = f"{self.batches} {'batch' if self.batches == 1 else 'batches'}"
        text = f"  {batches}, {counted(self.records, 'record')}"
        if self.damaged_bytes:
            text += f"; {counted(self.damaged_bytes, 'byte')} DAMAGED"
        fields = {"batches": self.batches, "records": self.records, "damaged_bytes": self.damaged_bytes}
        return Item("summary", text, dict(fields))

    def _piece_at(self, position: int, end: int, expected: int, reason: str) -> Piece:
        """The damaged stretch that begins at `position`: up to the next batch that certainly belongs to this log."""
        if self._lost is None:
            bounds = SalvageBounds(position, end, expected, UNKNOWN_END, UNKNOWN_END, ())
            self._lost = [piece for piece in Salvage(self.log, bounds).pieces if piece.reason]
        found = next((piece for piece in self._lost if piece.position == position), None)
        return found or Piece(position, end, 0, 0, reason)

    def _batch(self, data: memoryview, position: int, header: BatchHeader) -> Items:
        self.batches += 1
        self.records += header.record_count
        at = position + header.position
        yield batch_item(header, at)
        if not self.wanted.records or not header.record_count:
            return
        whole = data[header.position : header.position + header.size]
        try:
            yield from _control(whole, header) if header.is_control else self._records(whole)
        except DecompressedTooLarge:
            raise  # only its size is wrong, and the message says what to set
        except FoldlogError as error:
            # Its CRC is right, so it was written like this.
            self.damaged_bytes += header.size
            yield damage(at, at + header.size, getattr(error, "reason", str(error)))

    def _records(self, batch: memoryview) -> Items:
        found, _ = decode(batch, "", 0, start_offset=self.wanted.start, end_offset=self.wanted.stop)
        for record in found:
            yield record_item(record, None if self.wanted.is_wide else TEXT_MAX)
            said = group_item(record.offset, record.key, record.value) if self.wanted.are_groups else None
            if said is not None:
                yield said


def batch_item(header: BatchHeader, position: int) -> Item:
    codec = Compression(header.compression).name.lower()
    parts = [
        f"offset {header.base_offset}" + (f" to {header.last_offset}" if header.last_offset_delta else ""),
        counted(header.record_count, "record"),
        counted(header.size, "byte"),
        codec if header.compression else "not compressed",
        f"epoch {header.leader_epoch}",
        time_text(header.max_timestamp) + (" (append time)" if header.is_log_append_time else ""),
    ]
    if header.producer_id >= 0:
        parts.append(f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}")
    parts += [
        word for word, holds in (("transactional", header.is_transactional), ("control", header.is_control)) if holds
    ]
    if header.has_delete_horizon:
        parts.append(f"tombstones go after {time_text(header.base_timestamp)}")
    fields: dict[str, object] = {
        "position": position,
        "size_bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "codec": codec,
        "leader_epoch": header.leader_epoch,
        "base_timestamp": None if header.has_delete_horizon else header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": TimestampType(header.is_log_append_time).name,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.base_timestamp if header.has_delete_horizon else None,
        "crc": header.crc,
    }
    return Item("batch", f"  @{position}  {', '.join(parts)}", fields)


def record_item(record: Record, most: int | None) -> Item:
    headers = "".join(f"  {name}={bytes_text(value, most=most)}" for name, value in record.headers)
    return Item(
        "record",
        f"    offset {record.offset}  {time_text(record.timestamp_ms)}  key {bytes_text(record.key, most=most)}"
        f"  value {bytes_text(record.value, most=most)}{headers}",
        {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": bytes_fields(record.key),
            "value": bytes_fields(record.value),
            "headers": [[name, bytes_fields(value)] for name, value in record.headers],
        },
    )


def _control(batch: memoryview, header: BatchHeader) -> Iterator[Item]:
    """Markers that readers do not see: the end of a transaction, and what Kafka's quorum writes for itself."""
    for marker in markers_of(batch, header):
        name = CONTROL_KINDS.get(marker.kind, f"control type {marker.kind}")
        fields: dict[str, object] = {"offset": marker.offset, "timestamp": marker.timestamp_ms, "type": name}
        text = f"    offset {marker.offset}  {time_text(marker.timestamp_ms)}  {name}"
        if marker.coordinator_epoch is not None:
            fields |= {"producer_id": header.producer_id, "coordinator_epoch": marker.coordinator_epoch}
            text += f" of producer {header.producer_id}, coordinator epoch {marker.coordinator_epoch}"
        yield Item("control", text, fields)
