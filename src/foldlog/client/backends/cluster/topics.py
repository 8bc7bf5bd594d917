"""A cluster's topics and partitions as values, and their settings as Kafka reads them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from foldlog.broker.topics.config import DEFAULT_CONFIG, TopicConfig
from foldlog.client.descriptions import ConfigEntry, Topic
from foldlog.client.wire.links import TopicMetadata
from foldlog.errors import InvalidConfig, brief_repr
from foldlog.log.checkpoint import StartReason


def cluster_topic(described: TopicMetadata, entries: Mapping[str, ConfigEntry]) -> Topic:
    """A topic as brokers describe it."""
    known = _known_config(entries)
    return Topic(described.name, described.topic_id.hex(), known, described.partition_count, growths=None)


class PartitionOffsets(NamedTuple):
    """What can be read of one partition at one moment: [log_start_offset, high_watermark)."""

    label: tuple[str, int]
    log_start_offset: int
    high_watermark: int
    leader_epoch: int

    @property
    def start_reason(self) -> StartReason:
        """A cluster does not tell."""
        return StartReason.UNKNOWN

    def acknowledged_end(self) -> int:
        """As the cluster answered: it knows what it has acknowledged."""
        return self.high_watermark


def setting_text(name: object, value: object) -> str:
    """A value as Kafka reads it.

    >>> setting_text("cleanup.policy", ["compact", "delete"]), setting_text("preallocate", True)
    ('compact,delete', 'true')
    """
    if not isinstance(name, str) or not name:
        raise InvalidConfig(f"there is no topic setting {brief_repr(name)}")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(str(one) for one in value)
    raise InvalidConfig(f"{name}={brief_repr(value)} is not allowed; a setting is a str, a number or a list")


def checked_settings(settings: Mapping[str, object | None]) -> Mapping[str, object | None]:
    if not isinstance(settings, Mapping):
        raise InvalidConfig(
            f"topic settings are a dict such as {{'retention.ms': 1000}}, not {brief_repr(settings)};"
            " names and values are Kafka's"
        )
    return settings


def _known_config(entries: Mapping[str, ConfigEntry]) -> TopicConfig:
    """The settings that foldlog knows: a cluster may have more, and newer values of the ones that it knows."""
    own: dict[str, object] = {}
    defaults: dict[str, str] = {}
    for name, entry in entries.items():
        with suppress(InvalidConfig):
            parsed = DEFAULT_CONFIG.with_changes({name: entry.value}).settings
            if entry.is_default:
                defaults.update(parsed)
            else:
                own.update(parsed)
    return TopicConfig.parse(own).with_defaults(defaults)
