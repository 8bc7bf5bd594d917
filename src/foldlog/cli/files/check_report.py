"""The findings of `foldlog check`, in lines for people or as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from foldlog.cli.wording import counted, damage_text
from foldlog.errors import CorruptLog
from foldlog.log.doctor.inspection import Inspection
from foldlog.log.doctor.repair import RepairReport
from foldlog.log.doctor.salvage import UNKNOWN_END
from foldlog.log.doctor.segment_scan import Damage, SegmentScan
from foldlog.log.foreign import ADVICE


@dataclass(frozen=True, slots=True)
class Finding:
    """One partition: what was found, or why it could not be read; and what was done about it."""

    name: str
    found: Inspection | None = None
    problem: Exception | None = None
    repaired: RepairReport | None = None
    rebuilt: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.found is not None and not self.found.damages


@dataclass(slots=True)
class CheckReport:
    """All findings in order, and notes about the log itself."""

    path: str
    is_wide: bool = False
    is_whole: bool = True
    notes: list[str] = field(default_factory=list)
    damages: list[dict[str, object]] = field(default_factory=list)
    partitions: list[dict[str, object]] = field(default_factory=list)
    stores: list[dict[str, object]] = field(default_factory=list)

    def note(self, text: str) -> Iterator[str]:
        self.notes.append(text)
        yield f"note: {text}"

    def damage(self, error: CorruptLog) -> Iterator[str]:
        """Damage of a file that belongs to no partition."""
        self.is_whole = False
        self.damages.append({"path": error.path, "position": error.position, "reason": error.reason})
        yield f"{error.path}: DAMAGED: byte {error.position}: {error.reason}"

    def add(self, finding: Finding) -> Iterator[str]:
        self.is_whole = self.is_whole and finding.is_whole
        self.partitions.append(_fields(finding))
        yield from _repair_lines(finding)
        if finding.found is None:
            yield f"{finding.name}: DAMAGED: {damage_text(finding.problem or Exception())}"
        else:
            yield from _inspection_lines(finding.name, finding.found, self.is_wide)

    def document(self) -> dict[str, object]:
        return {
            "path": self.path,
            "is_whole": self.is_whole,
            "notes": self.notes,
            "damages": self.damages,
            "partitions": self.partitions,
            **({"stores": self.stores} if self.stores else {}),
        }


def _repair_lines(finding: Finding) -> Iterator[str]:
    if finding.repaired is not None:
        for damage in finding.repaired.damages:
            yield f"{finding.name}: cut out {describe(damage)}"
        for path in finding.repaired.kept_aside:
            yield f"{finding.name}: kept in {path}"
    for path in finding.rebuilt:
        yield f"{finding.name}: rebuilt {path}"


def _inspection_lines(name: str, found: Inspection, is_wide: bool) -> Iterator[str]:
    yield (
        f"{name}: offsets {found.state.log_start_offset} to {found.end_offset}, {counted(found.records, 'record')},"
        f" {counted(len(found.segments), 'segment')}, {counted(found.size_bytes, 'byte')}:"
        f" {'DAMAGED' if found.damages else 'whole'}"
    )
    if is_wide:
        for segment in found.segments:
            yield (
                f"  {segment.base_offset:020d}.log: offsets {segment.base_offset} to {_end_of(segment)},"
                f" {counted(segment.size, 'byte')}: {'DAMAGED' if segment.is_damaged else 'whole'}"
            )
    for damage in found.damages:
        yield f"  {describe(damage)}"
    for note in found.notes:
        yield f"  note: {note}"


def _end_of(segment: SegmentScan) -> int:
    if segment.end_offset != UNKNOWN_END:
        return segment.end_offset
    return segment.pieces[-1].next_offset if segment.pieces else segment.base_offset


def describe(damage: Damage) -> str:
    if damage.is_refused:
        loss = (
            f"offsets {damage.first_offset} to {damage.next_offset} (exclusive) are there, but not read until it is"
            f" mended: {ADVICE}"
        )
    elif damage.is_mendable:
        loss = "no record is lost by it"
    elif damage.is_loss_unknown:
        loss = "which offsets are lost is not known"
    elif damage.lost_offsets:
        loss = f"offsets {damage.first_offset} to {damage.next_offset} (exclusive) are lost"
    else:
        loss = "no offset is lost by it"
    return f"{damage.path}: byte {damage.position}: {damage.reason}; {loss}"


def _fields(finding: Finding) -> dict[str, object]:
    fields: dict[str, object] = {"partition": finding.name, "is_whole": finding.is_whole}
    found = finding.found
    if found is None:
        fields["problem"] = damage_text(finding.problem or Exception())
    else:
        fields |= {
            "start_offset": found.state.log_start_offset,
            "end_offset": found.end_offset,
            "records": found.records,
            "size_bytes": found.size_bytes,
            "segments": [
                {
                    "base_offset": segment.base_offset,
                    "end_offset": _end_of(segment),
                    "size_bytes": segment.size,
                    "is_whole": not segment.is_damaged,
                }
                for segment in found.segments
            ],
            "damages": [_damage_fields(damage) for damage in found.damages],
            "notes": list(found.notes),
        }
    if finding.repaired is not None:
        fields["cut_out"] = [_damage_fields(damage) for damage in finding.repaired.damages]
        fields["kept_in"] = list(finding.repaired.kept_aside)
    if finding.rebuilt:
        fields["rebuilt"] = list(finding.rebuilt)
    return fields


def _damage_fields(damage: Damage) -> dict[str, object]:
    """`lost` is null if the loss is unknown; `refused` is present if records are not read but not lost either."""
    lost = [damage.first_offset, damage.next_offset] if damage.lost_offsets else []
    refused = {"refused": [damage.first_offset, damage.next_offset]} if damage.is_refused else {}
    return {
        "path": damage.path,
        "position": damage.position,
        "reason": damage.reason,
        "lost": None if damage.is_loss_unknown else lost,
        **refused,
    }
