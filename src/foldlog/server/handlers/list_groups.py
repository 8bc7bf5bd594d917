"""ListGroups, versions 0 to 5: every group that has members or committed offsets. 4: by state. 5: by type."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code
from foldlog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    try:
        listings = await call.node.groups.run(call.node.broker.list_groups)
    except FoldlogError as failed:
        return ListGroupsResponse(error_code=group_error_code("(all)", failed))
    sees_all = call.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=listing.group,
                protocol_type=listing.protocol_type,
                group_state=listing.state,
                group_type=listing.group_type,
            )
            for listing in listings
            if (not states or listing.state.lower() in states)
            and (not types or listing.group_type in types)
            and (sees_all or call.allows(AclOperation.DESCRIBE, ResourceType.GROUP, listing.group))
        ]
    )
