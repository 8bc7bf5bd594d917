"""The broker's settings while it runs: those it was started with, and over them what clients changed since.

As in Kafka, a changed setting is of one broker (its id is the resource's name) or of all brokers (the empty name), in
this order of precedence, and both go before what the broker was started with. Changes are kept in the data directory,
so they are in force again after a restart. Which settings can be changed: `is_dynamic` in `broker_settings`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from foldlog.errors import InvalidConfig, brief_repr
from foldlog.server.config.broker_settings import BROKER_SETTINGS, text_of
from foldlog.server.config.kafka_properties import has_no_effect
from foldlog.server.config.property_reading import checked_value, setting_name, unknown_setting_text
from foldlog.server.config.resources import ALL_BROKERS
from foldlog.server.topic_admin import refuse
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.dynamic_settings import ChangedSettings, Settings
    from foldlog.server.config.settings import ServerSettings

logger = logging.getLogger("foldlog.server")

BROKERS: Final = "broker"
"""The kind of these resources in the data directory."""


class LiveSettings:
    """What is in force, and how it is changed. Any thread.

    `started_with` never changes. `publish` is called with each new `current`, on the thread that changed it.
    """

    def __init__(self, broker: Broker, started_with: ServerSettings, publish: Callable[[ServerSettings], None]) -> None:
        self._broker = broker
        self._changed = broker.dynamic_settings
        self._publish = publish
        self.started_with = started_with
        self.current = started_with
        self._apply(self._changed.current)
        self._changed.watchers.append(self._apply)

    def close(self) -> None:
        """Apply no more changes."""
        if self._apply in self._changed.watchers:
            self._changed.watchers.remove(self._apply)

    @property
    def of_this_broker(self) -> Settings:
        """What was changed for this broker alone."""
        return self._changed.current.of(BROKERS, str(self.started_with.node_id))

    @property
    def of_all_brokers(self) -> Settings:
        """What was changed for all brokers."""
        return self._changed.current.of(BROKERS, ALL_BROKERS)

    def change(self, name: str, decide: Callable[[Settings], Settings], *, validate_only: bool = False) -> None:
        """Replace what is set for this broker, or for all with ALL_BROKERS. On a thread: durable on return, and in
        force. Raises RefusedByBroker with INVALID_REQUEST, as Kafka answers, for what cannot be changed."""

        def checked(before: Settings) -> Settings:
            return {given: _checked(given, value) for given, value in decide(before).items()}

        self._changed.change(BROKERS, name, checked, validate_only=validate_only)

    def _apply(self, changed: ChangedSettings) -> None:
        values = {
            **changed.of(BROKERS, ALL_BROKERS),
            **changed.of(BROKERS, str(self.started_with.node_id)),
        }
        usable = {name: text for name, text in values.items() if _is_usable(name, text)}
        self.current = self.started_with.changed(usable)
        self._broker.reconfigure(
            topic_defaults=self.current.topic_defaults,
            compaction_threads=self.current.log_cleaner_threads,
            producer_expiration_ms=self.current.producer_id_expiration_ms,
        )
        self._publish(self.current)


def _is_usable(name: str, text: str) -> bool:
    """Whether this foldlog knows the setting and takes the value: another version may have stored it."""
    row = BROKER_SETTINGS.get(name)
    try:
        if row is None or not row.is_dynamic:
            raise InvalidConfig(f"{name} cannot be changed while the broker runs")
        checked_value(name, name, text)
    except InvalidConfig as error:
        logger.warning("a changed setting in the data directory is skipped: %s", error)
        return False
    return True


def _checked(given_name: str, value: str) -> str:
    """The value as it is stored and shown."""
    name = setting_name(given_name)
    if name is None:
        if has_no_effect(given_name):
            sentence = f"{given_name} has no effect on a single broker, so there is nothing to change"
        else:
            sentence = unknown_setting_text(given_name)
        refuse(ErrorCode.INVALID_REQUEST, sentence)
    if name != given_name or not BROKER_SETTINGS[name].is_dynamic:
        refuse(
            ErrorCode.INVALID_REQUEST,
            f"{brief_repr(given_name)} is read when the broker starts; change its flags, environment or file, and start"
            " it again",
        )
    try:
        return text_of(checked_value(name, given_name, value)) or ""
    except InvalidConfig as error:
        refuse(ErrorCode.INVALID_REQUEST, str(error))
