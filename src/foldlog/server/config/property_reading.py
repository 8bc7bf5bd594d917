"""From given properties to the values of settings, with errors that say what is wrong and where."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from foldlog.broker.topics.names import check_user_topic_name
from foldlog.broker.topics.setting_values import ValueNotAllowedError, integer_of
from foldlog.errors import CallerError, InvalidConfig, brief_repr
from foldlog.limits import PARTITIONS_MAX
from foldlog.server.access.mechanisms import OAUTHBEARER
from foldlog.server.access.signing_keys import CLEAR_SETTING, check_location
from foldlog.server.access.signing_keys import SETTING as JWKS
from foldlog.server.config.broker_settings import ALIASES, BROKER_SETTINGS, SYNONYMS, TLS_SETTINGS
from foldlog.server.config.kafka_properties import NAMES_WITHOUT_EFFECT, has_no_effect, refusal_of
from foldlog.server.config.properties_file import has_secret_name
from foldlog.server.net.listeners import (
    METRICS_EXPOSE,
    REGISTRY_EXPOSES,
    SASL_SSL,
    Listener,
    parse_advertised,
    parse_http_listener,
    parse_listeners,
    parse_protocol_map,
    refuse_exposed,
)
from foldlog.server.tls.settings import TlsSettings

Value = TypeVar("Value")

_NEAREST_CUTOFF: Final = 0.6
LISTENER_PREFIX: Final = "listener.name."
"""Before a setting that counts for one listener only."""

_ORDERED: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms", "no member could join a group"),
    *(
        (lower, upper, "the setting would be out of its own bounds")
        for groups in ("group.consumer", "group.share")
        for kind in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
        for lower, upper in (
            (f"{groups}.min.{kind}", f"{groups}.{kind}"),
            (f"{groups}.{kind}", f"{groups}.max.{kind}"),
        )
    ),
    (
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.session.timeout.ms",
        "members would be taken for dead between two heartbeats",
    ),
    *(
        (lower, upper, "the setting would be out of its own bounds")
        for lower, upper in (
            ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
            ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
        )
    ),
    (
        "group.share.heartbeat.interval.ms",
        "group.share.session.timeout.ms",
        "members would be taken for dead between two heartbeats",
    ),
    ("socket.request.max.bytes", "queued.max.request.bytes", "the largest request would never find room"),
)
"""Pairs of settings where the first may not be above the second, and why."""


class TopicToCreate(NamedTuple):
    """A topic that has to exist once the broker serves; without a count it has num.partitions."""

    name: str
    partitions: int | None

    def __str__(self) -> str:
        return self.name if self.partitions is None else f"{self.name}:{self.partitions}"


class PropertyReader:
    """Reads properties once. `origins` says where each came from, for the errors.

    After reading, `without_effect` has Kafka's properties that have no effect here, and `tls` the settings of listeners
    with TLS, by their names; those of HTTP are METRICS and CONSOLE.
    """

    def __init__(self, properties: Mapping[str, object], origins: Mapping[str, str]) -> None:
        if not isinstance(properties, Mapping):
            raise InvalidConfig(
                f"broker settings are a dict such as {{'num.partitions': 3}}, not {brief_repr(properties)};"
                " names and values are Kafka's"
            )
        self._properties = properties
        self._origins = origins
        self._given_names: dict[str, str] = {}
        self._of_listeners: dict[str, dict[str, Any]] = {}
        self.without_effect: list[str] = []
        self.tls: dict[str, TlsSettings] = {}

    def read(self) -> dict[str, Any]:
        """The values that are set, by name. Raises InvalidConfig with the property, the reason and its source."""
        values: dict[str, Any] = {}
        for given_name, given_value in self._properties.items():
            name = setting_name(given_name)
            if name is None:
                if not self._is_of_listener(given_name, given_value):
                    self._sort_out(given_name)
                continue
            value = self._value(name, given_name, given_value)
            self._given_names[name] = given_name
            if values.setdefault(name, value) != value:
                raise self._error(name, f"{name} and {given_name} are the same setting, and differ; set one of them")
        self._read_addresses(values)
        if "foldlog.create.topics" in values:
            texts = values["foldlog.create.topics"]
            values["foldlog.create.topics"] = self._located("foldlog.create.topics", lambda: _topics(texts))
        self._check_order(values)
        if OAUTHBEARER in values.get("sasl.enabled.mechanisms", ()) and not values.get(JWKS):
            raise self._error(
                "sasl.enabled.mechanisms", f"OAUTHBEARER needs {JWKS}: the public keys that tokens are signed with"
            )
        if values.get(JWKS):
            self._located(JWKS, lambda: check_location(values[JWKS], takes_clear=values.get(CLEAR_SETTING, False)))
        return values

    def topic_defaults(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Defaults for topics that do not set a value themselves, by the name of the topic setting."""
        defaults: dict[str, str] = {}
        for topic_setting, names in SYNONYMS.items():
            name = next((name for name in names if name in values), None)
            if name is not None:
                defaults[topic_setting] = BROKER_SETTINGS[name].topic_text(values[name])
        return defaults

    def _value(self, name: str, given_name: str, given_value: object) -> Any:
        return self._located(given_name, lambda: checked_value(name, given_name, given_value))

    def _is_of_listener(self, given_name: object, given_value: object) -> bool:
        """Take it, if it is a TLS setting of one listener."""
        listener, name = listener_setting(given_name)
        if name not in TLS_SETTINGS:
            return False
        self._of_listeners.setdefault(listener, {})[name] = self._value(name, str(given_name), given_value)
        return True

    def _sort_out(self, name: object) -> None:
        if not isinstance(name, str) or not has_no_effect(name):
            raise self._error(name, unknown_setting_text(name))
        reason = refusal_of(name)
        if reason is not None:
            raise self._error(name, reason)
        self.without_effect.append(name)

    def _read_addresses(self, values: dict[str, Any]) -> None:
        """Addresses can only be read together: the map defines their names, and those of a controller are left out."""
        pairs = values.get("listener.security.protocol.map", ())
        protocols = self._located("listener.security.protocol.map", lambda: parse_protocol_map(pairs))
        is_insecure = values.get("foldlog.insecure", False)
        texts = self._served(values.get("listeners", BROKER_SETTINGS["listeners"].default))
        listeners = self._located("listeners", lambda: parse_listeners(texts, protocols))
        for listener in listeners:
            self._read_tls(listener.name, listener, values)
            if not is_insecure:
                self._check_exposed("listeners", listener, "a listener")
        advertised = self._served(values.get("advertised.listeners", ()))
        told = self._located("advertised.listeners", lambda: parse_advertised(advertised, listeners))
        self._located("listeners", lambda: _check_reachable(listeners, {listener.name for listener in told}))
        if "listeners" in values:
            values["listeners"] = listeners
        if "advertised.listeners" in values:
            values["advertised.listeners"] = told
        for name in ("foldlog.metrics", "foldlog.console", "foldlog.registry"):
            text = values.get(name)
            if text is not None:
                values[name] = self._http_listener(name, text, values)
        if not is_insecure:
            self._check_http(values, has_logins=any(listener.protocol.startswith("SASL") for listener in listeners))

    def _check_http(self, values: Mapping[str, Any], *, has_logins: bool) -> None:
        """Refuse listeners of HTTP that other machines reach, and that show them something, or have them show it."""
        metrics_ask = has_logins and not values.get("foldlog.metrics.open", False)
        for name, what, has_users in (
            ("foldlog.console", "the console", has_logins),
            ("foldlog.metrics", "/metrics", metrics_ask),
            ("foldlog.registry", "the schema registry", has_logins),
        ):
            listener: Listener | None = values.get(name)
            if listener is not None and has_users and not (listener.is_loopback or listener.has_tls):
                raise self._error(
                    name,
                    f"users log in at {what} on {listener.address}, and without TLS their passwords can be read on the"
                    f" way; say https://{listener.address}, or add --insecure if the network is trusted",
                )
        if values.get("foldlog.metrics") is not None and not metrics_ask:
            # The console needs a token where others can reach it, so it does not need foldlog.insecure.
            self._check_exposed("foldlog.metrics", values["foldlog.metrics"], "foldlog.metrics", METRICS_EXPOSE)
        if values.get("foldlog.registry") is not None and not has_logins:
            self._check_exposed("foldlog.registry", values["foldlog.registry"], "foldlog.registry", REGISTRY_EXPOSES)

    def _http_listener(self, name: str, text: str, values: Mapping[str, Any]) -> Listener:
        listener = self._located(name, lambda: parse_http_listener(text, name))
        self._read_tls(name.removeprefix("foldlog.").upper(), listener, values)
        return listener

    def _read_tls(self, name: str, listener: Listener, values: Mapping[str, Any]) -> None:
        """The TLS settings of a listener; `name` is the one that prefixes of settings have."""
        own = self._of_listeners.get(name, {})
        if listener.has_tls:
            is_http_or_sasl = listener.protocol == SASL_SSL or listener.name == "https"
            self.tls[name] = self._located(
                "ssl.keystore.location",
                lambda: TlsSettings.parse(name, values, own, is_http_or_sasl=is_http_or_sasl),
            )

    def _check_exposed(self, setting: str, listener: Listener, what: str, exposes: str = "") -> None:
        known = self.tls.get(listener.name if setting == "listeners" else setting.removeprefix("foldlog.").upper())
        needs_certificate = known is not None and known.authenticates
        texts = (what, exposes) if exposes else (what,)
        self._located(setting, lambda: refuse_exposed(listener, *texts, needs_certificate=needs_certificate))

    def _served(self, texts: Sequence[str]) -> list[str]:
        """The texts without listeners of a Kafka controller: a file of Kafka's may have one, and there is none here."""
        controllers = str(self._properties.get("controller.listener.names", "")).upper().split(",")
        names = {f"{name.strip()}://" for name in controllers if name.strip()}
        return [text for text in texts if not text.upper().startswith(tuple(names))]

    def _check_order(self, values: Mapping[str, Any]) -> None:
        for lower, upper, why in _ORDERED:
            low, high = (values.get(name, BROKER_SETTINGS[name].default) for name in (lower, upper))
            if low > high:
                name = lower if lower in values else upper
                raise self._error(name, f"{lower}={low} is above {upper}={high}, and {why}; change one of them")

    def _located(self, name: str, read: Callable[[], Value]) -> Value:
        """The result of `read`; an error of it gets the source of the property."""
        try:
            return read()
        except CallerError as error:
            raise self._error(name, str(error)) from None

    def _error(self, name: object, sentence: str) -> InvalidConfig:
        given_name = self._given_names.get(name, name) if isinstance(name, str) else name
        origin = self._origins.get(given_name) if isinstance(given_name, str) else None
        return InvalidConfig(f"{sentence} (set by {origin})" if origin else sentence)


def setting_name(given_name: object) -> str | None:
    """The name of the setting that a property sets; None if there is no such setting.

    >>> setting_name("broker.id"), setting_name("zookeeper.connect")
    ('node.id', None)
    """
    if not isinstance(given_name, str):
        return None
    name = ALIASES.get(given_name, given_name)
    return name if name in BROKER_SETTINGS else None


def listener_setting(given_name: object) -> tuple[str, str]:
    """The listener, and the setting, that a property with a prefix names; both empty if it has none.

    >>> listener_setting("listener.name.internal.ssl.client.auth"), listener_setting("num.partitions")
    (('INTERNAL', 'ssl.client.auth'), ('', ''))
    """
    if not isinstance(given_name, str) or not given_name.startswith(LISTENER_PREFIX):
        return "", ""
    listener, _, name = given_name.removeprefix(LISTENER_PREFIX).partition(".ssl.")
    return listener.upper(), f"ssl.{name}"


def is_secret(given_name: str) -> bool:
    """Whether a property's value is never shown."""
    row = BROKER_SETTINGS.get(setting_name(given_name) or listener_setting(given_name)[1])
    return has_secret_name(given_name) if row is None else row.is_sensitive


def checked_value(name: str, given_name: str, given_value: object) -> Any:
    """The value of the setting `name`, which was set as `given_name`. Raises InvalidConfig."""
    row = BROKER_SETTINGS[name]
    try:
        return row.parse(given_value)
    except ValueNotAllowedError:
        shown = f"the value of {given_name}" if row.is_sensitive else f"{given_name}={brief_repr(given_value)}"
        raise InvalidConfig(f"{shown} is not allowed; {given_name} is {row.allowed}") from None


def unknown_setting_text(name: object) -> str:
    """The sentence about an unknown setting, with the most similar name."""
    near = difflib.get_close_matches(
        str(name), [*BROKER_SETTINGS, *ALIASES, *NAMES_WITHOUT_EFFECT], n=1, cutoff=_NEAREST_CUTOFF
    )
    hint = f"did you mean {near[0]!r}?" if near else "the page about the broker in foldlog's documentation lists them"
    return f"there is no broker setting {brief_repr(name)}; {hint}"


def _check_reachable(listeners: Sequence[Listener], told: set[str]) -> None:
    for listener in listeners:
        if listener.is_wildcard and listener.name not in told:
            raise InvalidConfig(
                f"a listener on {listener.address} is on every interface, which is no address to tell clients; add"
                " --advertise HOST:PORT (advertised.listeners) with the name or address they reach this machine at"
            )


def _topics(texts: Sequence[str]) -> tuple[TopicToCreate, ...]:
    topics: dict[str, TopicToCreate] = {}
    for text in texts:
        name, colon, count = text.partition(":")
        topic = TopicToCreate(check_user_topic_name(name), _partitions(text, count) if colon else None)
        if topics.setdefault(name, topic) != topic:
            raise InvalidConfig(f"topic {name!r} is to be created twice, as {topics[name]} and as {topic}")
    return tuple(topics.values())


def _partitions(text: str, count: str) -> int:
    try:
        number = integer_of(count)
    except ValueNotAllowedError:
        number = 0
    if not 1 <= number <= PARTITIONS_MAX:
        raise InvalidConfig(f"{brief_repr(text)} is not TOPIC:PARTITIONS with 1 to {PARTITIONS_MAX} partitions")
    return number
