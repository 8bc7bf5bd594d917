"""Topic settings: Kafka's names, types, ranges and defaults, and the partition settings they stand for.

Two defaults are not Kafka's: `flush.messages` is 1, so that a record is synced before it is acknowledged, and
`retention.ms` is -1, so that nothing is deleted unless asked for. The names that begin with `foldlog.` are our
additions.

Some of Kafka's settings are about replicas or older brokers, and have no effect here. Tools set them
all the same, so they are checked, kept and listed, and their text says that they do nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from foldlog import limits
from foldlog.broker.topics.setting_values import ValueNotAllowedError, integer_of
from foldlog.errors import InvalidConfig, brief_repr
from foldlog.log.config import LogConfig
from foldlog.records.batch import MAX_INT32, MAX_INT64, Compression

_POLICIES: Final = ("compact", "delete")
_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
TOPIC_NAME_STRATEGY: Final = "TopicNameStrategy"
RECORD_NAME_STRATEGY: Final = "RecordNameStrategy"
TOPIC_RECORD_NAME_STRATEGY: Final = "TopicRecordNameStrategy"
ANY_SUBJECT: Final = "any"
_STRATEGIES: Final = (TOPIC_NAME_STRATEGY, RECORD_NAME_STRATEGY, TOPIC_RECORD_NAME_STRATEGY, ANY_SUBJECT)
_CONFLUENT_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_COMPRESSION_TYPES: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of TOPIC_SETTINGS.

    `kafka_type` is the type in Kafka's ConfigDef, `default` and all values are printed as Kafka prints them, `parse`
    returns that canonical text, and `fields` the LogConfig fields it sets: none for a setting without effect.
    """

    kafka_type: str
    default: str
    allowed: str
    doc: str
    parse: Callable[[object], str]
    fields: Callable[[str], dict[str, Any]]


def _integer(field: str, default: int, lowest: int, highest: int, doc: str) -> Setting:
    def parse(value: object) -> str:
        number = integer_of(value)
        if not lowest <= number <= highest:
            raise ValueNotAllowedError
        return str(number)

    allowed = f"an integer from {lowest} to {highest}" + (" (-1: no limit)" if lowest == -1 else "")
    kafka_type = "INT" if highest <= MAX_INT32 else "LONG"
    return Setting(kafka_type, str(default), allowed, doc, parse, lambda text: {field: int(text)})


def _no_fields(text: str) -> dict[str, Any]:
    return {}


def _idle_integer(default: int, lowest: int, highest: int, doc: str) -> Setting:
    allowed = f"an integer from {lowest} to {highest}"
    return replace(_integer("", default, lowest, highest, doc), allowed=allowed, fields=_no_fields)


def _idle_switch(default: str, doc: str, choices: tuple[str, ...] = ("true", "false")) -> Setting:
    def parse(value: object) -> str:
        text = str(value).strip().lower() if isinstance(value, str | bool) else value
        if text not in choices:
            raise ValueNotAllowedError
        return str(text)

    return Setting("BOOLEAN", default, " or ".join(choices), doc, parse, _no_fields)


def _switch(field: str, doc: str, *, when: str = "true") -> Setting:
    return replace(_idle_switch("false", doc), fields=lambda text: {field: text == when})


def _local_limit(field: str, total: str, doc: str) -> Setting:
    allowed = f"an integer from -2 to {MAX_INT64} (-2: as {total}; -1: no limit)"
    return replace(_integer(field, -2, -2, MAX_INT64, doc), allowed=allowed)


def _idle_text(kafka_type: str, default: str, pattern: str, allowed: str, doc: str) -> Setting:
    def parse(value: object) -> str:
        text = value.strip() if isinstance(value, str) else None
        if text is None or re.fullmatch(pattern, text, re.ASCII) is None:
            raise ValueNotAllowedError
        return text

    return Setting(kafka_type, default, allowed, doc, parse, _no_fields)


def _throttled_replicas(doc: str) -> Setting:
    pattern = r"\*||[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*"
    return _idle_text("LIST", "", pattern, "empty, *, or pairs such as 0:1,1:1", doc)


def _ratio(field: str, default: float, doc: str) -> Setting:
    def parse(value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueNotAllowedError
        try:
            number = float(value)
        except (ValueError, OverflowError):
            raise ValueNotAllowedError from None
        if not 0.0 <= number <= 1.0:  # also false for NaN
            raise ValueNotAllowedError
        return str(number)

    return Setting("DOUBLE", str(default), "a number from 0 to 1", doc, parse, lambda text: {field: float(text)})


def _one_of(choices: tuple[str, ...], doc: str, fields: Callable[[str], dict[str, Any]]) -> Setting:
    def parse(value: object) -> str:
        text = value.strip() if isinstance(value, str) else value
        if text not in choices:
            raise ValueNotAllowedError
        return str(text)

    return Setting("STRING", choices[0], "one of " + ", ".join(choices), doc, parse, fields)


def _compression(doc: str) -> Setting:
    by_name = _one_of(
        _COMPRESSION_TYPES,
        doc,
        lambda text: {"compression": -1 if text == "producer" else int(Compression.named(text))},
    )

    def parse(value: object) -> str:
        return by_name.parse("uncompressed" if value == "none" else value)

    return Setting(by_name.kafka_type, by_name.default, by_name.allowed, doc, parse, by_name.fields)


def _subject_strategy(field: str, doc: str) -> Setting:
    """A strategy by its name, or by that of Confluent's class, which is in the settings of clients."""
    by_name = _one_of(_STRATEGIES, doc, lambda text: {field: text})

    def parse(value: object) -> str:
        return by_name.parse(value.strip().removeprefix(_CONFLUENT_PACKAGE) if isinstance(value, str) else value)

    return replace(by_name, parse=parse)


def _cleanup_policy(doc: str) -> Setting:
    def parse(value: object) -> str:
        if isinstance(value, str):
            given = [part.strip() for part in value.split(",")] if value.strip() else []
        elif isinstance(value, list | tuple | set | frozenset):
            ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else value
            given = [part.strip() if isinstance(part, str) else "" for part in ordered]
        else:
            raise ValueNotAllowedError
        if any(part not in _POLICIES for part in given):
            raise ValueNotAllowedError
        return ",".join(dict.fromkeys(given))  # as it was written, as in Kafka

    return Setting(
        "LIST",
        "delete",
        "delete, compact, both, or empty for neither",
        doc,
        parse,
        lambda text: {"delete": "delete" in text, "compact": "compact" in text},
    )


_DAY_MS: Final = 24 * 60 * 60 * 1000

_IN_EFFECT: Final = {
    "cleanup.policy": _cleanup_policy("Delete old segments, keep the newest record of each key, or both."),
    "compression.type": _compression("The codec batches are stored in; producer keeps them as they were sent."),
    "delete.retention.ms": _integer(
        "delete_retention_ms", _DAY_MS, 0, MAX_INT64, "How long compaction keeps a tombstone."
    ),
    "flush.messages": _integer(
        "flush_messages", 1, 1, MAX_INT64, "1: sync before acknowledging. More: acknowledge after the write."
    ),
    "flush.ms": _integer("flush_ms", MAX_INT64, 0, MAX_INT64, "How long a written record may wait for its sync."),
    "foldlog.max.decompressed.bytes": _integer(
        "max_decompressed_bytes",
        0,
        0,
        limits.BATCH_BYTES_MAX,
        f"The largest batch, once it is decompressed; 0: {limits.DECOMPRESSED_RATIO} times max.message.bytes.",
    ),
    "foldlog.key.schema.validation": _switch(
        "validates_keys", "Refuse what clients send unless its key names a schema that is registered."
    ),
    "foldlog.key.subject.name.strategy": _subject_strategy(
        "key_subject_strategy", "The subject that has to have the schema of a validated key; any: one of them does."
    ),
    "foldlog.segment.records": _integer(
        "segment_records", 0, 0, MAX_INT32, "Roll a segment at this many records; 0: not by count."
    ),
    "foldlog.value.schema.validation": _switch(
        "validates_values", "Refuse what clients send unless its value names a schema that is registered."
    ),
    "foldlog.value.subject.name.strategy": _subject_strategy(
        "value_subject_strategy", "The subject that has to have the schema of a validated value; any: one of them does."
    ),
    "index.interval.bytes": _integer(
        "index_interval_bytes", 4096, 0, MAX_INT32, "One index entry per this many bytes of log."
    ),
    "local.retention.bytes": _local_limit(
        "local_retention_bytes", "retention.bytes", "Free the oldest segments of a partition above this, once copied."
    ),
    "local.retention.ms": _local_limit(
        "local_retention_ms", "retention.ms", "How long a segment stays on the disk once it is copied to the store."
    ),
    "max.message.bytes": _integer("max_message_bytes", 1048588, 0, MAX_INT32, "The largest batch, as it is sent."),
    "max.compaction.lag.ms": _integer(
        "max_compaction_lag_ms",
        MAX_INT64,
        1,
        MAX_INT64,
        "How long a record may wait for compaction, whatever min.cleanable.dirty.ratio says; segments roll by then.",
    ),
    "message.timestamp.after.max.ms": _integer(
        "timestamp_after_max_ms",
        60 * 60 * 1000,
        0,
        MAX_INT64,
        "How far ahead of the clock a record's time may be; raise it for forecasts.",
    ),
    "message.timestamp.before.max.ms": _integer(
        "timestamp_before_max_ms", MAX_INT64, 0, MAX_INT64, "How far behind the clock a record's time may be."
    ),
    "message.timestamp.type": _one_of(
        _TIMESTAMP_TYPES,
        "Whose clock stamps a record: the producer's, or the log's when it is appended.",
        lambda text: {"log_append_time": text == "LogAppendTime"},
    ),
    "min.cleanable.dirty.ratio": _ratio(
        "min_cleanable_dirty_ratio", 0.5, "Compact once this share of the log has not been compacted."
    ),
    "min.compaction.lag.ms": _integer(
        "min_compaction_lag_ms", 0, 0, MAX_INT64, "How long a record stays out of compaction's reach."
    ),
    "remote.log.copy.disable": _switch(
        "copies", "Copy no more segments to the store; what is there is read.", when="false"
    ),
    "remote.log.delete.on.disable": _switch(
        "deletes_remote", "Delete what is in the store when remote.storage.enable is set to false."
    ),
    "remote.storage.enable": _switch("remote", "Copy sealed segments to the store of the broker, and read from there."),
    "retention.bytes": _integer(
        "retention_bytes", -1, -1, MAX_INT64, "Delete the oldest segments of a partition above this size."
    ),
    "retention.ms": _integer(
        "retention_ms", -1, -1, MAX_INT64, "Delete segments whose newest record is older; Kafka's default is 604800000."
    ),
    "segment.bytes": _integer(
        "segment_bytes", 1 << 30, limits.SEGMENT_BYTES_MIN, MAX_INT32, "Roll a segment before it outgrows this."
    ),
    "segment.ms": _integer(
        "segment_ms", 7 * _DAY_MS, 1, MAX_INT64, "Roll a segment once its first record is this old."
    ),
}

_ONE_REPLICA: Final = "No effect: a partition has one replica."
_ONE_FORMAT: Final = "No effect: batches are kept and served as record batch v2."
_DEFAULT_LEVEL: Final = "No effect: batches that are compressed here are compressed at the codec's usual level."

_WITHOUT_EFFECT: Final = {
    "compression.gzip.level": _idle_integer(-1, -1, 9, _DEFAULT_LEVEL),
    "compression.lz4.level": _idle_integer(9, 1, 17, _DEFAULT_LEVEL),
    "compression.zstd.level": _idle_integer(3, -131072, 22, _DEFAULT_LEVEL),
    "file.delete.delay.ms": _idle_integer(
        60_000, 0, MAX_INT64, "No effect: a deleted segment's file goes at once; who reads it keeps it."
    ),
    "follower.replication.throttled.replicas": _throttled_replicas(_ONE_REPLICA),
    "leader.replication.throttled.replicas": _throttled_replicas(_ONE_REPLICA),
    "message.downconversion.enable": _idle_switch("true", _ONE_FORMAT),
    "message.format.version": _idle_text(
        "STRING", "3.0-IV1", r"[0-9]+(\.[0-9]+){1,3}(-IV[0-9]+)?", "a version such as 3.0-IV1", _ONE_FORMAT
    ),
    "message.timestamp.difference.max.ms": _idle_integer(
        MAX_INT64, 0, MAX_INT64, "No effect: message.timestamp.before.max.ms and message.timestamp.after.max.ms count."
    ),
    "min.insync.replicas": _idle_integer(1, 1, MAX_INT32, _ONE_REPLICA),
    "preallocate": _idle_switch("false", "No effect: segments grow as they are written."),
    "segment.index.bytes": _idle_integer(
        10 << 20, 4, MAX_INT32, "No effect: an index is as long as its segment needs."
    ),
    "segment.jitter.ms": _idle_integer(0, 0, MAX_INT64, "No effect: segments roll when segment.ms says so."),
    "unclean.leader.election.enable": _idle_switch("false", _ONE_REPLICA),
}

TOPIC_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(dict(sorted((_IN_EFFECT | _WITHOUT_EFFECT).items())))
"""Every topic setting, by Kafka's name."""

_NEAREST_CUTOFF: Final = 0.5
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's explicit settings, in canonical text, and the partition settings that follow. Immutable.

    `defaults` are the broker's, used for settings that the topic does not set; the rest is built in.

    >>> TopicConfig.parse({"retention.ms": 1000}).log.retention_ms
    1000
    """

    settings: Mapping[str, str]
    log: LogConfig
    defaults: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    @classmethod
    def parse(cls, settings: Mapping[str, object]) -> TopicConfig:
        """Check every setting. Raises InvalidConfig with the setting, the value and what is allowed."""
        _require_mapping(settings)
        if not settings:
            return DEFAULT_CONFIG
        texts = {name: _parse_setting(name, settings[name]) for name in sorted(settings, key=str)}
        log = _log_config(texts)
        refuse_tier(log)
        return cls(MappingProxyType(texts), log)

    def with_changes(self, changes: Mapping[str, object | None]) -> TopicConfig:
        """A copy with some settings replaced; None resets one to its default."""
        _require_mapping(changes)
        for name in changes:
            _setting(name)
        merged: dict[str, object] = {name: text for name, text in self.settings.items() if name not in changes}
        merged.update({name: value for name, value in changes.items() if value is not None})
        return TopicConfig.parse(merged).with_defaults(self.defaults)

    def with_defaults(self, defaults: Mapping[str, str]) -> TopicConfig:
        """A copy with a broker's defaults, which are the `settings` of a TopicConfig."""
        if defaults == self.defaults:
            return self
        return TopicConfig(self.settings, _log_config({**defaults, **self.settings}), defaults)

    @property
    def settings_bytes(self) -> int:
        """Size of the topic's own settings; all of them are ASCII."""
        return sum(len(name) + len(text) for name, text in self.settings.items())

    def effective(self) -> dict[str, str]:
        """Every setting with its value, default or explicit, as Kafka prints it."""
        in_force = {**self.defaults, **self.settings}
        return {name: in_force.get(name, setting.default) for name, setting in TOPIC_SETTINGS.items()}


DEFAULT_CONFIG: Final = TopicConfig(_NOTHING, LogConfig())
"""The config of a topic that sets nothing: one shared object, as most topics set nothing."""


def _log_config(texts: Mapping[str, str]) -> LogConfig:
    fields: dict[str, Any] = {}
    for name, text in texts.items():
        fields.update(TOPIC_SETTINGS[name].fields(text))
    return LogConfig(**fields)


def refuse_tier(log: LogConfig) -> None:
    """Raise InvalidConfig for settings of tiered storage that Kafka refuses, too."""
    if not log.remote:
        return
    if log.compact:
        raise InvalidConfig(
            "remote.storage.enable=true is not allowed with cleanup.policy=compact: compaction rewrites segments, and"
            " those in the store never change; use cleanup.policy=delete, or no store for this topic"
        )
    for name, local, total in (
        ("ms", log.local_retention_ms, log.retention_ms),
        ("bytes", log.local_retention_bytes, log.retention_bytes),
    ):
        if local != -2 and total != -1 and (local == -1 or local > total):
            raise InvalidConfig(
                f"local.retention.{name}={local} is not allowed; it is at most retention.{name}={total}, or -2 for the"
                " same"
            )
        if not log.copies and local not in (-2, total):
            raise InvalidConfig(
                f"local.retention.{name}={local} is not allowed with remote.log.copy.disable=true: what is not copied"
                f" is on the disk for as long as retention.{name}={total} says; set it to -2"
            )


def _require_mapping(settings: object) -> None:
    if not isinstance(settings, Mapping):
        raise InvalidConfig(
            f"topic settings are a dict such as {{'retention.ms': 1000}}, not {brief_repr(settings)};"
            " names and values are Kafka's"
        )


def _setting(name: object) -> Setting:
    setting = TOPIC_SETTINGS.get(name) if isinstance(name, str) else None
    if setting is None:
        near = difflib.get_close_matches(str(name), TOPIC_SETTINGS, n=1, cutoff=_NEAREST_CUTOFF)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_IN_EFFECT)}"
        raise InvalidConfig(f"there is no topic setting {brief_repr(name)}; {hint}")
    return setting


def _parse_setting(name: object, value: object) -> str:
    setting = _setting(name)
    try:
        return setting.parse(value)
    except ValueNotAllowedError:
        raise InvalidConfig(f"{name}={brief_repr(value)} is not allowed; {name} is {setting.allowed}") from None
