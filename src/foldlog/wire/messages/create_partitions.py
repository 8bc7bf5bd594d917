"""CreatePartitions, versions 0 to 3.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class CreatePartitionsAssignment(Message):
    """In versions 0 to 3."""

    __slots__ = ("broker_ids",)
    SCHEMA: ClassVar[tuple[Field, ...]] = (Field("broker_ids", "int32", 0, 3, is_array=True),)

    def __init__(self, *, broker_ids: Sequence[int] = ()) -> None:
        self.broker_ids = broker_ids


class CreatePartitionsTopic(Message):
    """In versions 0 to 3."""

    __slots__ = (
        "name",
        "count",
        "assignments",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 0, 3),
        Field("count", "int32", 0, 3),
        Field("assignments", "struct", 0, 3, item=CreatePartitionsAssignment, is_array=True, is_nullable=True),
    )

    def __init__(
        self, *, name: str = "", count: int = 0, assignments: Sequence[CreatePartitionsAssignment] | None = ()
    ) -> None:
        self.name = name
        self.count = count
        self.assignments = assignments


class CreatePartitionsRequest(Request):
    """In versions 0 to 3."""

    __slots__ = (
        "topics",
        "timeout_ms",
        "validate_only",
    )
    API_KEY: ClassVar[int] = 37
    VERSIONS: ClassVar[tuple[int, int]] = (0, 3)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("topics", "struct", 0, 3, item=CreatePartitionsTopic, is_array=True),
        Field("timeout_ms", "int32", 0, 3),
        Field("validate_only", "bool", 0, 3),
    )

    def __init__(
        self, *, topics: Sequence[CreatePartitionsTopic] = (), timeout_ms: int = 0, validate_only: bool = False
    ) -> None:
        self.topics = topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only


class CreatePartitionsTopicResult(Message):
    """In versions 0 to 3."""

    __slots__ = (
        "name",
        "error_code",
        "error_message",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", 0, 3),
        Field("error_code", "int16", 0, 3),
        Field("error_message", "string", 0, 3, is_nullable=True),
    )

    def __init__(self, *, name: str = "", error_code: int = 0, error_message: str | None = None) -> None:
        self.name = name
        self.error_code = error_code
        self.error_message = error_message


class CreatePartitionsResponse(Response):
    """In versions 0 to 3."""

    __slots__ = (
        "throttle_time_ms",
        "results",
    )
    API_KEY: ClassVar[int] = 37
    VERSIONS: ClassVar[tuple[int, int]] = (0, 3)
    FLEXIBLE_FROM: ClassVar[int | None] = 2
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 0, 3),
        Field("results", "struct", 0, 3, item=CreatePartitionsTopicResult, is_array=True),
    )

    def __init__(self, *, throttle_time_ms: int = 0, results: Sequence[CreatePartitionsTopicResult] = ()) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = results


REQUEST = CreatePartitionsRequest
RESPONSE = CreatePartitionsResponse
