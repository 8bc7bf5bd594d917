"""Settings as in Kafka's config requests: of a topic, the broker or the loggers, with the source of each value.

A topic's value is its own, else the broker's default for topics (log.retention.ms and the like), else built in. A
broker's is what was changed for it while it ran, else for all brokers, else what it was started with, else built in.
Synonyms are the values behind a value, in that order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.groups.group_settings import GROUP_SETTINGS
from foldlog.broker.topics.catalog import GROWTHS_SETTING, CatalogTopic
from foldlog.broker.topics.config import TOPIC_SETTINGS, Setting, TopicConfig
from foldlog.server.config.broker_settings import BROKER_SETTINGS, SYNONYMS, text_of
from foldlog.server.telemetry.subscriptions import SUBSCRIPTION_SETTINGS, SUBSCRIPTIONS

if TYPE_CHECKING:
    from foldlog.broker.dynamic_settings import ChangedSettings
    from foldlog.broker.groups.group_settings import GroupConfigs
    from foldlog.server.config.live_settings import LiveSettings


class ConfigResource(IntEnum):
    """The kinds of resources that have settings: Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value: Kafka's numbers."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Synonym(NamedTuple):
    """A value that is, or would be, in force, as it was set: in hours if that is the unit of its name."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigRow(NamedTuple):
    """One setting of a resource. Its first synonym is the source of its value; without one it is built in."""

    name: str
    value: str | None
    synonyms: list[Synonym]
    config_type: ConfigType
    doc: str
    is_read_only: bool
    is_sensitive: bool = False

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG


# --- topics -----------------------------------------------------------------------------------------------------------


def topic_rows(live: LiveSettings, config: TopicConfig) -> list[ConfigRow]:
    """Every setting of a topic."""
    in_force = config.effective()
    return [
        ConfigRow(
            name,
            in_force[name],
            list(_topic_synonyms(live, config, name, setting)),
            ConfigType[setting.kafka_type],
            setting.doc,
            is_read_only=False,
        )
        for name, setting in TOPIC_SETTINGS.items()
    ]


def growths_row(topic: CatalogTopic) -> ConfigRow:
    """The topic's growths as a setting: Kafka's protocol has no other place for them."""
    told = topic.growths_text()
    return ConfigRow(
        GROWTHS_SETTING,
        told,
        [Synonym(GROWTHS_SETTING, told, ConfigSource.DEFAULT_CONFIG)],
        ConfigType.STRING,
        "Each time partitions were added: how many there were from then on, and where the older ones ended.",
        is_read_only=True,
    )


_NO_BUILT_IN_SYNONYM: Final = frozenset(
    {
        "flush.ms",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.ms",
        "segment.jitter.ms",
        "segment.ms",
    }
)
"""In Kafka a broker has no such setting, or it (log.retention.ms and so on) has no value unless it is set."""

_KAFKAS_NAMES: Final = MappingProxyType(
    {
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "local.retention.bytes": "log.local.retention.bytes",
        "local.retention.ms": "log.local.retention.ms",
        "preallocate": "log.preallocate",
        "segment.index.bytes": "log.index.size.max.bytes",
    }
)
"""Settings that are taken without effect, by the name that a broker's default has in Kafka."""

_MIN_INSYNC: Final = "min.insync.replicas"


def _min_insync(setting: Setting) -> list[Synonym]:
    """Kafka 4 sets it for all brokers when a cluster is created, as a value that can be changed."""
    return [
        Synonym(_MIN_INSYNC, setting.default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym(_MIN_INSYNC, setting.default, ConfigSource.DEFAULT_CONFIG),
    ]


def _topic_synonyms(live: LiveSettings, config: TopicConfig, name: str, setting: Setting) -> Iterator[Synonym]:
    own = config.settings.get(name)
    if own is not None:
        yield Synonym(name, own, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    behind = SYNONYMS.get(name, ())
    if name in config.defaults:
        changed = [synonym for one in behind for synonym in _changed(live, one)]
        yield from changed
        settings = live.started_with
        broker_default = settings.topic_defaults.get(name, None if changed else config.defaults[name])
        if broker_default is not None:
            given = next((synonym for synonym in behind if synonym in settings.given), name)
            yield Synonym(given, settings.given.get(given, broker_default), ConfigSource.STATIC_BROKER_CONFIG)
    if name in _NO_BUILT_IN_SYNONYM:
        return
    if name == _MIN_INSYNC:
        yield from _min_insync(setting)
        return
    # Kafka shows the built-in value under the name of the broker setting that has one.
    for synonym in behind:
        default = text_of(BROKER_SETTINGS[synonym].default)
        if default is not None:
            yield Synonym(synonym, default, ConfigSource.DEFAULT_CONFIG)
            return
    yield Synonym(_KAFKAS_NAMES.get(name, name), setting.default, ConfigSource.DEFAULT_CONFIG)


# --- the broker -------------------------------------------------------------------------------------------------------


ALL_BROKERS: Final = ""
"""The name of the resource that stands for every broker."""


def _changed(live: LiveSettings, name: str) -> list[Synonym]:
    """What was set for a broker setting since it was started, in order of precedence."""
    places = (
        (live.of_this_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (live.of_all_brokers, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    )
    return [Synonym(name, settings[name], source) for settings, source in places if name in settings]


def broker_rows(live: LiveSettings) -> list[ConfigRow]:
    """Every setting of the broker."""
    rows: list[ConfigRow] = []
    for name, value, _, source, kafka_type, doc, is_sensitive in live.started_with.broker_configs():
        setting, kind = BROKER_SETTINGS[name], ConfigType[kafka_type]
        synonyms = _changed(live, name)
        if ConfigSource[source] is ConfigSource.STATIC_BROKER_CONFIG:
            synonyms.append(Synonym(name, value, ConfigSource.STATIC_BROKER_CONFIG))
        default = text_of(setting.default)
        if default is not None:
            synonyms.append(Synonym(name, default, ConfigSource.DEFAULT_CONFIG))
        in_force = synonyms[0].value if synonyms else value
        rows.append(ConfigRow(name, in_force, synonyms, kind, doc, not setting.is_dynamic, is_sensitive))
    shared = _min_insync_row()
    return [*rows, shared._replace(synonyms=_min_insync(TOPIC_SETTINGS[shared.name]))]


def all_brokers_rows(live: LiveSettings) -> list[ConfigRow]:
    """What is set for all brokers together, and nothing else: as Kafka answers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    rows = [
        ConfigRow(
            name,
            text,
            [Synonym(name, text, source)],
            ConfigType[BROKER_SETTINGS[name].kafka_type],
            BROKER_SETTINGS[name].doc,
            is_read_only=False,
        )
        for name, text in live.of_all_brokers.items()
        if name in BROKER_SETTINGS
    ]
    return [*rows, _min_insync_row()]


def _min_insync_row() -> ConfigRow:
    """The one setting that Kafka 4 keeps for all brokers from the start."""
    setting = TOPIC_SETTINGS[_MIN_INSYNC]
    kind = ConfigType[setting.kafka_type]
    return ConfigRow(_MIN_INSYNC, setting.default, _min_insync(setting)[:1], kind, setting.doc, is_read_only=True)


# --- subscriptions to clients' metrics --------------------------------------------------------------------------------


def subscription_rows(changed: ChangedSettings, name: str) -> list[ConfigRow]:
    """What a subscription sets, with the defaults of the rest; as Kafka answers, also if there is none of that name."""
    own = changed.of(SUBSCRIPTIONS, name)
    source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    return [
        ConfigRow(
            setting_name,
            own.get(setting_name, setting.default),
            [Synonym(setting_name, own[setting_name], source)] if setting_name in own else [],
            ConfigType[setting.kafka_type],
            setting.doc,
            is_read_only=False,
        )
        for setting_name, setting in SUBSCRIPTION_SETTINGS.items()
    ]


# --- groups -----------------------------------------------------------------------------------------------------------


def group_rows(live: LiveSettings, configs: GroupConfigs, name: str) -> list[ConfigRow]:
    """What a group sets, with the broker's values of the rest."""
    own = configs.own(name)
    of_broker = {row.name: row.synonyms for row in broker_rows(live)}
    rows = []
    for setting_name, setting in GROUP_SETTINGS.items():
        default = str(setting.default(configs.broker))
        synonyms = list(of_broker.get(setting.broker_setting or "", ()))
        synonyms = synonyms or [Synonym(setting_name, default, ConfigSource.DEFAULT_CONFIG)]
        if setting_name in own:
            synonyms.insert(0, Synonym(setting_name, own[setting_name], ConfigSource.DYNAMIC_GROUP_CONFIG))
        kind = ConfigType[setting.kafka_type]
        rows.append(ConfigRow(setting_name, synonyms[0].value, synonyms, kind, setting.doc, is_read_only=False))
    return rows


# --- loggers ----------------------------------------------------------------------------------------------------------

_ROOT_LOGGER: Final = "foldlog"

_LEVEL_NAMES: Final = (
    (logging.CRITICAL, "FATAL"),
    (logging.ERROR, "ERROR"),
    (logging.WARNING, "WARN"),
    (logging.INFO, "INFO"),
    (logging.DEBUG, "DEBUG"),
)
"""Kafka's names of levels; lower levels are its TRACE."""


def logger_rows() -> list[ConfigRow]:
    """The broker's loggers and their levels. The process sets them (foldlog.log.level), not clients."""
    known = [name for name in list(logging.root.manager.loggerDict) if name.startswith(f"{_ROOT_LOGGER}.")]
    return [
        ConfigRow(
            name,
            _level_name(name),
            [Synonym(name, _level_name(name), ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)],
            ConfigType.STRING,
            "The least urgent level that is logged.",
            is_read_only=True,
        )
        for name in sorted({_ROOT_LOGGER, *known})
    ]


def _level_name(logger: str) -> str:
    level = logging.getLogger(logger).getEffectiveLevel()
    return next((name for least, name in _LEVEL_NAMES if level >= least), "TRACE")
