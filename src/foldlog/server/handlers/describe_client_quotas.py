"""DescribeClientQuotas: the quotas of the entities that a filter means. Versions 0 and 1, which differ in encoding.

A component of the filter is for one kind of entity: of that name (0), the default (1), or any (2). An entity has to fit
all components; with `strict`, it may have no other kind besides. No components mean all entities.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.access.quotas import CLIENT_ID, IP, USER, Entity
from foldlog.errors import RefusedByBroker, brief_repr
from foldlog.server.call import Call
from foldlog.server.topic_admin import refuse, told
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


class _Match(IntEnum):
    """How a component names entities: Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


_Wanted = dict[str, tuple[str | None, bool]]
"""By kind: a name, None for the default, and whether every name is meant instead."""


def handle(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        if not call.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
            refuse(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "that needs DESCRIBE_CONFIGS on the cluster, which is not allowed",
            )
        wanted = _wanted(request)
    except RefusedByBroker as error:
        code, sentence = told(error)
        return DescribeClientQuotasResponse(error_code=code, error_message=sentence, entries=None)
    quotas = call.node.broker.access.current.quotas
    found = [one for one in quotas if _fits(one, wanted, is_strict=request.strict)]
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in one],
                values=[ValueData(key=key, value=value) for key, value in sorted(quotas.of(one).items())],
            )
            for one in found
        ],
    )


def _wanted(request: DescribeClientQuotasRequest) -> _Wanted:
    wanted: _Wanted = {}
    for component in request.components:
        kind = component.entity_type
        if not kind:
            _refuse("a kind of entity is empty; it is user, client-id or ip")
        if kind in wanted:
            _refuse(f"{brief_repr(kind)} stands in the filter more than once; name it once")
        if kind not in (USER, CLIENT_ID, IP):
            refuse(
                ErrorCode.UNSUPPORTED_VERSION, f"{brief_repr(kind)} is no kind of entity; it is user, client-id or ip"
            )
        wanted[kind] = _match(component)
    if IP in wanted and len(wanted) > 1:
        _refuse("an address has no user and no client id; ask for them separately")
    return wanted


def _match(component: ComponentData) -> tuple[str | None, bool]:
    if component.match_type not in set(_Match):
        _refuse(f"match type {component.match_type} is none; it is exact (0), default (1) or specified (2)")
    if (component.match is None) != (component.match_type != _Match.EXACT):
        _refuse("an exact match has a name, and others have none")
    return component.match, component.match_type == _Match.SPECIFIED


def _refuse(sentence: str) -> NoReturn:
    refuse(ErrorCode.INVALID_REQUEST, sentence)


def _fits(one: Entity, wanted: _Wanted, *, is_strict: bool) -> bool:
    names = dict(one)
    if is_strict and len(names) != len(wanted):
        return False
    return all(kind in names and (is_any or names[kind] == name) for kind, (name, is_any) in wanted.items())
