"""The files beside the segments: indexes, producer snapshots, leader epochs, metadata, checkpoint, catalog, journal."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Final

from foldlog.broker.topics import catalog as catalogs
from foldlog.broker.topics.names import partition_directory
from foldlog.cli.files.dump_items import Item, Items, damage, named_values, time_text
from foldlog.cli.files.dump_segment import Wanted
from foldlog.cli.wording import counted
from foldlog.errors import CorruptLog, FoldlogError
from foldlog.files.base import Files, read_file
from foldlog.limits import SECTOR_BYTES
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.epochs import Epochs
from foldlog.log.journal.format import read_use
from foldlog.log.producers import read_snapshot
from foldlog.log.segment import OffsetIndex, TimeIndex

_SLOT_SECTORS: Final = 2


def index_items(data: bytes, base_offset: int, wanted: Wanted) -> Items:
    """Every entry, ascending or not; zeroes at the end are preallocated space."""
    width, last = OffsetIndex.ENTRY.size, (-1, -1)
    used = _without_room(data, width)
    for at, (relative, position) in enumerate(OffsetIndex.ENTRY.iter_unpack(used)):
        offset = base_offset + relative
        if relative <= last[0] or position <= last[1]:
            yield damage(at * width, (at + 1) * width, f"offset {offset} at byte {position} does not ascend")
        elif wanted.start <= offset < wanted.stop:
            fields: dict[str, object] = {"entry": at, "offset": offset, "position": position}
            yield Item("index entry", f"  offset {offset} is in the batch at byte {position}", fields)
        last = max(last, (relative, position))
    yield from _rest(data, used, width)


def time_index_items(data: bytes, base_offset: int, wanted: Wanted) -> Items:
    width, last = TimeIndex.ENTRY.size, (-1, -1)
    used = _without_room(data, width)
    for at, (timestamp_ms, relative) in enumerate(TimeIndex.ENTRY.iter_unpack(used)):
        offset = base_offset + relative
        if timestamp_ms <= last[0] or relative <= last[1]:
            yield damage(at * width, (at + 1) * width, f"{time_text(timestamp_ms)} at offset {offset} does not ascend")
        elif wanted.start <= offset < wanted.stop:
            fields: dict[str, object] = {"entry": at, "timestamp": timestamp_ms, "offset": offset}
            yield Item("time index entry", f"  {time_text(timestamp_ms)} is the latest up to offset {offset}", fields)
        last = max(last, (timestamp_ms, relative))
    yield from _rest(data, used, width)


def _without_room(data: bytes, width: int) -> bytes:
    whole = data[: len(data) // width * width]
    used_bytes = len(whole.rstrip(b"\0"))  # Kafka preallocates 10 MB: too much to look at entry by entry
    return whole[: -(-used_bytes // width) * width]


def _rest(data: bytes, used: bytes, width: int) -> Items:
    room = len(data) // width * width - len(used)
    if room:
        yield Item("room", f"  {counted(room, 'byte')} of room for more", {"size_bytes": room})
    if len(data) % width:
        yield damage(len(data) - len(data) % width, len(data), f"not a whole entry of {width} bytes")


def snapshot_items(data: bytes) -> Items:
    entries = read_snapshot(data)
    if entries is None:
        yield damage(0, len(data), "not a producer snapshot of version 1, or its CRC-32C does not match its bytes")
        return
    for entry in entries:
        text = (
            f"  producer {entry.producer_id} epoch {entry.producer_epoch}: sequence {entry.last_sequence}"
            f" is offset {entry.last_offset}, {time_text(entry.timestamp_ms)}"
        )
        if entry.transaction_start_offset >= 0:
            text += f", in a transaction since offset {entry.transaction_start_offset}"
        yield Item("producer", text, entry._asdict())


def epoch_items(files: Files, path: str) -> Items:
    try:
        starts = Epochs.load(files, os.path.dirname(path) or ".").starts
    except CorruptLog as error:
        yield damage(error.position, os.path.getsize(path), error.reason)
        return
    for epoch, offset in starts:
        yield Item("leader epoch", f"  epoch {epoch} from offset {offset} on", {"epoch": epoch, "start_offset": offset})


def metadata_items(data: bytes) -> Items:
    return named_values("metadata", data, ": ")


def checkpoint_items(files: Files, path: str) -> Items:
    """Every slot that is not empty, with its partition, if a catalog beside it names it."""
    try:
        checkpoint = Checkpoint.open(files, path, write=False)
    except CorruptLog as error:
        yield damage(error.position, os.path.getsize(path), error.reason)
        return
    owners = _owners(files, os.path.dirname(path) or ".")
    slot_bytes = _SLOT_SECTORS * SECTOR_BYTES
    for number in range((os.path.getsize(path) - SECTOR_BYTES) // slot_bytes):
        position = SECTOR_BYTES + number * slot_bytes
        state = checkpoint.slot(number).load()
        owner = owners.get(number)
        if state is not None:
            fields: dict[str, object] = {"slot": number, "partition": owner, **state._asdict()}
            fields["start_reason"] = state.start_reason.name.lower()
            yield Item(
                "slot",
                f"  slot {number} ({owner or 'of no topic'}): offsets {state.log_start_offset} to"
                f" {state.high_watermark}, durable up to {state.durable_offset}{_by_journal(state)}, active segment"
                f" {state.active_base_offset} up to byte {state.active_position}, epoch {state.leader_epoch},"
                f" generation {state.generation}, {'closed' if state.clean else 'open, or not closed cleanly'}",
                fields,
            )
        elif any(checkpoint.load(position, slot_bytes)):
            yield damage(position, position + slot_bytes, f"slot {number} ({owner or 'of no topic'}) is not whole")


def _by_journal(state: SlotState) -> str:
    if state.durable_offset == state.synced_offset:
        return ""
    return f" (from {state.synced_offset} on by the journal)"


def _owners(files: Files, directory: str) -> dict[int, str]:
    try:
        known = catalogs.load(files, directory).topics.values()
    except (FoldlogError, OSError):
        return {}
    return {slot: partition_directory(topic.name, number) for topic in known for number, slot in enumerate(topic.slots)}


def catalog_items(files: Files, path: str) -> Items:
    try:
        found = catalogs.decode(read_file(files, path), path)
    except CorruptLog as error:
        yield damage(error.position, os.path.getsize(path), error.reason)
        return
    yield Item("directory", f"  directory {found.directory_id}", {"directory_id": found.directory_id})
    for name in sorted(found.topics):
        topic = found.topics[name]
        settings = "".join(f", {key}={value}" for key, value in topic.config.settings.items())
        yield Item(
            "topic",
            f"  topic {name}: id {topic.topic_id}, {counted(topic.partition_count, 'partition')}{settings}",
            {
                "topic": name,
                "id": topic.topic_id,
                "slots": list(topic.slots),
                "config": dict(topic.config.settings),
                "growths": [asdict(growth) for growth in topic.growths],
            },
        )


def journal_items(files: Files, path: str) -> Items:
    """The commits of the file's present use, in the order in which they were written, with their entries."""
    file = files.open(path)
    try:
        found = read_use(file, path)
    finally:
        file.close()
    if found is None:
        yield Item("journal", "  not used yet", {"use": None})
        return
    fields: dict[str, object] = {"use": found.use, "needed_from_use": found.needed}
    yield Item("journal", f"  use {found.use}, {counted(len(found.commits), 'commit')}", fields)
    for commit in found.commits:
        yield Item(
            "commit",
            f"  @{commit.position}  commit {commit.number}: {counted(len(commit.entries), 'partition')}",
            {"position": commit.position, "number": commit.number, "previous": commit.previous},
        )
        for placed in commit.entries:
            entry = placed.entry
            yield Item(
                "entry",
                f"    topic {entry.topic_id.hex()} partition {entry.partition}: offsets {entry.first_offset} to"
                f" {entry.next_offset - 1}, {counted(entry.length, 'byte')} for byte {entry.position} of segment"
                f" {entry.base_offset}, epoch {entry.leader_epoch}" + ("" if placed.is_whole else ", not whole"),
                {**entry._asdict(), "topic_id": entry.topic_id.hex(), "is_whole": placed.is_whole},
            )
    for fault in found.damages:
        yield damage(fault.position, fault.position, fault.reason)
