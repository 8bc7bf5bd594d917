"""AlterConfigs: a topic gets exactly the settings of the request; all others go back to their defaults.

Versions 0 to 2, which differ only in encoding. Newer clients use IncrementalAlterConfigs.
"""

from __future__ import annotations

from collections.abc import Callable

from foldlog.broker.topics.config import TopicConfig
from foldlog.errors import InvalidConfig
from foldlog.server.call import Call
from foldlog.server.config.changes import ConfigChange, carry_out
from foldlog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    changes = [ConfigChange(one.resource_type, one.resource_name, _replacing(one)) for one in request.resources]
    outcomes = await carry_out(call, changes, request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=change.resource_type, resource_name=change.name
            )
            for change, (code, message) in zip(changes, outcomes, strict=True)
        ]
    )


def _replacing(resource: AlterConfigsResource) -> Callable[[TopicConfig], TopicConfig]:
    def decide(config: TopicConfig) -> TopicConfig:
        changes: dict[str, object | None] = dict.fromkeys(config.settings)
        for given in resource.configs:
            if given.value is None:
                raise InvalidConfig(f"{given.name} has no value; leave it out to have its default")
            changes[given.name] = given.value
        return config.with_changes(changes)

    return decide
