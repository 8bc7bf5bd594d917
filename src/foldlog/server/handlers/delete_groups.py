"""DeleteGroups, versions 0 to 2: deletes groups without members, and their commits. Answered when that is durable."""

from __future__ import annotations

from foldlog.broker.broker import Broker
from foldlog.errors import FoldlogError
from foldlog.server.authorizer import AclOperation
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    errors = {group: refusal(call, AclOperation.DELETE, group) for group in request.groups_names}
    wanted = [group for group, error in errors.items() if error is ErrorCode.NONE]
    if wanted:
        errors.update(await call.node.run(_delete, call.node.broker, wanted))
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group, error_code=error) for group, error in errors.items()]
    )


def _delete(broker: Broker, groups: list[str]) -> dict[str, ErrorCode]:
    """On a thread: each deletion syncs."""
    errors = {}
    for group in groups:
        try:
            broker.delete_group(group)
            errors[group] = ErrorCode.NONE
        except FoldlogError as failed:
            errors[group] = group_error_code(group, failed)
    return errors
