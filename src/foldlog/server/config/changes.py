"""Changing settings over the network, for AlterConfigs and IncrementalAlterConfigs.

Only topics can be changed while the broker runs. Each resource of a request is changed, or refused, by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.names import OwnTopicChange, check_topic_name
from foldlog.errors import FoldlogError, brief_repr
from foldlog.server.authorizer import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.server.config.resources import ConfigResource
from foldlog.server.topic_admin import refuse, refuse_if_leaving, refuse_own, told
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker


class ConfigChange(NamedTuple):
    """A change of a resource's settings. `decide` may raise a FoldlogError; nothing is changed then."""

    resource_type: int
    name: str
    decide: Callable[[TopicConfig], TopicConfig]


class ConfigOutcome(NamedTuple):
    """The result of a change, for both answers."""

    error_code: ErrorCode
    error_message: str | None


_DONE = ConfigOutcome(ErrorCode.NONE, None)


async def carry_out(call: Call, changes: Sequence[ConfigChange], validate_only: bool) -> list[ConfigOutcome]:
    """Make the changes, durable on return, or only check whether they could be made. In the order of `changes`."""
    counts = Counter((change.resource_type, change.name) for change in changes)
    outcomes: list[ConfigOutcome] = []
    for change in changes:
        try:
            if counts[change.resource_type, change.name] > 1:
                refuse(ErrorCode.INVALID_REQUEST, "the resource stands in the request more than once; name it once")
            refuse_if_leaving(call.node)
            _refuse_unless_alterable(call, change)
            await call.node.run(_change_topic, call.node.broker, change, validate_only)
            outcomes.append(_DONE)
        except FoldlogError as error:
            outcomes.append(ConfigOutcome(*told(error)))
    return outcomes


def _refuse_unless_alterable(call: Call, change: ConfigChange) -> None:
    name = brief_repr(change.name)
    if change.resource_type == ConfigResource.TOPIC:
        if not call.allows(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, change.name):
            refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the settings of topic {name} are not yours to change")
        check_topic_name(change.name)
        refuse_own(call.node, change.name, OwnTopicChange.ALTER)
        return
    if change.resource_type == ConfigResource.GROUP:
        refuse(ErrorCode.INVALID_REQUEST, f"group {name} has no settings here; its members bring theirs when they join")
    if change.resource_type not in (ConfigResource.BROKER, ConfigResource.BROKER_LOGGER):
        refuse(ErrorCode.INVALID_REQUEST, f"resources of type {change.resource_type} have no settings here")
    if not call.allows(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER):
        refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the settings of the broker are not yours to change")
    refuse(
        ErrorCode.INVALID_REQUEST,
        "the settings of the broker and its loggers are read when it starts; change its flags, environment or file, and"
        " start it again",
    )


def _change_topic(broker: Broker, change: ConfigChange, validate_only: bool) -> None:
    """On a thread."""
    broker.configure_topic(change.name, change.decide, validate_only=validate_only)
