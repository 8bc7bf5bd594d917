"""What `foldlog check` finds in a store of segments."""

from __future__ import annotations

from collections.abc import Iterator

from foldlog.broker.data_directory import CHECKPOINT_NAME
from foldlog.broker.tiers import TierSettings, tiered_partition
from foldlog.cli.files.check_report import CheckReport
from foldlog.cli.files.check_targets import Targets
from foldlog.cli.wording import counted
from foldlog.errors import CorruptLog, StorageError, StoreError
from foldlog.files.base import Files
from foldlog.log.checkpoint import Checkpoint, SlotState
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
        if target.topic is None:
            continue
        state = _state(files, targets.path, target.topic.slots[target.number])
        try:
            found = verify_partition(
                tiered_partition(tier, files, target.topic, target.number),
                state.log_start_offset,
                state.local_start_offset,
            )
        except StorageError as error:
            yield from _faulty(report, error)
            continue
        report.stores.append(
            {
                "partition": target.name,
                "store": tier.url,
                "start_offset": found.start_offset,
                "end_offset": found.end_offset,
                "segments": found.segments,
                "size_bytes": found.size_bytes,
                "is_whole": not found.faults,
            }
        )
        yield (
            f"{target.name}: offsets {found.start_offset} to {found.end_offset} in {tier.url},"
            f" {counted(found.segments, 'segment')}, {counted(found.size_bytes, 'byte')}:"
            f" {'DAMAGED' if found.faults else 'whole'}"
        )
        for fault in found.faults:
            yield from _faulty(report, fault)
    tier.close()


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
