"""DeleteTopics: by name, from version 6 on also by id. Versions 1 to 6.

- 3 answers TOPIC_DELETION_DISABLED if deleting is switched off, older ones INVALID_REQUEST.
- 5 adds a sentence to an error, 6 topic ids.

A topic is gone when the answer is sent, so the timeout is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.names import OwnTopicChange
from foldlog.errors import FoldlogError, UnknownTopic
from foldlog.server.call import Call
from foldlog.server.net.quotas import STRICT_FROM, MutationQuota
from foldlog.server.topic_admin import DUPLICATE, refuse_own, told
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from foldlog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from foldlog.server.node import BrokerNode

_DISABLED_CODE_FROM: Final = 3
_TOPIC_IDS_FROM: Final = 6
_NO_SUCH_ID: Final = "there is no topic with this id"
_STRICT_FROM: Final = STRICT_FROM[20]
"""Topics beyond the quota of mutations are not deleted; older versions are throttled only (KIP-599)."""


class _Wanted(NamedTuple):
    """A topic of the request; if it exists, `name` and `topic_id` are both known."""

    name: str | None
    topic_id: bytes
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def refused(self, error: ErrorCode, message: str | None = None) -> _Wanted:
        return self._replace(error=error, message=message)


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked: Sequence[DeleteTopicState] = request.topics
    if call.version < _TOPIC_IDS_FROM:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    mutations = call.node.quotas.mutations(call, strict_from=_STRICT_FROM)
    wanted = [_find(call, topic, mutations) for topic in asked]
    twice = call.repeated(key for one in wanted for key in (one.name, one.topic_id) if key not in (None, ZERO_UUID))
    chosen: dict[str | bytes, _Wanted] = {}
    for one in wanted:
        # A topic that is given by name and by id is one topic, once both are known.
        key = one.topic_id if one.name is None else one.name
        chosen[key] = one.refused(ErrorCode.INVALID_REQUEST, DUPLICATE) if {one.name, one.topic_id} & twice else one
    wanted = list(chosen.values())
    if not call.node.settings.delete_topic_enable:
        is_told = call.version >= _DISABLED_CODE_FROM
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_told else ErrorCode.INVALID_REQUEST
        wanted = [one.refused(code, "the broker has delete.topic.enable=false") for one in wanted]
    done = await call.node.run(_delete_all, call.node, wanted)
    return DeleteTopicsResponse(
        throttle_time_ms=mutations.throttle_time_ms,
        responses=[
            DeletableTopicResult(name=one.name, topic_id=one.topic_id, error_code=one.error, error_message=one.message)
            for one in done
        ],
    )


def _find(call: Call, asked: DeleteTopicState, mutations: MutationQuota) -> _Wanted:
    by_id = asked.topic_id != ZERO_UUID
    wanted = _Wanted(asked.name, asked.topic_id)
    if by_id == (asked.name is not None):
        both = "a name and an id" if by_id else "neither name nor id"
        return wanted.refused(ErrorCode.INVALID_REQUEST, f"a topic is given with {both}; give one of them")
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = call.node.topic_ids.name_of(asked.topic_id) if by_id else asked.name
    if name is None:
        return wanted.refused(unknown, _NO_SUCH_ID)
    if not call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        # A caller that asks by id and may not see the topic does not learn its name.
        if by_id:
            return wanted.refused(unknown, _NO_SUCH_ID)
        return wanted.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = call.node.broker.find_topic(name)
    found = _Wanted(name, ZERO_UUID if topic is None else bytes.fromhex(topic.topic_id))
    if not call.allows(AclOperation.DELETE, ResourceType.TOPIC, name):
        return found.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    try:
        refuse_own(call.node, name, OwnTopicChange.DELETE)
        if topic is not None and call.node.settings.delete_topic_enable:
            mutations.take(topic.partition_count)
    except FoldlogError as error:
        return found.refused(*told(error))
    return found


def _delete_all(node: BrokerNode, wanted: Sequence[_Wanted]) -> list[_Wanted]:
    """On a thread."""
    outcomes: dict[str, FoldlogError | None] = {}
    for one in wanted:
        topic = None if one.error or one.name is None else node.broker.find_topic(one.name)
        if topic is not None and bytes.fromhex(topic.topic_id) == one.topic_id:
            outcomes[topic.name] = None
    done = node.broker.delete_topics(list(outcomes), stopped=lambda: node.is_leaving)
    outcomes.update(zip(outcomes, done, strict=True))
    return [one if one.error or one.name is None else _told(one, one.name, outcomes) for one in wanted]


def _told(wanted: _Wanted, name: str, outcomes: dict[str, FoldlogError | None]) -> _Wanted:
    error = outcomes.get(name, UnknownTopic(name))
    return wanted if error is None else wanted.refused(*told(error))
