"""Topic names and the directory names derived from them: pure functions, no file is touched.

A live partition is `<topic>-<partition>`, one being deleted `<topic>-<partition>.<topic id>-delete`, as in Kafka. The
catalog decides which directories belong to the log; names are parsed only to report directories that are not in the
catalog, and to find the topic id of an interrupted deletion.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Container, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from foldlog import limits
from foldlog.errors import InvalidTopicName, brief_repr

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Committed offsets and group state, in Kafka's own key and value formats."""

TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""The state of each transactional id, in Kafka's own key and value formats."""

SHARE_STATE_TOPIC: Final = "__share_group_state"
"""What share groups have done with which records, in Kafka's own key and value formats."""

KAFKA_OWN_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""Topics that Apache Kafka's brokers keep for themselves, by its class Topic; a directory has them, too. Clients
may not create, write or change them: tools take such a topic for the broker's own."""

FOLDS_TOPIC: Final = "__folds"
"""What runners of folds say and hear."""

SCHEMAS_TOPIC: Final = "_schemas"
"""What the schema registry keeps, in the formats and under the name of Confluent's; a user's topic, as there."""

SCENE_TOPIC: Final = "__log_or_queue"
"""The console's scene, for people who want to see what a log is."""

STAGED_TOPIC: Final = "__foldlog_staged"
"""Rows that a Spark job has packed, on their way into topics of a cluster."""

COMMITS_TOPIC: Final = "__foldlog_commits"
"""The last batch that each Spark query has written to the cluster."""

CHANGES_PREFIX: Final = "__changes."
"""With the name of a topic into which a fold writes its changes: the fold's bookmark in it."""

SIDES_PREFIX: Final = "__joined."
"""With "left." or "right." and the name of a topic into which a fold writes a join: the rows of that side."""

CAPTURE_PREFIX: Final = "__capture."
"""With the name of a capture: how far it has read the database, and which tables it follows."""

_INTERNAL_TOPICS: Final = KAFKA_OWN_TOPICS | {FOLDS_TOPIC, SCENE_TOPIC, STAGED_TOPIC, COMMITS_TOPIC}

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION_DIRECTORY: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)")
_DELETED_DIRECTORY: Final = re.compile(r"[a-zA-Z0-9._-]*-(?P<partition>[0-9]+)\.(?P<topic_id>[0-9a-f]{32})-delete")


class DeletedDirectory(NamedTuple):
    """The parts of the name of a directory that is being deleted."""

    partition: int
    topic_id: str


def require_text(name: object) -> str:
    """The name, if it is a string; checked before it is looked up, since a list cannot be."""
    if not isinstance(name, str):
        raise InvalidTopicName(f"a topic name is a string, not {type(name).__name__} {brief_repr(name)}")
    return name


def check_topic_name(name: object) -> str:
    """The name, if Kafka allows it; else raises InvalidTopicName."""
    name = require_text(name)
    if not name:
        raise InvalidTopicName("a topic name cannot be empty")
    if len(name) > limits.TOPIC_NAME_CHARS_MAX:
        raise InvalidTopicName(
            f"topic name {name[:32]!r}... has {len(name)} characters; at most {limits.TOPIC_NAME_CHARS_MAX} are allowed"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicName(
            f"topic name {name!r} holds a character that is not allowed; use letters, digits, '.', '_' and '-'"
        )
    if name in {".", ".."}:
        raise InvalidTopicName(f"topic name {name!r} is the name of a directory; choose another")
    return name


def check_user_topic_name(name: object) -> str:
    """As `check_topic_name`; also refuses names that only the log itself may create."""
    checked = check_topic_name(name)
    if checked in KAFKA_OWN_TOPICS:
        raise kept_by_the_log(checked, "choose another name")
    return checked


def kept_by_the_log(name: str, why: str) -> InvalidTopicName:
    return InvalidTopicName(f"topic {name!r} is made and kept by the log itself; {why}")


class OwnTopicChange(StrEnum):
    """Changes of the log's own topics that only the log may make, with the text of the refusal."""

    DELETE = "it cannot be deleted"
    GROW = "with more partitions it would lose what it keeps"
    ALTER = "with other settings it could lose what it keeps"
    DELETE_RECORDS = "its records cannot be deleted; move a group with reset_group()"


def refuse_own_topic(name: object, change: OwnTopicChange, own: Container[object] = KAFKA_OWN_TOPICS) -> None:
    """Raises InvalidTopicName for the log's own topics, and for names that only Kafka's brokers use."""
    if isinstance(name, str) and name in own:
        raise kept_by_the_log(name, change.value)


def refuse_collision(name: str, known: Iterable[str]) -> None:
    """Raises InvalidTopicName if another topic differs only in '.' and '_': Kafka's metrics cannot tell them apart.

    >>> refuse_collision("orders.eu", ["orders-eu", "orders.eu"])
    """
    folded = folded_name(name)
    for other in known:
        if other != name and folded_name(other) == folded:
            raise InvalidTopicName(
                f"topic name {name!r} differs from topic {other!r} only in '.' and '_', which Kafka does not allow;"
                " choose another"
            )


def folded_name(name: str) -> str:
    """The topic's name in Kafka's metrics."""
    return name.replace(".", "_")


def refuse_user_write(name: object) -> None:
    """Raises InvalidTopicName for the log's own topics: another writer's record could undo what groups committed."""
    if isinstance(name, str) and name in KAFKA_OWN_TOPICS:
        raise InvalidTopicName(
            f"topic {name!r} is written by the log itself; commit with a consumer, or move a group with reset_group()"
        )


def is_internal(name: str) -> bool:
    """Whether listings leave it out unless asked, and a copy of everything too: what Kafka's brokers or foldlog itself
    keep in topics. As in Kafka, any other name is a user's, however it begins. (On the wire the flag of that name is
    Kafka's own, and says it of KAFKA_OWN_TOPICS only.)

    >>> is_internal("__consumer_offsets"), is_internal("__folds"), is_internal("__mine")
    (True, True, False)
    """
    return name in _INTERNAL_TOPICS or name.startswith((CHANGES_PREFIX, SIDES_PREFIX, CAPTURE_PREFIX))


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def is_partition_directory(name: str) -> bool:
    """Whether a directory of that name could be a partition; the catalog decides whether it is one."""
    return _PARTITION_DIRECTORY.fullmatch(name) is not None


def deleted_directory(topic: str, partition: int, topic_id: str) -> str:
    """The name of a partition's directory while its topic is deleted.

    A long topic name is cut to the limit of file names: the id identifies the topic.
    """
    suffix = f"-{partition}.{topic_id}-delete"
    return topic[: limits.FILE_NAME_CHARS_MAX - len(suffix)] + suffix


def kafka_topic_id(topic_id: str) -> str:
    """The id as Kafka writes it in partition.metadata: 16 bytes in URL-safe base64, without padding."""
    return base64.urlsafe_b64encode(bytes.fromhex(topic_id)).rstrip(b"=").decode()


def parse_deleted_directory(name: str) -> DeletedDirectory | None:
    """The parts of the name of a directory that is being deleted; None for other names."""
    match = _DELETED_DIRECTORY.fullmatch(name)
    return DeletedDirectory(int(match["partition"]), match["topic_id"]) if match else None
