"""What librdkafka's errors are here: the types that a directory's log would have raised, one sentence each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.client.wire.login.sasl import CHECK, NO_LOGIN
from foldlog.client.wire.refusals import group_error, topic_error
from foldlog.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    FencedMember,
    FoldlogError,
    InvalidArgument,
    InvalidConfig,
    RefusedByBroker,
    UnknownTopic,
    WaitTimeout,
)
from foldlog.limits import KAFKA_DELIVERY_MS
from foldlog.wire.error_codes import ErrorCode, exception_of, known_code

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from foldlog.client.backends.cluster.url import KafkaUrl

_UNREACHABLE: Final = frozenset(
    {
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_SSL",
        "_AUTHENTICATION",
        "_WAIT_COORD",
        "_NODE_UPDATE",
        "_CRIT_SYS_RESOURCE",
    }
)

_REFUSES_US: Final = frozenset({"_SSL", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"})
"""What no second try changes."""

_PASSES: Final = _UNREACHABLE - _REFUSES_US | {"_DESTROY", "_IN_PROGRESS", "_PREV_IN_PROGRESS", "_OUTDATED"}

_STAYS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.CORRUPT_MESSAGE})
"""Kafka's clients ask again after these, too; here they are answers, and told at once."""

_REFUSED: Final = re.compile(r"(?:\w+://)?(?P<address>\S+): SASL (?:authentication error: )?(?P<why>.+)", re.DOTALL)
_NO_LOGIN: Final = re.compile(
    r"(?:\w+://)?(?P<address>\S+): .*(?:SASL Handshake not supported by broker|not valid in current SASL state).*",
    re.DOTALL,
)
"""Of a broker of ours, and of one of Apache Kafka's, whose listener is PLAINTEXT or SSL."""

_AFTER: Final = re.compile(r" \(after \d+ms in state \w+[^)]*(\(s\)[^)]*)?\)$")
_GROUP_CODES: Final = frozenset(int(code) for code in GroupErrorCode)


class Where(NamedTuple):
    """What a call was about, as far as it was about something."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None


def passes(error: KafkaError) -> bool:
    """Whether another try may end otherwise: a broker is lost, a leader being elected, a coordinator loading."""
    if error.code() <= 0:
        return error.name() in _PASSES
    code = known_code(error.code())
    return code.is_retriable and code not in _STAYS


def fault_of(error: KafkaError, url: KafkaUrl, where: Where, trouble: str | None) -> FoldlogError:
    """The error to raise. `trouble` is what connections complained of last, which says more than a timeout does."""
    code, name, text = error.code(), error.name(), error.str()
    if code > 0:
        return _told_by_broker(code, text, where)
    if name == "_MSG_TIMED_OUT" and trouble is None:
        return _not_acknowledged(url, where)
    if name in _UNREACHABLE:
        return unreachable(url, trouble or _reason(text))
    if name == "_UNKNOWN_TOPIC" and where.topic is not None:
        return UnknownTopic(where.topic)
    if name == "_UNKNOWN_PARTITION" and where.topic is not None and where.partition is not None:
        return exception_of(3, text, topic=where.topic, partition=where.partition)
    if name in ("_FENCED", "_MAX_POLL_EXCEEDED"):
        return FencedMember(f"the member of group {where.group!r} was replaced: {text}")
    if name in ("_INVALID_ARG", "_CONFLICT", "_NOT_IMPLEMENTED"):
        return InvalidArgument(f"the Kafka client refuses it: {text}")
    return RefusedByBroker(code, f"the Kafka client answered {name}: {text}")


def unreachable(url: KafkaUrl, why: str) -> BrokerUnreachable | AuthenticationFailed:
    """Nobody answers; or one does, and says that we are not who we say we are."""
    protocol = url.properties.get("security.protocol", "PLAINTEXT").upper()
    no_login = _NO_LOGIN.fullmatch(why)
    refused = no_login or _REFUSED.fullmatch(why)
    if refused is not None and protocol.startswith("SASL"):
        given = url.properties
        mechanism = given.get("sasl.mechanism") or "GSSAPI"
        said = NO_LOGIN if no_login is not None else f"{refused['why'].rstrip('.')}; {CHECK}"
        return AuthenticationFailed(refused["address"], given.get("sasl.username", ""), mechanism, said)
    return BrokerUnreachable([str(address) for address in url.addresses], why, protocol)


def _not_acknowledged(url: KafkaUrl, where: Where) -> WaitTimeout:
    """No connection was lost, so the brokers are where they should be."""
    limit = f"message.timeout.ms={url.properties.get('delivery.timeout.ms', KAFKA_DELIVERY_MS)}"
    return WaitTimeout(
        f"a record for {where.topic}-{where.partition} was not acknowledged within {limit}; it may yet be written:"
        " raise the limit, or see what keeps the brokers busy"
    )


def _told_by_broker(code: int, text: str, where: Where) -> FoldlogError:
    if where.group is not None and code == GroupErrorCode.INVALID_SESSION_TIMEOUT:
        return InvalidArgument(
            f"group {where.group!r} does not take this session.timeout.ms, which is the URL's, and else"
            " max_poll_interval_ms up to 45 s: brokers allow group.min.session.timeout.ms to"
            " group.max.session.timeout.ms, 6 s to 30 min unless set"
        )
    if where.group is not None and code in _GROUP_CODES:
        return group_error(code, where.group)
    # librdkafka puts its own words where the broker sent none, and they say less than ours.
    message = None if text.startswith("Broker: ") else text
    if where.topic is not None:
        return topic_error(code, message, where.topic, where.partition)
    return exception_of(code, message, group=where.group)


def config_fault(error: KafkaError) -> InvalidConfig:
    """Why librdkafka does not take its properties."""
    return InvalidConfig(f"the Kafka client does not take its properties: {error.str()}")


def trouble_of(error: KafkaError) -> str:
    """What a connection complains of, without the noise.

    It begins with the broker, as "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused".
    """
    return _reason(error.str())


def _reason(text: str) -> str:
    text = _AFTER.sub("", text).replace("/bootstrap: ", ": ")
    return text.removeprefix("Failed to get metadata: ").removeprefix("Local: ")
