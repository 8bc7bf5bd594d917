"""CreatePartitions: adds partitions to topics; each topic of the request is answered, in order. Versions 0 to 3, which
differ only in encoding and throttling.

Keys move to other partitions when the number changes, as in Kafka. The new partitions have their leader at once, so the
timeout is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.catalog import CatalogTopic
from foldlog.broker.topics.names import OwnTopicChange, check_topic_name
from foldlog.errors import FoldlogError, InvalidArgument, RefusedByBroker
from foldlog.server.call import Call
from foldlog.server.net.quotas import STRICT_FROM
from foldlog.server.topic_admin import (
    DUPLICATE,
    check_assignment,
    check_partitions_max,
    refuse,
    refuse_if_leaving,
    refuse_own,
    refuse_too_many,
    told,
)
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from foldlog.server.node import BrokerNode

_STRICT_FROM: Final = STRICT_FROM[37]
"""Partitions beyond the quota of mutations are refused; older versions are throttled only (KIP-599)."""


async def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    turns = call.node.turns
    twice = await turns.repeated([topic.name for topic in request.topics])
    results: dict[str, CreatePartitionsTopicResult] = {}
    added: dict[str, int] = {}
    mutations = call.node.quotas.mutations(call, strict_from=_STRICT_FROM)

    def check(topic: CreatePartitionsTopic) -> None:
        results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            if topic.name in twice:
                refuse(ErrorCode.INVALID_REQUEST, DUPLICATE)
            if not call.allows(AclOperation.ALTER, ResourceType.TOPIC, topic.name):
                refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the topic is not yours to change")
            check_topic_name(topic.name)
            refuse_own(call.node, topic.name, OwnTopicChange.GROW)
            count = _check(call.node.broker.topic(topic.name), topic, call.node.settings.node_id)
            if not request.validate_only:
                mutations.take(count)
            added[topic.name] = count
        except FoldlogError as error:
            _refuse(results[topic.name], error)

    await turns.each(check, request.topics)
    try:
        refuse_too_many(added.values())
        if not request.validate_only:
            counts = {topic.name: topic.count for topic in request.topics if topic.name in added}
            failed = await call.node.run(_grow_all, call.node, counts)
            for name, reason in failed.items():
                _refuse(results[name], reason)
    except RefusedByBroker as error:
        for name in added:
            _refuse(results[name], error)
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_time_ms, results=list(results.values()))


def _refuse(result: CreatePartitionsTopicResult, error: FoldlogError) -> None:
    result.error_code, result.error_message = told(error)


def _check(known: CatalogTopic, wanted: CreatePartitionsTopic, node_id: int) -> int:
    """How many partitions are to be added; raises if the request is invalid."""
    now = known.partition_count
    if wanted.count <= now:
        sentence = (
            f"topic {known.name!r} has {now} partitions, so {wanted.count} would not be more; ask for more than {now}"
        )
        refuse(ErrorCode.INVALID_PARTITIONS, sentence)
    check_partitions_max(wanted.count)
    assignments = wanted.assignments
    if assignments:
        if len(assignments) != wanted.count - now:
            refuse(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{wanted.count - now} partitions are added and {len(assignments)} are assigned; assign all or none",
            )
        for number, assigned in enumerate(assignments, now):
            check_assignment(number, assigned.broker_ids, node_id)
    return wanted.count - now


def _grow_all(node: BrokerNode, counts: dict[str, int]) -> dict[str, FoldlogError]:
    """On a thread. The topics that could not be grown, with their errors."""
    failed: dict[str, FoldlogError] = {}
    for name, count in counts.items():
        try:
            refuse_if_leaving(node)
            node.broker.grow_topic(name, count)
        except InvalidArgument as error:
            # Another request has added partitions since the check.
            failed[name] = RefusedByBroker(ErrorCode.INVALID_PARTITIONS, str(error))
        except FoldlogError as error:
            failed[name] = error
    return failed
