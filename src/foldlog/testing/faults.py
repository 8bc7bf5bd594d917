"""Faults of a broker that a test asked for: which requests they strike, and what becomes of these.

A fault is added and cleared by the test, on any thread, and strikes on the thread of the broker's event loop. While
there is one, `Faults` stands between every request and its handler; without one the broker does not know of it.
"""

from __future__ import annotations

import asyncio
import difflib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.server.call import Call, Disconnect, Handler
from foldlog.testing.error_answers import Waiting, answered, kept, refusing, topics_named
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import APIS, NAMES

if TYPE_CHECKING:
    from foldlog.server.node import BrokerNode
    from foldlog.wire.schema import Message

When = Literal["before", "after"]

_Kind = TypeVar("_Kind", bound="RequestFault")

_DELAY_MAX_S: Final = 1e6
_WHENS: Final = ("before", "after")


class RequestFault:
    """A fault that strikes requests: `struck` says how many so far. Any thread.

    It ends when it has struck as often as it should, with `clear`, with its `with` block, or with the test.
    """

    def __init__(
        self, describe: str, matches: Callable[[Call, int, Any], bool], times: int | None, end: Callable[[Any], None]
    ) -> None:
        """Use `KafkaBroker.fail` and the like."""
        self._describe = describe
        self._matches = matches
        self._times = times
        self._end = end
        self._moved = threading.Condition()
        self._struck = 0
        self.is_cleared = False

    @property
    def struck(self) -> int:
        """How many requests it has struck."""
        return self._struck

    @property
    def is_over(self) -> bool:
        """Whether it strikes no more: it has struck as often as it should, or was cleared."""
        return self.is_cleared or (self._times is not None and self._struck >= self._times)

    def wait(self, times: int = 1, timeout: float = 30.0) -> None:
        """Return once it has struck so often. TimeoutError, which says how often it did, after `timeout` seconds."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._struck >= times, timeout):
                raise TimeoutError(f"{self._describe} struck {self._struck} of {times} times within {timeout:g} s")

    def clear(self) -> None:
        """End it: it strikes no more, and requests that it holds up go on."""
        self.is_cleared = True
        self._end(self)

    def strikes(self, call: Call, api_key: int, request: Any) -> bool:
        """Whether it strikes this request, which is counted then. Event loop only."""
        if self.is_over or not self._matches(call, api_key, request):
            return False
        with self._moved:
            self._struck += 1
            self._moved.notify_all()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def __repr__(self) -> str:
        return f"<{self._describe}: struck {self._struck}{', over' if self.is_over else ''}>"


class _Failing(RequestFault):
    """The request has no effect and is answered with an error."""

    code: ErrorCode


class _Dropping(RequestFault):
    """The connection is closed before or after the request has its effect."""

    when: When


class _Delaying(RequestFault):
    """The request waits before it has its effect: so many seconds, or until the fault is cleared."""

    seconds: float | None


class Faults:
    """The faults of one broker, wherever it is started. An `Interceptor`; the rest is for any thread."""

    def __init__(self, intercept: Callable[[Faults | None], None]) -> None:
        """`intercept` puts this, or nothing, between requests and handlers."""
        self._intercept = intercept
        self._lock = threading.Lock()
        self._faults: list[RequestFault] = []
        self._waiting: dict[Waiting, tuple[BrokerNode, RequestFault]] = {}
        self._is_stopping = False

    # --- the test's side ----------------------------------------------------------------------------------------------

    def fail(
        self, api: str, error: str | int, times: int | None, topic: str | None, client_id: str | None
    ) -> RequestFault:
        code = parse_error(error)
        fault = self._made(_Failing, f"fail({api!r}, error={code.name!r})", api, times, topic, client_id)
        fault.code = code
        return self._add(fault)

    def drop(self, api: str, when: When, times: int | None, topic: str | None, client_id: str | None) -> RequestFault:
        if when not in _WHENS:
            raise InvalidArgument(f"when={brief_repr(when)} is not allowed; it is 'before' or 'after' the effect")
        fault = self._made(_Dropping, f"drop_connection({api!r}, when={when!r})", api, times, topic, client_id)
        fault.when = when
        return self._add(fault)

    def delay(
        self, api: str, seconds: float, times: int | None, topic: str | None, client_id: str | None
    ) -> RequestFault:
        if type(seconds) not in (int, float) or not 0 <= seconds < _DELAY_MAX_S:
            raise InvalidArgument(f"seconds={brief_repr(seconds)} is not a time to wait, such as 0.5")
        fault = self._made(_Delaying, f"delay({api!r}, {seconds:g})", api, times, topic, client_id)
        fault.seconds = seconds
        return self._add(fault)

    def pause(self) -> RequestFault:
        fault = _Delaying("pause()", lambda *_: True, None, self._end)
        fault.seconds = None
        return self._add(fault)

    def resume(self) -> None:
        """End every pause."""
        for fault in self._known():
            if isinstance(fault, _Delaying) and fault.seconds is None:
                fault.clear()

    def clear(self) -> None:
        for fault in self._known():
            fault.clear()

    def let_go(self) -> None:
        """The broker stops: pauses end, and what is delayed goes on at once."""
        with self._lock:
            self._is_stopping = True  # before pauses end: what a pause held up may be delayed next
        self.resume()
        with self._lock:
            held = [(node, waiting) for waiting, (node, _) in self._waiting.items()]
        for node, waiting in held:
            node.soon(_finish, waiting)

    def started(self) -> None:
        """The broker was started again: the faults that are left strike there."""
        with self._lock:
            self._is_stopping = False
            self._intercept(self if self._faults else None)

    def _known(self) -> list[RequestFault]:
        with self._lock:
            return list(self._faults)

    def _made(
        self, kind: type[_Kind], said: str, api: str, times: int | None, topic: str | None, client_id: str | None
    ) -> _Kind:
        key = parse_api(api)
        if times is not None and (type(times) is not int or times < 1):
            raise InvalidArgument(f"times={brief_repr(times)} is not a number from 1 on, or None for every time")

        def matches(call: Call, api_key: int, request: Any) -> bool:
            return (
                api_key == key
                and client_id in (None, call.client_id)
                and (topic is None or topic in topics_named(call, request))
            )

        return kind(said, matches, times, self._end)

    def _add(self, fault: RequestFault) -> RequestFault:
        with self._lock:
            self._faults.append(fault)
            self._intercept(self)
        return fault

    def _end(self, fault: RequestFault) -> None:
        """Forget it, and let go on what it holds up."""
        with self._lock:
            if fault in self._faults:
                self._faults.remove(fault)
            if not self._faults:
                self._intercept(None)
            held = [(node, waiting) for waiting, (node, holder) in self._waiting.items() if holder is fault]
        for node, waiting in held:
            node.soon(_finish, waiting)

    # --- the broker's side: event loop only ---------------------------------------------------------------------------

    def __call__(self, api_key: int, handle: Handler) -> Handler:
        def struck(call: Call, request: Any) -> Any:
            # Each kind of fault once: a request can be held up, and then fail.
            faults = self._known()
            delays = [fault for fault in faults if isinstance(fault, _Delaying)]
            delays = [fault for fault in delays if fault.strikes(call, api_key, request)]
            ends = (fault for fault in faults if not isinstance(fault, _Delaying))
            last = next((fault for fault in ends if fault.strikes(call, api_key, request)), None)
            self._forget_those_over()
            then = _ended_by(last, handle)
            if not delays:
                return then(call, request)
            kept(request)
            return self._held_up(delays, then, call, request)

        return struck

    def _forget_those_over(self) -> None:
        with self._lock:
            self._faults = [fault for fault in self._faults if not fault.is_over]
            if not self._faults:
                self._intercept(None)

    async def _held_up(self, delays: list[_Delaying], then: Handler, call: Call, request: Any) -> Any:
        for delay in delays:
            await self._wait(delay, call.node)
        reply = then(call, request)
        if asyncio.iscoroutine(reply):
            reply = await reply
        if isinstance(reply, asyncio.Future) or reply is None:
            return reply
        # As one that came later: the records of a Fetch are in buffers that are kept until it is answered.
        later = call.node.loop.create_future()
        later.set_result(reply)
        return later

    async def _wait(self, delay: _Delaying, node: BrokerNode) -> None:
        waiting: Waiting = node.loop.create_future()
        with self._lock:
            if delay.is_cleared or self._is_stopping:
                return
            self._waiting[waiting] = (node, delay)
        timer = None if delay.seconds is None else node.loop.call_later(delay.seconds, _finish, waiting)
        try:
            await waiting
        finally:
            if timer is not None:
                timer.cancel()
            with self._lock:
                del self._waiting[waiting]


def _finish(waiting: Waiting) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _ended_by(fault: RequestFault | None, handle: Handler) -> Handler:
    """What answers a request that this fault strikes."""
    if isinstance(fault, _Failing):
        return refusing(fault.code, handle)
    if isinstance(fault, _Dropping):
        return _dropping_after(handle) if fault.when == "after" else _dropping
    return handle


def _dropping(call: Call, request: Any) -> Message:
    raise Disconnect("a test asked for it, before the request had an effect")


def _dropping_after(handle: Handler) -> Handler:
    async def drop(call: Call, request: Any) -> Message:
        await answered(handle, call, request)
        raise Disconnect("a test asked for it, after the request had its effect")

    return cast(Handler, drop)


def parse_api(name: str) -> int:
    """The key of an API by its name in Kafka's protocol, such as "Produce"."""
    known = {NAMES[key]: key for key in APIS}
    if name not in known:
        near = difflib.get_close_matches(str(name), known, 1, 0.6) or [
            one for one in known if one.lower() == str(name).lower()
        ]
        hint = f"; is it {near[0]!r}?" if near else "; docs/reference/kafka_apis.md lists them"
        raise InvalidArgument(f"{brief_repr(name)} is not an API of Kafka's protocol that is served{hint}")
    return known[name]


def parse_error(error: str | int) -> ErrorCode:
    """An error by its name or its number in Kafka's protocol."""
    if isinstance(error, str) and error in ErrorCode.__members__:
        found = ErrorCode[error]
    elif isinstance(error, int) and not isinstance(error, bool) and error in set(ErrorCode):
        found = ErrorCode(error)
    else:
        near = difflib.get_close_matches(str(error).upper(), ErrorCode.__members__, 1, 0.6)
        hint = f"; is it {near[0]!r}?" if near else "; give its name, such as 'NOT_LEADER_OR_FOLLOWER', or its code"
        raise InvalidArgument(f"error={brief_repr(error)} is not an error of Kafka's protocol{hint}")
    if found is ErrorCode.NONE:
        raise InvalidArgument("error='NONE' is no error; give one, such as 'NOT_LEADER_OR_FOLLOWER'")
    return found
