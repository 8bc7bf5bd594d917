"""ListConfigResources: the resources that have settings. Versions 0 and 1.

0 lists subscriptions to clients' metrics only. 1 lists the requested kinds, or all of them: topics, the broker, its
loggers, those subscriptions, and the groups for which something was set.
"""

from __future__ import annotations

from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.server.config.resources import ConfigResource as Kind
from foldlog.server.telemetry.subscriptions import SUBSCRIPTIONS
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_ALL_KINDS_FROM: Final = 1


def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if not call.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = set(request.resource_types) or set(Kind) if call.version >= _ALL_KINDS_FROM else {Kind.CLIENT_METRICS}
    if not wanted <= set(Kind):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    node = str(call.node.settings.node_id)
    names = {
        Kind.TOPIC: call.node.broker.topics(include_internal=True) if Kind.TOPIC in wanted else [],
        Kind.BROKER: [node],
        Kind.BROKER_LOGGER: [node],
        Kind.CLIENT_METRICS: call.node.broker.dynamic_settings.current.names(SUBSCRIPTIONS),
        Kind.GROUP: call.node.broker.group_configs.names(),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            if kind in wanted
            for name in found
        ]
    )
