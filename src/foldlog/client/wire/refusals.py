"""What the error codes in a broker's answers mean: the errors that the log itself would have raised. Pure."""

from __future__ import annotations

from typing import Final, NoReturn

from foldlog.broker.groups.errors import GroupErrorCode, exception_for
from foldlog.client.fold_bulletin import FOLDS_TOPIC
from foldlog.client.fold_proof import KEPT_FOR_FOLDS, UNPROVEN
from foldlog.errors import FoldlogError, InvalidArgument, TopicExists, UnknownTopic
from foldlog.wire.error_codes import ErrorCode, exception_of, known_code

_GROUP_CODES: Final = frozenset(int(code) for code in GroupErrorCode)


class Passing(Exception):
    """A broker's answer that another try may change: a leader is being elected, a coordinator is loading.

    `error` is what the caller is told if it does not pass.
    """

    def __init__(self, error: FoldlogError) -> None:
        super().__init__(str(error))
        self.error = error


def check_code(
    code: int,
    message: str | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
) -> None:
    """Nothing for success; Passing where Kafka's clients ask again; else the error that the log would have raised."""
    if code:
        refuse(code, exception_of(code, message, topic=topic, partition=partition, group=group))


def refuse(code: int, error: FoldlogError) -> NoReturn:
    """Raise it; as Passing where Kafka's clients ask again after that code."""
    if known_code(code).is_retriable:
        raise Passing(error)
    raise error


_OF_FOLDS: Final = {
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED): UNPROVEN,
    int(ErrorCode.INVALID_TOPIC_EXCEPTION): KEPT_FOR_FOLDS,
}
"""What our broker means by them there. Some answers have no place for a sentence, and librdkafka drops others."""


def topic_error(code: int, message: str | None, topic: str, partition: int | None = None) -> FoldlogError:
    """The error that the log itself would have raised, in its own words where they came along."""
    if code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return TopicExists(topic)
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID) and partition is None:
        return UnknownTopic(topic)
    if code in (ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR) and message:
        return InvalidArgument(message)
    if code == ErrorCode.INVALID_TIMESTAMP and "LogAppendTime" not in (message or ""):  # which is another matter
        subject = topic if partition is None else f"{topic}-{partition}"
        message = (
            f"the broker refuses the time of a record for {subject}: it is further from the broker's clock than the"
            " topic's message.timestamp.after.max.ms (ahead) or message.timestamp.before.max.ms (behind) allows; raise"
            " that, or send another time"
        )
    if topic == FOLDS_TOPIC and not message:
        message = _OF_FOLDS.get(code)
    error = exception_of(code, message, topic=topic, partition=partition)
    if message:
        error.args = (message,)
    return error


def group_error(code: int, group: str) -> FoldlogError:
    """What a group refuses, as the error that its coordinator would have raised."""
    known = exception_for(GroupErrorCode(code), group) if code in _GROUP_CODES else None
    return known or exception_of(code, None, group=group)


def check_group_code(code: int, group: str) -> None:
    """Nothing for success; Passing where Kafka's clients ask again; else what the coordinator would have raised."""
    if code:
        refuse(code, group_error(code, group))
