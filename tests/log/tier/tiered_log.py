"""A partition whose sealed segments go to a store on the same disk: what the tests of tiers share.

The history says what is promised, as for any other partition: where a record is, on the disk or in the store, is no
concern of a reader.
"""

from __future__ import annotations

from typing import Any

from faults.one_partition import START_MS, OnePartition, make_directory
from foldlog.files.base import Files
from foldlog.files.objects import DirectoryObjects, ObjectStore
from foldlog.log.config import LogConfig
from foldlog.log.tier.format import PartitionId
from foldlog.log.tier.partition import TieredPartition
from foldlog.log.tier.tier import Tier
from foldlog.log.tier.tiering import Tiering, TierReport
from foldlog.testing.history import Sent
from foldlog.testing.sim_clock import SimClock

STORE = "/store"
FOLDER = "topics/events-0123456789abcdef0123456789abcdef/"
PREFIX = f"{FOLDER}0/"
OF = PartitionId(bytes.fromhex("0123456789abcdef0123456789abcdef"), 0)


def tier_config(**settings: Any) -> LogConfig:
    """Small segments, which leave the disk as soon as they are in the store."""
    return LogConfig(
        **{
            "segment_records": 3,
            "index_interval_bytes": 100,
            "remote": True,
            "local_retention_ms": 0,
            "local_retention_bytes": -1,
            **settings,
        }
    )


class TieredLog(OnePartition):
    """`store`: in place of the directory on the same disk."""

    clock: SimClock

    def __init__(self, files: Files, config: LogConfig, *, store: ObjectStore | None = None, **more: Any) -> None:
        self.store: ObjectStore = DirectoryObjects(files, STORE) if store is None else store
        super().__init__(files, config, **more)

    def _open(self) -> None:
        super()._open()
        self.tier = TieredPartition(Tier(f"file://{STORE}", self.files, store=self.store), self.files, FOLDER, OF)
        self.partition.use_store(self.tier)

    @property
    def tiering(self) -> Tiering:
        assert self.partition.tiering is not None
        return self.partition.tiering

    def work(self) -> TierReport:
        """A round of copying, expiring and freeing."""
        self.history.removing_below(self.partition.log_end_offset)
        try:
            return self.tiering.work(self.clock.now_ms())
        finally:
            self.history.removed_below(self.partition.log_start_offset)

    def send(self, *values: str, key: bytes | None = None) -> int:
        """One batch of these values."""
        return self.append([Sent(key, value.encode(), self.clock.now_ms()) for value in values])

    def objects(self, kind: str = "segments/") -> list[str]:
        return [key.rpartition("/")[2] for key in self.store.keys(PREFIX + kind)]

    def values(self) -> list[str]:
        return [(record.value or b"").decode() for record in self.read_all()]


def new_log(files: Files, *, store: ObjectStore | None = None, **settings: Any) -> TieredLog:
    make_directory(files)
    return TieredLog(files, tier_config(**settings), store=store, clock=SimClock(START_MS))
