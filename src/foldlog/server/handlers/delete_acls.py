"""DeleteAcls: all ACLs that filters mean; the answer names them. Versions 1 to 3.

2 is flexible, 3 knows users as resources (KIP-373). All filters look at the ACLs as they were before the request: one
that two of them mean is named twice, as in Kafka.
"""

from __future__ import annotations

from dataclasses import replace

from foldlog.broker.access.acls import Acl, AclFilter, AclOperation
from foldlog.broker.access.store import Access
from foldlog.errors import FoldlogError
from foldlog.server.acl_admin import UNKNOWN_FILTER, acl_filter, refusal
from foldlog.server.call import Call
from foldlog.server.topic_admin import refuse_if_leaving, told
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = refusal(call, AclOperation.ALTER)
    if refused is not None:
        result = DeleteAclsFilterResult(error_code=refused.code, error_message=refused.sentence)
        return DeleteAclsResponse(filter_results=[result] * len(request.filters))
    each = call.node.turns.each
    filters = await each(acl_filter, request.filters)
    try:
        refuse_if_leaving(call.node)
        found = await call.node.run(_delete, call, filters)
    except FoldlogError as error:
        code, sentence = told(error)
        result = DeleteAclsFilterResult(error_code=code, error_message=sentence)
        return DeleteAclsResponse(filter_results=[result] * len(filters))
    pairs = list(zip(filters, found, strict=True))
    return DeleteAclsResponse(filter_results=await each(lambda pair: _result(*pair), pairs))


def _delete(call: Call, filters: list[AclFilter]) -> list[list[Acl]]:
    """On a thread. What was deleted, for each filter."""
    found: list[list[Acl]] = []

    def decide(access: Access) -> Access:
        found[:] = [[] if one.is_unknown else access.acls.found(one) for one in filters]
        return replace(access, acls=access.acls.without(acl for acls in found for acl in acls))

    call.node.broker.access.change(decide)
    return found


def _result(wanted: AclFilter, acls: list[Acl]) -> DeleteAclsFilterResult:
    if wanted.is_unknown:
        return DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=UNKNOWN_FILTER)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.kind,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ],
    )
