"""Rules shared by the requests that create, grow and delete topics: those of Kafka's controller, for one broker.

Every refusal is a RefusedByBroker with Kafka's code and a sentence that says what to send instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from foldlog import limits
from foldlog.broker.topics.names import OwnTopicChange, refuse_own_topic
from foldlog.errors import FoldlogError, LogClosed, RefusedByBroker, UnknownTopic, brief_repr
from foldlog.wire.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from foldlog.server.node import BrokerNode

Name = TypeVar("Name", bound=Hashable)

DEFAULT: Final = -1
"""A client's number for "the broker's default"."""

DUPLICATE: Final = "the topic stands in the request more than once; name it once"


def refuse(code: ErrorCode, sentence: str) -> NoReturn:
    raise RefusedByBroker(code, sentence)


def told(error: FoldlogError) -> tuple[ErrorCode, str]:
    """Code and sentence of an error for an answer."""
    if isinstance(error, UnknownTopic):
        # Its own sentence is for Python callers.
        return code_of(error), f"there is no topic {brief_repr(error.topic)}"
    if isinstance(error, LogClosed):
        # The broker is stopping: clients ask again, wherever the controller is then.
        return ErrorCode.NOT_CONTROLLER, str(error)
    return code_of(error), str(error)


def refuse_if_leaving(node: BrokerNode) -> None:
    """Called between the parts of a request that may have many: stopping waits for requests under way."""
    if node.is_leaving:
        raise LogClosed("the broker is leaving, and changes nothing more; ask again once it serves")


def refuse_own(node: BrokerNode, name: str, change: OwnTopicChange) -> None:
    """Refuse a change to a topic of the broker's own: one of Kafka's internal ones, or the folds' `__folds`. Apache
    Kafka would carry it out, and lose what groups committed; the answer is its INVALID_TOPIC_EXCEPTION."""
    refuse_own_topic(name, change)
    refusal = node.fold_guard.change_refusal(name) or node.schema_guard.refusal(name)
    if refusal is not None:
        refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, refusal)


def repeated(names: Iterable[Name]) -> set[Name]:
    """The names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


def partition_count(wanted: int, default: int) -> int:
    """How many partitions a new topic has, unless its replicas are assigned explicitly."""
    if wanted == DEFAULT:
        return default
    if wanted < 1:
        refuse(
            ErrorCode.INVALID_PARTITIONS,
            f"{wanted} partitions cannot be made; ask for at least 1, or -1 for the default",
        )
    check_partitions_max(wanted)
    return wanted


def check_partitions_max(count: int) -> None:
    if count > limits.PARTITIONS_MAX:
        refuse(
            ErrorCode.INVALID_PARTITIONS,
            f"a topic has at most {limits.PARTITIONS_MAX} partitions, not {count}; ask for fewer",
        )


def check_replication_factor(wanted: int) -> None:
    if wanted == DEFAULT or wanted == 1:
        return
    if wanted < 1:
        sentence = f"a replication factor of {wanted} is none; it is 1 here, or -1 for the default"
    else:
        sentence = f"{wanted} replicas need as many brokers, and there is one; use a replication factor of 1 or -1"
    refuse(ErrorCode.INVALID_REPLICATION_FACTOR, sentence)


def check_assignment(partition: int, broker_ids: Sequence[int], node_id: int) -> None:
    """Refuse an explicit assignment unless each partition is on the one broker, once."""
    if not broker_ids:
        sentence = f"partition {partition} is assigned to no broker; assign it to {node_id}"
    elif any(broker_id != node_id for broker_id in broker_ids):
        other = next(broker_id for broker_id in broker_ids if broker_id != node_id)
        sentence = f"partition {partition} is assigned to broker {other}, and there is only broker {node_id}"
    elif len(broker_ids) > 1:
        sentence = f"partition {partition} is assigned to broker {node_id} more than once"
    else:
        return
    refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)


def assigned_partition_count(assignments: Iterable[tuple[int, Sequence[int]]], node_id: int) -> int:
    """How many partitions a new topic with explicit assignments has: 0 to the last, each once."""
    numbers: list[int] = []
    for number, broker_ids in assignments:
        check_assignment(number, broker_ids, node_id)
        numbers.append(number)
    if sorted(numbers) != list(range(len(numbers))):
        refuse(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "the assigned partitions have to be numbered from 0, without gap or repetition",
        )
    check_partitions_max(len(numbers))
    return len(numbers)


def refuse_too_many(counts: Iterable[int]) -> None:
    """Refuse a request that would occupy the broker for minutes. Kafka has the same limit."""
    total = sum(counts)
    if total > limits.PARTITIONS_PER_REQUEST_MAX:
        refuse(
            ErrorCode.POLICY_VIOLATION,
            f"the request makes {total} partitions, and at most {limits.PARTITIONS_PER_REQUEST_MAX} are made by one;"
            " send several",
        )
