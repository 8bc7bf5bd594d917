"""Subscriptions to clients' metrics: the settings of CLIENT_METRICS resources (KIP-714), and which clients they match.

A subscription names metrics by their prefixes, how often they are pushed, and which clients it is for. They are kept
with the other settings that change while the broker runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.topics.setting_values import ValueNotAllowedError, integer_of
from foldlog.errors import InvalidConfig, brief_repr
from foldlog.server.topic_admin import refuse
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.broker.dynamic_settings import ChangedSettings, DynamicSettings, Settings

SUBSCRIPTIONS: Final = "client-metrics"
"""The kind of these resources in the data directory."""

ALL_METRICS: Final = "*"
INTERVAL_MS: Final = 300_000
_INTERVALS_MS: Final = range(100, 3_600_000 + 1)

_TRAIT_CHARS_MAX: Final = 255
"""A longer text of a client's matches no pattern: it is the client's to choose."""

_UNBOUNDED_MAX: Final = 3
_PATTERN: Final = re.compile(
    r"(?:"
    r"(?:[^\\\[\](){}.*+?|^$]|\\[dDsSwW]|\\[^a-zA-Z0-9]|\.|\[\^?\]?(?:[^\]\\]|\\.)*\])[*+?]?"
    r"|\((?:\?:)?|\)(?![*+?{])|\|"
    r")*"
)
"""Regular expressions that are matched in bounded time: characters, sets and groups, of which the first two may be
repeated. Python's module has no bound, and patterns and names come over the network."""


class SubscriptionSetting(NamedTuple):
    """One setting of a subscription. Values are printed as Kafka prints them."""

    kafka_type: str
    default: str
    doc: str


SUBSCRIPTION_SETTINGS: Final = MappingProxyType(
    {
        "interval.ms": SubscriptionSetting("INT", str(INTERVAL_MS), "How often a client pushes its metrics."),
        "match": SubscriptionSetting(
            "LIST",
            "",
            "Which clients: a list of NAME=PATTERN, such as client_id=orders-.*; all if it is empty.",
        ),
        "metrics": SubscriptionSetting("LIST", "", "Prefixes of the metrics that are pushed; * is all of them."),
    }
)


class ClientTraits(NamedTuple):
    """What subscriptions match, by Kafka's names."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """One subscription, parsed."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, re.Pattern[str]], ...]

    @classmethod
    def parse(cls, settings: Settings) -> MetricsSubscription:
        """Raises RefusedByBroker or InvalidConfig, where Kafka answers INVALID_REQUEST or INVALID_CONFIG."""
        for name in settings:
            if name not in SUBSCRIPTION_SETTINGS:
                known = ", ".join(SUBSCRIPTION_SETTINGS)
                refuse(
                    ErrorCode.INVALID_REQUEST,
                    f"a subscription to clients' metrics has no setting {brief_repr(name)}; there are {known}",
                )
        return cls(
            tuple(_items(settings.get("metrics", ""))),
            _interval_ms(settings.get("interval.ms")),
            tuple(_pattern(text) for text in _items(settings.get("match", ""))),
        )

    def matches(self, traits: ClientTraits) -> bool:
        """Whether the client is among those that it is for: every pattern has to match the whole text."""
        found = traits._asdict()
        return all(
            len(found[name]) <= _TRAIT_CHARS_MAX and pattern.fullmatch(found[name]) for name, pattern in self.patterns
        )


def change_subscription(
    stored: DynamicSettings, name: str, decide: Callable[[Settings], Settings], *, validate_only: bool = False
) -> None:
    """Replace the settings of a subscription; without any it is gone. On a thread: durable on return, and in force."""
    if not name:
        refuse(ErrorCode.INVALID_REQUEST, "a subscription to clients' metrics has a name; give it")

    def checked(before: Settings) -> Settings:
        wanted = decide(before)
        MetricsSubscription.parse(wanted)
        return wanted

    stored.change(SUBSCRIPTIONS, name, checked, validate_only=validate_only)


def subscriptions_of(changed: ChangedSettings) -> list[MetricsSubscription]:
    """Every stored subscription; one that this version cannot parse matches nobody."""
    found = []
    for name in changed.names(SUBSCRIPTIONS):
        try:
            found.append(MetricsSubscription.parse(changed.of(SUBSCRIPTIONS, name)))
        except InvalidConfig:
            continue
    return found


def wanted_of(subscriptions: Iterable[MetricsSubscription], traits: ClientTraits) -> tuple[tuple[str, ...], int]:
    """The metrics that are asked of a client, and how often: of all subscriptions that match it together."""
    matching = [one for one in subscriptions if one.matches(traits)]
    metrics = sorted({metric for one in matching for metric in one.metrics})
    interval_ms = min([INTERVAL_MS, *(one.interval_ms for one in matching)])
    return ((ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics)), interval_ms


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _interval_ms(text: str | None) -> int:
    if text is None:
        return INTERVAL_MS
    try:
        interval_ms = integer_of(text)
    except ValueNotAllowedError:
        raise InvalidConfig(f"interval.ms={brief_repr(text)} is not a number of milliseconds") from None
    if interval_ms not in _INTERVALS_MS:
        refuse(
            ErrorCode.INVALID_REQUEST,
            f"interval.ms={interval_ms} is not allowed; it is from {_INTERVALS_MS[0]} to {_INTERVALS_MS[-1]}",
        )
    return interval_ms


def _pattern(item: str) -> tuple[str, re.Pattern[str]]:
    name, sign, text = (part.strip() for part in item.partition("="))
    if not sign or name not in ClientTraits._fields:
        raise InvalidConfig(
            f"match={brief_repr(item)} is not NAME=PATTERN, where NAME is one of {', '.join(ClientTraits._fields)}"
        )
    if not _PATTERN.fullmatch(text) or _unbounded(text) > _UNBOUNDED_MAX:
        raise InvalidConfig(
            f"match={brief_repr(item)} is not a pattern that is taken here: characters, sets, groups, and * + ? after a"
            f" character or a set, * and + at most {_UNBOUNDED_MAX} times"
        )
    try:
        return name, re.compile(text)
    except re.error as error:
        raise InvalidConfig(f"match={brief_repr(item)} is not a regular expression: {error}") from None


def _unbounded(text: str) -> int:
    """How many * and + repeat something, counted too high where they stand in sets."""
    return len(re.findall(r"(?<!\\)[*+]", text))
