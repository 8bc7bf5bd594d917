"""Asking before something is gone: only somebody at a terminal is asked, a script has decided when it was written."""

from __future__ import annotations

import sys

from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments, Option, switch


def yes_option() -> Option:
    return switch("-y", "--yes", told="do not ask, also on a terminal")


def dry_run_option() -> Option:
    return switch("--dry-run", told="only say what would be done")


def is_attended() -> bool:
    """Whether somebody reads what is asked, and can answer."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def is_confirmed(arguments: Arguments, question: str) -> bool:
    """True where nobody is to be asked, or the answer is yes; otherwise it is remarked that nothing was done."""
    return bool(arguments.yes) or not is_attended() or ask(question)


def ask(question: str) -> bool:
    """Whether the person at the terminal says yes; nothing, and the end of the input, mean no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        remark("")  # what the shell prints next has a line of its own
        raise
    if answer.strip().lower() in ("y", "yes"):
        return True
    if not answer:
        remark("")
    remark("nothing was changed")
    return False
