"""IncrementalAlterConfigs, versions 0 to 1.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class AlterableConfig(Message):
    """In versions 0 to 1."""

    __slots__ = (
        "name",
        "config_operation",
        "value",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 0, 1),
        Field("config_operation", "int8", 0, 1),
        Field("value", "string", 0, 1, is_nullable=True),
    )

    def __init__(self, *, name: str = "", config_operation: int = 0, value: str | None = "") -> None:
        self.name = name
        self.config_operation = config_operation
        self.value = value


class AlterConfigsResource(Message):
    """In versions 0 to 1."""

    __slots__ = (
        "resource_type",
        "resource_name",
        "configs",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("resource_type", "int8", 0, 1),
        Field("resource_name", "string", 0, 1),
        Field("configs", "struct", 0, 1, item=AlterableConfig, is_array=True),
    )

    def __init__(
        self, *, resource_type: int = 0, resource_name: str = "", configs: Sequence[AlterableConfig] = ()
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs = configs


class IncrementalAlterConfigsRequest(Request):
    """In versions 0 to 1."""

    __slots__ = (
        "resources",
        "validate_only",
    )
    API_KEY: ClassVar[int] = 44
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE_FROM: ClassVar[int | None] = 1
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("resources", "struct", 0, 1, item=AlterConfigsResource, is_array=True),
        Field("validate_only", "bool", 0, 1),
    )

    def __init__(self, *, resources: Sequence[AlterConfigsResource] = (), validate_only: bool = False) -> None:
        self.resources = resources
        self.validate_only = validate_only


class AlterConfigsResourceResponse(Message):
    """In versions 0 to 1."""

    __slots__ = (
        "error_code",
        "error_message",
        "resource_type",
        "resource_name",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("error_code", "int16", 0, 1),
        Field("error_message", "string", 0, 1, is_nullable=True),
        Field("resource_type", "int8", 0, 1),
        Field("resource_name", "string", 0, 1),
    )

    def __init__(
        self, *, error_code: int = 0, error_message: str | None = "", resource_type: int = 0, resource_name: str = ""
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name


class IncrementalAlterConfigsResponse(Response):
    """In versions 0 to 1."""

    __slots__ = (
        "throttle_time_ms",
        "responses",
    )
    API_KEY: ClassVar[int] = 44
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE_FROM: ClassVar[int | None] = 1
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 0, 1),
        Field("responses", "struct", 0, 1, item=AlterConfigsResourceResponse, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, responses: Sequence[AlterConfigsResourceResponse] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses = responses


REQUEST = IncrementalAlterConfigsRequest
RESPONSE = IncrementalAlterConfigsResponse
