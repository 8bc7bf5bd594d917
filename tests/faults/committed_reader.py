"""Reads what is committed in a topic, from its start on, while its writers and the broker are killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from confluent_kafka import Consumer, TopicPartition

POLLS_MAX = 1200
"""A tenth of a second each."""


class CommittedReader:
    """`records` are the keys and values that have come so far, in the order of each partition. One thread's."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}
        named = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
        self._consumer = Consumer({**named, **quick, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.topic = topic
        self.records: list[tuple[str | None, str | None]] = []

    @property
    def values(self) -> list[str | None]:
        return [value for _, value in self.records]

    def wait_more(self, count: int) -> None:
        """Returns when at least this many more have come."""
        end = len(self.records) + count
        self.wait_until(lambda: len(self.records) >= end)

    def wait_until(self, is_enough: Callable[[], bool]) -> None:
        for _ in range(POLLS_MAX):
            if is_enough():
                return
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    self.records.append((_text(message.key()), _text(message.value())))
        raise AssertionError(f"{len(self.records)} records came from {self.topic}, the last is {self.records[-1:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
