"""DescribeCluster, versions 0 to 2.

Written by scripts/generate_messages.py from kio 0.6.5, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import Field, Message, Request, Response


class DescribeClusterRequest(Request):
    """In versions 0 to 2."""

    __slots__ = (
        "include_cluster_authorized_operations",
        "endpoint_type",
        "include_fenced_brokers",
    )
    API_KEY: ClassVar[int] = 60
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("include_cluster_authorized_operations", "bool", 0, 2),
        Field("endpoint_type", "int8", 1, 2),
        Field("include_fenced_brokers", "bool", 2, 2),
    )

    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = False,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
    ) -> None:
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.endpoint_type = endpoint_type
        self.include_fenced_brokers = include_fenced_brokers


class DescribeClusterBroker(Message):
    """In versions 0 to 2."""

    __slots__ = (
        "broker_id",
        "host",
        "port",
        "rack",
        "is_fenced",
    )
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("broker_id", "int32", 0, 2),
        Field("host", "string", 0, 2),
        Field("port", "int32", 0, 2),
        Field("rack", "string", 0, 2, is_nullable=True),
        Field("is_fenced", "bool", 2, 2),
    )

    def __init__(
        self, *, broker_id: int = 0, host: str = "", port: int = 0, rack: str | None = None, is_fenced: bool = False
    ) -> None:
        self.broker_id = broker_id
        self.host = host
        self.port = port
        self.rack = rack
        self.is_fenced = is_fenced


class DescribeClusterResponse(Response):
    """In versions 0 to 2."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "endpoint_type",
        "cluster_id",
        "controller_id",
        "brokers",
        "cluster_authorized_operations",
    )
    API_KEY: ClassVar[int] = 60
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    SCHEMA: ClassVar[tuple[Field, ...]] = (
        Field("throttle_time_ms", "int32", 0, 2),
        Field("error_code", "int16", 0, 2),
        Field("error_message", "string", 0, 2, is_nullable=True),
        Field("endpoint_type", "int8", 1, 2),
        Field("cluster_id", "string", 0, 2),
        Field("controller_id", "int32", 0, 2),
        Field("brokers", "struct", 0, 2, item=DescribeClusterBroker, is_array=True),
        Field("cluster_authorized_operations", "int32", 0, 2),
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        endpoint_type: int = 1,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: Sequence[DescribeClusterBroker] = (),
        cluster_authorized_operations: int = -2147483648,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.endpoint_type = endpoint_type
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers = brokers
        self.cluster_authorized_operations = cluster_authorized_operations


REQUEST = DescribeClusterRequest
RESPONSE = DescribeClusterResponse
