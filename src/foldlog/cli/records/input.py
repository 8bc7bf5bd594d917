"""Records from lines: what `topic produce` reads, and how it is sent.

Lines are read one at a time and sent as they come; the producer bounds how much waits to be written. Acknowledged
records are counted exactly, so that after an error the message can say how far it came.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from foldlog.cli.output import remark
from foldlog.cli.wording import counted
from foldlog.clock import SystemClock
from foldlog.errors import CallerError, InvalidArgument, UnknownPartition
from foldlog.limits import INPUT_LINE_BYTES_MAX
from foldlog.log.retention import outlived_text
from foldlog.records.json_lines import ParsedRecord, UnreadableLine, parse_line

if TYPE_CHECKING:
    from foldlog.cli.signals import Interrupts
    from foldlog.client.handle_types import SendFuture
    from foldlog.client.producer import Producer

STANDARD_INPUT: Final = "-"

_SETTLED_EVERY: Final = 256
_UNSETTLED_MAX: Final = 100_000
"""Maximum number of records in flight. The producer's own bound counts bytes, and empty records have hardly any."""

Headers = tuple[tuple[str, bytes | None], ...]
LineParser = Callable[[bytes], "ParsedRecord | None"]
"""From a line without its end to a record; None for a line without one. UnreadableLine says what is wrong."""


class Line(NamedTuple):
    """One line of input, without its end, and where it is."""

    source: str
    number: int
    data: bytes


def input_lines(paths: Sequence[str], interrupts: Interrupts) -> Iterator[Line]:
    """The lines of the files, in order; of standard input if there are none, or for "-".

    It can be interrupted while it waits for a line; each line is then processed as a whole.
    """
    for path in paths or (STANDARD_INPUT,):
        source = "standard input" if path == STANDARD_INPUT else path
        with _opened(path) as stream:
            number = 0
            while True:
                interrupts.check()
                data = stream.readline(INPUT_LINE_BYTES_MAX + 1)
                interrupts.is_put_off = True
                if not data:
                    break
                number += 1
                if data.endswith(b"\n"):
                    data = data[:-1]
                elif len(data) > INPUT_LINE_BYTES_MAX:
                    raise UnreadableLine(
                        f"line {number} of {source} is longer than {INPUT_LINE_BYTES_MAX >> 20} MiB, so it is no record"
                    )
                yield Line(source, number, data)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise InvalidArgument("standard input is closed, so there is nothing to read; name a file")
        yield sys.stdin.buffer
        return
    with open(path, "rb") as stream:
        yield stream


# --- lines to records -----------------------------------------------------------------------------------------------


def text_parser(
    *, key: bytes | None, delimiter: bytes | None, headers: Headers, partition: int | None, is_tombstone: bool
) -> LineParser:
    """Lines of text: each is a value, or a key and a value, or, for tombstones, a key."""

    def parsed(line: bytes) -> ParsedRecord:
        if is_tombstone:
            return ParsedRecord(line, None, headers, partition, None)
        if delimiter is None:
            return ParsedRecord(key, line, headers, partition, None)
        its_key, found, value = line.partition(delimiter)
        if not found:
            raise UnreadableLine(f"has no {delimiter.decode(errors='replace')!r} between a key and a value")
        return ParsedRecord(its_key, value, headers, partition, None)

    return parsed


def json_parser(*, headers: Headers, partition: int | None, by_key: bool) -> LineParser:
    """JSON lines, as `topic consume --format json` prints them. Empty lines are skipped."""

    def parsed(line: bytes) -> ParsedRecord | None:
        if not line.strip():
            return None
        record = parse_line(line)
        if headers:
            record = record._replace(headers=(*record.headers, *headers))
        if partition is not None or by_key:
            record = record._replace(partition=partition)
        return record

    return parsed


# --- records to a topic ---------------------------------------------------------------------------------------------


class Sending:
    """Sends records and counts those that are acknowledged. Belongs to one thread."""

    def __init__(self, producer: Producer, topic: str, kept_ms: int | None = None) -> None:
        """`kept_ms`: the topic's retention.ms, if only this command can warn of records that are older."""
        self._producer = producer
        self._topic = topic
        self._on_the_way: deque[SendFuture] = deque()
        self._until_settling = _SETTLED_EVERY
        self._kept_ms = kept_ms
        self.acknowledged = 0

    @property
    def written(self) -> str:
        """How far it came, for a message."""
        return f"{counted(self.acknowledged, 'record')} written to {self._topic}"

    def send_lines(self, lines: Iterator[Line], parse: LineParser) -> None:
        """Send them all. UnreadableLine names the first that cannot be sent, once those before it are written."""
        for line in lines:
            try:
                record = parse(line.data)
                if record is not None:
                    self.send(record)
            except UnreadableLine as error:
                self.finish()
                raise UnreadableLine(f"line {line.number} of {line.source} {error}; {self.written} before it") from None
            except (CallerError, UnknownPartition) as error:
                # What this log never accepts: a partition that the topic does not have, a record that is too large.
                self.finish()
                advice = (
                    ", or give -p key to place records by their keys" if isinstance(error, UnknownPartition) else ""
                )
                raise UnreadableLine(
                    f"line {line.number} of {line.source} cannot be written: {error}{advice}; {self.written} before it"
                ) from None

    def send(self, record: ParsedRecord) -> None:
        key, value, headers, partition, timestamp_ms = record
        if self._kept_ms is not None and timestamp_ms is not None:
            self._tell_if_outlived(timestamp_ms, self._kept_ms)
        self._on_the_way.append(self._producer.send(self._topic, value, key, headers or None, partition, timestamp_ms))
        self._until_settling -= 1
        if self._until_settling == 0:
            self._until_settling = _SETTLED_EVERY
            self._settle(at_most=_UNSETTLED_MAX)

    def _tell_if_outlived(self, timestamp_ms: int, kept_ms: int) -> None:
        if SystemClock().now_ms() - timestamp_ms > kept_ms:
            remark(f"foldlog: {outlived_text(self._topic, kept_ms)}")
            self._kept_ms = None  # only once

    def finish(self) -> None:
        """Returns once everything that was sent is durable; raises what went wrong."""
        try:
            self._producer.flush()
        finally:
            self._settle(at_most=0)

    def _settle(self, at_most: int) -> None:
        """Count acknowledged records; wait until at most `at_most` are in flight."""
        on_the_way = self._on_the_way
        while on_the_way and (len(on_the_way) > at_most or on_the_way[0].done()):
            on_the_way.popleft().result()
            self.acknowledged += 1
