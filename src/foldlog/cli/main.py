"""The `foldlog` command. One module a noun; this one has what they share: help, exit codes, how errors look.

Exit codes: 0 done; 1 it could not be done, or something is damaged; 2 the command line is wrong; 130 interrupted;
141 nobody reads the output any more. What went wrong is one sentence on standard error.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from foldlog import __version__
from foldlog.cli.wording import ParagraphFormatter, error_text
from foldlog.errors import CallerError, FoldlogError

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

COMMANDS: Final = {
    "check": "verify every byte of a log; set aside what is damaged",
    "node": "a partitioned log as JSON lines on standard input and output",
    "serve": "a log as a Kafka-compatible broker",
}
"""The modules of this package that are commands, and what each is in a line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return PIPE_CLOSED


def _run(arguments: Sequence[str] | None) -> int:
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        parsed = build_parser(arguments).parse_args(arguments)
        code: int = parsed.run(parsed)
    except SystemExit as leaving:  # argparse leaves this way, with its message printed; so does a command on SIGTERM
        code = leaving.code if isinstance(leaving.code, int) else USAGE
    except BrokenPipeError:
        raise
    except CallerError as error:
        code = _fail(error, USAGE)
    except (FoldlogError, OSError) as error:
        code = _fail(error, FAILED)
    _flush()
    return code


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Only the command that is called is imported: a broker starts sooner without the others."""
    parser = argparse.ArgumentParser(
        prog="foldlog",
        description="One durable log; everything else is a fold over it.",
        epilog="Every command explains itself: foldlog COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"foldlog {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, dest="command")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, formatter_class=ParagraphFormatter)
        if name in arguments:
            importlib.import_module(f"foldlog.cli.{name}").configure(command)
    return parser


def _fail(error: Exception, code: int) -> int:
    _flush()
    print(f"foldlog: {error_text(error)}", file=sys.stderr)
    return code


def _flush() -> None:
    if sys.stdout is not None:  # it can be closed from the start
        sys.stdout.flush()


def _forget_output() -> None:
    """Python flushes standard output once more at its end, and would complain about the pipe then."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    finally:
        os.close(null)


if __name__ == "__main__":
    sys.exit(main())
