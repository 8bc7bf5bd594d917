"""What the three APIs about ACLs have in common: who may ask, and filters."""

from __future__ import annotations

from typing import Final, NamedTuple

from foldlog.broker.access.acls import AclFilter, AclOperation, PatternType, Permission, ResourceType
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.delete_acls import DeleteAclsFilter
from foldlog.wire.messages.describe_acls import DescribeAclsRequest

UNKNOWN_FILTER: Final = "the filter has a number for a kind, pattern, operation or permission that is not known here"


class Refusal(NamedTuple):
    """Why a whole request is refused."""

    code: ErrorCode
    sentence: str


def refusal(call: Call, operation: AclOperation) -> Refusal | None:
    """Why the caller may not ask about ACLs, if that is so. `operation` is asked for on the cluster."""
    if not call.allows(operation, ResourceType.CLUSTER):
        return Refusal(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"that needs {operation.name} on the cluster, which is not allowed"
        )
    if not call.node.has_authorizer:
        return Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return None


def acl_filter(one: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        ResourceType(one.resource_type_filter),
        one.resource_name_filter,
        PatternType(one.pattern_type_filter),
        one.principal_filter,
        one.host_filter,
        AclOperation(one.operation),
        Permission(one.permission_type),
    )
