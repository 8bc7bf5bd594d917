"""Changing settings over the network, for AlterConfigs and IncrementalAlterConfigs.

Each resource of a request is changed, or refused, by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.group_settings import GROUP_SETTINGS
from foldlog.broker.groups.messages import check_group_name
from foldlog.broker.topics.config import TOPIC_SETTINGS, TopicConfig
from foldlog.broker.topics.names import OwnTopicChange, check_topic_name
from foldlog.errors import FoldlogError, brief_repr
from foldlog.server.call import Call
from foldlog.server.config.broker_settings import BROKER_SETTINGS, text_of
from foldlog.server.config.resources import ALL_BROKERS, ConfigResource
from foldlog.server.telemetry.subscriptions import SUBSCRIPTION_SETTINGS, change_subscription
from foldlog.server.topic_admin import refuse, refuse_if_leaving, refuse_own, told
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.broker.dynamic_settings import Settings
    from foldlog.server.node import BrokerNode


class PresentSettings(NamedTuple):
    """The settings of a resource before a change: its own, each setting with its default, and their types."""

    own: Settings
    in_force: Settings
    types: Mapping[str, str]


Decide = Callable[[PresentSettings], Mapping[str, str | None]]
"""The new value of each setting that is to change; None resets it. May raise a FoldlogError."""


class ConfigChange(NamedTuple):
    """A change of a resource's settings. If `decide` raises, nothing is changed."""

    resource_type: int
    name: str
    decide: Decide


class ConfigOutcome(NamedTuple):
    """The result of a change, for both answers."""

    error_code: ErrorCode
    error_message: str | None


_DONE = ConfigOutcome(ErrorCode.NONE, None)


async def carry_out(call: Call, changes: Sequence[ConfigChange], validate_only: bool) -> list[ConfigOutcome]:
    """Make the changes, durable on return, or only check whether they could be made. In the order of `changes`."""
    twice = call.repeated((change.resource_type, change.name) for change in changes)
    outcomes: list[ConfigOutcome] = []
    for change in changes:
        try:
            if (change.resource_type, change.name) in twice:
                refuse(ErrorCode.INVALID_REQUEST, "the resource stands in the request more than once; name it once")
            refuse_if_leaving(call.node)
            _refuse_unless_alterable(call, change)
            changer = _CHANGERS[ConfigResource(change.resource_type)]
            await call.node.run(changer, call.node, change, validate_only)
            outcomes.append(_DONE)
        except FoldlogError as error:
            outcomes.append(ConfigOutcome(*told(error)))
    return outcomes


def _refuse_unless_alterable(call: Call, change: ConfigChange) -> None:
    name = brief_repr(change.name)
    if change.resource_type == ConfigResource.TOPIC:
        if not call.allows(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, change.name):
            refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the settings of topic {name} are not yours to change")
        if not change.name:
            refuse(ErrorCode.INVALID_REQUEST, "no setting is for all topics; give the name of one")
        check_topic_name(change.name)
        refuse_own(call.node, change.name, OwnTopicChange.ALTER)
        return
    if change.resource_type == ConfigResource.GROUP:
        if not call.allows(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, change.name):
            refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"the settings of group {name} are not yours to change")
        check_group_name(change.name)
        return
    if change.resource_type not in (ConfigResource.BROKER_LOGGER, *_CHANGERS):
        refuse(ErrorCode.INVALID_REQUEST, f"resources of type {change.resource_type} have no settings here")
    if not call.allows(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER):
        refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the settings of the broker are not yours to change")
    if change.resource_type == ConfigResource.BROKER_LOGGER:
        refuse(
            ErrorCode.INVALID_REQUEST,
            "what loggers log is read when the broker starts; set foldlog.log.level, and start it again",
        )
    node_id = str(call.node.settings.node_id)
    if change.resource_type == ConfigResource.BROKER and change.name not in (ALL_BROKERS, node_id):
        refuse(ErrorCode.INVALID_REQUEST, f"there is no broker {name}; this is broker {node_id}")


# --- on a thread ------------------------------------------------------------------------------------------------------

_TOPIC_TYPES: Final = {name: setting.kafka_type for name, setting in TOPIC_SETTINGS.items()}
_BROKER_TYPES: Final = {name: setting.kafka_type for name, setting in BROKER_SETTINGS.items()}
_BROKER_DEFAULTS: Final = {name: text_of(setting.default) or "" for name, setting in BROKER_SETTINGS.items()}
_SUBSCRIPTION_TYPES: Final = {name: setting.kafka_type for name, setting in SUBSCRIPTION_SETTINGS.items()}
_GROUP_TYPES: Final = {name: setting.kafka_type for name, setting in GROUP_SETTINGS.items()}


def _change_topic(node: BrokerNode, change: ConfigChange, validate_only: bool) -> None:
    def decide(config: TopicConfig) -> TopicConfig:
        return config.with_changes(change.decide(PresentSettings(config.settings, config.effective(), _TOPIC_TYPES)))

    node.broker.configure_topic(change.name, decide, validate_only=validate_only)


def _change_broker(node: BrokerNode, change: ConfigChange, validate_only: bool) -> None:
    def decide(own: Settings) -> Settings:
        # Items are added to what was changed before, else to what is built in, as in Kafka.
        return _merged(own, change.decide(PresentSettings(own, {**_BROKER_DEFAULTS, **own}, _BROKER_TYPES)))

    node.live_settings.change(change.name, decide, validate_only=validate_only)


def _change_subscription(node: BrokerNode, change: ConfigChange, validate_only: bool) -> None:
    def decide(own: Settings) -> Settings:
        return _merged(own, change.decide(PresentSettings(own, own, _SUBSCRIPTION_TYPES)))

    change_subscription(node.broker.dynamic_settings, change.name, decide, validate_only=validate_only)


def _change_group(node: BrokerNode, change: ConfigChange, validate_only: bool) -> None:
    def decide(own: Settings) -> Settings:
        return _merged(own, change.decide(PresentSettings(own, own, _GROUP_TYPES)))

    node.broker.group_configs.change(change.name, decide, validate_only=validate_only)


def _merged(own: Settings, changes: Mapping[str, str | None]) -> Settings:
    kept = {name: value for name, value in own.items() if name not in changes}
    return {**kept, **{name: value for name, value in changes.items() if value is not None}}


_CHANGERS: Final = MappingProxyType(
    {
        ConfigResource.TOPIC: _change_topic,
        ConfigResource.BROKER: _change_broker,
        ConfigResource.CLIENT_METRICS: _change_subscription,
        ConfigResource.GROUP: _change_group,
    }
)
