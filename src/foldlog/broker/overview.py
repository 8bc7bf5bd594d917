"""Every partition as it stands, for who watches a log: metrics, health, a console. Looking opens nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from foldlog.errors import CorruptLog, LogClosed, StorageError
from foldlog.log.checkpoint import SlotState
from foldlog.log.partition import Partition

if TYPE_CHECKING:
    from foldlog.broker.open_partitions import AnyPartition
    from foldlog.broker.storage import Storage


class PartitionOverview(NamedTuple):
    """A partition. One that is not open has what the checkpoint says of it, and no size: that is in its directory."""

    topic: str
    number: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    size_bytes: int | None = None
    segment_count: int | None = None
    is_poisoned: bool = False
    refusal: CorruptLog | None = None

    @property
    def is_open(self) -> bool:
        return self.size_bytes is not None


def overview(storage: Storage) -> Iterator[PartitionOverview]:
    """All partitions in order of topic and number; those deleted meanwhile are left out."""
    for _, topic in sorted(storage.catalog().topics.items()):
        for number, slot in enumerate(topic.slots):
            key = (topic.name, number)
            partition = storage.partitions.get(key)
            found = None if partition is None else _open_one(*key, partition)
            found = found or _resting_one(*key, slot, storage)
            refusal = storage.partitions.refusal_of(key)
            yield found if refusal is None else found._replace(refusal=refusal)


def _resting_one(topic: str, number: int, slot: int, storage: Storage) -> PartitionOverview:
    try:
        state = storage.resting_state(slot) or SlotState()
    except CorruptLog as error:
        return PartitionOverview(topic, number, 0, 0, 0, refusal=error)
    # The log ends where reading does, as far as is known: what is above is for the recovery to judge.
    return PartitionOverview(topic, number, state.log_start_offset, state.high_watermark, state.high_watermark)


def _open_one(topic: str, number: int, partition: AnyPartition) -> PartitionOverview | None:
    try:
        return PartitionOverview(
            topic,
            number,
            partition.log_start_offset,
            partition.log_end_offset,
            partition.high_watermark,
            partition.size_bytes,
            partition.segment_count,
            isinstance(partition, Partition) and partition.is_poisoned,
        )
    except (StorageError, LogClosed):
        return None  # a reading process finds its files gone or damaged: what is left to say is in the checkpoint
