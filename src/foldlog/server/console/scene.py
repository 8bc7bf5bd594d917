"""The scene "Log or queue?": the same records through a log and through a queue, read by the same two readers.

One scene per console, for all its pages. The log's half is in the log, and stays there until a reset; the queue and
what its readers took are in memory, and end with the broker. See docs/reference/console_api.md.
"""

from __future__ import annotations

import inspect
import textwrap
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.topics.names import SCENE_TOPIC
from foldlog.errors import UnknownGroup, brief_repr
from foldlog.limits import CONSOLE_SCENE_RECORDS_MAX, CONSOLE_SCENE_VALUE_CHARS_MAX
from foldlog.records.loops import Record, pack
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.parameters import JsonBody, bad_request
from foldlog.server.console.records import bounds, next_record
from foldlog.server.console.rights import READ, WRITE, nothing, of_scene
from foldlog.server.console.topics import open_partition
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from foldlog.broker.broker import Broker
    from foldlog.clock import Clock
    from foldlog.log.partition import Partition
    from foldlog.server.node import BrokerNode

Handle = Callable[[Record], None]
"""What a reader does with a record; it may raise, which is a crash."""


def group_of(reader: str) -> str:
    """
    >>> group_of("billing")
    '__log_or_queue.billing'
    """
    return f"{SCENE_TOPIC}.{reader}"


class SceneLog:
    """The log's half: a real topic of this broker, read by real groups, with the offsets that they have committed.

    The topic is `__log_or_queue`, of one partition; the groups are `__log_or_queue.billing` and so on. Everything so
    named is the scene's: listings leave it out, and a reset deletes it. On a worker thread: it waits for syncs. Nothing
    is remembered here.
    """

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock

    # The page shows these two methods as they stand.
    def append(self, value: str) -> int:
        offset = self._write(value)  # at the right end, never over another
        self._wait_until_durable(offset)  # on disk before anybody is told
        return offset

    def read(self, group: str, handle: Handle) -> Record | None:
        offset = self.bookmark(group)  # where this group stands
        record = self.record_at(offset)  # a look: the log stays as it is
        if record is None:
            return None  # it has caught up; more will come
        handle(record)  # a crash in here leaves the bookmark
        self._commit(group, record.offset + 1)  # all that moves
        return record

    @property
    def is_made(self) -> bool:
        return self._broker.find_topic(SCENE_TOPIC) is not None

    def make(self) -> None:
        self._broker.create_topic(SCENE_TOPIC)

    def remove(self, groups: list[str]) -> None:
        """Delete the topic, its records and its groups; GroupNotEmpty if another client has joined one of them."""
        for group in groups:
            with suppress(UnknownGroup):
                self._broker.delete_group(group)
        if self.is_made:
            self._broker.delete_topic(SCENE_TOPIC)

    def bounds(self) -> tuple[int, int]:
        """Start and end of the log; 0 and 0 if the topic does not exist."""
        return bounds(self._partition()) if self.is_made else (0, 0)

    def bookmark(self, group: str) -> int:
        """The next offset of a group: its commit, or the log start."""
        start, end = self.bounds()
        committed = self._broker.committed(group).get((SCENE_TOPIC, 0))
        return start if committed is None else min(max(committed.offset, start), end)

    def record_at(self, offset: int) -> Record | None:
        """The record there, or the next one; None at the end."""
        return next_record(self._partition(), offset) if self.is_made else None

    def _partition(self) -> Partition:
        return open_partition(self._broker, SCENE_TOPIC, 0)

    def _write(self, value: str) -> int:
        # The value is its own key: the console shows keys.
        data = value.encode()
        return self._partition().append(pack([(self._clock.now_ms(), data, data, ())])).base_offset

    def _wait_until_durable(self, offset: int) -> None:
        self._partition().wait_acknowledged(offset + 1)

    def _commit(self, group: str, offset: int) -> None:
        bookmark = OffsetAndMetadata(offset, self._partition().leader_epoch)
        self._broker.commit_offsets(group, {(SCENE_TOPIC, 0): bookmark})


Item = TypeVar("Item")


class SceneQueue(Generic[Item]):
    """The queue's half: reading takes the item out, for all readers. Not thread-safe: users share a lock.

    Behaves like a queue that acknowledges on delivery. Brokers that wait for an acknowledgement give the item to
    another reader after a crash, but what one reader has had is gone for every other reader all the same.

    >>> queue = SceneQueue[str]()
    >>> queue.enqueue("tea")
    >>> queue.dequeue(), queue.dequeue()
    ('tea', None)
    """

    def __init__(self) -> None:
        self._items: list[Item] = []

    def __len__(self) -> int:
        return len(self._items)

    def enqueue(self, item: Item) -> None:
        self._items.append(item)

    # The page shows this method as it stands.
    def dequeue(self) -> Item | None:
        if not self._items:
            return None  # nothing is left for a second reader
        return self._items.pop(0)  # out of the queue, for everybody

    def waiting(self) -> tuple[Item, ...]:
        """The items that were not taken yet, head first."""
        return tuple(self._items)


READERS: Final = ("billing", "search")
SIDES: Final = ("log", "queue")

_SHOWN: Final[Mapping[str, Callable[..., object]]] = {
    "append": SceneLog.append,
    "read": SceneLog.read,
    "dequeue": SceneQueue.dequeue,
}
"""The code that the page shows beside the scene is the code that runs."""


class ReaderCrashed(Exception):
    """A reader crashes with a record in its hands, before it has done anything with it."""


class SceneRecord(NamedTuple):
    """A value, and its offset in the log, so that it can be recognized on both sides."""

    offset: int
    value: str

    def shown(self) -> dict[str, Any]:
        return {"offset": self.offset, "value": self.value}


@dataclass
class _LogReader:
    """The history of a reader of the log. Its position is not here: the log keeps its bookmark."""

    is_down: bool = False
    had: set[int] = field(default_factory=set)
    again: list[int] = field(default_factory=list)


@dataclass
class _QueueReader:
    """The items that a reader of the queue took, handled or lost."""

    is_down: bool = False
    handled: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


class Scene:
    """Both halves. On a worker thread, one step at a time; each step returns what it did and the state after it."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._log = SceneLog(broker, clock)
        self._forget()

    def _forget(self) -> None:
        self._queue = SceneQueue[SceneRecord]()
        self._enqueued = 0
        self._log_readers = {name: _LogReader() for name in READERS}
        self._queue_readers = {name: _QueueReader() for name in READERS}

    def state(self) -> dict[str, Any]:
        with self._lock:
            return self._state()

    def append(self, value: str) -> dict[str, Any]:
        """Append to both. Raises 409 when the scene is full."""
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
            record = SceneRecord(self._log.append(value), value)
            self._queue.enqueue(record)
            self._enqueued += 1
            return self._did("append", record)

    def read(self, reader: str, *, crash: bool = False) -> dict[str, Any]:
        """Read the next record of the log for a reader's group, which commits it unless it crashes."""
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
            return self._did(
                "crash" if tale.is_down else "read", _scene_record(held[0]) if held else None, "log", reader
            )

    def dequeue(self, reader: str, *, crash: bool = False) -> dict[str, Any]:
        """Take the head of the queue for a reader; it is lost if the reader crashes."""
        with self._lock:
            tale = self._queue_readers[reader]
            record = self._queue.dequeue()
            tale.is_down = crash and record is not None
            if record is not None:
                (tale.lost if crash else tale.handled).append(record.offset)
            return self._did("crash" if tale.is_down else "dequeue", record, "queue", reader)

    def reset(self) -> dict[str, Any]:
        """Delete the topic and its groups, and begin anew."""
        with self._lock:
            self._log.remove([group_of(reader) for reader in READERS])
            self._forget()
            return self._did("reset", None)

    def _did(
        self, verb: str, record: SceneRecord | None, side: str | None = None, reader: str | None = None
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

    def _last_records(self, start: int, end: int) -> list[SceneRecord]:
        """Only a few: other clients may write to the topic, too."""
        offset = max(start, end - CONSOLE_SCENE_RECORDS_MAX)
        found: list[SceneRecord] = []
        while offset < end and (record := self._log.record_at(offset)) is not None:
            found.append(_scene_record(record))
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


def _scene_record(record: Record) -> SceneRecord:
    return SceneRecord(record.offset, (record.value or b"").decode(errors="replace")[:CONSOLE_SCENE_VALUE_CHARS_MAX])


class ScenePages:
    """The scene's routes. Event loop only; the scene itself runs on the console's threads."""

    def __init__(self, node: BrokerNode, workers: Executor) -> None:
        self._node = node
        self._workers = workers
        self._scene = Scene(node.broker, node.clock)

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/api/scene", self.state, of_scene(READ)),
            HttpRoute("GET", "/api/scene/code", self.code, nothing),
            HttpRoute("POST", "/api/scene/append", self.append, of_scene(WRITE)),
            HttpRoute("POST", "/api/scene/read", self.read, of_scene(WRITE)),
            HttpRoute("POST", "/api/scene/dequeue", self.dequeue, of_scene(WRITE)),
            HttpRoute("POST", "/api/scene/crash", self.crash, of_scene(WRITE)),
            HttpRoute("POST", "/api/scene/reset", self.reset, of_scene(WRITE)),
        ]

    async def state(self, _: HttpRequest) -> HttpResponse:
        return await self._play(self._scene.state)

    async def code(self, _: HttpRequest) -> HttpResponse:
        return await self._play(lambda: {name: _source(method) for name, method in _SHOWN.items()})

    async def append(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        value = body.text("value")
        body.end()
        if not 0 < len(value) <= CONSOLE_SCENE_VALUE_CHARS_MAX or not _is_utf8(value):
            raise bad_request(
                f"value={brief_repr(value)} is not allowed; it is 1 to {CONSOLE_SCENE_VALUE_CHARS_MAX} characters"
            )
        return await self._play(partial(self._scene.append, value))

    async def read(self, request: HttpRequest) -> HttpResponse:
        return await self._play(partial(self._scene.read, _reader(request)))

    async def dequeue(self, request: HttpRequest) -> HttpResponse:
        return await self._play(partial(self._scene.dequeue, _reader(request)))

    async def crash(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        side, reader = _one_of(body, "side", SIDES), _one_of(body, "reader", READERS)
        body.end()
        step = self._scene.read if side == "log" else self._scene.dequeue
        return await self._play(partial(step, reader, crash=True))

    async def reset(self, request: HttpRequest) -> HttpResponse:
        JsonBody(request).end()
        return await self._play(self._scene.reset)

    async def _play(self, step: Callable[[], dict[str, Any]]) -> HttpResponse:
        return HttpResponse.json(await self._node.loop.run_in_executor(self._workers, step))


def _source(method: Callable[..., object]) -> str:
    """The source code of a method; "" if only compiled files are installed."""
    try:
        return textwrap.dedent(inspect.getsource(method)).rstrip()
    except OSError:
        return ""


def _reader(request: HttpRequest) -> str:
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
    """Whether it is valid text: JSON can hold half of a surrogate pair."""
    return not any("\ud800" <= each <= "\udfff" for each in value)
