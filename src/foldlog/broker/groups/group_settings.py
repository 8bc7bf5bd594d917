"""The settings of one group: those of a GROUP resource in Kafka's config requests, with Kafka's names.

`consumer.` is for groups of the consumer protocol, `share.` for share groups; a group may have both set, and what is
not of its kind has no effect. They are kept with the other settings that change while the log is open
(`dynamic_settings.py`), and are in force from the next request of a member on. What a group does not set is the
broker's (`GroupSettings`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.groups.messages import GroupSettings
from foldlog.broker.share.messages import ShareLimits
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
    """One setting of a group: its Kafka type, the broker's value for it, and what it is for.

    `bounds` are the broker's for an integer. `broker_setting` is its name for all groups, if there is one.
    """

    kafka_type: str
    default: Callable[[GroupSettings], object]
    doc: str
    bounds: Callable[[GroupSettings], tuple[int, int]] | None = None
    broker_setting: str | None = None


def _number(
    broker_setting: str,
    default: Callable[[GroupSettings], int],
    bounds: Callable[[GroupSettings], tuple[int, int]],
    doc: str,
) -> GroupSetting:
    return GroupSetting("INT", default, doc, bounds, broker_setting)


GROUP_SETTINGS: Final = MappingProxyType(
    {
        "consumer.assignment.interval.ms": _number(
            "group.consumer.assignment.interval.ms",
            lambda broker: broker.consumer.assignment_interval_ms,
            lambda broker: (broker.consumer.assignment_interval_min_ms, broker.consumer.assignment_interval_max_ms),
            "The least time between two assignments of the group's partitions.",
        ),
        "consumer.heartbeat.interval.ms": _number(
            "group.consumer.heartbeat.interval.ms",
            lambda broker: broker.consumer.heartbeat_interval_ms,
            lambda broker: (broker.consumer.heartbeat_interval_min_ms, broker.consumer.heartbeat_interval_max_ms),
            "How often members report.",
        ),
        "consumer.session.timeout.ms": _number(
            "group.consumer.session.timeout.ms",
            lambda broker: broker.consumer.session_timeout_ms,
            lambda broker: (broker.consumer.session_timeout_min_ms, broker.consumer.session_timeout_max_ms),
            "How long a member may be silent before its partitions go to others.",
        ),
        "share.assignment.interval.ms": _number(
            "group.share.assignment.interval.ms",
            lambda broker: broker.share.assignment_interval_ms,
            lambda broker: (broker.share.assignment_interval_min_ms, broker.share.assignment_interval_max_ms),
            "The least time between two assignments of the group's partitions.",
        ),
        "share.auto.offset.reset": GroupSetting(
            "STRING",
            lambda broker: LATEST,
            "Where the group begins in a partition: latest, earliest, or by_duration:P1DT2H for a time ago.",
        ),
        "share.delivery.count.limit": _number(
            "group.share.delivery.count.limit",
            lambda broker: broker.share.limits.delivery_count_limit,
            lambda broker: (2, 10),
            "How often a record is delivered.",
        ),
        "share.heartbeat.interval.ms": _number(
            "group.share.heartbeat.interval.ms",
            lambda broker: broker.share.heartbeat_interval_ms,
            lambda broker: (broker.share.heartbeat_interval_min_ms, broker.share.heartbeat_interval_max_ms),
            "How often members report.",
        ),
        "share.isolation.level": GroupSetting(
            "STRING",
            lambda broker: READ_UNCOMMITTED,
            "Whether records of transactions are delivered before they are committed, or only then.",
        ),
        "share.partition.max.record.locks": _number(
            "group.share.partition.max.record.locks",
            lambda broker: broker.share.limits.record_locks_max,
            lambda broker: (100, 10_000),
            "Records in flight in one partition.",
        ),
        "share.record.lock.duration.ms": _number(
            "group.share.record.lock.duration.ms",
            lambda broker: broker.share.limits.record_lock_duration_ms,
            lambda broker: (broker.share.record_lock_duration_min_ms, broker.share.record_lock_duration_max_ms),
            "How long a member holds a record before it goes to another.",
        ),
        "share.renew.acknowledge.enable": GroupSetting(
            "BOOLEAN", lambda broker: "true", "Whether members may ask for more time for a record."
        ),
        "share.session.timeout.ms": _number(
            "group.share.session.timeout.ms",
            lambda broker: broker.share.session_timeout_ms,
            lambda broker: (broker.share.session_timeout_min_ms, broker.share.session_timeout_max_ms),
            "How long a member may be silent before it is removed.",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """The settings in force for one consumer group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


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
    assignment_interval_ms: int


class GroupConfig(NamedTuple):
    """The settings in force for one group, whichever kind it is or becomes."""

    consumer: ConsumerGroupConfig
    share: ShareGroupConfig


def check_group_settings(own: Mapping[str, str], broker: GroupSettings) -> None:
    """Raises InvalidConfig, which names the setting, unless a group may be set so."""
    for name in own:
        if name not in GROUP_SETTINGS:
            raise InvalidConfig(f"a group has no setting {brief_repr(name)}; there are {', '.join(GROUP_SETTINGS)}")
        bounds = GROUP_SETTINGS[name].bounds
        if bounds is not None:
            least, most = bounds(broker)
            if not least <= _integer(own, name, broker) <= most:
                raise _not_allowed(name, own[name], f"an integer from {least} to {most}")
    config = group_config(own, broker)
    for kind, reporting in (("consumer", config.consumer), ("share", config.share)):
        if reporting.session_timeout_ms <= reporting.heartbeat_interval_ms:
            raise InvalidConfig(f"{kind}.session.timeout.ms has to be longer than {kind}.heartbeat.interval.ms")


def group_config(own: Mapping[str, str], broker: GroupSettings) -> GroupConfig:
    """The settings in force. What was set within bounds that the broker has no longer counts as the nearest bound."""

    def number(name: str) -> int:
        value = _integer(own, name, broker)
        bounds = GROUP_SETTINGS[name].bounds
        if bounds is None or name not in own:
            return value
        least, most = bounds(broker)
        return min(max(value, least), most)

    reset, reset_ms = _reset(_text(own, "share.auto.offset.reset", broker))
    return GroupConfig(
        ConsumerGroupConfig(
            number("consumer.session.timeout.ms"),
            number("consumer.heartbeat.interval.ms"),
            number("consumer.assignment.interval.ms"),
        ),
        ShareGroupConfig(
            ShareLimits(
                number("share.record.lock.duration.ms"),
                number("share.delivery.count.limit"),
                number("share.partition.max.record.locks"),
            ),
            reset,
            reset_ms,
            _one_of(own, "share.isolation.level", broker, (READ_UNCOMMITTED, READ_COMMITTED)) == READ_COMMITTED,
            _one_of(own, "share.renew.acknowledge.enable", broker, ("true", "false")) == "true",
            number("share.session.timeout.ms"),
            number("share.heartbeat.interval.ms"),
            number("share.assignment.interval.ms"),
        ),
    )


class GroupConfigs:
    """The settings of every group of a directory that this process writes. Any thread."""

    def __init__(self, stored: DynamicSettings | None, broker: GroupSettings) -> None:
        self._stored = stored
        self.broker = broker
        self._unset = group_config({}, broker)
        self._parsed: dict[str, tuple[Settings, GroupConfig]] = {}

    def own(self, group: str) -> Settings:
        """What was set for the group."""
        return MappingProxyType({}) if self._stored is None else self._stored.current.of(GROUPS, group)

    def of(self, group: str) -> GroupConfig:
        own = self.own(group)
        if not own:
            return self._unset
        known = self._parsed.get(group)
        if known is None or known[0] is not own:
            known = self._parsed[group] = (own, group_config(own, self.broker))
        return known[1]

    def consumer(self, group: str) -> ConsumerGroupConfig:
        return self.of(group).consumer

    def share(self, group: str) -> ShareGroupConfig:
        return self.of(group).share

    def names(self) -> list[str]:
        """The groups for which something was set."""
        return [] if self._stored is None else self._stored.current.names(GROUPS)

    def change(self, group: str, decide: Callable[[Settings], Settings], *, validate_only: bool = False) -> None:
        """Replace what is set for a group. Durable on return, and in force. Raises InvalidConfig."""

        def checked(before: Settings) -> Settings:
            wanted = decide(before)
            check_group_settings(wanted, self.broker)
            return wanted

        if self._stored is not None:
            self._stored.change(GROUPS, group, checked, validate_only=validate_only)


def _text(own: Mapping[str, str], name: str, broker: GroupSettings) -> str:
    return own.get(name, str(GROUP_SETTINGS[name].default(broker))).strip()


def _integer(own: Mapping[str, str], name: str, broker: GroupSettings) -> int:
    text = _text(own, name, broker)
    try:
        return integer_of(text)
    except ValueNotAllowedError:
        raise _not_allowed(name, text, "an integer") from None


def _one_of(own: Mapping[str, str], name: str, broker: GroupSettings, allowed: tuple[str, str]) -> str:
    text = _text(own, name, broker).lower()
    if text not in allowed:
        raise _not_allowed(name, text, " or ".join(allowed))
    return text


def _reset(text: str) -> tuple[str, int]:
    """Where to begin, and how long ago, if it is a time."""
    if text in (LATEST, EARLIEST):
        return text, 0
    if not text.startswith(_BY_DURATION):
        raise _not_allowed("share.auto.offset.reset", text, "latest, earliest, or by_duration: with P1DT2H30M")
    return _BY_DURATION, _duration_ms(text.removeprefix(_BY_DURATION))


def _duration_ms(text: str) -> int:
    found = _ISO_8601.fullmatch(text)
    if found is None or not any(found.groupdict().values()):
        raise _not_allowed("share.auto.offset.reset", text, "a duration such as P1DT2H30M after by_duration:")
    return int(sum(float(value or 0) * _UNITS_MS[unit] for unit, value in found.groupdict().items()))


def _not_allowed(name: str, value: str, allowed: str) -> InvalidConfig:
    return InvalidConfig(f"{name}={brief_repr(value)} is not allowed; it is {allowed}")
