"""Standard output, and what becomes of a command when it takes nothing more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from foldlog.errors import FoldlogError


class OutputRefused(FoldlogError):
    """Standard output cannot be written: it is a full disk, or broken."""


def say(line: str) -> None:
    """Print a line. BrokenPipeError if nobody reads any more, OutputRefused if it cannot be written."""
    with naming_output():
        print(line, flush=True)


def remark(line: str) -> None:
    """Tell the person at the terminal, on standard error: what a program reads goes to `say`.

    A terminal gets it in lines that end between words; a file gets what it is, one line.
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
    """For writes to standard output: the system's error does not say which file it is about."""
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
    """Python flushes standard output once more at its end, and would complain again then."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    finally:
        os.close(null)


def occupy_standard_descriptors() -> None:
    """Open nothing at all on standard input, output and error where they are closed.

    Otherwise the next file or socket that is opened gets their number: what is printed goes into it, and libraries that
    take 0 to 2 for granted give up (libuv does, when it closes one).
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
