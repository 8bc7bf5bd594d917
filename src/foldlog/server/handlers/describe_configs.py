"""DescribeConfigs: every setting with its value and its source. Versions 1 to 4.

- 1 has the source of a value and its synonyms, 3 its type and documentation.

Topics, share groups, this broker, its loggers (KIP-412) and subscriptions to clients' metrics (KIP-714) have settings.
The empty name has those that were changed for all brokers.
"""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.catalog import GROWTHS_SETTING
from foldlog.broker.topics.names import check_topic_name
from foldlog.errors import FoldlogError, brief_repr
from foldlog.server.call import Call
from foldlog.server.config.resources import (
    ALL_BROKERS,
    ConfigResource,
    ConfigRow,
    all_brokers_rows,
    broker_rows,
    group_rows,
    growths_row,
    logger_rows,
    subscription_rows,
    topic_rows,
)
from foldlog.server.topic_admin import refuse, told
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    # Each once: a small request that repeats a resource many times would otherwise be answered with gigabytes.
    asked = {
        (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())): resource
        for resource in request.resources
    }
    return DescribeConfigsResponse(results=[_describe(call, request, resource) for resource in asked.values()])


def _describe(call: Call, request: DescribeConfigsRequest, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    # Without an error the message is empty, not null, as in Kafka.
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=""
    )
    try:
        rows = _rows(call, resource)
    except FoldlogError as error:
        result.error_code, result.error_message = told(error)
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [_shown(request, row) for row in rows if not wanted or row.name in wanted]
    return result


def _rows(call: Call, resource: DescribeConfigsResource) -> list[ConfigRow]:
    node, name = call.node, resource.resource_name
    if resource.resource_type == ConfigResource.TOPIC:
        if not call.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
            refuse(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the settings of topic {brief_repr(name)} are not for you to see"
            )
        check_topic_name(name)
        topic = node.broker.topic(name)
        rows = topic_rows(node.live_settings, topic.config)
        # Only if asked for by name: it is not Kafka's, and tools print every row they get.
        return [*rows, growths_row(topic)] if GROWTHS_SETTING in (resource.configuration_keys or ()) else rows
    if resource.resource_type == ConfigResource.GROUP:
        if not call.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP, name):
            refuse(
                ErrorCode.GROUP_AUTHORIZATION_FAILED, f"the settings of group {brief_repr(name)} are not for you to see"
            )
        if not name:
            refuse(ErrorCode.INVALID_REQUEST, "no setting is for all groups; give the name of one")
        return group_rows(node.live_settings, node.broker.group_configs, name)
    if resource.resource_type not in (
        ConfigResource.BROKER,
        ConfigResource.BROKER_LOGGER,
        ConfigResource.CLIENT_METRICS,
    ):
        refuse(ErrorCode.INVALID_REQUEST, f"resources of type {resource.resource_type} have no settings here")
    if not call.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the settings of the broker are not for you to see")
    if resource.resource_type == ConfigResource.CLIENT_METRICS:
        if not name:
            refuse(ErrorCode.INVALID_REQUEST, "a subscription to clients' metrics has a name; give it")
        return subscription_rows(node.broker.dynamic_settings.current, name)
    if resource.resource_type == ConfigResource.BROKER and name == ALL_BROKERS:
        return all_brokers_rows(node.live_settings)
    if name != str(node.settings.node_id):
        refuse(
            ErrorCode.INVALID_REQUEST, f"there is no broker {brief_repr(name)}; this is broker {node.settings.node_id}"
        )
    return broker_rows(node.live_settings) if resource.resource_type == ConfigResource.BROKER else logger_rows()


def _shown(request: DescribeConfigsRequest, row: ConfigRow) -> DescribeConfigsResourceResult:
    synonyms = row.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.is_read_only,
        is_sensitive=row.is_sensitive,
        config_source=row.source,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=row.config_type,
        documentation=row.doc if request.include_documentation else None,
    )
