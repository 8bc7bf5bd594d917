"""`foldlog node`: the JSON-lines node on standard input and output."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, NoReturn

from foldlog.broker.broker import Broker
from foldlog.cli import node_messages as messages
from foldlog.cli.node_requests import Node, NodeOptions
from foldlog.cli.output import naming_output
from foldlog.errors import InvalidArgument
from foldlog.records.batch import MAX_INT32

_READ_BYTES: Final = 1 << 16
_SIGNAL_EXIT: Final = 128  # what shells add to the number of the signal that ended a process

DESCRIPTION: Final = """\
Serves a partitioned log as JSON lines, one message a line in Maelstrom's envelope, from standard input to standard
output: init, partition_append, partition_read, partition_info, commit_offset, fetch_offset, and the messages of
Maelstrom's kafka workload (send, poll, commit_offsets, list_committed_offsets). An answer to an append comes after the
record is durable. Ends with its input."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "--dir", metavar="D", help="keep the log in this directory (default: a temporary one, removed at the end)"
    )
    parser.add_argument(
        "--segment-records", metavar="N", type=_count, default=0, help="begin a new segment after N records"
    )
    parser.add_argument("--short-names", action="store_true", help="name segments with eight digits, not twenty")
    parser.add_argument(
        "--verbose", action="store_true", help="answer with segment, timestamp and next_offset, asked for or not"
    )
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_INT32):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of records from 1 to {MAX_INT32}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    if sys.stdin is None or sys.stdout is None:
        raise InvalidArgument("the node talks through standard input and output; one of them is closed")
    options = NodeOptions(arguments.segment_records, arguments.short_names, arguments.verbose)
    logging.basicConfig(stream=sys.stderr, format="foldlog node: %(message)s")
    with _ending_on_terminate(), _directory(arguments.dir) as directory, Broker.open(directory) as broker:
        serve(Node(broker, options), sys.stdin.buffer, sys.stdout.buffer)
    return 0


def serve(node: Node, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer every line until the input ends.

    Lines that are there together are answered together: their appends share a sync. Nobody waits for more to come.
    """
    sent = 0
    for lines in _groups_of_lines(source):
        answers = [answer for line in lines if line.strip() if (answer := node.begin(line)) is not None]
        formatted: list[bytes] = []
        for answer in answers:
            body = {**answer.body(), "msg_id": sent}
            formatted.append(messages.format_line(answer.source, answer.destination, body))
            sent += 1
        with naming_output():
            sink.writelines(formatted)
            sink.flush()


def _groups_of_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Whole lines, as many as came together. Of a line that is too long the rest is skipped: it is refused anyway."""
    rest = b""
    too_long = False
    while data := os.read(source.fileno(), _READ_BYTES):
        *lines, last = data.split(b"\n")
        whole: list[bytes] = []
        for line in lines:
            if not too_long:
                whole.append(rest + line)
            rest, too_long = b"", False
        if not too_long:
            rest += last
        if len(rest) > messages.LINE_BYTES_MAX:
            whole.append(rest)
            rest, too_long = b"", True
        if whole:
            yield whole
    if rest:
        yield [rest]


@contextmanager
def _directory(path: str | None) -> Iterator[str]:
    """The directory given, or one of its own for the time being."""
    if path is not None:
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="foldlog-node-") as temporary:
            yield temporary


@contextmanager
def _ending_on_terminate() -> Iterator[None]:
    """SIGTERM, which is how a node is usually stopped, ends it like the end of its input."""

    def leave(number: int, frame: object) -> NoReturn:
        raise SystemExit(_SIGNAL_EXIT + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
