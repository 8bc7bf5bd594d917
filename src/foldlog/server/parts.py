"""Requests with very many items: each is handled in parts, as if the client had sent them one after the other.

A handler runs on the event loop, and takes 2 to 12 µs for an item; a request may have a quarter of a million. So a
large one is divided, the handler answers each part in a turn of the loop, and the answers are joined. `WAYS` says for
every API with arrays in its requests how. A handler whose request must be seen whole pauses by itself
(`LoopTurns.each`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.limits import STEP_ITEMS
from foldlog.wire.codec import Steps
from foldlog.wire.schema import ZERO_UUID, Message

if TYPE_CHECKING:
    from foldlog.server.call import Call, Handler, Later

Chain = tuple[Any, ...]
"""An item and the structs around it, from the outside in: a topic and a partition. None where an array is empty."""


class Repeated(Enum):
    """What becomes of an item that a request names more than once."""

    ANSWERED = "each is answered"
    DROPPED = "the first is answered, as the handler does it: else a small request had an answer of gigabytes"
    REFUSED = "the handler refuses all of them: it is told of those in other parts by `Call.repeated`"


class Divided(NamedTuple):
    """A request whose items are answered one by one. `items` are the arrays on the way to them, `answers` the arrays of
    the answer. `at_once` is fewer where an item costs more."""

    items: tuple[str, ...]
    answers: tuple[str, ...]
    repeated: Repeated = Repeated.ANSWERED
    name: Callable[..., Hashable] = lambda *chain: chain[-1]
    at_once: int = STEP_ITEMS


class Whole(NamedTuple):
    """A request that its handler has to see whole. `why` also says what bounds a turn of the loop."""

    why: str


Way = Divided | Whole

_PAUSES: Final = "one change for all items; the handler pauses between slices of them"
_FEW: Final = "the decoder refuses more than a few: see ITEMS_MAX in wire/decoding.py"
_CHEAP: Final = "items are not looked at one by one"
_SESSION: Final = "one step of a session"


def _partition_name(topic: Any, partition: Any) -> Hashable:
    return None if partition is None else (topic.name, partition.partition_index)


def _topic_name(topic: Any) -> Hashable:
    name: Hashable = topic.name if topic.topic_id == ZERO_UUID else topic.topic_id
    return name


def _resource_name(resource: Any) -> Hashable:
    return (resource.resource_type, resource.resource_name)


def _described_resource(resource: Any) -> Hashable:
    return (*_resource_name(resource), tuple(resource.configuration_keys or ()))  # type: ignore[misc]


def _of_group(group: Any, topic: Any, number: Any) -> Hashable:
    return (group.group_id, None if topic is None else (topic.name, topic.topic_id), number)


def _of_share_group(group: Any, topic: Any, number: Any) -> Hashable:
    return (group.group_id, None if topic is None else topic.topic_name, number)


_PARTITIONS: Final = ("topics", "partitions")

WAYS: Final[dict[int, tuple[Way, ...]]] = {
    0: (Divided(("topic_data", "partition_data"), ("responses", "partition_responses")),),
    1: (Whole(f"{_SESSION}; the handler pauses between slices of it"),),
    2: (Divided(_PARTITIONS, _PARTITIONS, Repeated.REFUSED, _partition_name),),
    3: (Divided(("topics",), ("topics",), Repeated.DROPPED, _topic_name),),
    8: (Whole(_PAUSES),),
    9: (
        Divided(("topics", "partition_indexes"), _PARTITIONS),
        Divided(("groups", "topics", "partition_indexes"), ("groups", *_PARTITIONS), Repeated.DROPPED, _of_group),
    ),
    10: (Divided(("coordinator_keys",), ("coordinators",)),),
    11: (Whole(_FEW),),
    13: (Divided(("members",), ("members",)),),
    14: (Whole(_CHEAP),),
    15: (Divided(("groups",), ("groups",), Repeated.DROPPED),),
    16: (Whole(_FEW),),
    19: (Whole(_PAUSES),),
    20: (
        Divided(("topics",), ("responses",), Repeated.REFUSED, _topic_name),
        Divided(("topic_names",), ("responses",), Repeated.REFUSED),
    ),
    21: (Divided(_PARTITIONS, _PARTITIONS),),
    23: (Divided(_PARTITIONS, _PARTITIONS),),
    24: (Divided(("transactions",), ("results_by_transaction",)), Whole(_PAUSES)),
    27: (Divided(("markers", "topics", "partition_indexes"), ("markers", *_PARTITIONS)),),
    28: (Divided(_PARTITIONS, _PARTITIONS),),
    30: (Whole(_PAUSES),),
    31: (Whole(_PAUSES),),
    32: (Divided(("resources",), ("results",), Repeated.DROPPED, _described_resource, at_once=20),),
    33: (Divided(("resources",), ("responses",), Repeated.REFUSED, _resource_name),),
    34: (Divided(("dirs", *_PARTITIONS), ("results", "partitions")),),
    35: (Divided(_PARTITIONS, ("results", *_PARTITIONS)),),
    37: (Whole(_PAUSES),),
    42: (Divided(("groups_names",), ("results",), Repeated.DROPPED),),
    43: (Divided(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),),
    44: (Divided(("resources",), ("responses",), Repeated.REFUSED, _resource_name),),
    45: (Divided(_PARTITIONS, ("responses", "partitions")),),
    46: (Whole(_CHEAP),),
    47: (Divided(_PARTITIONS, _PARTITIONS),),
    48: (Whole("a fourth kind of entity is refused"),),
    49: (Whole(_PAUSES),),
    50: (Divided(("users",), ("results",), Repeated.REFUSED, lambda user: user.name),),
    51: (Whole(_PAUSES),),
    55: (Whole(_FEW),),
    57: (Whole(_FEW),),
    61: (Divided(("topics", "partition_indexes"), _PARTITIONS, Repeated.DROPPED, lambda t, n: (t.name, n)),),
    65: (Divided(("transactional_ids",), ("transaction_states",), Repeated.DROPPED),),
    66: (Whole(_FEW),),
    68: (Whole(_PAUSES),),
    69: (Divided(("group_ids",), ("groups",), Repeated.DROPPED),),
    74: (Whole(_CHEAP),),
    75: (Whole(_PAUSES),),
    76: (Whole(_PAUSES),),
    77: (Divided(("group_ids",), ("groups",), Repeated.DROPPED),),
    78: (Whole(f"{_SESSION}; the handler pauses between slices of it"),),
    79: (Whole(_SESSION),),
    90: (Divided(("groups", *_PARTITIONS), ("groups", *_PARTITIONS), Repeated.DROPPED, _of_share_group),),
    91: (Divided(_PARTITIONS, ("responses", "partitions")),),
    92: (Divided(("topics",), ("responses",), Repeated.DROPPED, lambda topic: topic.topic_name),),
}
"""By API key, for every API whose requests have arrays: one for each array that holds items."""


COSTLY: Final = frozenset(
    key for key, ways in WAYS.items() for way in ways if isinstance(way, Divided) and way.at_once < STEP_ITEMS
)
"""The APIs of which a request that is decoded in one step may have too many items all the same: see `is_many`."""


# --- dividing ---------------------------------------------------------------------------------------------------------


class RequestPart(NamedTuple):
    """A part of a request. `continues`: how many of the structs around its first item the part before ended with."""

    request: Any
    way: Divided
    continues: int


def divided(api_key: int, request: Any) -> list[Divided]:
    """How to divide the request; nothing if it is to be handled whole."""
    return [way for way in WAYS.get(api_key, ()) if isinstance(way, Divided) and getattr(request, way.items[0])]


def is_many(api_key: int, request: Any) -> bool:
    """Whether a request that was decoded in one step still has more items than its handler takes at once."""
    return any(way.at_once < len(getattr(request, way.items[0])) for way in divided(api_key, request))


def parts_of(request: Message, way: Divided) -> Iterator[RequestPart | None]:
    """The request in parts of `at_once` items, or None for as many that were dropped. Lazily, so that each is made in
    its turn of the loop."""
    chains: list[Chain] = []
    seen: set[Hashable] = set()
    before: Chain = ()
    looked_at = 0
    for chain in _chains(request, way.items):
        looked_at += 1
        if way.repeated is Repeated.DROPPED:
            named = way.name(*chain)
            if named not in seen:
                seen.add(named)
                chains.append(chain)
        else:
            chains.append(chain)
        if looked_at == way.at_once:
            # Never a part without items: to some APIs that means all there are.
            yield _part(request, way, chains, before) if chains else None
            before, chains, looked_at = chains[-1] if chains else before, [], 0
    if chains:
        yield _part(request, way, chains, before)
    while seen:  # to free all names in one go takes 50 ms
        for _ in range(min(len(seen), way.at_once)):
            seen.pop()
        yield None


def _repeats(request: Message, way: Divided) -> Steps[frozenset[Hashable]]:
    """The names that occur more than once."""
    seen: set[Hashable] = set()
    repeats: set[Hashable] = set()
    for number, chain in enumerate(_chains(request, way.items), 1):
        name = way.name(*chain)
        (repeats if name in seen else seen).add(name)
        if number % STEP_ITEMS == 0:
            yield
    return frozenset(repeats)


def _chains(message: Any, arrays: tuple[str, ...]) -> Iterator[Chain]:
    """Every item with the structs around it. A struct without items is an item itself, as its answer is."""
    first, *inner = arrays
    for one in getattr(message, first) or ():
        if not inner:
            yield (one,)
        elif getattr(one, inner[0]):
            for chain in _chains(one, tuple(inner)):
                yield (one, *chain)
        else:
            yield (one, *(None for _ in inner))


def _part(request: Message, way: Divided, chains: list[Chain], before: Chain) -> RequestPart:
    made = _copy(request)
    for other in WAYS[request.API_KEY]:  # type: ignore[attr-defined]
        if isinstance(other, Divided):
            setattr(made, other.items[0], [])
    parents: list[tuple[Any, Any]] = []  # those of the last item, and their copies
    for chain in chains:
        parents = _placed(made, way.items, chain, parents)
    continues = 0
    while continues < min(len(before), len(way.items) - 1) and chains[0][continues] is before[continues]:
        continues += 1
    return RequestPart(made, way, continues)


def _placed(made: Any, arrays: tuple[str, ...], chain: Chain, known: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Put the item into the copy, with new copies of the structs around it unless the last item had the same ones."""
    parents: list[tuple[Any, Any]] = []
    inside = made
    is_known = True
    for depth, name in enumerate(arrays[:-1]):
        one = chain[depth]
        is_known = is_known and depth < len(known) and known[depth][0] is one
        if is_known:
            copy = known[depth][1]
        else:
            copy = _copy(one)
            getattr(inside, name).append(copy)
            if not getattr(one, arrays[depth + 1]):
                return parents  # without items: null or empty, as it was
            setattr(copy, arrays[depth + 1], [])
        parents.append((one, copy))
        inside = copy
    getattr(inside, arrays[-1]).append(chain[-1])
    return parents


def _copy(message: Any) -> Any:
    made = object.__new__(type(message))
    for name in type(message).__slots__:
        setattr(made, name, getattr(message, name))
    return made


# --- joining ----------------------------------------------------------------------------------------------------------


def joined(answers: list[tuple[RequestPart, Any]]) -> Any:
    """One answer of those to the parts. An error for a whole part is one for all."""
    failed = next((answer for _, answer in answers if getattr(answer, "error_code", 0)), None)
    if failed is not None:
        return failed
    (first, whole), *others = answers
    _own_arrays(whole, first.way.answers)
    for part, answer in others:
        way = part.way
        _join(whole, answer, way.answers, max(0, part.continues - len(way.items) + len(way.answers)))
        if getattr(answer, "throttle_time_ms", 0) > getattr(whole, "throttle_time_ms", 0):
            whole.throttle_time_ms = answer.throttle_time_ms
    return whole


def _join(whole: Any, answer: Any, arrays: tuple[str, ...], continues: int) -> None:
    first, *inner = arrays
    into, more = getattr(whole, first), getattr(answer, first)
    if not isinstance(into, list):
        into = list(into)
        setattr(whole, first, into)
    if continues and inner and into and more and _is_same(into[-1], more[0]):
        _join(into[-1], more[0], tuple(inner), continues - 1)
        more = more[1:]
    into += more


def _own_arrays(message: Any, arrays: tuple[str, ...]) -> None:
    """What is joined to must not be a list that a handler keeps."""
    setattr(message, arrays[0], list(getattr(message, arrays[0])))


def _is_same(one: Message, other: Message) -> bool:
    """Whether both are answers for one struct of the request: what they name is the same."""
    return all(
        getattr(one, field.name) == getattr(other, field.name)
        for field in type(one).SCHEMA
        if field.kind in ("string", "uuid") and not field.is_array and field.name != "error_message"
    )


# --- handling ---------------------------------------------------------------------------------------------------------

Noted = Callable[[Any], Callable[[Any], None]]
"""For a part that is begun: what to call with its answer."""


async def handle_in_parts(call: Call, handle: Handler, request: Any, noted: Noted) -> Any:
    """What `handle` answers to the request, which is divided if its API allows it: the answer, a `Later`, or None."""
    turns = call.node.turns
    answers: list[tuple[RequestPart, Any]] = []
    ways = divided(request.API_KEY, request)
    if not ways:
        return await _reply_of(handle(call, request), noted(request))
    for way in ways:
        if way.repeated is Repeated.REFUSED:
            call.repeats = await turns.run(_repeats(request, way))
            await turns.next()
        for part in parts_of(request, way):
            if part is not None:
                reply = await _reply_of(handle(call, part.request), noted(part.request))
                answers.append((part._replace(request=None), reply))
            await turns.next()
    if any(isinstance(answer, asyncio.Future) for _, answer in answers):
        return asyncio.ensure_future(_all(answers), loop=call.node.loop)
    return joined(answers) if answers[0][1] is not None else None


async def _reply_of(reply: Any, note: Callable[[Any], None]) -> Any:
    if isinstance(reply, Coroutine):
        reply = await reply
    if not isinstance(reply, asyncio.Future):
        note(reply)
    return reply


async def _all(answers: list[tuple[RequestPart, Message | Later | None]]) -> Any:
    known = [(part, await one if isinstance(one, asyncio.Future) else one) for part, one in answers]
    return joined(known) if known[0][1] is not None else None
