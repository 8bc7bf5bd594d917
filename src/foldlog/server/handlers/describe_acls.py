"""DescribeAcls: the ACLs that a filter means, by resource. Versions 1 to 3.

2 is flexible, 3 knows users as resources (KIP-373). 0, without prefixed patterns, is not in Kafka 4 either.
"""

from __future__ import annotations

from foldlog.broker.access.acls import Acl, AclOperation, Acls
from foldlog.server.acl_admin import UNKNOWN_FILTER, acl_filter, refusal
from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def handle(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    refused = refusal(call, AclOperation.DESCRIBE)
    if refused is not None:
        return DescribeAclsResponse(error_code=refused.code, error_message=refused.sentence)
    wanted = acl_filter(request)
    if wanted.is_unknown:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=UNKNOWN_FILTER)
    # On a thread: there may be a hundred thousand.
    found = await call.node.run(Acls.found, call.node.broker.access.current.acls, wanted)
    return DescribeAclsResponse(error_message=None, resources=_resources(found))


def _resources(acls: list[Acl]) -> list[DescribeAclsResource]:
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in acls:
        description = AclDescription(
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
        )
        found.setdefault((acl.kind, acl.name, acl.pattern), []).append(description)
    return [
        DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=described)
        for (kind, name, pattern), described in found.items()
    ]
