"""Authorization: the interface for later security. Until then all clients of a listener may do everything."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class AclOperation(IntEnum):
    """Kafka's numbers, as in its ACLs and in the authorized operations of its answers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER, as Kafka names it."""

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection without authentication, as Kafka names it."""


class Authorizer(Protocol):
    """Called on the event loop for every resource that a request names: it must answer from memory."""

    def allows(self, principal: str, operation: AclOperation, kind: ResourceType, name: str) -> bool: ...


class AllowEverything:
    """The authorizer of a listener without security."""

    def allows(self, principal: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return True


_TOPIC_OPERATIONS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

_OPERATIONS = {
    ResourceType.TOPIC: _TOPIC_OPERATIONS,
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


def authorized_operations(authorizer: Authorizer, principal: str, kind: ResourceType, name: str) -> int:
    """The operations allowed on a resource as the bit field in Kafka's answers.

    >>> bin(authorized_operations(AllowEverything(), ANONYMOUS, ResourceType.GROUP, "fraud"))
    '0b110101001000'
    """
    return sum(1 << op for op in _OPERATIONS[kind] if authorizer.allows(principal, op, kind, name))
