"""Naming partitions on the command line: `orders` is all of a topic, `orders:3` one partition of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.errors import UnknownPartition

if TYPE_CHECKING:
    from foldlog.cli.places import AnyLog
    from foldlog.client.positions import TopicPartition

TOPIC_PARTITION: Final = "TOPIC[:P]"


class NamedPartitions(NamedTuple):
    """A topic, or one partition of it."""

    topic: str
    partition: int | None


def parse_topic_partition(text: str) -> NamedPartitions:
    """
    >>> parse_topic_partition("orders:3")
    NamedPartitions(topic='orders', partition=3)
    """
    topic, colon, number = text.partition(":")
    if not topic or (colon and not (number.isascii() and number.isdecimal())):
        raise argparse.ArgumentTypeError(f"{text!r} is not a topic, such as orders, or a partition, such as orders:0")
    return NamedPartitions(topic, int(number) if colon else None)


def partitions_named(log: AnyLog, names: Iterable[NamedPartitions]) -> list[TopicPartition]:
    """Each partition once, in order; UnknownTopic, UnknownPartition."""
    from foldlog.client.positions import TopicPartition

    found: set[TopicPartition] = set()
    for topic, number in names:
        count = log.topic(topic).partition_count
        if number is not None and number >= count:
            raise UnknownPartition(topic, number, count)
        found.update(TopicPartition(topic, each) for each in (range(count) if number is None else (number,)))
    return sorted(found)
