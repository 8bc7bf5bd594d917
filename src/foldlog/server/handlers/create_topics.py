"""CreateTopics: several topics in a request, each made or refused by itself. Versions 2 to 7.

- 4 allows -1 for partitions and replicas (KIP-464); it is taken in older versions too.
- 5 answers with what was made: partitions, replicas and all settings. 6 may be throttled, 7 adds the topic id.

Nothing is waited for after a topic is made: it has its leader at once, so the timeout has no part in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.topics.config import TopicConfig
from foldlog.errors import FoldlogError, InvalidConfig, RefusedByBroker
from foldlog.server.authorizer import AclOperation, ResourceType
from foldlog.server.call import Call
from foldlog.server.config.resources import topic_rows
from foldlog.server.topic_admin import (
    DEFAULT,
    DUPLICATE,
    assigned_partition_count,
    check_new_topic,
    check_replication_factor,
    partition_count,
    refuse,
    refuse_too_many,
    repeated,
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
    from foldlog.broker.broker import Broker
    from foldlog.server.config.settings import ServerSettings

_REPLICAS: Final = 1


class _Plan(NamedTuple):
    """A topic that can be made, as far as the request alone tells."""

    name: str
    partitions: int
    config: TopicConfig


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    twice = repeated(topic.name for topic in request.topics)
    may_create_all = call.allows(AclOperation.CREATE, ResourceType.CLUSTER)
    results: dict[str, CreatableTopicResult] = {}
    plans: list[_Plan] = []
    for topic in request.topics:
        name = topic.name
        if name in twice:
            results[name] = _refused(name, ErrorCode.INVALID_REQUEST, DUPLICATE)
        elif not may_create_all and not call.allows(AclOperation.CREATE, ResourceType.TOPIC, name):
            results[name] = _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        else:
            try:
                plan = _plan(call.node.settings, topic)
                refusal = call.node.fold_guard.creation_refusal(name, plan.partitions, plan.config.settings)
                if refusal is not None:
                    refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, refusal)
                plans.append(plan)
            except FoldlogError as error:
                results[name] = _refused(name, *told(error))
    try:
        refuse_too_many(plan.partitions for plan in plans)
        made = await call.node.run(_create_all, call.node.broker, plans, request.validate_only)
    except RefusedByBroker as error:
        made = [error] * len(plans)
    for plan, outcome in zip(plans, made, strict=True):
        if isinstance(outcome, FoldlogError):
            results[plan.name] = _refused(plan.name, *told(outcome))
        else:
            results[plan.name] = _made(call, plan, outcome)
    return CreateTopicsResponse(
        topics=[results[name] for name in dict.fromkeys(topic.name for topic in request.topics)]
    )


def _plan(settings: ServerSettings, topic: CreatableTopic) -> _Plan:
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
        assignments = [(assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments]
        partitions = assigned_partition_count(assignments, settings.node_id)
    else:
        check_replication_factor(topic.replication_factor)
        partitions = partition_count(topic.num_partitions, settings.num_partitions)
    return _Plan(topic.name, partitions, TopicConfig.parse(given).with_defaults(settings.topic_defaults))


def _create_all(broker: Broker, plans: list[_Plan], validate_only: bool) -> list[bytes | FoldlogError]:
    """On a thread: for each the id of the topic that was made, or why there is none."""
    outcomes: list[bytes | FoldlogError] = []
    for plan in plans:
        try:
            if validate_only:
                check_new_topic(broker, plan.name)
                outcomes.append(ZERO_UUID)
            else:
                topic = broker.create_topic(plan.name, plan.partitions, plan.config.settings)
                outcomes.append(bytes.fromhex(topic.topic_id))
        except FoldlogError as error:
            outcomes.append(error)
    return outcomes


def _refused(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _made(call: Call, plan: _Plan, topic_id: bytes) -> CreatableTopicResult:
    result = CreatableTopicResult(name=plan.name, topic_id=topic_id, error_message=None)
    if not call.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, plan.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.configs = None
        return result
    result.num_partitions = plan.partitions
    result.replication_factor = _REPLICAS
    result.configs = [
        CreatableTopicConfigs(name=row.name, value=row.value, read_only=row.is_read_only, config_source=row.source)
        for row in topic_rows(call.node.settings, plan.config)
    ]
    return result
