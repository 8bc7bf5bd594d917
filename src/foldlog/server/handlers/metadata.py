"""Metadata: the topics, and the leaders of their partitions. Versions 0 to 13.

- 0 asks for all topics with an empty list, 1 and later with null; 1 adds racks, the controller and internal topics.
- 2 adds the cluster id, 3 the throttle time, 5 offline replicas, 7 leader epochs.
- 4 lets a client say whether a missing topic may be created; before, it always may.
- 8 to 10 have the operations that the client may do with the cluster, 8 and later with each topic.
- 10 adds topic ids to the answer, 12 lets a client ask by them; 13 adds an error for the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foldlog.broker.access.acls import CLUSTER_NAME, AclOperation, ResourceType
from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS
from foldlog.client.fold_bulletin import FOLDS_TOPIC
from foldlog.errors import FoldlogError, TopicExists
from foldlog.limits import AUTO_CREATED_TOPICS_MAX
from foldlog.server.access.audit import note
from foldlog.server.authorizer import authorized_operations
from foldlog.server.call import Call
from foldlog.server.partitions import PartitionMetadata, described_topic, is_internal_to_kafka, leaders_of
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from foldlog.wire.schema import ZERO_UUID

_TOPIC_IDS_FROM: Final = 12

Found = CatalogTopic | MetadataResponseTopic
"""A topic to describe, or the answer for one that is missing or hidden."""


async def handle(call: Call, request: MetadataRequest) -> MetadataResponse:
    found = await _find(call, request)
    topics = [topic for topic in found if isinstance(topic, CatalogTopic)]
    leaders = await leaders_of(call.node, [(topic, range(topic.partition_count)) for topic in topics])
    described = [_described(call, request, topic, led) for topic, led in zip(topics, leaders, strict=True)]
    node_id = call.node.settings.node_id
    answer = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=call.caller.endpoint.host, port=call.caller.endpoint.port)
        ],
        cluster_id=call.node.cluster_id,
        controller_id=node_id,
        topics=described + [topic for topic in found if isinstance(topic, MetadataResponseTopic)],
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = cluster_operations(call)
    return answer


def cluster_operations(call: Call) -> int:
    """The operations that the caller may do with the cluster, as a bit field; 0 if it may not see it."""
    if not call.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return authorized_operations(call.node.authorizer, call.caller.who, ResourceType.CLUSTER, CLUSTER_NAME)


# --- which topics ---------------------------------------------------------------------------------------------------


async def _find(call: Call, request: MetadataRequest) -> list[Found]:
    if request.topics is None or (call.version == 0 and not request.topics):
        names = call.node.broker.topics(include_internal=True)
        described = [name for name in names if call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)]
        known = [call.node.broker.find_topic(name) for name in described]
        return [topic for topic in known if topic is not None]
    if call.version < _TOPIC_IDS_FROM and any(_needs_topic_ids(topic) for topic in request.topics):
        return [_unknown(topic.name or "", ErrorCode.INVALID_REQUEST, topic.topic_id) for topic in request.topics]
    found: list[Found] = []
    seen: set[bytes | str | None] = set()
    creating = _Creating(call, request)
    for topic in request.topics:
        key = topic.name if topic.topic_id == ZERO_UUID else topic.topic_id
        if key not in seen:
            seen.add(key)
            found.append(await _find_one(call, creating, topic))
    return found


def _needs_topic_ids(topic: MetadataRequestTopic) -> bool:
    """Versions 10 and 11 have the field, but Kafka refuses requests that use it."""
    return topic.name is None or topic.topic_id != ZERO_UUID


async def _find_one(call: Call, creating: _Creating, wanted: MetadataRequestTopic) -> Found:
    name = wanted.name or ""
    if wanted.topic_id != ZERO_UUID:
        known = call.node.topic_ids.name_of(wanted.topic_id)
        # A caller that may not see a topic does not learn that it exists.
        if known is None or not call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, known):
            return _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID, wanted.topic_id)
        name = known
    found = described_topic(call, name)
    if isinstance(found, CatalogTopic):
        return found
    if found is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return await creating.create(name)
    return _unknown(name, found)


class _Creating:
    """Creates missing topics that one request asks for. Event loop only."""

    def __init__(self, call: Call, request: MetadataRequest) -> None:
        self._call = call
        self._is_allowed = request.allow_auto_topic_creation and call.node.settings.auto_create_topics_enable
        self._left = AUTO_CREATED_TOPICS_MAX
        self._mutations = call.node.quotas.mutations(call, strict_from=0)

    async def create(self, name: str) -> Found:
        """Create the topic, except the log's own and the folds', which need particular settings."""
        call, broker = self._call, self._call.node.broker
        if not self._is_allowed or name in KAFKA_OWN_TOPICS or name == FOLDS_TOPIC:
            return _unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        may_create = call.allows(AclOperation.CREATE, ResourceType.CLUSTER)
        if not may_create and not call.allows(AclOperation.CREATE, ResourceType.TOPIC, name):
            return _unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not self._left:
            # Kafka's code for a topic that is being created: the client asks again, and the next ones are created.
            return _unknown(name, ErrorCode.LEADER_NOT_AVAILABLE)
        self._left -= 1
        try:
            self._mutations.take(call.node.settings.num_partitions)
            made = await call.node.run(broker.create_topic, name, call.node.settings.num_partitions)
            if call.node.is_audited:
                note(call.caller.who, "CreateTopics", [name], reason="asked about by Metadata")
            return made
        except TopicExists:
            # Another request created it at the same time; or it is deleted again already.
            return broker.find_topic(name) or _unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except FoldlogError as error:
            code = code_of(error)
            # The client asks again, and the topic is made once the quota allows it.
            is_later = code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            return _unknown(name, ErrorCode.LEADER_NOT_AVAILABLE if is_later else code)


# --- their descriptions ---------------------------------------------------------------------------------------------


def _unknown(name: str | None, code: ErrorCode, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    is_internal = name is not None and is_internal_to_kafka(name)
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=is_internal)


def _described(
    call: Call, request: MetadataRequest, topic: CatalogTopic, leaders: Sequence[PartitionMetadata]
) -> MetadataResponseTopic:
    replicas = (call.node.settings.node_id,)
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=bytes.fromhex(topic.topic_id),
        is_internal=is_internal_to_kafka(topic.name),
        partitions=[
            MetadataResponsePartition(
                error_code=code,
                partition_index=number,
                leader_id=leader_id,
                leader_epoch=epoch,
                replica_nodes=replicas,
                isr_nodes=replicas,
                offline_replicas=offline,
            )
            for code, number, leader_id, epoch, offline in leaders
        ],
    )
    if request.include_topic_authorized_operations:
        described.topic_authorized_operations = authorized_operations(
            call.node.authorizer, call.caller.who, ResourceType.TOPIC, topic.name
        )
    return described
