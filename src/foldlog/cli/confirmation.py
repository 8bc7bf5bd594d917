"""Confirmation of destructive commands: only at a terminal; a script has decided when it was written."""

from __future__ import annotations

import sys

from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, Option, switch


def yes_option() -> Option:
    return switch("-y", "--yes", told="do not ask for confirmation")


def dry_run_option() -> Option:
    return switch("--dry-run", told="only show what would be done")


def is_attended() -> bool:
    """Whether a person can read the question and answer."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def is_confirmed(arguments: Arguments, question: str) -> bool:
    """True if no question has to be asked, or the answer is yes; otherwise remarks that nothing was done."""
    return bool(arguments.yes) or not is_attended() or ask(question)


def ask(question: str) -> bool:
    """Whether the person at the terminal answers yes; an empty answer, and the end of the input, mean no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        remark("")  # so that the shell's next output begins on a new line
        raise
    if answer.strip().lower() in ("y", "yes"):
        return True
    if not answer:
        remark("")
    remark("nothing was changed")
    return False
