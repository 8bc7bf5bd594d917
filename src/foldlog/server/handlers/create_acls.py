"""CreateAcls: ACLs, each answered for itself; in force, and durable, when it is answered. Versions 1 to 3.

2 is flexible, 3 knows users as resources (KIP-373). One that is there already is made once, without an error.
"""

from __future__ import annotations

from dataclasses import replace

from foldlog.broker.access.acls import Acl, AclOperation, PatternType, Permission, ResourceType, check_acl
from foldlog.broker.access.store import Access
from foldlog.errors import FoldlogError, InvalidArgument
from foldlog.server.acl_admin import refusal
from foldlog.server.call import Call
from foldlog.server.topic_admin import refuse_if_leaving, told
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = refusal(call, AclOperation.ALTER)
    if refused is not None:
        result = AclCreationResult(error_code=refused.code, error_message=refused.sentence)
        return CreateAclsResponse(results=[result] * len(request.creations))
    checked = await call.node.turns.each(_check, request.creations)

    def decide(access: Access) -> Access:
        return replace(access, acls=access.acls.with_more(one for one in checked if isinstance(one, Acl)))

    done = AclCreationResult(error_message=None)
    try:
        refuse_if_leaving(call.node)
        await call.node.run(call.node.broker.access.change, decide)
    except FoldlogError as error:
        code, sentence = told(error)
        done = AclCreationResult(error_code=code, error_message=sentence)
    return CreateAclsResponse(results=[done if isinstance(one, Acl) else one for one in checked])


def _check(creation: AclCreation) -> Acl | AclCreationResult:
    try:
        return check_acl(_acl(creation))
    except InvalidArgument as error:
        return AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))


def _acl(one: AclCreation) -> Acl:
    return Acl(
        ResourceType(one.resource_type),
        one.resource_name,
        PatternType(one.resource_pattern_type),
        one.principal,
        one.host,
        AclOperation(one.operation),
        Permission(one.permission_type),
    )
