"""A stock Kafka client: confluent-kafka (librdkafka) if installed, else kafka-python.

Neither knows anything of foldlog. What they log while the broker is down would disturb the screen, so it is dropped.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol

_CLIENTS: Final = {"confluent_kafka": "confluent-kafka", "kafka": "kafka-python"}
"""Modules, in order of preference, and their packages."""

_SESSION_TIMEOUT_MS: Final = 45_000
_COMMIT_EVERY_MS: Final = 500


class Got(NamedTuple):
    """A record as the client returned it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class StockClient(Protocol):
    """Reads one topic. For one thread."""

    def poll(self, max_records: int, timeout_s: float) -> list[Got]:
        """The next records; none if there are none within `timeout_s`."""
        ...

    def close(self) -> None: ...


def installed_client() -> str | None:
    """The package that would be used; None if none is installed."""
    return next((package for module, package in _CLIENTS.items() if find_spec(module) is not None), None)


def client_name() -> str:
    """Its name and version."""
    package = installed_client() or ""
    return f"{package} {version(package)}"


def open_client(bootstrap: str, topic: str, partitions: int, group: str | None) -> StockClient:
    """A member of `group`, from the group's position; without a group, from the start of every partition."""
    if installed_client() == "confluent-kafka":
        return _Confluent(bootstrap, topic, partitions, group)
    return _KafkaPython(bootstrap, topic, partitions, group)


class _Confluent:
    """librdkafka, through its Python package."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str | None) -> None:
        from confluent_kafka import Consumer, TopicPartition

        silent = logging.getLogger("foldlog.demo.librdkafka")
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group or "unused",
            "client.id": f"demo-{group or 'stock'}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": group is not None,
            "auto.commit.interval.ms": _COMMIT_EVERY_MS,
            "session.timeout.ms": _SESSION_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 1000,
            "queued.min.messages": 1000,
        }
        self._consumer = Consumer(settings, logger=silent)
        if group is None:
            self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        else:
            self._consumer.subscribe([topic])

    def poll(self, max_records: int, timeout_s: float) -> list[Got]:
        # A message with an error means that the broker is down; the client reconnects by itself.
        return [
            Got(one.partition() or 0, one.offset() or 0, _bytes(one.key()), _bytes(one.value()))
            for one in self._consumer.consume(max_records, timeout_s)
            if one.error() is None
        ]

    def close(self) -> None:
        self._consumer.close()


class _KafkaPython:
    """The pure Python client."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str | None) -> None:
        from kafka import KafkaConsumer, TopicPartition

        logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=f"demo-{group or 'stock'}",
            auto_offset_reset="earliest",
            enable_auto_commit=group is not None,
            auto_commit_interval_ms=_COMMIT_EVERY_MS,
        )
        if group is None:
            assigned = [TopicPartition(topic, number) for number in range(partitions)]
            self._consumer.assign(assigned)
            self._consumer.seek_to_beginning(*assigned)
        else:
            self._consumer.subscribe([topic])

    def poll(self, max_records: int, timeout_s: float) -> list[Got]:
        found = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        return [
            Got(partition.partition, one.offset, one.key, one.value)
            for partition, batch in found.items()
            for one in batch
        ]

    def close(self) -> None:
        self._consumer.close()


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
