"""DescribeTopicPartitions: like Metadata, but page by page, for topics with very many partitions. Version 0 (KIP-966).

Topics come in the order of their names. An answer ends after `response_partition_limit` partitions, and its cursor says
where the next request continues. Eligible leader replicas are empty lists, never null, which breaks Java's client.
"""

from __future__ import annotations

from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.server.authorizer import authorized_operations
from foldlog.server.call import Call
from foldlog.server.partitions import PartitionMetadata, described_topic, is_internal_to_kafka, leaders_of
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

_NONE: Final = ()


async def handle(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    asked = {topic.name for topic in request.topics}
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        refused = [_unknown(name, ErrorCode.INVALID_REQUEST) for name in sorted(asked)]
        return DescribeTopicPartitionsResponse(topics=refused)
    names = asked or {name for name in call.node.broker.topics(include_internal=True) if _may_describe(call, name)}
    start_name, start_number = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    limit = max(1, min(request.response_partition_limit, call.node.settings.max_request_partition_size_limit))
    unknown: dict[str, DescribeTopicPartitionsResponseTopic] = {}
    page: dict[str, tuple[CatalogTopic, range]] = {}
    next_cursor: Cursor | None = None
    # Unknown names do not count towards the limit, so they are looked up in slices.
    ordered = sorted(name for name in names if name >= start_name)
    async for name in call.node.turns.over(ordered):
        if limit == 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        found = described_topic(call, name)
        if not isinstance(found, CatalogTopic):
            unknown[name] = _unknown(name, found)
            continue
        first = start_number if name == start_name else 0
        numbers = range(first, max(first, min(found.partition_count, first + limit)))
        limit -= len(numbers)
        page[name] = (found, numbers)
        if numbers.stop < found.partition_count:
            next_cursor = Cursor(topic_name=name, partition_index=numbers.stop)
            break
    leaders = await leaders_of(call.node, page.values())
    described = {
        topic.name: _described(call, topic, led) for (topic, _), led in zip(page.values(), leaders, strict=True)
    }
    topics = [answer for _, answer in sorted((unknown | described).items())]
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def _may_describe(call: Call, name: str) -> bool:
    return call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _unknown(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=is_internal_to_kafka(name))


def _described(
    call: Call, topic: CatalogTopic, leaders: list[PartitionMetadata]
) -> DescribeTopicPartitionsResponseTopic:
    replicas = (call.node.settings.node_id,)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=bytes.fromhex(topic.topic_id),
        is_internal=is_internal_to_kafka(topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=code,
                partition_index=number,
                leader_id=leader_id,
                leader_epoch=epoch,
                replica_nodes=replicas,
                isr_nodes=replicas,
                eligible_leader_replicas=_NONE,
                last_known_elr=_NONE,
                offline_replicas=offline,
            )
            for code, number, leader_id, epoch, offline in leaders
        ],
        topic_authorized_operations=authorized_operations(
            call.node.authorizer, call.caller.who, ResourceType.TOPIC, topic.name
        ),
    )
