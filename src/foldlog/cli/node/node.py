"""`foldlog node`: the JSON-lines node on standard input and output."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, NoReturn

import foldlog
from foldlog.cli.log_options import init_option
from foldlog.cli.node import messages
from foldlog.cli.node.requests import LogNode, NodeOptions
from foldlog.cli.output import naming_output
from foldlog.cli.parsing import Arguments, command, option, switch
from foldlog.client.backends.directory import directory_of
from foldlog.errors import DirectoryLocked, InvalidArgument
from foldlog.limits import NODE_JOIN_MS
from foldlog.records.batch import MAX_INT32

_READ_BYTES: Final = 1 << 16
_SIGNAL_EXIT: Final = 128  # shells add the number of the signal that ended a process

DESCRIPTION: Final = """\
Serves a partitioned log as JSON lines, one message per line in Maelstrom's envelope, from standard input to standard
output: init, partition_append, partition_read, partition_info, commit_offset, fetch_offset, and the messages of
Maelstrom's kafka workload (send, poll, commit_offsets, list_committed_offsets). It answers an append after the record
is durable. It ends when its input ends.

With --dir, the node joins the process that serves that directory, or serves it itself. So several nodes with the same
--dir are one log. Without --dir, it is the only node."""


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_INT32):
        raise InvalidArgument(f"{text!r} is not a number of records from 1 to {MAX_INT32}")
    return int(text)


@command(
    option("--dir", metavar="D", told="keep the log in this directory (default: a temporary one, removed at the end)"),
    init_option(),
    option("--segment-records", metavar="N", read=_count, told="start a new segment after N records"),
    switch("--short-names", told="name segments with eight digits, not twenty"),
    switch("--verbose", told="always answer with segment, timestamp and next_offset"),
    description=DESCRIPTION,
)
def run(arguments: Arguments) -> int:
    if sys.stdin is None or sys.stdout is None:
        raise InvalidArgument("the node talks through standard input and output; one of them is closed")
    options = NodeOptions(
        arguments.segment_records or 0, arguments.short_names, arguments.verbose, shared=arguments.dir is not None
    )
    logging.basicConfig(stream=sys.stderr, format="foldlog node: %(message)s")
    with _ending_on_terminate(), _opened(arguments.dir, init=arguments.init) as log:
        serve(LogNode(directory_of(log).broker, options), sys.stdin.buffer, sys.stdout.buffer)
    return 0


def serve(node: LogNode, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer every line until the input ends.

    Lines that arrive together are answered together, so that their appends share a sync. It does not wait for more.
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
    """Complete lines, as many as arrived together. The rest of a line that is too long is skipped: it is refused."""
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
def _opened(path: str | None, *, init: bool) -> Iterator[foldlog.Log]:
    """The log in the given directory, through its writer if there is one; or a temporary one."""
    if path is None:
        with tempfile.TemporaryDirectory(prefix="foldlog-node-") as temporary, foldlog.open(temporary) as log:
            yield log
        return
    with _joined(path, init=init) as log:
        yield log


def _joined(path: str, *, init: bool) -> foldlog.Log:
    deadline_s = time.monotonic() + NODE_JOIN_MS / 1000
    while True:
        try:
            return foldlog.open(path, listen=True, init=init)
        except DirectoryLocked as error:
            # Another node that is just starting holds the lock before it listens.
            if error.address is not None or time.monotonic() > deadline_s:
                raise


@contextmanager
def _ending_on_terminate() -> Iterator[None]:
    """SIGTERM, which usually stops a node, ends it like the end of its input."""

    def leave(number: int, frame: object) -> NoReturn:
        raise SystemExit(_SIGNAL_EXIT + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
