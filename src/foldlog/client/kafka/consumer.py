"""A consumer of a cluster: the log's own Consumer, over librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from foldlog.client.consumer import Consumer
from foldlog.client.consumer_settings import ConsumerSettings
from foldlog.client.kafka.consumption import KafkaConsumption
from foldlog.client.kafka.groups import KafkaGroups
from foldlog.client.kafka.handles import Handles

Companions = Callable[[], Iterable[KafkaConsumption]]
"""How the other consumers of the same log read: they may be members of the same group."""


class KafkaConsumer(Consumer):
    """A `Consumer` of a cluster. Make one with `KafkaLog.consumer`.

    It promises what `Consumer` does, but that the network is in between: a poll with timeout_ms=0 has only what was
    fetched already, and another member's share changes when that member polls. docs/clusters.md has the rest.
    """

    def __init__(
        self,
        log: KafkaGroups,
        handles: Handles,
        topics: Iterable[str] | str | None,
        settings: ConsumerSettings,
        companions: Companions,
    ) -> None:
        """Use `KafkaLog.consumer`."""
        self.reading = KafkaConsumption(log, handles, settings)
        self._companions = companions
        self._begin(_Look(log), self.reading, settings)
        if topics is not None:
            self.subscribe(topics)

    def is_cut_off(self) -> bool:
        """Whether nobody in the cluster answers. Asks it where connections have broken, and waits some seconds then."""
        super().is_cut_off()
        return self.reading.is_cut_off()

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read these topics, in place of what was read before. With a group, joins it: on return it has its share,
        unless other members keep the group waiting for long."""
        super().subscribe(topics)
        self.reading.wait_for_share(self._companions())


class _Look:
    """Which topics and partitions there are, for the checks of `Consumer`."""

    def __init__(self, log: KafkaGroups) -> None:
        self._log = log

    def topic(self, name: str) -> object:
        return self._log.partition_count(name)

    def partition(self, topic: str, number: int) -> object:
        return self._log.bounds_of(topic, number)
