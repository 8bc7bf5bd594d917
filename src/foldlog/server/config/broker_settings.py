"""Broker settings, a row each: Kafka's names, types and ranges, our defaults, and what they mean.

The log.* rows are the defaults of topic settings, as in Kafka. Names that begin with `foldlog.` are ours.
`kafka_properties` has Kafka's other names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from foldlog import limits
from foldlog.broker.access.acls import check_principal
from foldlog.broker.groups.consumer.assignors import ASSIGNORS
from foldlog.broker.groups.consumer.messages import MigrationPolicy
from foldlog.broker.topics.config import TOPIC_SETTINGS
from foldlog.broker.topics.setting_values import ValueNotAllowedError, integer_of
from foldlog.errors import InvalidArgument
from foldlog.log.producers import EXPIRATION_MS
from foldlog.records.batch import MAX_INT32, MAX_INT64
from foldlog.server.access.mechanisms import OFFERED, SCRAM
from foldlog.server.tls.settings import CLIENT_AUTHS, PROTOCOL_NAMES, STORE_TYPES, VERSIONS

LOG_FORMATS: Final = ("text", "json")
TOKEN_CHARS_MIN: Final = 12
"""For the console's token: anyone who guesses it can read and write everything."""

LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_MAX_INT16: Final = (1 << 15) - 1  # a committed offset is stored with a length of 16 bits before its text
_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One row of BROKER_SETTINGS.

    `parse` returns the value, or raises ValueNotAllowedError. `default` is a value; None if Kafka has none either. If
    the row is the default of a topic setting, `topic_text` returns that setting's text for a value.
    """

    kafka_type: str
    default: Any
    allowed: str
    doc: str
    parse: Callable[[object], Any]
    topic_setting: str | None = None
    topic_text: Callable[[Any], str] = str
    is_sensitive: bool = False  # its value is never shown
    is_dynamic: bool = False  # it can be changed while the broker runs


def text_of(value: object) -> str | None:
    """A value as Kafka prints it; None if it is not set.

    >>> text_of(True), text_of(("a", "b")), text_of(None)
    ('true', 'a,b', None)
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if type(value) is tuple:  # a listener is a named tuple, and prints itself
        return ",".join(str(part) for part in value)
    return str(value)


def _integer(default: int, lowest: int, highest: int, doc: str) -> BrokerSetting:
    def parse(value: object) -> int:
        number = integer_of(value)
        if not lowest <= number <= highest:
            raise ValueNotAllowedError
        return number

    allowed = f"{lowest}" if lowest == highest else f"an integer from {lowest} to {highest}"
    return BrokerSetting("INT" if highest <= MAX_INT32 else "LONG", default, allowed, doc, parse)


def _duration_or_never(default: int, doc: str) -> BrokerSetting:
    """Milliseconds, where -1 is never: practically without end."""
    positive = _integer(default, 1, MAX_INT64, doc)

    def parse(value: object) -> int:
        number = integer_of(value)
        return MAX_INT64 if number == -1 else int(positive.parse(number))

    return BrokerSetting("LONG", default, f"{positive.allowed}, or -1 for never", doc, parse)


def _boolean(default: bool, doc: str) -> BrokerSetting:
    def parse(value: object) -> bool:
        if isinstance(value, bool):
            return value
        known = {"true": True, "1": True, "false": False, "0": False}
        text = str(value).strip().lower()
        if text not in known or not isinstance(value, str | int):
            raise ValueNotAllowedError
        return known[text]

    return BrokerSetting("BOOLEAN", default, "true or false", doc, parse)


def _text_list(default: tuple[str, ...], allowed: str, doc: str) -> BrokerSetting:
    def parse(value: object) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise ValueNotAllowedError
        return tuple(part.strip() for part in parts if part.strip())

    return BrokerSetting("LIST", default, allowed, doc, parse)


def _assignors(doc: str) -> BrokerSetting:
    plain = _text_list(tuple(ASSIGNORS), f"a list of {' and '.join(ASSIGNORS)}, each once", doc)

    def parse(value: object) -> tuple[str, ...]:
        names: tuple[str, ...] = plain.parse(value)
        if not names or len(set(names)) != len(names) or not all(name in ASSIGNORS for name in names):
            raise ValueNotAllowedError
        return names

    return replace(plain, parse=parse)


def _mechanisms(doc: str) -> BrokerSetting:
    plain = _text_list(SCRAM, f"a list of {', '.join(OFFERED)}, each once", doc)

    def parse(value: object) -> tuple[str, ...]:
        names = tuple(name.upper() for name in plain.parse(value))
        if not names or len(set(names)) != len(names) or not set(names) <= set(OFFERED):
            raise ValueNotAllowedError
        return names

    return replace(plain, parse=parse)


def _view_locations(doc: str) -> BrokerSetting:
    plain = _text_list((), "a list of directories and of postgresql://HOST[:PORT] with commas between them", doc)

    def parse(value: object) -> tuple[str, ...]:
        from foldlog.views.peek.locations import NamedLocations  # few set it, and a start imports little

        locations: tuple[str, ...] = plain.parse(value)
        try:
            NamedLocations(locations)
        except InvalidArgument:
            raise ValueNotAllowedError from None
        return locations

    return replace(plain, parse=parse)


def _optional_text(allowed: str, doc: str) -> BrokerSetting:
    def parse(value: object) -> str | None:
        if not isinstance(value, str):
            raise ValueNotAllowedError
        return value.strip() or None

    return BrokerSetting("STRING", None, allowed, doc, parse)


def _secret(allowed: str, doc: str) -> BrokerSetting:
    def parse(value: object) -> str | None:
        text = value.strip() if isinstance(value, str) else ""
        if text and (len(text) < TOKEN_CHARS_MIN or not text.isascii() or not text.isprintable() or " " in text):
            raise ValueNotAllowedError
        if not isinstance(value, str):
            raise ValueNotAllowedError
        return text or None

    return BrokerSetting("PASSWORD", None, allowed, doc, parse, is_sensitive=True)


def _hidden_text(doc: str) -> BrokerSetting:
    """A text that is never shown: a password, or PEM."""

    def parse(value: object) -> str | None:
        if not isinstance(value, str):
            raise ValueNotAllowedError
        return value or None

    return BrokerSetting("PASSWORD", None, "a text", doc, parse, is_sensitive=True)


def _word_of(choices: tuple[str, ...], default: str, doc: str) -> BrokerSetting:
    """One of these words, in any case; the value is in that of `choices`."""

    def parse(value: object) -> str:
        for choice in choices:
            if isinstance(value, str) and value.strip().lower() == choice.lower():
                return choice
        raise ValueNotAllowedError

    return BrokerSetting("STRING", default, "one of " + ", ".join(choices), doc, parse)


def _one_of(choices: tuple[str, ...], default: str, doc: str) -> BrokerSetting:
    def parse(value: object) -> str:
        text = value.strip().lower() if isinstance(value, str) else ""
        if text not in choices:
            raise ValueNotAllowedError
        return text

    return BrokerSetting("STRING", default, "one of " + ", ".join(choices), doc, parse)


AUTHORIZERS: Final = (
    "foldlog",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""What turns ACLs on: our name, and those of Kafka's two, which decide alike."""


def _authorizer(doc: str) -> BrokerSetting:
    def parse(value: object) -> str:
        text = value.strip() if isinstance(value, str) else None
        if text is None or text not in ("", *AUTHORIZERS):
            raise ValueNotAllowedError
        return text

    return BrokerSetting("STRING", "", f"empty for none, or one of {', '.join(AUTHORIZERS)}", doc, parse)


def _principals(doc: str) -> BrokerSetting:
    """Principals with semicolons between them: names in certificates have commas."""

    def parse(value: object) -> str:
        parts = [part.strip() for part in value.split(";")] if isinstance(value, str) else None
        try:
            return ";".join(check_principal(part) for part in parts or () if part)
        except InvalidArgument:
            raise ValueNotAllowedError from None

    return BrokerSetting("STRING", "", "principals such as User:alice with semicolons between them", doc, parse)


def _dynamic(row: BrokerSetting) -> BrokerSetting:
    """A row whose value can be changed while the broker runs, here and in Kafka."""
    return replace(row, is_dynamic=True)


def _topic_default(topic_setting: str) -> BrokerSetting:
    """A row with the values of the topic setting whose default it is. It can be changed while the broker runs."""
    row = TOPIC_SETTINGS[topic_setting]
    doc = f"What `{topic_setting}` is in topics that do not set it. {row.doc}"
    return BrokerSetting(row.kafka_type, row.default, row.allowed, doc, row.parse, topic_setting, is_dynamic=True)


def _topic_default_or_none(topic_setting: str) -> BrokerSetting:
    """A topic's default whose value is in a row with another unit, so that this row has none."""
    return replace(_topic_default(topic_setting), default=None)


def _topic_duration(topic_setting: str, unit: str, unit_ms: int, default: int | None, lowest: int) -> BrokerSetting:
    """A row for a topic setting of milliseconds in another unit; -1 is no limit in both."""
    row = _integer(default or 0, lowest, MAX_INT32, f"The same in {unit}; the smaller unit goes first.")
    return BrokerSetting(
        "INT",
        default,
        row.allowed + (" (-1: no limit)" if lowest == -1 else ""),
        row.doc,
        row.parse,
        topic_setting,
        lambda number: str(number * unit_ms if number > 0 else number),
    )


_ADDRESSES: Final = "a list of HOST:PORT, [IPV6]:PORT or NAME://HOST:PORT with commas between them"

_SERVER_SETTINGS: Final = {
    "node.id": _integer(1, 0, MAX_INT32, "The number of this broker, as clients see it."),
    "listeners": _text_list(("127.0.0.1:9092",), _ADDRESSES, "Where to listen. Port 0 is any free one."),
    "advertised.listeners": _text_list(
        (), _ADDRESSES, "The addresses that clients connect to; by default those of `listeners`."
    ),
    "listener.security.protocol.map": _text_list(
        (),
        "a list of NAME:PROTOCOL with commas between them",
        "The security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    "foldlog.insecure": _boolean(
        False,
        "Allow listeners that other machines can reach and where everybody may read, write and delete everything.",
    ),
    "authorizer.class.name": _authorizer("Turns ACLs on; without it everybody may do everything."),
    "super.users": _principals("Who may do everything, whatever ACLs say."),
    "allow.everyone.if.no.acl.found": _boolean(
        False, "Whether everybody may do everything with resources that no ACL is for."
    ),
    "quota.window.num": _integer(
        11,
        1,
        MAX_INT32,
        "A client may use its quota of this many windows but one at once.",
    ),
    "quota.window.size.seconds": _integer(1, 1, MAX_INT32, "The length of such a window."),
    "controller.quota.window.num": _integer(11, 1, MAX_INT32, "`quota.window.num` of `controller_mutation_rate`."),
    "controller.quota.window.size.seconds": _integer(
        1, 1, MAX_INT32, "`quota.window.size.seconds` of `controller_mutation_rate`."
    ),
    "foldlog.metrics": _optional_text(
        "HOST:PORT or https://HOST:PORT", "Where to serve /metrics and /healthz over HTTP; nowhere if unset."
    ),
    "foldlog.jwks.insecure": _boolean(
        False,
        "Take the keys of tokens from an address of http on another machine: somebody on the way can replace them.",
    ),
    "foldlog.metrics.open": _boolean(False, "Let everybody see /metrics, also where clients of the broker log in."),
    "foldlog.console": _optional_text(
        "HOST:PORT or https://HOST:PORT", "Where to serve the console, a page for browsers; nowhere if unset."
    ),
    "foldlog.console.token": _secret(
        f"at least {TOKEN_CHARS_MIN} characters of ASCII without a space",
        "The token that a browser needs; generated if other machines can reach the console and none is set.",
    ),
    "foldlog.console.read.only": _boolean(False, "Refuse every change from the console."),
    "foldlog.console.views": _view_locations(
        "Places of views that the console may open, and hosts that it may send passwords to.",
    ),
    "foldlog.registry": _optional_text(
        "HOST:PORT or https://HOST:PORT", "Where to serve the schema registry, Confluent's REST API; nowhere if unset."
    ),
    "foldlog.folds.accept.unproven": _boolean(
        False,
        "Let every client write `__folds`, change and delete it, not only runners with the directory's key.",
    ),
    "foldlog.journal.enable": _boolean(
        limits.JOURNAL_ENABLED,
        "Sync small appends of all partitions together, in a journal of the data directory.",
    ),
    "foldlog.tier": _optional_text(
        "the URL of a bucket, such as s3://bucket/prefix, or of a directory, such as file:///mnt/tier",
        "Where sealed segments of topics with remote.storage.enable go; unset: the store that the directory names.",
    ),
    "foldlog.tier.cache.bytes": _integer(
        limits.TIER_CACHE_BYTES, 0, MAX_INT64, "How much is kept in memory of what was read from the store."
    ),
    "foldlog.log.format": _one_of(LOG_FORMATS, "text", "How the process logs: for people, or a JSON object a line."),
    "foldlog.log.level": _one_of(LOG_LEVELS, "info", "What the process logs."),
    "foldlog.create.topics": _text_list(
        (), "a list of TOPIC or TOPIC:PARTITIONS", "Topics to create at the start if they do not exist."
    ),
    "auto.create.topics.enable": _boolean(True, "Create a topic when a client asks about one that does not exist."),
    "delete.topic.enable": _boolean(True, "Whether clients may delete topics."),
    "num.partitions": _integer(1, 1, limits.PARTITIONS_MAX, "Partitions of a new topic, unless the client says."),
    "default.replication.factor": _integer(1, 1, 1, "Replicas of a new topic: always one."),
    "group.initial.rebalance.delay.ms": _integer(
        0, 0, MAX_INT32, "How long a new group waits for more members; Kafka's default is 3000."
    ),
    "group.min.session.timeout.ms": _integer(
        100, 1, MAX_INT32, "The shortest session a member may ask for; Kafka's default is 6000."
    ),
    "group.max.session.timeout.ms": _integer(1_800_000, 1, MAX_INT32, "The longest session a member may ask for."),
    "group.max.size": _integer(limits.GROUP_MEMBERS_MAX, 1, MAX_INT32, "Most members of one group."),
    "group.consumer.session.timeout.ms": _integer(
        45_000, 1, MAX_INT32, "How long a member of a consumer group may be silent before its partitions go to others."
    ),
    "group.consumer.min.session.timeout.ms": _integer(
        100, 1, MAX_INT32, "The least that `group.consumer.session.timeout.ms` may be; Kafka's default is 45000."
    ),
    "group.consumer.max.session.timeout.ms": _integer(
        60_000, 1, MAX_INT32, "The most that `group.consumer.session.timeout.ms` may be."
    ),
    "group.consumer.heartbeat.interval.ms": _integer(
        5_000,
        1,
        MAX_INT32,
        "How often members of consumer groups report; a rebalance takes a few of these.",
    ),
    "group.consumer.min.heartbeat.interval.ms": _integer(
        10, 1, MAX_INT32, "The least that `group.consumer.heartbeat.interval.ms` may be; Kafka's default is 5000."
    ),
    "group.consumer.max.heartbeat.interval.ms": _integer(
        15_000, 1, MAX_INT32, "The most that `group.consumer.heartbeat.interval.ms` may be."
    ),
    "group.consumer.assignment.interval.ms": _integer(
        0, 0, MAX_INT32, "The least time between two assignments of one consumer group; Kafka's default is 1000."
    ),
    "group.consumer.min.assignment.interval.ms": _integer(
        0, 0, MAX_INT32, "The least that `group.consumer.assignment.interval.ms` may be."
    ),
    "group.consumer.max.assignment.interval.ms": _integer(
        15_000, 0, MAX_INT32, "The most that `group.consumer.assignment.interval.ms` may be."
    ),
    "group.consumer.max.size": _integer(limits.GROUP_MEMBERS_MAX, 1, MAX_INT32, "Most members of one consumer group."),
    "group.consumer.assignors": _assignors("The assignors that members may ask for; the first is the default."),
    "group.consumer.migration.policy": _one_of(
        tuple(map(str, MigrationPolicy)),
        str(MigrationPolicy.BIDIRECTIONAL),
        "Which way groups may go between the classic and the consumer protocol while they have members.",
    ),
    "group.share.session.timeout.ms": _integer(
        45_000, 1, MAX_INT32, "How long a member of a share group may be silent before its records go to others."
    ),
    "group.share.min.session.timeout.ms": _integer(
        100, 1, MAX_INT32, "The least that a group may set as `share.session.timeout.ms`; Kafka's default is 45000."
    ),
    "group.share.max.session.timeout.ms": _integer(
        60_000, 1, MAX_INT32, "The most that a group may set as `share.session.timeout.ms`."
    ),
    "group.share.heartbeat.interval.ms": _integer(5_000, 1, MAX_INT32, "How often members of share groups report."),
    "group.share.min.heartbeat.interval.ms": _integer(
        10, 1, MAX_INT32, "The least that a group may set as `share.heartbeat.interval.ms`; Kafka's default is 5000."
    ),
    "group.share.max.heartbeat.interval.ms": _integer(
        15_000, 1, MAX_INT32, "The most that a group may set as `share.heartbeat.interval.ms`."
    ),
    "group.share.assignment.interval.ms": _integer(
        0, 0, MAX_INT32, "The least time between two assignments of one share group; Kafka's default is 1000."
    ),
    "group.share.min.assignment.interval.ms": _integer(
        0, 0, MAX_INT32, "The least that a group may set as `share.assignment.interval.ms`."
    ),
    "group.share.max.assignment.interval.ms": _integer(
        15_000, 0, MAX_INT32, "The most that a group may set as `share.assignment.interval.ms`."
    ),
    "group.share.max.size": _integer(limits.GROUP_MEMBERS_MAX, 1, MAX_INT32, "Most members of one share group."),
    "group.share.record.lock.duration.ms": _integer(
        30_000, 1, MAX_INT32, "How long a member holds a record before it goes to another."
    ),
    "group.share.min.record.lock.duration.ms": _integer(
        15_000, 1, MAX_INT32, "The least that a group may set as `share.record.lock.duration.ms`."
    ),
    "group.share.max.record.lock.duration.ms": _integer(
        60_000, 1, MAX_INT32, "The most that a group may set as `share.record.lock.duration.ms`."
    ),
    "group.share.delivery.count.limit": _integer(5, 2, 10, "How often a record is delivered to a share group."),
    "group.share.partition.max.record.locks": _integer(
        2_000, 100, 10_000, "Records of one partition that are in flight in a share group."
    ),
    "group.share.max.share.sessions": _integer(2_000, 1, MAX_INT32, "Members that take records at a time."),
    "offsets.retention.minutes": _integer(
        7 * 24 * 60, 1, MAX_INT32, "How long the committed offsets of a group without members are kept."
    ),
    "offset.metadata.max.bytes": _integer(
        limits.OFFSET_METADATA_BYTES_MAX, 0, _MAX_INT16, "The text beside a committed offset."
    ),
    "transaction.max.timeout.ms": _integer(
        limits.TRANSACTION_TIMEOUT_MAX_MS,
        1,
        MAX_INT32,
        "The longest `transaction.timeout.ms` that a producer may ask for; transactions that take longer are aborted.",
    ),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": _integer(
        limits.TRANSACTION_ABORT_CHECK_MS,
        1,
        MAX_INT32,
        "How often the end of a transaction is tried again in partitions that could not take it.",
    ),
    "transactional.id.expiration.ms": _integer(
        limits.TRANSACTIONAL_ID_EXPIRATION_MS, 1, MAX_INT32, "How long an unused transactional id is remembered."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": _integer(
        limits.TRANSACTIONAL_ID_EXPIRY_CHECK_MS,
        1,
        MAX_INT32,
        "How often the broker looks for unused transactional ids.",
    ),
    "log.cleaner.threads": _dynamic(
        _integer(
            limits.COMPACTION_THREADS,
            1,
            limits.COMPACTION_THREADS_MAX,
            "Topics that are compacted at the same time, each in up to 128 MB; `__consumer_offsets` does not count.",
        )
    ),
    "producer.id.expiration.ms": _dynamic(
        _integer(
            EXPIRATION_MS,
            1,
            MAX_INT32,
            "How long a partition remembers an idempotent producer that is silent, to know its repetitions.",
        )
    ),
    "socket.request.max.bytes": _integer(100 << 20, 1 << 10, MAX_INT32, "The largest request."),
    "queued.max.request.bytes": _integer(
        256 << 20, 1 << 20, MAX_INT64, "Memory of all requests and answers under way; beyond it, connections wait."
    ),
    "connections.max.idle.ms": _duration_or_never(600_000, "Idle connections are closed after this time."),
    "max.connections": _dynamic(_integer(10_000, 1, MAX_INT32, "Most connections at the same time.")),
    "max.connections.per.ip": _dynamic(
        _integer(MAX_INT32, 1, MAX_INT32, "Most connections at the same time from one address.")
    ),
    "fetch.max.bytes": _integer(55 << 20, 1 << 10, MAX_INT32, "The largest answer to a fetch."),
    "max.incremental.fetch.session.cache.slots": _integer(1000, 0, MAX_INT32, "Most fetch sessions that are kept."),
    "max.request.partition.size.limit": _integer(
        2000, 1, MAX_INT32, "Most partitions in one DescribeTopicPartitions answer."
    ),
    "message.max.bytes": BrokerSetting(
        "INT",
        1048588,
        TOPIC_SETTINGS["max.message.bytes"].allowed,
        f"What `max.message.bytes` is in topics that do not set it. {TOPIC_SETTINGS['max.message.bytes'].doc}",
        lambda value: int(TOPIC_SETTINGS["max.message.bytes"].parse(value)),
        "max.message.bytes",
        str,
        is_dynamic=True,
    ),
    "foldlog.client.telemetry": _boolean(
        False, "Ask clients for their metrics, as client metrics resources say (KIP-714), and show them in /metrics."
    ),
    "telemetry.max.bytes": _integer(1 << 20, 1, MAX_INT32, "The largest push of a client's metrics."),
}

_LOG_SETTINGS: Final = {
    "compression.type": _topic_default("compression.type"),
    "foldlog.max.decompressed.bytes": _topic_default("foldlog.max.decompressed.bytes"),
    "foldlog.segment.records": _topic_default("foldlog.segment.records"),
    "log.cleaner.delete.retention.ms": _topic_default("delete.retention.ms"),
    "log.cleaner.max.compaction.lag.ms": _topic_default("max.compaction.lag.ms"),
    "log.cleaner.min.cleanable.ratio": _topic_default("min.cleanable.dirty.ratio"),
    "log.cleaner.min.compaction.lag.ms": _topic_default("min.compaction.lag.ms"),
    "log.cleanup.policy": _topic_default("cleanup.policy"),
    "log.flush.interval.messages": _topic_default("flush.messages"),
    "log.flush.interval.ms": _topic_default("flush.ms"),
    "log.index.interval.bytes": _topic_default("index.interval.bytes"),
    "log.message.timestamp.after.max.ms": _topic_default("message.timestamp.after.max.ms"),
    "log.message.timestamp.before.max.ms": _topic_default("message.timestamp.before.max.ms"),
    "log.message.timestamp.type": _topic_default("message.timestamp.type"),
    "log.retention.bytes": _topic_default("retention.bytes"),
    "log.retention.ms": _topic_default_or_none("retention.ms"),
    "log.retention.minutes": _topic_duration("retention.ms", "minutes", _MINUTE_MS, None, -1),
    "log.retention.hours": _topic_duration("retention.ms", "hours", _HOUR_MS, -1, -1),
    "log.roll.ms": _topic_default_or_none("segment.ms"),
    "log.roll.hours": _topic_duration("segment.ms", "hours", _HOUR_MS, 7 * 24, 1),
    "log.segment.bytes": _topic_default("segment.bytes"),
}

_LOGIN_SETTINGS: Final = {
    "sasl.enabled.mechanisms": _mechanisms("How clients of SASL listeners may log in."),
    "sasl.server.max.receive.size": _integer(
        512 << 10, 1 << 10, MAX_INT32, "The largest request of a client that has not logged in yet."
    ),
    "connection.failed.authentication.delay.ms": _integer(
        100,
        0,
        limits.FAILED_LOGIN_DELAY_MAX_MS,
        "How long the answer to a failed login waits; the next one longer.",
    ),
    "connections.max.reauth.ms": _integer(
        0, 0, MAX_INT64, "After how long a client has to log in again; 0: when its token ends, otherwise never."
    ),
    "sasl.oauthbearer.jwks.endpoint.url": _optional_text(
        "a URL, or the path of a file", "Where the public keys are that sign tokens of OAUTHBEARER, as a JWKS."
    ),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _integer(
        3_600_000, 1_000, MAX_INT64, "How often these keys are asked for again."
    ),
    "sasl.oauthbearer.expected.audience": _text_list(
        (), "a list with commas between them", "The audience that a token must name; any if unset."
    ),
    "sasl.oauthbearer.expected.issuer": _optional_text("a text", "The issuer that a token must name; any if unset."),
    "sasl.oauthbearer.clock.skew.seconds": _integer(
        30, 0, 3_600, "How far the clock of the issuer of tokens may be off."
    ),
    "sasl.oauthbearer.sub.claim.name": replace(
        _optional_text("a text", "Which claim of a token is the user's name."), default="sub"
    ),
}

TLS_SETTINGS: Final = {
    "ssl.client.auth": _word_of(
        tuple(CLIENT_AUTHS), "none", "Whether clients show a certificate: it names their principal."
    ),
    "ssl.keystore.type": _word_of(STORE_TYPES, "PEM", "The type of `ssl.keystore.location`; only PEM is read."),
    "ssl.keystore.location": _optional_text(
        "a path", "The PEM file with the broker's private key and its certificates, its own first."
    ),
    "ssl.keystore.certificate.chain": _hidden_text("The certificates as PEM, instead of a file."),
    "ssl.keystore.key": _hidden_text("The private key as PEM, instead of a file."),
    "ssl.keystore.password": _hidden_text("Of stores that are not PEM; without effect."),
    "ssl.key.password": _hidden_text("What the private key is encrypted with, if it is."),
    "ssl.truststore.type": _word_of(STORE_TYPES, "PEM", "The type of `ssl.truststore.location`; only PEM is read."),
    "ssl.truststore.location": _optional_text(
        "a path", "The PEM file with the authorities that sign certificates of clients."
    ),
    "ssl.truststore.certificates": _hidden_text("These authorities as PEM, instead of a file."),
    "ssl.truststore.password": _hidden_text("Of stores that are not PEM; without effect."),
    "ssl.enabled.protocols": _text_list(
        tuple(VERSIONS), f"a list of {' and '.join(VERSIONS)}", "The versions of TLS that are served."
    ),
    "ssl.protocol": _word_of(PROTOCOL_NAMES, "TLSv1.3", "TLSv1.2 for that version alone."),
    "ssl.cipher.suites": _text_list(
        (), "a list of cipher suites, by Java's names or OpenSSL's", "The cipher suites, if not all strong ones."
    ),
    "ssl.principal.mapping.rules": _optional_text(
        "RULE:pattern/replacement/[LU] and DEFAULT with commas between them",
        "How the name in a client's certificate becomes its principal.",
    ),
}
"""Of listeners with TLS, together, or of one with the prefix listener.name.{name}."""

BROKER_SETTINGS: Final[Mapping[str, BrokerSetting]] = MappingProxyType(
    {**_SERVER_SETTINGS, **_LOGIN_SETTINGS, **TLS_SETTINGS, **_LOG_SETTINGS}
)
"""Every broker setting, by Kafka's name. Of rows with the same topic setting the first that is set counts."""

ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType(
    {name: name.removeprefix("foldlog.").replace(".", "_") for name in (*_SERVER_SETTINGS, *_LOGIN_SETTINGS)}
)
"""The attribute of ServerSettings for a setting's name; those of TLS go into `tls`, log.* into `topic_defaults`."""

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        topic_setting: tuple(name for name, row in BROKER_SETTINGS.items() if row.topic_setting == topic_setting)
        for topic_setting in TOPIC_SETTINGS
    }
)
"""For each topic setting the broker settings that are its default, in order of precedence: Kafka's synonyms."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"broker.id": "node.id", "listen": "listeners", "advertise": "advertised.listeners"}
)
"""Other names of the same settings: Kafka's older name, and those of the flags."""
