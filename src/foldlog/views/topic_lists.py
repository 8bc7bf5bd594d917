"""Several topics read as one: how a bookmark names them, and how their partitions are numbered.

Views know a record by two numbers, partition and offset, so the partitions of several topics need numbers of their
own. Topics are numbered in the order in which a view has met them, and the partitions of topic n begin at n times
PARTITIONS_EACH. The name of such a list is the names of its topics in this order, with commas, which no name of a topic
has: whoever has the name, such as an executor, knows every number. A list of one topic is that topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from foldlog.views.contract import OFFSET, PARTITION, TOPIC

if TYPE_CHECKING:
    import pyarrow as pa

PARTITIONS_EACH: Final = 100_000
"""More than a topic has; decimal, so that people can read the numbers."""

_SEPARATOR: Final = ","

Value = TypeVar("Value")


def listed(names: list[str] | tuple[str, ...]) -> str:
    """The name of a list of topics.

    >>> listed(["orders-eu", "orders-us"])
    'orders-eu,orders-us'
    """
    return _SEPARATOR.join(names)


def topics_in(name: str) -> list[str]:
    """The topics of a list, or their ids, in the order of their numbers; of one topic itself."""
    return name.split(_SEPARATOR)


def numbered(topic: int, partition: int) -> int:
    """The number of a partition, of the topic with that number."""
    return topic * PARTITIONS_EACH + partition


def located(name: str, number: int) -> tuple[str, int]:
    """The topic, and its own number of the partition.

    >>> located("orders-eu,orders-us", 100_003)
    ('orders-us', 3)
    """
    topics = topics_in(name)
    if len(topics) == 1:
        return name, number
    return topics[number // PARTITIONS_EACH], number % PARTITIONS_EACH


def by_topic(name: str, values: Mapping[int, Value]) -> dict[str, dict[int, Value]]:
    """What is known of each partition, by topic and by its own number; an empty dict for a topic without any.

    >>> by_topic("orders-eu,orders-us", {0: 7, 100_003: 9})
    {'orders-eu': {0: 7}, 'orders-us': {3: 9}}
    """
    found: dict[str, dict[int, Value]] = {topic: {} for topic in topics_in(name)}
    for number, value in values.items():
        topic, partition = located(name, number)
        found[topic][partition] = value
    return found


def continues(later: str, earlier: str) -> bool:
    """Whether a list, of names or of ids, is another one, perhaps with more at its end."""
    return later == earlier or later.startswith(f"{earlier}{_SEPARATOR}")


def where_at(rows: pa.Table, number: int) -> str:
    """Where the record of a row is, for messages: its topic is told, and not a list."""
    topic, partition, offset = (rows[name][number].as_py() for name in (TOPIC, PARTITION, OFFSET))
    return f"offset {offset} of {topic}-{partition % PARTITIONS_EACH}"
