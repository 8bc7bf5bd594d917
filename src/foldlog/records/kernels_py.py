"""Every loop of `kernels.pyx` in plain Python: its oracle in tests, and the fallback if it was not built."""

from __future__ import annotations

from foldlog.records.pure.columns import gather, pack_columns, route_rows
from foldlog.records.pure.compaction import CompactStats, KeyMap, compact, recompress
from foldlog.records.pure.compaction_check import DroppedSample, check_compacted, key_at
from foldlog.records.pure.headers import BatchHeader, Walk, assign_offsets, check_epochs, walk
from foldlog.records.pure.reading import Record, beginnings, decode, offset_at_time, validate
from foldlog.records.pure.writing import BatchBuilder, control_batch, empty_batch, murmur2, pack

__all__ = [
    "BatchBuilder",
    "BatchHeader",
    "CompactStats",
    "DroppedSample",
    "KeyMap",
    "Record",
    "Walk",
    "assign_offsets",
    "beginnings",
    "check_compacted",
    "check_epochs",
    "compact",
    "control_batch",
    "decode",
    "empty_batch",
    "gather",
    "key_at",
    "murmur2",
    "offset_at_time",
    "pack",
    "pack_columns",
    "recompress",
    "route_rows",
    "validate",
    "walk",
]
