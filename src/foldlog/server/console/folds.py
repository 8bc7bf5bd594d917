"""Folds in the console: their state, commands to them, and a look into their views. See docs/reference/console_api.md.

The console runs no fold. It reads their state from the topic `__folds`, and writes commands there, which a runner,
wherever that is, carries out. A view is opened by its description, if that comes from a runner that has proven itself,
or if the view is in a location that the operator named; by a few separate processes, because a database may be slow.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.broker import MEMORY_PATH
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, VERBS, Command, Status, encode
from foldlog.client.fold_proof import KEY_FILE
from foldlog.client.places import parse_points, parse_topic_points, resolve, topic_and_place
from foldlog.errors import CorruptLog, FoldError, FoldlogError, TopicExists, UnknownTopic, brief_repr
from foldlog.files.paths import absolute
from foldlog.limits import CONSOLE_EXPANDED_BYTES_MAX, PEEK_ROWS_MAX
from foldlog.records.loops import BatchBuilder, Record
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.events import ConsoleEvent, EventFeed, merged_by
from foldlog.server.console.fold_board import FoldBoard, LogAddress, bookmarks_of
from foldlog.server.console.parameters import JsonBody, bad_request, query_integer
from foldlog.server.console.peeks import PeekProcesses
from foldlog.server.console.records import OpenedTopic, bounds, time_at
from foldlog.server.console.rights import DESCRIBE, READ, Sight, identity_of, nothing, of_fold
from foldlog.server.console.topics import open_partition
from foldlog.server.folds_reader import FoldsReader
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute
from foldlog.server.net.quotas import CountedWorkers
from foldlog.views.peek.locations import NamedLocations

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.server.fold_guard import FoldGuard
    from foldlog.server.node import BrokerNode

_PEEKERS: Final = 2
_PEEKS_WAITING_MAX: Final = 8
"""Looks that wait for a thread; beyond that, a request is refused for now."""

_QUERY_CHARS_MAX: Final = 1000
_NO_PASSWORDS: Final = (
    "the console sends passwords only to hosts that it was told of: serve with --console-views postgresql://HOST:PORT"
)


class FoldTopic:
    """Reads `__folds` into the board, from where it last stopped. On a worker thread, one at a time."""

    def __init__(self, broker: Broker, guard: FoldGuard) -> None:
        self.board = FoldBoard()
        self._broker = broker
        self._guard = guard
        self._reader = FoldsReader(broker, self._hear, self.board.forget)

    @property
    def is_read(self) -> bool:
        """Whether nothing was written since the last read. From memory: any thread."""
        return self._reader.is_read

    def read(self) -> FoldBoard:
        """The board, with everything that was written before the call."""
        try:
            self._reader.read()
        except CorruptLog as error:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        return self.board

    def _hear(self, records: Sequence[Record]) -> None:
        self.board.hear((one.key, one.value, self._guard.is_proven(one.key, one.value, one.headers)) for one in records)

    def bounds_of(self, topic: str) -> dict[int, tuple[int, int]]:
        """Start and end of a topic's partitions; empty if the topic does not exist, or is damaged."""
        known = self._broker.find_topic(topic)
        if known is None:
            return {}
        try:
            partitions = [open_partition(self._broker, topic, number) for number in range(known.partition_count)]
        except (FoldlogError, ApiError):
            return {}
        return {number: bounds(partition) for number, partition in enumerate(partitions)}

    def ask(self, command: Command) -> None:
        """Write a command. Returns once it is durable."""
        try:
            self._broker.topic(FOLDS_TOPIC)
        except UnknownTopic:
            try:
                self._broker.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
            except TopicExists:
                pass  # a runner created it at the same time
        partition = open_partition(self._broker, FOLDS_TOPIC, 0)
        builder = BatchBuilder(partition.config.max_message_bytes)
        key, value = encode(command)
        builder.append(command.asked_ms, key, value, [self._guard.key().proof(key, value, command.asked_ms)])
        appended = partition.append(builder.build())
        partition.wait_acknowledged(appended.next_offset)


class FoldPages:
    """The handlers for folds of one console. Event loop only."""

    def __init__(self, node: BrokerNode, feed: EventFeed, workers: Executor, *, bootstrap: str) -> None:
        self._node = node
        self._clock = node.clock
        self._workers = workers
        self._topic = FoldTopic(node.broker, node.fold_guard)
        self._named = NamedLocations(node.settings.console_views)
        self._processes = PeekProcesses()
        path = node.broker.path
        in_memory = path == MEMORY_PATH
        self._topic.board.source = LogAddress("-b", bootstrap) if in_memory else LogAddress("-d", absolute(path))
        self._reading = asyncio.Lock()
        self._peekers = CountedWorkers(_PEEKERS, thread_name_prefix="foldlog-peek")
        self._peeks = 0
        feed.contribute(self.changes, whole=self.all, merge=merged_by("fold"))

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/api/folds", self.folds, nothing),
            HttpRoute("POST", "/api/folds/{fold}/commands", self.ask, of_fold(READ)),
            HttpRoute("GET", "/api/folds/{fold}/rewind", self.rewind, of_fold(DESCRIBE)),
            HttpRoute("GET", "/api/folds/{fold}/peek", self.peek, of_fold(READ)),
        ]

    def close(self) -> None:
        """End its processes, and with them the waits of its threads."""
        self._processes.close()
        self._peekers.shutdown(wait=True, cancel_futures=True)

    # --- events -------------------------------------------------------------------------------------------------------

    async def changes(self) -> ConsoleEvent | None:
        """The event with the entries of folds that changed, or None. Moves of ends alone have an event of their own."""
        if self._topic.is_read and self._topic.board.is_quiet(self._clock.now_ms()):
            return None
        entries = await self._look(self._changed_entries)
        return ConsoleEvent("folds", entries) if entries else None

    def _changed_entries(self, board: FoldBoard) -> list[dict[str, Any]]:
        now_ms = self._clock.now_ms()
        board.sample(now_ms, self._topic.bounds_of)
        return self._entries(board.changes(now_ms))

    async def all(self) -> ConsoleEvent:
        return ConsoleEvent("folds", await self._look(lambda board: self._entries(board.names)))

    def _entries(self, names: list[str]) -> list[dict[str, Any]]:
        now_ms = self._clock.now_ms()
        self._topic.board.sample(now_ms, self._topic.bounds_of)
        return [self._topic.board.entry(name, now_ms, self._topic.bounds_of) for name in names]

    # --- requests -----------------------------------------------------------------------------------------------------

    async def folds(self, request: HttpRequest) -> HttpResponse:
        sight = Sight(self._node.authorizer, identity_of(request))
        seen = await self._look(lambda board: self._entries([name for name in board.names if sight.sees_fold(name)]))
        return HttpResponse.json(seen)

    async def ask(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        verb, to, accept_loss = body.text("verb"), body.data("to"), body.boolean("accept_loss", False)
        body.end()
        place = None if to is None else to.decode("utf-8", "replace")
        if verb not in VERBS:
            raise bad_request(f"verb={brief_repr(verb)} is not allowed; it is one of {', '.join(VERBS)}")
        if (verb == "rewind") is not bool(place):
            raise bad_request("a rewind says where to, as in to='0=1200' or to='@-6h'; nothing else does")
        if place is not None:
            place = parse_topic_points(place).portable
        name = request.named["fold"]

        def write(board: FoldBoard) -> dict[str, Any]:
            now_ms = self._clock.now_ms()
            status = _known(board, name, now_ms)
            if verb == "rewind" and status.adds:
                raise ApiError(
                    HTTPStatus.CONFLICT, _additive_note(status), {"command_line": board.command_line(status, "rebuild")}
                )
            if not status.is_live(now_ms):
                raise _nobody_runs(board, status, verb, place, accept_loss=accept_loss)
            command = Command.ask(name, verb, now_ms, to=place, accept_loss=accept_loss)
            self._topic.ask(command)
            return {"id": command.id}

        return HttpResponse.json(await self._look(write))

    async def rewind(self, request: HttpRequest) -> HttpResponse:
        """What a rewind of one partition to an offset would do, or of all to a place. Changes nothing."""
        name, place = request.named["fold"], request.query.get("place")
        if place:
            zone = request.query.get("zone") or None
            return HttpResponse.json(await self._look(lambda board: self._plan(board, name, place, zone)))
        number = query_integer(request, "partition", None, 0)
        to = query_integer(request, "to", None, 0)
        topic = request.query.get("topic") or None
        return HttpResponse.json(await self._look(lambda board: self._preview(board, name, topic, number, to)))

    def _preview(self, board: FoldBoard, name: str, topic: str | None, number: int, to: int) -> dict[str, Any]:
        status = _known(board, name, self._clock.now_ms())
        topic = status.topic if topic is None else topic
        stands = bookmarks_of(status).get(topic, {}).get(str(number))
        if stands is None:
            raise bad_request(
                f"fold {name!r} has read nothing of partition {number} of {topic} yet, so it cannot go back there"
            )
        partition = open_partition(self._node.broker, topic, number)
        start, _ = bounds(partition)
        offset = min(stands, max(start, to))
        return {
            "offset": offset,
            "timestamp": time_at(partition, offset)["timestamp"],
            "read_again": stands - offset,
            "is_additive": status.adds,
            "note": _additive_note(status) if status.adds else self._rewind_note(topic, number, to, offset, start),
        }

    def _plan(self, board: FoldBoard, name: str, text: str, zone: str | None) -> dict[str, Any]:
        now_ms = self._clock.now_ms()
        status = _known(board, name, now_ms)
        named, place = topic_and_place(text)
        spec = parse_points(place, zone=zone, now_ms=now_ms)
        stands = bookmarks_of(status)
        topics = [topic for topic in stands if named in (None, topic)]
        if not topics:
            raise bad_request(f"fold {name!r} does not read topic {named!r}; it reads {', '.join(stands)}")
        if len(topics) > 1 and spec.names_offsets:
            raise bad_request(f"{text!r} has offsets, and fold {name!r} reads {len(topics)} topics; choose one of them")
        moves: list[dict[str, Any]] = []
        notes = {spec.note: None} if spec.note else {}
        for topic in topics:
            opened = OpenedTopic(self._node.broker, topic)
            starts = opened.offsets(topic)
            for number, span in resolve(spec, opened, topic, bounds=starts, now_ms=now_ms).items():
                before = stands[topic].get(str(number))
                if before is None:
                    continue
                to = min(before, span.start)
                moves.append({"topic": topic, "partition": number, "from": before, "to": to, "again": before - to})
                if to < before and (note := self._rewind_note(topic, number, to, to, starts[number][0])):
                    notes[note] = None
        return {
            "place": spec.portable if named is None else f"{named}:{spec.portable}",
            "note": _additive_note(status) if status.adds else "; ".join(notes),
            "moves": moves,
            "read_again": sum(move["again"] for move in moves),
            "is_additive": status.adds,
        }

    def _rewind_note(self, topic: str, number: int, to: int, offset: int, start: int) -> str:
        notes: list[str] = []
        if to < start:
            notes.append(f"the log begins at {start}: what was before it is gone")
        growths = self._node.broker.topic(topic).growths
        if any(number < len(growth.ends) and offset < growth.ends[number] for growth in growths):
            notes.append(
                "the topic has gained partitions since, so the other partitions go back to that moment, too:"
                " more is read again"
            )
        return "; ".join(notes)

    # --- a look into a view -------------------------------------------------------------------------------------------

    async def peek(self, request: HttpRequest) -> HttpResponse:
        limit = query_integer(request, "limit", 50, 1, PEEK_ROWS_MAX)
        query = {name: request.query.get(name) or None for name in ("q", "after", "measure")}
        if any(len(text or "") > _QUERY_CHARS_MAX for text in query.values()):
            raise bad_request(f"that is too long; {_QUERY_CHARS_MAX} characters are the most")
        if query["q"] is not None and query["after"] is not None:
            raise bad_request("what is searched for comes best first, on one page; leave out after")
        name = request.named["fold"]
        status, is_proven = await self._look(lambda board: board.described(name, self._clock.now_ms()))
        if status is None:
            raise _unknown(name)
        if self._peeks >= _PEEKERS + _PEEKS_WAITING_MAX:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "too many are looking into views just now; try again")
        self._peeks += 1
        try:
            look = partial(self._peeked, status, query, limit, is_proven=is_proven)
            return await self._node.loop.run_in_executor(self._peekers, look)
        finally:
            self._peeks -= 1

    def _peeked(self, status: Status, query: dict[str, str | None], limit: int, *, is_proven: bool) -> HttpResponse:
        """On a thread for looks into views."""
        description = status.view_description
        if description is None:
            raise ApiError(
                HTTPStatus.NOT_FOUND, f"{status.view} is a view that only its own tools can look into; use those"
            )
        is_named = self._named.names(description)
        if not is_proven and not is_named:
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                f"whoever wrote where {status.view} is has not proven to be a runner of this directory, so it is not"
                f" opened; run the fold with --folds-key {KEY_FILE} of the directory, or serve with --console-views"
                " and the place of the view",
            )
        began_ms = self._clock.monotonic_ms()
        question = {"description": dict(description), "limit": limit, **query}
        try:
            page = self._processes.look(question, status.view, with_secrets=is_named)
        except FoldError as error:
            _refuse_elsewhere(status, error)
            if not is_named and _wants_password(error):
                raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}; {_NO_PASSWORDS}") from error
            raise
        return HttpResponse.json({**page, "took_ms": round(self._clock.monotonic_ms() - began_ms, 1)})

    # --- threads ------------------------------------------------------------------------------------------------------

    async def _look(self, function: Callable[[FoldBoard], Any]) -> Any:
        """The result of the function for the board, after everything is read: on a thread, one after the other."""
        async with self._reading:
            return await self._node.loop.run_in_executor(self._workers, lambda: function(self._read()))

    def _read(self) -> FoldBoard:
        with self._node.holding(CONSOLE_EXPANDED_BYTES_MAX):
            return self._topic.read()


def _known(board: FoldBoard, name: str, now_ms: int) -> Status:
    status = board.status(name, now_ms)
    if status is None:
        raise _unknown(name)
    return status


def _unknown(name: str) -> ApiError:
    return ApiError(
        HTTPStatus.NOT_FOUND, f"no runner has ever published a fold {brief_repr(name)}; foldlog fold run FILE does"
    )


def _nobody_runs(board: FoldBoard, status: Status, verb: str, to: str | None, *, accept_loss: bool) -> ApiError:
    line = board.command_line(status, verb, to, accept_loss=accept_loss)
    return ApiError(
        HTTPStatus.CONFLICT,
        f"nobody runs fold {status.fold!r} now, so there is nobody to ask; type this where its file is",
        {"command_line": line},
    )


def _additive_note(status: Status) -> str:
    return f"{status.view} adds up what it reads, so reading it again would count it twice; rebuild it instead"


def _wants_password(error: FoldError) -> bool:
    """Whether libpq says that there is no password to send, or that none may be sent."""
    return "no password supplied" in str(error) or 'requirement "none" failed' in str(error)


def _refuse_elsewhere(status: Status, error: FoldError) -> None:
    """If a file is on the runner's machine and not on this one, report that as the reason."""
    host = status.runner.rpartition(":")[0]
    if "path" not in (status.view_description or {}) or host == socket.gethostname():
        return
    raise ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"{status.view} is where its runner is, on {brief_repr(host)}, and this console is on"
        f" {socket.gethostname()!r}; look at it there, or fold into a database that both reach",
    ) from error
