"""AlterClientQuotas: quotas of entities are set and removed; each entity is answered once. Versions 0 and 1.

1 is flexible. All entities without an error are altered together, durable and in force when answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.access.quotas import Entity, Quotas, entity
from foldlog.broker.access.store import Access
from foldlog.errors import FoldlogError, InvalidArgument, brief_repr
from foldlog.server.call import Call
from foldlog.server.topic_admin import refuse, refuse_if_leaving, repeated, told
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResult,
)

_Named = tuple[tuple[str, str | None], ...]
"""An entity as the request names it."""


async def handle(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    each = call.node.turns.each
    entries = await each(lambda entry: (_named(entry.entity), entry), request.entries)
    errors: dict[_Named, FoldlogError] = {}
    try:
        if not call.allows(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER):
            refuse(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "that needs ALTER_CONFIGS on the cluster, which is not allowed"
            )
        refuse_if_leaving(call.node)
        await call.node.run(_alter, call, entries, errors, request.validate_only)
    except FoldlogError as error:
        errors = {named: error for named, _ in entries}
    names = list(dict.fromkeys(named for named, _ in entries))
    return AlterClientQuotasResponse(entries=await each(lambda named: _result(named, errors.get(named)), names))


def _named(parts: Sequence[EntityData]) -> _Named:
    return tuple(
        sorted(((part.entity_type, part.entity_name) for part in parts), key=lambda one: (one[0], one[1] or ""))
    )


def _result(named: _Named, error: FoldlogError | None) -> EntryDataResult:
    code, sentence = (ErrorCode.NONE, None) if error is None else told(error)
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in named]
    return EntryDataResult(error_code=code, error_message=sentence, entity=parts)


def _alter(
    call: Call, entries: list[tuple[_Named, EntryData]], errors: dict[_Named, FoldlogError], validate_only: bool
) -> None:
    """On a thread. Adds the entities that cannot be altered to `errors`."""
    checked: list[tuple[_Named, Entity, EntryData]] = []
    for named, entry in entries:
        try:
            checked.append((named, _entity(named), entry))
        except InvalidArgument as error:
            errors[named] = error
    counts = Counter(one for _, one, _ in checked)

    def decide(access: Access) -> Access:
        quotas = access.quotas
        for named, one, entry in checked:
            try:
                if counts[one] > 1:
                    raise InvalidArgument("the entity stands in the request more than once; name it once")
                quotas = _changed(quotas, one, entry)
            except InvalidArgument as error:
                errors[named] = error
        return access if validate_only else replace(access, quotas=quotas)

    call.node.broker.access.change(decide)


def _entity(named: _Named) -> Entity:
    if len(dict(named)) != len(named):
        raise InvalidArgument("a kind of entity is named more than once; name it once")
    return entity(dict(named))


def _changed(quotas: Quotas, one: Entity, entry: EntryData) -> Quotas:
    twice = repeated(change.key for change in entry.ops)
    if twice:
        raise InvalidArgument(f"{brief_repr(min(twice))} is set more than once; set it once")
    return quotas.changed(one, {change.key: None if change.remove else change.value for change in entry.ops})
