"""The scene "Log or queue?": the same records through a log and through a queue, read by the same two readers.

One scene for a console, whoever looks at it. The log's half is in the log, and stays there until a reset; the queue and
what its readers took are in memory, and end with the broker. See docs/console_api.md.
"""

from __future__ import annotations

import inspect
import textwrap
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.errors import brief_repr
from foldlog.limits import CONSOLE_SCENE_RECORDS_MAX, CONSOLE_SCENE_VALUE_CHARS_MAX
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.parameters import JsonBody, bad_request
from foldlog.server.console.queue import Queue
from foldlog.server.console.scene_log import SCENE_TOPIC, SceneLog, group_of
from foldlog.server.http_routes import Request, Response, Route

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from foldlog.broker.broker import Broker
    from foldlog.clock import Clock
    from foldlog.records.loops import Record
    from foldlog.server.node import Node

READERS: Final = ("billing", "search")
SIDES: Final = ("log", "queue")

_SHOWN: Final[Mapping[str, Callable[..., object]]] = {
    "append": SceneLog.append,
    "read": SceneLog.read,
    "dequeue": Queue.dequeue,
}
"""What the page shows beside the scene is what runs in it."""


class ReaderCrashed(Exception):
    """A reader dies with a record in its hands, before it has done anything with it."""


class Numbered(NamedTuple):
    """A value, and the offset that the same value has in the log: so that one can tell which it is on both sides."""

    offset: int
    value: str

    def shown(self) -> dict[str, Any]:
        return {"offset": self.offset, "value": self.value}


@dataclass
class _LogReader:
    """What a reader of the log has been through. Where it stands is not here: the log keeps its bookmark."""

    is_down: bool = False
    had: set[int] = field(default_factory=set)
    again: list[int] = field(default_factory=list)


@dataclass
class _QueueReader:
    """What a reader of the queue has taken out of it, and what became of that."""

    is_down: bool = False
    handled: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


class Scene:
    """Both halves. On a worker thread, one step at a time; each step answers what it did and how things stand then."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._log = SceneLog(broker, clock)
        self._forget()

    def _forget(self) -> None:
        self._queue = Queue[Numbered]()
        self._enqueued = 0
        self._log_readers = {name: _LogReader() for name in READERS}
        self._queue_readers = {name: _QueueReader() for name in READERS}

    def state(self) -> dict[str, Any]:
        with self._lock:
            return self._state()

    def append(self, value: str) -> dict[str, Any]:
        """To both. 409 when the scene is full."""
        with self._lock:
            if not self._log.is_made:
                self._forget()
                self._log.make()
            _, end = self._log.bounds()
            if end >= CONSOLE_SCENE_RECORDS_MAX:
                raise ApiError(
                    HTTPStatus.CONFLICT,
                    f"the scene has had its {CONSOLE_SCENE_RECORDS_MAX} records; reset it to begin anew",
                )
            record = Numbered(self._log.append(value), value)
            self._queue.enqueue(record)
            self._enqueued += 1
            return self._did("append", record)

    def read(self, reader: str, *, crash: bool = False) -> dict[str, Any]:
        """The next record of the log for a reader's group, which commits it unless it crashes."""
        with self._lock:
            tale = self._log_readers[reader]
            tale.is_down = False
            held: list[Record] = []

            def handle(record: Record) -> None:
                held.append(record)
                if record.offset in tale.had:
                    tale.again.append(record.offset)
                tale.had.add(record.offset)
                if crash:
                    raise ReaderCrashed

            try:
                self._log.read(group_of(reader), handle)
            except ReaderCrashed:
                tale.is_down = True
            return self._did("crash" if tale.is_down else "read", _numbered(held[0]) if held else None, "log", reader)

    def dequeue(self, reader: str, *, crash: bool = False) -> dict[str, Any]:
        """The head of the queue for a reader; nobody has it any more if that one crashes."""
        with self._lock:
            tale = self._queue_readers[reader]
            record = self._queue.dequeue()
            tale.is_down = crash and record is not None
            if record is not None:
                (tale.lost if crash else tale.handled).append(record.offset)
            return self._did("crash" if tale.is_down else "dequeue", record, "queue", reader)

    def reset(self) -> dict[str, Any]:
        """Remove the topic and its groups, and begin anew."""
        with self._lock:
            self._log.remove([group_of(reader) for reader in READERS])
            self._forget()
            return self._did("reset", None)

    def _did(
        self, verb: str, record: Numbered | None, side: str | None = None, reader: str | None = None
    ) -> dict[str, Any]:
        shown = None if record is None else record.shown()
        return {"did": {"verb": verb, "side": side, "reader": reader, "record": shown}, **self._state()}

    def _state(self) -> dict[str, Any]:
        start, end = self._log.bounds()
        return {
            "topic": SCENE_TOPIC,
            "records_max": CONSOLE_SCENE_RECORDS_MAX,
            "log": {
                "start": start,
                "end": end,
                "records": [record.shown() for record in self._last_records(start, end)],
                "readers": [self._log_reader(name, end) for name in READERS],
            },
            "queue": {
                "enqueued": self._enqueued,
                "records": [record.shown() for record in self._queue.waiting()],
                "readers": [
                    {"reader": name, "is_down": tale.is_down, "handled": [*tale.handled], "lost": [*tale.lost]}
                    for name, tale in self._queue_readers.items()
                ],
            },
        }

    def _last_records(self, start: int, end: int) -> list[Numbered]:
        """Few: others may write to the topic, too, as to any."""
        offset = max(start, end - CONSOLE_SCENE_RECORDS_MAX)
        found: list[Numbered] = []
        while offset < end and (record := self._log.record_at(offset)) is not None:
            found.append(_numbered(record))
            offset = record.offset + 1
        return found

    def _log_reader(self, name: str, end: int) -> dict[str, Any]:
        group, tale = group_of(name), self._log_readers[name]
        offset = self._log.bookmark(group)
        return {
            "reader": name,
            "group": group,
            "offset": offset,
            "lag": end - offset,
            "is_down": tale.is_down,
            "again": [*tale.again],
        }


def _numbered(record: Record) -> Numbered:
    return Numbered(record.offset, (record.value or b"").decode(errors="replace")[:CONSOLE_SCENE_VALUE_CHARS_MAX])


class ScenePages:
    """The scene's routes. The event loop's; the scene itself is played on the console's threads."""

    def __init__(self, node: Node, workers: Executor) -> None:
        self._node = node
        self._workers = workers
        self._scene = Scene(node.broker, node.clock)

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/api/scene", self.state),
            Route("GET", "/api/scene/code", self.code),
            Route("POST", "/api/scene/append", self.append),
            Route("POST", "/api/scene/read", self.read),
            Route("POST", "/api/scene/dequeue", self.dequeue),
            Route("POST", "/api/scene/crash", self.crash),
            Route("POST", "/api/scene/reset", self.reset),
        ]

    async def state(self, _: Request) -> Response:
        return await self._play(self._scene.state)

    async def code(self, _: Request) -> Response:
        return await self._play(lambda: {name: _source(method) for name, method in _SHOWN.items()})

    async def append(self, request: Request) -> Response:
        body = JsonBody(request)
        value = body.text("value")
        body.end()
        if not 0 < len(value) <= CONSOLE_SCENE_VALUE_CHARS_MAX or not _is_utf8(value):
            raise bad_request(
                f"value={brief_repr(value)} is not allowed; it is 1 to {CONSOLE_SCENE_VALUE_CHARS_MAX} characters"
            )
        return await self._play(partial(self._scene.append, value))

    async def read(self, request: Request) -> Response:
        return await self._play(partial(self._scene.read, _reader(request)))

    async def dequeue(self, request: Request) -> Response:
        return await self._play(partial(self._scene.dequeue, _reader(request)))

    async def crash(self, request: Request) -> Response:
        body = JsonBody(request)
        side, reader = _one_of(body, "side", SIDES), _one_of(body, "reader", READERS)
        body.end()
        step = self._scene.read if side == "log" else self._scene.dequeue
        return await self._play(partial(step, reader, crash=True))

    async def reset(self, request: Request) -> Response:
        JsonBody(request).end()
        return await self._play(self._scene.reset)

    async def _play(self, step: Callable[[], dict[str, Any]]) -> Response:
        return Response.json(await self._node.loop.run_in_executor(self._workers, step))


def _source(method: Callable[..., object]) -> str:
    """As it stands in its file; "" where only the compiled file is installed."""
    try:
        return textwrap.dedent(inspect.getsource(method)).rstrip()
    except OSError:
        return ""


def _reader(request: Request) -> str:
    body = JsonBody(request)
    reader = _one_of(body, "reader", READERS)
    body.end()
    return reader


def _one_of(body: JsonBody, name: str, allowed: tuple[str, ...]) -> str:
    value = body.text(name)
    if value not in allowed:
        raise bad_request(f"{name}={brief_repr(value)} is not allowed; it is {' or '.join(allowed)}")
    return value


def _is_utf8(value: str) -> bool:
    """A lone half of a surrogate pair can be written in JSON, and is no text."""
    return not any("\ud800" <= each <= "\udfff" for each in value)
