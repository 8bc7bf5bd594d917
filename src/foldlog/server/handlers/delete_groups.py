"""DeleteGroups: deletes groups without members, and their commits. Answered when that is durable. Versions 0 to 3.

3 says with each group that was not deleted why.
"""

from __future__ import annotations

from typing import Final

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.broker import Broker
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = {group: _refused(call, group) for group in request.groups_names}
    wanted = [group for group, result in results.items() if result.error_code == ErrorCode.NONE]
    if wanted:
        results.update(await call.node.run(_delete, call.node.broker, wanted))
    return DeleteGroupsResponse(results=list(results.values()))


def _refused(call: Call, group: str) -> DeletableGroupResult:
    error = refusal(call, AclOperation.DELETE, group)
    return DeletableGroupResult(group_id=group, error_code=error, error_message=_SENTENCES.get(error))


_SENTENCES: Final = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the group is not yours to delete",
    ErrorCode.INVALID_GROUP_ID: "a group has a name; give it",
}


def _delete(broker: Broker, groups: list[str]) -> dict[str, DeletableGroupResult]:
    """On a thread: each deletion syncs."""
    results = {}
    for group in groups:
        result = results[group] = DeletableGroupResult(group_id=group)
        try:
            broker.delete_group(group)
        except FoldlogError as failed:
            result.error_code, result.error_message = group_error_code(group, failed), str(failed)
    return results
