"""Which commands there are, and how one is called: its arguments, its exit code, its errors as sentences."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final

from foldlog import __version__
from foldlog.cli.exit_codes import FAILED, USAGE
from foldlog.cli.output import OutputRefused, flush
from foldlog.cli.wording import ParagraphFormatter, error_text
from foldlog.errors import CallerError, FoldlogError

COMMANDS: Final = {
    "check": "verify every byte of a log; set aside what is damaged",
    "demo": "the whole of it at work, in a minute, with a checklist",
    "fold": "turn topics into views, and replay them",
    "node": "a partitioned log as JSON lines on standard input and output",
    "serve": "a log as a Kafka-compatible broker",
}
"""The modules of this package that are commands, and what each is in a line."""


def run_command(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. What went wrong is printed."""
    try:
        code = _run(arguments)
        flush()
    except OutputRefused as error:
        return _fail(error, FAILED)
    return code


def _run(arguments: Sequence[str]) -> int:
    try:
        parsed = build_parser(arguments).parse_args(arguments)
        code: int = parsed.run(parsed)
    except SystemExit as leaving:  # argparse leaves this way, with its message printed; so does a command on SIGTERM
        return leaving.code if isinstance(leaving.code, int) else USAGE
    except BrokenPipeError:
        raise
    except CallerError as error:
        return _fail(error, USAGE)
    except (FoldlogError, OSError) as error:
        return _fail(error, FAILED)
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
    flush()
    print(f"foldlog: {error_text(error)}", file=sys.stderr)
    return code
