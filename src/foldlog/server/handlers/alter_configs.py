"""AlterConfigs: a resource gets exactly the settings of the request; all others go back to their defaults.

Versions 0 to 2, which differ only in encoding. Newer clients use IncrementalAlterConfigs.
"""

from __future__ import annotations

from foldlog.errors import brief_repr
from foldlog.server.call import Call
from foldlog.server.config.changes import ConfigChange, Decide, PresentSettings, carry_out
from foldlog.server.topic_admin import refuse, repeated
from foldlog.wire.error_codes import ErrorCode
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


def _replacing(resource: AlterConfigsResource) -> Decide:
    def decide(held: PresentSettings) -> dict[str, str | None]:
        twice = repeated(given.name for given in resource.configs)
        if twice:
            refuse(ErrorCode.INVALID_REQUEST, f"{brief_repr(min(twice))} is set more than once; set it once")
        changes: dict[str, str | None] = dict.fromkeys(held.own)
        for given in resource.configs:
            if given.value is None:
                refuse(
                    ErrorCode.INVALID_REQUEST,
                    f"{brief_repr(given.name)} has no value; leave it out to have its default",
                )
            changes[given.name] = given.value
        return changes

    return decide
