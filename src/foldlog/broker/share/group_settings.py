"""The settings of one share group: those of a GROUP resource in Kafka's config requests, with Kafka's names.

They are kept with the other settings that change while the log is open (`dynamic_settings.py`). What a group does not
set is the broker's (`ShareGroupSettings`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.share.messages import ShareGroupSettings, ShareLimits
from foldlog.broker.topics.setting_values import ValueNotAllowedError, integer_of
from foldlog.errors import InvalidConfig, brief_repr

if TYPE_CHECKING:
    from foldlog.broker.dynamic_settings import DynamicSettings, Settings

GROUPS: Final = "group"
"""The kind of these resources in the data directory."""

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
_BY_DURATION: Final = "by_duration:"
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"

_ISO_8601: Final = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


class GroupSetting(NamedTuple):
    """One setting of a share group: its Kafka type, the broker's value for it, and what it is for."""

    kafka_type: str
    default: Callable[[ShareGroupSettings], str]
    doc: str


GROUP_SETTINGS: Final = MappingProxyType(
    {
        "share.auto.offset.reset": GroupSetting(
            "STRING",
            lambda settings: LATEST,
            "Where the group begins in a partition: latest, earliest, or by_duration:P1DT2H for a time ago.",
        ),
        "share.delivery.count.limit": GroupSetting(
            "INT", lambda settings: str(settings.limits.delivery_count_limit), "How often a record is delivered."
        ),
        "share.heartbeat.interval.ms": GroupSetting(
            "INT", lambda settings: str(settings.heartbeat_interval_ms), "How often members report."
        ),
        "share.isolation.level": GroupSetting(
            "STRING",
            lambda settings: READ_UNCOMMITTED,
            "Whether records of transactions are delivered before they are committed, or only then.",
        ),
        "share.partition.max.record.locks": GroupSetting(
            "INT", lambda settings: str(settings.limits.record_locks_max), "Records in flight in one partition."
        ),
        "share.record.lock.duration.ms": GroupSetting(
            "INT",
            lambda settings: str(settings.limits.record_lock_duration_ms),
            "How long a record is its taker's before others are given it.",
        ),
        "share.renew.acknowledge.enable": GroupSetting(
            "BOOLEAN", lambda settings: "true", "Whether members may ask for more time for a record."
        ),
        "share.session.timeout.ms": GroupSetting(
            "INT",
            lambda settings: str(settings.session_timeout_ms),
            "How long a member may be silent before it is removed.",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """The settings in force for one share group. `reset_ms` is how long ago to begin, if it begins at a time."""

    limits: ShareLimits
    auto_offset_reset: str
    reset_ms: int
    read_committed: bool
    may_renew: bool
    session_timeout_ms: int
    heartbeat_interval_ms: int

    @classmethod
    def parse(cls, own: Mapping[str, str], broker: ShareGroupSettings) -> ShareGroupConfig:
        """Raises InvalidConfig, which names the setting."""
        for name in own:
            if name not in GROUP_SETTINGS:
                known = ", ".join(GROUP_SETTINGS)
                raise InvalidConfig(f"a group has no setting {brief_repr(name)}; there are {known}")
        reset = _text(own, "share.auto.offset.reset", broker)
        by_duration = reset.startswith(_BY_DURATION)
        if by_duration:
            reset_ms = _duration_ms(reset.removeprefix(_BY_DURATION))
        elif reset in (LATEST, EARLIEST):
            reset_ms = 0
        else:
            raise _not_allowed("share.auto.offset.reset", reset, "latest, earliest, or by_duration: with P1DT2H30M")
        lock_ms = (broker.record_lock_duration_min_ms, broker.record_lock_duration_max_ms)
        config = cls(
            ShareLimits(
                _integer(own, "share.record.lock.duration.ms", broker, *lock_ms),
                _integer(own, "share.delivery.count.limit", broker, 2, 10),
                _integer(own, "share.partition.max.record.locks", broker, 100, 10_000),
            ),
            _BY_DURATION if by_duration else reset,
            reset_ms,
            _one_of(own, "share.isolation.level", broker, (READ_UNCOMMITTED, READ_COMMITTED)) == READ_COMMITTED,
            _one_of(own, "share.renew.acknowledge.enable", broker, ("true", "false")) == "true",
            _integer(own, "share.session.timeout.ms", broker, 1, broker.session_timeout_max_ms),
            _integer(own, "share.heartbeat.interval.ms", broker, 1, broker.heartbeat_interval_max_ms),
        )
        if config.session_timeout_ms <= config.heartbeat_interval_ms:
            raise InvalidConfig("share.session.timeout.ms has to be longer than share.heartbeat.interval.ms")
        return config


class GroupConfigs:
    """The settings of every share group of a directory that this process writes. Any thread."""

    def __init__(self, stored: DynamicSettings | None, broker: ShareGroupSettings) -> None:
        self._stored = stored
        self.broker = broker
        self._parsed: dict[str, tuple[Settings, ShareGroupConfig]] = {}

    def own(self, group: str) -> Settings:
        """What was set for the group."""
        return MappingProxyType({}) if self._stored is None else self._stored.current.of(GROUPS, group)

    def of(self, group: str) -> ShareGroupConfig:
        own = self.own(group)
        known = self._parsed.get(group)
        if known is None or known[0] is not own:
            known = self._parsed[group] = (own, ShareGroupConfig.parse(own, self.broker))
        return known[1]

    def names(self) -> list[str]:
        """The groups for which something was set."""
        return [] if self._stored is None else self._stored.current.names(GROUPS)

    def change(self, group: str, decide: Callable[[Settings], Settings], *, validate_only: bool = False) -> None:
        """Replace what is set for a group. Durable on return, and in force. Raises InvalidConfig."""

        def checked(before: Settings) -> Settings:
            wanted = decide(before)
            ShareGroupConfig.parse(wanted, self.broker)
            return wanted

        if self._stored is not None:
            self._stored.change(GROUPS, group, checked, validate_only=validate_only)


def _text(own: Mapping[str, str], name: str, broker: ShareGroupSettings) -> str:
    return own.get(name, GROUP_SETTINGS[name].default(broker)).strip()


def _integer(own: Mapping[str, str], name: str, broker: ShareGroupSettings, least: int, most: int) -> int:
    text = _text(own, name, broker)
    try:
        value = integer_of(text)
    except ValueNotAllowedError:
        raise _not_allowed(name, text, f"an integer from {least} to {most}") from None
    if name in own and not least <= value <= most:
        raise _not_allowed(name, text, f"an integer from {least} to {most}")
    return value


def _one_of(own: Mapping[str, str], name: str, broker: ShareGroupSettings, allowed: tuple[str, str]) -> str:
    text = _text(own, name, broker).lower()
    if text not in allowed:
        raise _not_allowed(name, text, " or ".join(allowed))
    return text


def _duration_ms(text: str) -> int:
    found = _ISO_8601.fullmatch(text)
    if found is None or not any(found.groupdict().values()):
        raise _not_allowed("share.auto.offset.reset", text, "a duration such as P1DT2H30M after by_duration:")
    return int(sum(float(value or 0) * _UNITS_MS[unit] for unit, value in found.groupdict().items()))


def _not_allowed(name: str, value: str, allowed: str) -> InvalidConfig:
    return InvalidConfig(f"{name}={brief_repr(value)} is not allowed; it is {allowed}")
