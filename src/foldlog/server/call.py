"""One request from its handler's view: how the handler is found, what it gets, and what it may return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from foldlog.broker.access.acls import ANONYMOUS, CLUSTER_NAME, AclOperation, Identity, ResourceType
from foldlog.limits import STEP_BYTES
from foldlog.server.net.append_queues import AppendQueue
from foldlog.server.net.listeners import PLAINTEXT
from foldlog.server.net.memory import ReadBuffers
from foldlog.server.net.turns import at_once
from foldlog.server.topic_admin import repeated
from foldlog.wire.codec import Steps, decoder, step_decoder
from foldlog.wire.frames import request_class
from foldlog.wire.messages import APIS, NAMES
from foldlog.wire.schema import Message, Records, Request

if TYPE_CHECKING:
    from foldlog.server.access.logins import Login
    from foldlog.server.node import BrokerNode
    from foldlog.server.produce_fast_path import Found


Name = TypeVar("Name", bound=Hashable)


class Disconnect(Exception):
    """Raised by a handler to close the connection if the protocol has no other answer; the text is for the log."""


class Endpoint(NamedTuple):
    """A listener, the address that it advertises to clients, its security protocol, and who its clients are until they
    say so themselves."""

    name: str
    host: str
    port: int
    protocol: str = PLAINTEXT
    principal: str = ANONYMOUS


class ClientSoftware:
    """What a client said of itself in ApiVersions, and its port. Replaced when it says so again."""

    __slots__ = ("name", "port", "version")

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.name = self.version = "unknown"


class Caller(NamedTuple):
    """The client of a connection, and its listener.

    `buffers` is memory of that connection for the records of its next answer, `append_queue` the queue for its large
    batches.
    """

    host: str
    who: Identity
    endpoint: Endpoint
    buffers: ReadBuffers
    append_queue: AppendQueue
    software: ClientSoftware
    login: Login | None = None  # of a listener where clients log in


class Call:
    """What a handler gets besides the request message. Created and used on the event loop.

    `found`: why the fast path, after checking the one batch of a Produce, did not append it. `repeats`: what a request
    that is handled in parts names more than once.
    """

    __slots__ = ("caller", "client_id", "found", "node", "repeats", "version")

    def __init__(
        self, node: BrokerNode, caller: Caller, version: int, client_id: str | None, found: Found | None = None
    ) -> None:
        self.node = node
        self.caller = caller
        self.version = version
        self.client_id = client_id
        self.found = found
        self.repeats: frozenset[Hashable] | None = None

    def repeated(self, names: Iterable[Name]) -> set[Name]:
        """The names that the request has more than once. Of a request that is handled in parts: the whole request."""
        if self.repeats is not None:
            return {name for name in names if name in self.repeats}
        return repeated(names)

    def allows(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the caller may do that."""
        return self.node.authorizer.allows(self.caller.who, operation, kind, name)

    def allows_some(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there can be a resource of that kind with which the caller may do that."""
        return self.node.authorizer.allows_some(self.caller.who, operation, kind)


Later = asyncio.Future[Any]
"""A pending answer: the connection goes on with its next request, and keeps the order of answers."""

Reply = Message | Later | Coroutine[Any, Any, "Message | Later | None"] | None
"""What a handler returns.

- A message: the answer.
- A `Later`: the answer comes when it comes (long polls, acknowledgements); the next request of the connection starts
  meanwhile. It resolves to the message, or to None where none is sent.
- A coroutine (`async def handle`): the connection starts nothing else before it is done; it returns one of the above.
- None: there is no answer (Produce with acks=0).

The request's `records` are views into the connection's buffer, and valid until the handler returns or first awaits.
"""


class Handler(Protocol):
    """`handle` of a module in `foldlog.server.handlers`. It runs on the event loop and must not block it.

    Work that may take longer goes to a thread with `await call.node.run(function, ...)`. Mistakes of a client become
    error codes in the answer; an exception that leaves a handler closes the connection and is logged.
    """

    def __call__(self, call: Call, request: Any) -> Reply: ...


class Interceptor(Protocol):
    """Stands between the requests of a node and their handlers; see `BrokerNode.interceptor`. Event loop only."""

    def __call__(self, api_key: int, handle: Handler) -> Handler:
        """The handler for the next request of this API: `handle`, or another one in its place."""
        ...


# --- whether an answer has an error, for any API: looked up where its schema has error codes --------------------------

_CODES: Final = ("error_code", "partition_error_code")
"""Kafka's names for it: AddPartitionsToTxn has the second one."""


def has_error(answer: Message) -> bool:
    """Whether the answer, or a part of it, has an error code other than 0.

    >>> from foldlog.wire.messages.heartbeat import HeartbeatResponse
    >>> has_error(HeartbeatResponse(error_code=27)), has_error(HeartbeatResponse())
    (True, False)
    """
    find = _finder_of(type(answer))
    return find is not None and bool(find(answer))


_Finder = Callable[[Any], object]
"""Returns something true for a message with an error code."""


_finders: dict[type, _Finder | None] = {}
"""By class: each schema is walked once, not for every answer."""


def _finder_of(kind: type[Message]) -> _Finder | None:
    if kind not in _finders:
        _finders[kind] = _make_finder(kind)
    return _finders[kind]


def _make_finder(kind: type[Message]) -> _Finder | None:
    """A function that finds error codes in messages of this class; None if there can be none."""
    parts: dict[str, tuple[bool, _Finder]] = {}
    for field in kind.SCHEMA:
        find = None if field.item is None else _finder_of(field.item)
        if find is not None:
            parts[field.name] = (field.is_array, find)
    code = next((field.name for field in kind.SCHEMA if field.name in _CODES), None)
    if not parts:
        # Just a getter, as for most: `any(map(...))` over a hundred partitions then runs without Python code.
        return None if code is None else attrgetter(code)

    def find_code(message: Any) -> bool:
        if code is not None and getattr(message, code):
            return True
        for name, (is_array, find) in parts.items():
            part = getattr(message, name)
            if part and (any(map(find, part)) if is_array else find(part)):
                return True
        return False

    return find_code


# --- from an API key and a version to the functions that decode and handle it -----------------------------------------


class ServedApi(NamedTuple):
    """The functions that serve one version of one API. A large request is decoded in steps."""

    kind: type[Request]
    version: int
    decode: Callable[[Records, int, int], Request]
    handle: Handler

    def decode_in_steps(self, frame: Records, position: int, end: int) -> Steps[Request]:
        return step_decoder(self.kind, self.version)(frame, position, end)

    def decoded_at_once(self, frame: Records, position: int, end: int) -> Request | None:
        """The request; None if it has too many items to decode all of them in one turn of the event loop."""
        if end - position <= STEP_BYTES:
            return self.decode(frame, position, end)
        return at_once(self.decode_in_steps(frame, position, end))


_SERVED: dict[tuple[int, int], ServedApi] = {}
"""By API key and version; filled with the first request of each, so that unused handlers are not imported."""


def served_api(api_key: int, version: int) -> ServedApi | None:
    """The functions for an API version; None if it is not served."""
    known = _SERVED.get((api_key, version))
    if known is not None:
        return known
    api = APIS.get(api_key)
    if api is None or not api.first <= version <= api.last:
        return None  # not remembered: a client may make up as many as it likes
    module = import_module(f"foldlog.server.handlers.{api.module}")
    kind = request_class(api_key)
    made = ServedApi(kind, version, decoder(kind, version), module.handle)
    _SERVED[api_key, version] = made
    return made


def describe(api_key: int, version: int) -> str:
    """The API's name and version, for a line in the log."""
    name = NAMES.get(api_key)
    return f"API {api_key}" if name is None else f"{name} v{version}"
