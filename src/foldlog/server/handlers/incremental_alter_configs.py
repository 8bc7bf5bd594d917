"""IncrementalAlterConfigs: single settings are set, reset to their default, or get items added to or taken from a list.

Versions 0 and 1, which differ only in encoding (KIP-339).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from foldlog.errors import InvalidConfig, brief_repr
from foldlog.server.call import Call
from foldlog.server.config.changes import ConfigChange, Decide, PresentSettings, carry_out
from foldlog.server.topic_admin import refuse, repeated
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class _Operation(IntEnum):
    """The change of a setting: Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    changes = [ConfigChange(one.resource_type, one.resource_name, _changing(one)) for one in request.resources]
    outcomes = await carry_out(call, changes, request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=change.resource_type, resource_name=change.name
            )
            for change, (code, message) in zip(changes, outcomes, strict=True)
        ]
    )


def _changing(resource: AlterConfigsResource) -> Decide:
    def decide(held: PresentSettings) -> dict[str, str | None]:
        twice = repeated(given.name for given in resource.configs)
        if twice:
            refuse(ErrorCode.INVALID_REQUEST, f"{brief_repr(min(twice))} is changed more than once; change it once")
        return {given.name: _new_value(given, held) for given in resource.configs if not _is_done(given, held)}

    return decide


def _is_done(given: AlterableConfig, held: PresentSettings) -> bool:
    """Whether nothing is to be done: an unknown setting may be reset, as in Kafka, since scripts outlive settings."""
    known = given.name in held.types or given.name in held.own
    return given.config_operation == _Operation.DELETE and not known


def _new_value(given: AlterableConfig, held: PresentSettings) -> str | None:
    """The new value of the setting; None to reset it to its default."""
    if given.config_operation == _Operation.DELETE:
        return None
    if given.value is None:
        refuse(ErrorCode.INVALID_REQUEST, f"{brief_repr(given.name)} has no value; delete it to have its default")
    if given.config_operation == _Operation.SET:
        return given.value
    if given.config_operation not in (_Operation.APPEND, _Operation.SUBTRACT):
        refuse(
            ErrorCode.INVALID_REQUEST,
            f"operation {given.config_operation} is none of SET (0), DELETE (1), APPEND (2) and SUBTRACT (3)",
        )
    if held.types.get(given.name, "LIST") != "LIST":
        raise InvalidConfig(f"{given.name} is not a list, so nothing can be added to it or taken from it; set it")
    before, items = _items(held.in_force.get(given.name, "")), _items(given.value)
    if given.config_operation == _Operation.SUBTRACT:
        return ",".join(item for item in before if item not in items)
    return ",".join([*before, *(item for item in dict.fromkeys(items) if item not in before)])


def _items(text: str) -> Sequence[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
