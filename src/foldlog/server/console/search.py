"""The records of a topic as a table: filtered, over several partitions, newest or oldest first; and as a file.

A request reads no more than a strip does, and says where it stopped: the page asks again from there until it has
enough, shows how far it is, and stops when somebody wants it to. So nothing runs that nobody waits for, and nothing is
kept between two requests. On a worker thread.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.client.places import places_text
from foldlog.errors import OffsetOutOfRange, UnknownPartition
from foldlog.limits import (
    CONSOLE_DOWNLOAD_BYTES_MAX,
    CONSOLE_EXPANDED_BYTES_MAX,
    CONSOLE_READ_BYTES_MAX,
    CONSOLE_ROW_BYTES_MAX,
    CONSOLE_ROWS_MAX,
)
from foldlog.records.batch import MAX_INT64
from foldlog.records.decoding import AUTO, How, document_of
from foldlog.records.json_lines import record_lines
from foldlog.records.loops import Record, decode
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.parameters import bad_request, parse_integer, query_integer
from foldlog.server.console.record_filters import Path, PathTest, RecordFilter, found_at, parse_path, plain
from foldlog.server.console.records import bounds, decoder_for, fields, offset_at, schemas_of
from foldlog.server.console.rights import READ, of_topic
from foldlog.server.console.topics import open_partition
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.log.partition import Partition
    from foldlog.server.node import BrokerNode

_CHUNK_BYTES: Final = 256 << 10
_SHARE_MIN: Final = 64 << 10
"""What a partition is read of at least when it is its turn; with very many, some wait for the next request."""

_WIDTH_MAX: Final = 50_000
_NARROWER: Final = 4
_COLUMNS_MAX: Final = 20
_TEXT_CHARS_MAX: Final = 1000
NEWEST: Final = "newest"
ORDERS: Final = (NEWEST, "oldest")


class SearchPages:
    """The handlers for tables of records of one console. Event loop only."""

    def __init__(self, node: BrokerNode, workers: Executor) -> None:
        self._node = node
        self._workers = workers

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/api/topics/{topic}/search", self.search, of_topic(READ)),
            HttpRoute("GET", "/api/topics/{topic}/download", self.download, of_topic(READ)),
        ]

    async def search(self, request: HttpRequest) -> HttpResponse:
        question = RecordSearch.of(request, self._node)

        def look() -> HttpResponse:
            with self._node.holding(CONSOLE_EXPANDED_BYTES_MAX):
                return HttpResponse.json(found(self._node.broker, request.named["topic"], question))

        response: HttpResponse = await self._node.loop.run_in_executor(self._workers, look)
        return response

    async def download(self, request: HttpRequest) -> HttpResponse:
        kind = request.query.get("format", "jsonl")
        if kind not in _FILES:
            raise bad_request(f"format={kind!r} is not allowed; it is one of {', '.join(_FILES)}")
        wanted = _parse_offsets(request.query.get("records", ""))
        topic = request.named["topic"]

        def make() -> HttpResponse:
            with self._node.holding(2 * CONSOLE_DOWNLOAD_BYTES_MAX):
                records = list(_named_records(self._node.broker, topic, wanted))
                content_type, written = _FILES[kind]
                disposition = ("content-disposition", f'attachment; filename="{topic}.{kind}"')
                return HttpResponse(HTTPStatus.OK, written(records), content_type, (disposition,))

        response: HttpResponse = await self._node.loop.run_in_executor(self._workers, make)
        return response


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """What somebody wants to see. `cursor` is where to go on, by partition; empty to begin."""

    filter: RecordFilter
    is_newest_first: bool = True
    partitions: tuple[int, ...] = ()
    cursor: tuple[tuple[int, int], ...] = ()
    limit: int = 100
    columns: tuple[Path, ...] = ()
    decoder: How = AUTO

    @classmethod
    def of(cls, request: HttpRequest, node: BrokerNode) -> RecordSearch:
        """Raises ApiError or InvalidArgument for a parameter that is not one."""
        query = {name: text for name, text in request.query.items() if text}
        for name, value in query.items():
            if name not in ("cursor", "columns", "partitions") and len(value) > _TEXT_CHARS_MAX:
                raise bad_request(f"{name} is too long; {_TEXT_CHARS_MAX} characters are the most")
        order = query.get("order", NEWEST)
        if order not in ORDERS:
            raise bad_request(f"order={order!r} is not allowed; it is one of {', '.join(ORDERS)}")
        decoder = decoder_for(node, query.get("decoder", AUTO))
        since, until = (
            None if name not in query else query_integer(request, name, None, 0) for name in ("since", "until")
        )
        key, text, path = query.get("key"), query.get("text"), query.get("path")
        wanted = RecordFilter(
            None if key is None else key.encode(errors="surrogateescape"),
            None if text is None else text.encode(errors="surrogateescape"),
            None if path is None else PathTest.parse(path),
            since,
            until,
            decoder,
            None if key is None else PathTest.whole(key),
            schemas_of(decoder),
        )
        return cls(
            wanted,
            order == NEWEST,
            _parse_partitions(query.get("partitions", "")),
            _parse_cursor(query.get("cursor", "")),
            query_integer(request, "limit", 100, 1, CONSOLE_ROWS_MAX),
            _parse_columns(query.get("columns", "")),
            decoder,
        )


def _parse_partitions(text: str) -> tuple[int, ...]:
    """
    >>> _parse_partitions("0, 4-6")
    (0, 4, 5, 6)
    """
    found: dict[int, None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        low = parse_integer(first.strip(), "partitions", 0, 1 << 31)
        high = parse_integer(last.strip(), "partitions", low, low + 10_000) if dash else low
        found.update(dict.fromkeys(range(low, high + 1)))
    return tuple(found)


def _parse_cursor(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    return tuple((parse_integer(one, "cursor", 0, 1 << 31), parse_integer(at, "cursor", 0)) for one, _, at in pairs)


def _parse_columns(text: str) -> tuple[Path, ...]:
    if not text:
        return ()
    try:
        named = json.loads(text)
    except (ValueError, RecursionError):
        named = None
    if not isinstance(named, list) or len(named) > _COLUMNS_MAX or not all(isinstance(one, str) for one in named):
        raise bad_request(f'columns is a list of at most {_COLUMNS_MAX} paths in JSON, as ["$.customer.id"]')
    return tuple(parse_path(one) for one in named)


# --- the search -------------------------------------------------------------------------------------------------------


class _Look(NamedTuple):
    """What one turn found in a partition, in the order asked for, where it stopped, and what it read."""

    records: list[Record]
    stopped: int
    read_bytes: int
    expanded_bytes: int


@dataclass
class _Turn:
    """One partition: what is left of it, from `low` to before `high`, and what was found and is not shown yet."""

    partition: Partition
    low: int
    high: int
    waiting: deque[Record]

    @property
    def left(self) -> int:
        return max(0, self.high - self.low)


def found(broker: Broker, topic: str, question: RecordSearch) -> dict[str, Any]:
    """The next records, as far as one request may read."""
    turns = _turns(broker, topic, question)
    tail = places_text({turn.partition.label[1]: bounds(turn.partition)[1] for turn in turns})
    began = sum(turn.left for turn in turns)
    rows = _gather(turns, question)
    for turn in turns:  # what was found and has no place on this page is found again by the next request
        if turn.waiting and question.is_newest_first:
            turn.high = turn.waiting[0].offset + 1
        elif turn.waiting:
            turn.low = turn.waiting[0].offset
    left = sum(turn.left for turn in turns)
    # Those that had no turn come first next time.
    order = sorted(turns, key=lambda turn: not turn.left)
    stopped = {turn.partition.label[1]: turn.high if question.is_newest_first else turn.low for turn in order}
    return {
        "records": [_row(record, question) for record in rows],
        "cursor": ",".join(f"{number}={at}" for number, at in stopped.items()),
        "is_done": left == 0,
        "scanned": began - left,
        "left": left,
        "tail": tail,
    }


def _turns(broker: Broker, topic: str, question: RecordSearch) -> list[_Turn]:
    count = broker.topic(topic).partition_count
    begun = dict(question.cursor)
    numbers = question.partitions or range(count)
    for number in (*numbers, *begun):
        if number >= count:
            raise UnknownPartition(topic, number, count)
    ordered = [number for number in begun if number in set(numbers)] + [one for one in numbers if one not in begun]
    turns: list[_Turn] = []
    for number in ordered:
        partition = open_partition(broker, topic, number)
        low, high = bounds(partition)
        wanted = question.filter
        if wanted.since_ms is not None:
            low = max(low, offset_at(partition, wanted.since_ms))
        if wanted.until_ms is not None:
            high = min(high, offset_at(partition, min(wanted.until_ms + 1, MAX_INT64)))
        if number in begun:
            at = begun[number]
            low, high = (low, min(high, at)) if question.is_newest_first else (max(low, at), high)
        turns.append(_Turn(partition, low, max(low, high), deque()))
    return turns


def _gather(turns: list[_Turn], question: RecordSearch) -> list[Record]:
    """Give each partition its turn, round by round, until there is enough to show or no more may be read."""
    rows: list[Record] = []
    left_bytes, left_expanded = CONSOLE_READ_BYTES_MAX, CONSOLE_EXPANDED_BYTES_MAX
    while left_bytes > 0 and left_expanded > 0:
        open_turns = [turn for turn in turns if turn.left and not turn.waiting]
        if not open_turns:
            break
        share = max(_SHARE_MIN, left_bytes // len(open_turns))
        for turn in open_turns:
            if left_bytes <= 0 or left_expanded <= 0:
                break
            look = (_backward if question.is_newest_first else _forward)(
                turn, question, min(share, left_bytes), left_expanded
            )
            left_bytes -= look.read_bytes
            left_expanded -= look.expanded_bytes
            turn.waiting.extend(look.records)
            turn.low, turn.high = (turn.low, look.stopped) if question.is_newest_first else (look.stopped, turn.high)
        rows += _merged(turns, question, question.limit - len(rows))
        if len(rows) >= question.limit:
            break
    rows += _merged(turns, question, question.limit - len(rows), is_last=True)
    return rows


def _merged(turns: list[_Turn], question: RecordSearch, count: int, *, is_last: bool = False) -> list[Record]:
    """Take what is next in time from what was found, while every partition that has more to read has something to
    compare with; at the end of a request from what there is."""
    taken: list[Record] = []
    while len(taken) < count:
        ready = [turn for turn in turns if turn.waiting]
        if not ready or (not is_last and any(turn.left and not turn.waiting for turn in turns)):
            break
        pick = max if question.is_newest_first else min
        taken.append(pick(ready, key=lambda turn: turn.waiting[0].timestamp_ms).waiting.popleft())
    return taken


def _forward(turn: _Turn, question: RecordSearch, share: int, expanded: int) -> _Look:
    return _read(turn.partition, turn.low, turn.high, question, share, expanded)


def _backward(turn: _Turn, question: RecordSearch, share: int, expanded: int) -> _Look:
    """The stretch before `high`. The log is read forwards, so how wide it may be is a guess by the mean size of
    records, and a narrower one follows one that was too wide."""
    partition = turn.partition
    start, end = bounds(partition)
    mean = max(1, partition.size_bytes // max(1, end - start))
    width = max(1, min(_WIDTH_MAX, turn.left, share // mean))
    read_bytes = 0
    while True:
        low = max(turn.low, turn.high - width)
        look = _read(partition, low, turn.high, question, share, expanded)
        read_bytes += look.read_bytes
        if look.stopped >= turn.high:
            return _Look(look.records[::-1], low, read_bytes, look.expanded_bytes)
        if width == 1:  # a single batch that is larger than what may be read
            return _Look(look.records[::-1], low, read_bytes, look.expanded_bytes)
        width = max(1, width // _NARROWER)


def _read(partition: Partition, low: int, high: int, question: RecordSearch, share: int, expanded: int) -> _Look:
    """Read on from `low`, and keep what matches: to `high`, or as far as the share goes."""
    matching: list[Record] = []
    at, left_bytes, left_expanded = low, share, expanded
    while at < high and left_bytes > 0 and left_expanded > 0:
        try:
            piece = partition.read(at, min(_CHUNK_BYTES, left_bytes))
        except OffsetOutOfRange:
            at = max(at + 1, partition.log_start_offset)  # retention was faster
            continue
        if not piece.data:
            at = high
            break
        left_bytes -= len(piece.data)
        records, following = decode(
            piece.data,
            *partition.label,
            start_offset=at,
            end_offset=high,
            decompressed_limit=partition.decompressed_limit,
            enough_bytes=left_expanded,
        )
        left_expanded -= sum(_size_of(record) for record in records)
        matching += [record for record in records if question.filter.matches(record)]
        at = max(at + 1, min(following, high))
    return _Look(matching, min(at, high), share - left_bytes, expanded - left_expanded)


def _size_of(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + 64


def _row(record: Record, question: RecordSearch) -> dict[str, Any]:
    row = fields(record, CONSOLE_ROW_BYTES_MAX, question.decoder)
    if question.columns:
        document = document_of(record.value, question.decoder)
        cells = [[plain(value) for value in found_at(document, path)] for path in question.columns]
        row["columns"] = [", ".join(cell)[:_TEXT_CHARS_MAX] if cell else None for cell in cells]
    return row


# --- a file of the records that are shown -----------------------------------------------------------------------------


def _parse_offsets(text: str) -> list[tuple[int, int]]:
    """Partitions and offsets; each offset but the first as its distance from the one before, for a short address.

    >>> _parse_offsets("0=100.1.5;2=7")
    [(0, 100), (0, 101), (0, 106), (2, 7)]
    """
    found: list[tuple[int, int]] = []
    for part in filter(None, text.split(";")):
        number, _, offsets = part.partition("=")
        at = 0
        for step in offsets.split("."):
            at += parse_integer(step, "records", 0)
            found.append((parse_integer(number, "records", 0, 1 << 31), at))
    if not 0 < len(found) <= CONSOLE_ROWS_MAX:
        raise bad_request(f"records names 1 to {CONSOLE_ROWS_MAX} records, as in 0=100.1.5;2=7")
    return found


def _named_records(broker: Broker, topic: str, wanted: Sequence[tuple[int, int]]) -> Iterator[Record]:
    """Those that are still there, in order."""
    left_bytes = CONSOLE_DOWNLOAD_BYTES_MAX
    held: dict[int, Record] = {}
    held_of = -1
    for number, offset in sorted(set(wanted)):
        partition = open_partition(broker, topic, number)
        if number != held_of or offset not in held:
            held, held_of = {}, number
            try:
                piece = partition.read(offset, 1)
            except OffsetOutOfRange:
                continue
            left_bytes -= len(piece.data)
            records, _ = decode(
                piece.data,
                topic,
                number,
                start_offset=offset,
                end_offset=min(partition.acknowledged_end(), MAX_INT64),
                decompressed_limit=partition.decompressed_limit,
                enough_bytes=CONSOLE_EXPANDED_BYTES_MAX,
            )
            held = {record.offset: record for record in records}
        if offset in held:
            record = held.pop(offset)
            left_bytes -= _size_of(record)
            if left_bytes < 0:
                raise bad_request(
                    f"these records are more than {CONSOLE_DOWNLOAD_BYTES_MAX >> 20} MiB; show fewer of them, or use"
                    f" foldlog topic consume {topic}"
                )
            yield record


def _parquet(records: Sequence[Record]) -> bytes:
    try:
        from foldlog.records.arrow import parquet_of
    except ImportError:
        raise ApiError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the broker has no pyarrow, which writes Parquet; install it with pip install 'foldlog[arrow]', or take"
            " JSON lines",
        ) from None
    return parquet_of(records)


_FILES: Final[dict[str, tuple[str, Callable[[Sequence[Record]], bytes]]]] = {
    "jsonl": ("application/x-ndjson", record_lines),
    "parquet": ("application/vnd.apache.parquet", _parquet),
}
