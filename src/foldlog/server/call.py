"""One request, as its handler sees it, and what a handler may answer with."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from foldlog.server.append_lanes import AppendLane
from foldlog.server.authorizer import CLUSTER_NAME, Operation, ResourceType
from foldlog.server.buffers import ReadBuffers
from foldlog.wire.schema import Message

if TYPE_CHECKING:
    from foldlog.server.node import Node


class Disconnect(Exception):
    """Raised by a handler to close the connection where the protocol has no other answer; says why, for the log."""


class Endpoint(NamedTuple):
    """A listener, and the address that its clients are told to connect to."""

    name: str
    host: str
    port: int


class Caller(NamedTuple):
    """Who is at the other end of a connection, and through which listener it came.

    `buffers` is memory of that connection for the records of its next answer, `lane` the way of its large batches.
    """

    host: str
    principal: str
    endpoint: Endpoint
    buffers: ReadBuffers
    lane: AppendLane


class Call:
    """What belongs to a request besides its message. Made and used on the event loop."""

    __slots__ = ("caller", "client_id", "node", "version")

    def __init__(self, node: Node, caller: Caller, version: int, client_id: str | None) -> None:
        self.node = node
        self.caller = caller
        self.version = version
        self.client_id = client_id

    def allows(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether who calls may do that."""
        return self.node.authorizer.allows(self.caller.principal, operation, kind, name)


Later = asyncio.Future[Any]
"""An answer that is still to come: the connection goes on with its next request, and keeps the order of answers."""

Reply = Message | Later | Coroutine[Any, Any, "Message | Later | None"] | None
"""What a handler returns.

- A message: the answer.
- A `Later`: the answer comes when it comes (long polls, acknowledgements); the next request of the connection starts
  meanwhile. It resolves to the message, or to None where none is sent.
- A coroutine (`async def handle`): nothing else of this connection starts before it is done; it gives one of the above.
- None: there is no answer (Produce with acks=0).

The request's `records` are views into the connection's buffer, and valid until the handler returns or first awaits.
"""


class Handler(Protocol):
    """`handle` of a module in `foldlog.server.handlers`. It runs on the event loop and must not block it.

    What may take longer goes to a thread with `await call.node.run(function, ...)`. What a client did wrong is an
    error code in the answer; an exception that leaves a handler closes the connection and is logged.
    """

    def __call__(self, call: Call, request: Any) -> Reply: ...
