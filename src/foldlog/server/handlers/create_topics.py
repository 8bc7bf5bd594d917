"""CreateTopics: several topics in a request, each made or refused by itself. Versions 2 to 7.

- 4 allows -1 for partitions and replicas (KIP-464); it is taken in older versions too.
- 5 answers with the new topic's partitions, replicas and all settings. 6 may be throttled, 7 adds the topic id.

A new topic has its leader at once, so the timeout is not used. All topics of a request are one change of the catalog. A
stopping broker creates no more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.changes import NewTopic
from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.names import check_user_topic_name
from foldlog.errors import FoldlogError, InvalidConfig, RefusedByBroker
from foldlog.server.call import Call
from foldlog.server.config.resources import topic_rows
from foldlog.server.net.quotas import STRICT_FROM
from foldlog.server.topic_admin import (
    DEFAULT,
    DUPLICATE,
    assigned_partition_count,
    check_partitions_max,
    check_replication_factor,
    partition_count,
    refuse,
    refuse_too_many,
    told,
)
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from foldlog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from foldlog.server.config.settings import ServerSettings
    from foldlog.server.node import BrokerNode

_REPLICAS: Final = 1
_ANSWERED_AT_ONCE: Final = 50
_STRICT_FROM: Final = STRICT_FROM[19]
"""Topics beyond the quota of mutations are refused; older versions are throttled only (KIP-599)."""


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    turns = call.node.turns
    twice = await turns.repeated([topic.name for topic in request.topics])
    may_create_all = call.allows(AclOperation.CREATE, ResourceType.CLUSTER)
    results: dict[str, CreatableTopicResult] = {}
    plans: list[NewTopic] = []
    mutations = call.node.quotas.mutations(call, strict_from=_STRICT_FROM)

    def check(topic: CreatableTopic) -> None:
        name = topic.name
        if name in twice:
            results[name] = _refused(name, ErrorCode.INVALID_REQUEST, DUPLICATE)
            return
        if not may_create_all and not call.allows(AclOperation.CREATE, ResourceType.TOPIC, name):
            results[name] = _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
            return
        try:
            plan = _plan(call.node.settings, topic)
            refusal = call.node.fold_guard.creation_refusal(name, plan.partitions, plan.config.settings)
            if refusal is not None:
                refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, refusal)
            if not request.validate_only and call.node.broker.find_topic(name) is None:
                mutations.take(plan.partitions)
            plans.append(plan)
        except FoldlogError as error:
            results[name] = _refused(name, *told(error))

    await turns.each(check, request.topics)
    try:
        refuse_too_many(plan.partitions for plan in plans)
        made = await call.node.run(_create_all, call.node, plans, request.validate_only)
    except RefusedByBroker as error:
        made = [error] * len(plans)

    def tell(at: int) -> None:
        plan, outcome = plans[at], made[at]
        if isinstance(outcome, FoldlogError):
            results[plan.name] = _refused(plan.name, *told(outcome))
        else:
            results[plan.name] = _made(call, plan, outcome)

    # An answer has all settings of its topic, which is why fewer are made at once.
    await turns.each(tell, range(len(plans)), at_once=_ANSWERED_AT_ONCE)
    ordered: dict[str, CreatableTopicResult] = {}
    await turns.each(lambda topic: ordered.setdefault(topic.name, results[topic.name]), request.topics)
    return CreateTopicsResponse(throttle_time_ms=mutations.throttle_time_ms, topics=list(ordered.values()))


def _plan(settings: ServerSettings, topic: CreatableTopic) -> NewTopic:
    given: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"{config.name} has no value; leave it out, or give it one")
        given[config.name] = config.value
    if topic.assignments:
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            refuse(
                ErrorCode.INVALID_REQUEST,
                "replicas are assigned by hand, so the numbers of partitions and replicas have to be -1",
            )
        check_partitions_max(len(topic.assignments))
        assignments = [(assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments]
        partitions = assigned_partition_count(assignments, settings.node_id)
    else:
        check_replication_factor(topic.replication_factor)
        partitions = partition_count(topic.num_partitions, settings.num_partitions)
    asked = TopicConfig.parse(given).with_defaults(settings.topic_defaults)
    return NewTopic(check_user_topic_name(topic.name), partitions, asked)


def _create_all(node: BrokerNode, plans: list[NewTopic], validate_only: bool) -> list[bytes | FoldlogError]:
    """On a thread: for each the id of the new topic, or the error."""
    if validate_only:
        return [refusal or ZERO_UUID for refusal in node.broker.check_new_topics(plans)]
    outcomes = node.broker.create_topics(plans, stopped=lambda: node.is_leaving)
    return [one if isinstance(one, FoldlogError) else bytes.fromhex(one.topic_id) for one in outcomes]


def _refused(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _made(call: Call, plan: NewTopic, topic_id: bytes) -> CreatableTopicResult:
    result = CreatableTopicResult(name=plan.name, topic_id=topic_id, error_message=None)
    if not call.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, plan.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.configs = None
        return result
    result.num_partitions = plan.partitions
    result.replication_factor = _REPLICAS
    result.configs = [
        CreatableTopicConfigs(name=row.name, value=row.value, read_only=row.is_read_only, config_source=row.source)
        for row in topic_rows(call.node.live_settings, plan.config)
    ]
    return result
