"""Standard output, and what happens if it cannot be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from foldlog.errors import FoldlogError


class OutputRefused(FoldlogError):
    """Standard output cannot be written: the disk is full, or it is broken."""


def say(line: str) -> None:
    """Print a line. BrokenPipeError if the reader is gone, OutputRefused if it cannot be written."""
    with naming_output():
        print(line, flush=True)


def remark(line: str) -> None:
    """Print a message for the user on standard error; output for programs goes to `say`.

    On a terminal it is wrapped between words; in a file it stays one line.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        import shutil
        import textwrap

        columns, _ = shutil.get_terminal_size()
        line = "\n".join(
            textwrap.fill(one, columns, break_long_words=False, break_on_hyphens=False) for one in line.split("\n")
        )
    print(line, file=sys.stderr, flush=True)


def flush() -> None:
    if sys.stdout is not None:  # it can be closed from the start
        with naming_output():
            sys.stdout.flush()


@contextmanager
def naming_output() -> Iterator[None]:
    """For writes to standard output: the system's error does not name the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        forget_output()
        raise OutputRefused(
            f"standard output cannot be written ({error.strerror or error}); send it somewhere else, or make room"
        ) from None


def forget_output() -> None:
    """Replace standard output by /dev/null: Python flushes it again at exit, and would report the error again."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    finally:
        os.close(null)


def occupy_standard_descriptors() -> None:
    """Open /dev/null as standard input, output and error if they are closed.

    Otherwise the next file or socket that is opened gets their number: output is printed into it, and libraries that
    expect 0 to 2 to be taken fail (libuv does, when it closes one).
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
