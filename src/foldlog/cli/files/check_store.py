"""What `foldlog check` finds in a store of segments."""

from __future__ import annotations

from collections.abc import Iterator

from foldlog.broker.data_directory import CHECKPOINT_NAME
from foldlog.broker.restore import directory_id_of
from foldlog.broker.tiers import TierSettings, read_topics, tiered_partition
from foldlog.broker.topics.names import partition_directory
from foldlog.cli.files.check_report import CheckReport
from foldlog.cli.files.check_targets import Targets
from foldlog.cli.wording import counted
from foldlog.errors import CorruptLog, StorageError, StoreError, UnknownTopic
from foldlog.files.base import Files
from foldlog.log.checkpoint import Checkpoint, SlotState
from foldlog.log.tier.partition import TieredPartition
from foldlog.log.tier.verification import verify_partition


def check_store(files: Files, targets: Targets, report: CheckReport) -> Iterator[str]:
    """Read every object of the chosen partitions, one after the other; a line for each."""
    tiered = [one for one in targets.chosen if one.topic is not None and one.topic.config.log.remote]
    if not tiered or targets.catalog is None:
        return
    tier = TierSettings().open(files, targets.path, write=False)
    if tier is None:
        for target in tiered:
            state = _state(files, targets.path, target.topic.slots[target.number] if target.topic else 0)
            if state.local_start_offset > state.log_start_offset:
                missing = (
                    f"{target.name} has its records below {state.local_start_offset} in a store, and none is named"
                )
                yield from _faulty(report, StoreError(missing))
        return
    for target in tiered:
        if target.topic is not None:
            state = _state(files, targets.path, target.topic.slots[target.number])
            yield from _verified(tiered_partition(tier, files, target.topic, target.number), target.name, state, report)
    tier.close()


def check_store_alone(files: Files, url: str, topic: str | None, report: CheckReport) -> Iterator[str]:
    """Read every object of a store without its directory; a line for each partition."""
    tier = TierSettings(url).checked(files).open(files, "", write=False)
    if tier is None:
        return
    directory_id_of(tier)
    topics = read_topics(tier)
    if topic is not None and topic not in topics:
        raise UnknownTopic(topic, sorted(topics))
    for name in sorted(topics):
        if topic in (None, name):
            for number in range(topics[name].partition_count):
                stored = tiered_partition(tier, files, topics[name], number)
                yield from _verified(stored, partition_directory(name, number), SlotState(), report)
    tier.close()


def _verified(stored: TieredPartition, name: str, state: SlotState, report: CheckReport) -> Iterator[str]:
    try:
        found = verify_partition(stored, state.log_start_offset, state.local_start_offset)
    except StorageError as error:
        yield from _faulty(report, error)
        return
    report.stores.append(
        {
            "partition": name,
            "store": stored.tier.url,
            "start_offset": found.start_offset,
            "end_offset": found.end_offset,
            "segments": found.segments,
            "size_bytes": found.size_bytes,
            "is_whole": not found.faults,
        }
    )
    yield (
        f"{name}: offsets {found.start_offset} to {found.end_offset} in {stored.tier.url},"
        f" {counted(found.segments, 'segment')}, {counted(found.size_bytes, 'byte')}:"
        f" {'DAMAGED' if found.faults else 'whole'}"
    )
    for fault in found.faults:
        yield from _faulty(report, fault)


def _state(files: Files, path: str, slot: int) -> SlotState:
    """What the checkpoint says of a partition; nothing if it cannot be read, which the rest of the check reports."""
    try:
        return Checkpoint.open(files, f"{path}/{CHECKPOINT_NAME}", write=False).slot(slot).load_live() or SlotState()
    except (StorageError, FileNotFoundError):
        return SlotState()


def _faulty(report: CheckReport, error: StorageError) -> Iterator[str]:
    if isinstance(error, CorruptLog):
        yield from report.damage(error)
        return
    report.is_whole = False
    report.damages.append({"path": "", "position": 0, "reason": str(error)})
    yield f"DAMAGED: {error}"
