"""A broker in memory as its handlers see it, on an event loop that a test turns by hand, with a clock of its own.

What a handler answers goes through the codec and back, so a test sees what a client of that version would see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from importlib import import_module
from typing import Any, TypeVar

from foldlog.broker.access.acls import ANONYMOUS, AclOperation, Identity, ResourceType
from foldlog.broker.broker import Broker
from foldlog.files.base import Files
from foldlog.files.memory import MemoryFiles
from foldlog.server.authorizer import Authorizer
from foldlog.server.call import Call, Caller, ClientSoftware, Endpoint, Later
from foldlog.server.config.settings import ServerSettings
from foldlog.server.metrics.metrics import Metrics
from foldlog.server.net.memory import FrameBuffer, ReadBuffers
from foldlog.server.node import BrokerNode
from foldlog.testing.sim_clock import SimClock
from foldlog.wire.codec import decode, encode
from foldlog.wire.messages import APIS
from foldlog.wire.schema import Request, Response

ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
DIRECTORY = "data"

Result = TypeVar("Result")


class Denies:
    """Allows everything but some operations on some kinds of things."""

    def __init__(self, *denied: tuple[AclOperation, ResourceType]) -> None:
        self._denied = frozenset(denied)

    def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return (operation, kind) not in self._denied

    def allows_some(self, who: Identity, operation: AclOperation, kind: ResourceType) -> bool:
        return (operation, kind) not in self._denied


class SmallNode:
    """One broker without a background, and the loop its handlers run on. Close it."""

    def __init__(
        self,
        files: Files | None = None,
        *,
        authorizer: Authorizer | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.clock = SimClock()
        self.loop = asyncio.new_event_loop()
        self.software = ClientSoftware()
        parsed = ServerSettings.parse(settings or {})
        self.broker = Broker.open(
            DIRECTORY,
            files=files or MemoryFiles(),
            clock=self.clock,
            background=False,
            topic_defaults=parsed.topic_defaults,
            group_settings=parsed.group_settings(),
            tier=parsed.tier,
        )
        self.node = BrokerNode(self.broker, parsed, Metrics(), self.loop, authorizer)

    def close(self) -> None:
        self.stop_serving()
        self.broker.close()

    def stop_serving(self) -> None:
        """Close the loop as a server does that was stopped, and leave the log open."""
        if not self.loop.is_closed():
            self.node.close()
            self.loop.close()

    def call(
        self,
        version: int,
        *,
        client_id: str | None = "test",
        host: str = "127.0.0.1",
        who: Identity | None = None,
    ) -> Call:
        appends = self.node.appenders.queue(FrameBuffer())
        caller = Caller(
            host,
            who or Identity(ANONYMOUS, host),
            ENDPOINT,
            ReadBuffers(lambda: True, self.node.read_pool),
            appends,
            self.software,
        )
        return Call(self.node, caller, version, client_id)

    def begin(self, request: Request, version: int, **caller: Any) -> Later:
        """Hand the request to its handler; the answer comes when it comes, see `answer`."""
        call = self.call(version, **caller)
        module = import_module(f"foldlog.server.handlers.{APIS[request.API_KEY].module}")
        received = decode(type(request), version, encode(request, version))

        async def handle() -> Later:
            reply = module.handle(call, received)
            if isinstance(reply, Coroutine):
                reply = await reply
            if isinstance(reply, asyncio.Future):
                return reply
            done = self.loop.create_future()
            done.set_result(reply)
            return done

        return self.run(handle())

    def answer(self, later: Later, version: int) -> Any:
        """Wait for an answer, and read it as a client does."""
        response = self.run(asyncio.wait_for(asyncio.shield(later), 30))
        assert isinstance(response, Response)
        return decode(type(response), version, encode(response, version))

    def ask(self, request: Request, version: int, **caller: Any) -> Any:
        """The answer to a request."""
        return self.answer(self.begin(request, version, **caller), version)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    def turn(self, times: int = 5) -> None:
        """Let the loop do what it has to do now, without waiting for anything."""
        for _ in range(times):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def advance(self, by_ms: int) -> None:
        """Time passes, and what is due in the broker's background happens."""
        self.clock.advance(by_ms)
        self.broker.run_due()
        self.turn()
