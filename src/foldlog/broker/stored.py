"""A log that is read straight from its store of segments: no directory, no broker, no lock.

It has the topics with remote.storage.enable=true, up to the last sealed segment of each partition, with the offsets
that they have in the log. Groups, and what is not sealed yet, are in the directory alone.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from foldlog.broker.restore import directory_id_of
from foldlog.broker.storage import AnyPartition, Storage
from foldlog.broker.tiers import TierSettings, read_topics, tiered_partition
from foldlog.broker.topics.catalog import Catalog
from foldlog.clock import Clock
from foldlog.errors import UnknownTopic
from foldlog.files.base import Files
from foldlog.log.checkpoint import SlotState
from foldlog.log.tier.stored import LOOK_AGAIN_MS, StoredPartition
from foldlog.log.tier.tier import Tier


class StoreStorage(Storage):
    """Any thread. Asks the store for new topics every now and then."""

    how_to_write = "it is a store of segments; write to the log whose store it is, or restore it into a directory"

    def __init__(self, files: Files, settings: TierSettings, clock: Clock) -> None:
        self._tier = Tier(settings.url or "", files, settings.cache_bytes, settings.store)
        super().__init__(files, self._tier.url)
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_ms = clock.monotonic_ms()
        self._catalog = Catalog(directory_id_of(self._tier), read_topics(self._tier))

    def catalog(self) -> Catalog:
        return self._catalog

    def look_again(self) -> None:
        with self._lock:
            if self._clock.monotonic_ms() - self._looked_ms < LOOK_AGAIN_MS:
                return
            self._looked_ms = self._clock.monotonic_ms()
            older, topics = self._catalog, read_topics(self._tier)
            if topics == older.topics:
                return
            self._catalog = replace(older, topics=topics)
        for topic in older.topics.values():
            now = topics.get(topic.name)
            if now is None or now.topic_id != topic.topic_id:
                with self.partitions.closed((topic.name, number) for number in range(topic.partition_count)):
                    pass

    def checkpointed_state(self, slot: int) -> SlotState | None:
        for topic in self._catalog.topics.values():
            if slot in topic.slots:
                partition = self._open(topic.name, topic.slots.index(slot))
                return SlotState(log_start_offset=partition.log_start_offset, high_watermark=partition.high_watermark)
        return None

    def _open(self, topic: str, number: int) -> AnyPartition:
        found = self._catalog.topics.get(topic)
        if found is None or number >= found.partition_count:
            raise UnknownTopic(topic)
        stored = tiered_partition(self._tier, self.files, found, number)
        partition = StoredPartition(self.files, stored, (topic, number), self._clock)
        partition.decompressed_limit = found.config.log.read_decompressed_limit
        return partition

    def close(self) -> None:
        if self.files.forked:
            self.partitions.abandon()
            return
        self.partitions.close()
        self._tier.close()
