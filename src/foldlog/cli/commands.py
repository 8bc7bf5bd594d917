"""Which commands there are, and how one is called: its arguments, its exit code, its errors as sentences."""

from __future__ import annotations

import argparse
import importlib
import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Final

from foldlog import __version__
from foldlog.cli.exit_codes import FAILED, USAGE, code_of
from foldlog.cli.output import OutputRefused, flush, remark
from foldlog.cli.parsing import CommandParser, add_verbs, unknown_words_text
from foldlog.cli.variables import Variables, all_parsers, is_switched_on, parsers_called
from foldlog.cli.wording import error_text
from foldlog.errors import FoldlogError

COMMANDS: Final = {
    "topic": "make topics, look at them, write and read their records",
    "group": "see how far groups have read, and move them",
    "fold": "turn topics into views, and replay them",
    "serve": "a log as a Kafka-compatible broker",
    "node": "a partitioned log as JSON lines on standard input and output",
    "check": "verify every byte of a log; set aside what is damaged",
    "dump": "show the segments, batches and indexes of a log as they are on disk",
    "copy": "copy topics between directories and brokers",
    "bench": "measure what this machine can do",
    "demo": "the whole of it at work, in a minute, with a checklist",
    "version": "what is installed here, and which parts of it are compiled",
    "completion": "the script that teaches your shell to complete foldlog's words",
}
"""The modules of this package that are commands, and what each is in a line."""

OWN_VARIABLES: Final = frozenset({"serve"})
"""A broker's settings have an order of their own: flags, variables, a file. It reads its variables itself."""

DEBUG: Final = "--debug"

EPILOG: Final = """\
Every command explains itself: foldlog COMMAND --help

Every option may come from the environment: --bootstrap-server from FOLDLOG_BOOTSTRAP_SERVER."""


def run_command(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. What went wrong is printed."""
    try:
        code = _run(arguments)
        flush()
    except OutputRefused as error:
        return _fail(error, is_debugging=DEBUG in arguments)
    return code


def _run(arguments: Sequence[str]) -> int:
    is_debugging = _is_debugging(arguments, os.environ)
    try:
        parsed = parse(build_parser(arguments), arguments, os.environ)
        code: int = parsed.run(parsed)
    except SystemExit as leaving:  # argparse leaves this way, with its message printed; so does a command on SIGTERM
        return leaving.code if isinstance(leaving.code, int) else USAGE
    except (BrokenPipeError, OutputRefused):
        raise
    except Exception as error:  # whatever it is, a person gets a sentence; --debug shows the rest
        if not isinstance(error, FoldlogError) and _is_of_interrupt(error):
            raise KeyboardInterrupt from error
        return _fail(error, is_debugging)
    return code


def _is_of_interrupt(error: BaseException | None) -> bool:
    """Ctrl-C that was pressed inside an extension module: it comes out as the interpreter's complaint about that."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_debugging(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Asked of the words themselves: also an error while they are parsed, or a module is loaded, is to be shown."""
    try:
        return DEBUG in arguments or is_switched_on(environment.get("FOLDLOG_DEBUG") or "0")
    except ValueError:
        return False  # the parser says what is wrong with it


def build_parser(arguments: Sequence[str]) -> CommandParser:
    """Only the command that is called is imported: a broker starts sooner without the others."""
    called = next((word for word in arguments if not word.startswith("-")), None)
    return parser_with([called] if called in COMMANDS else [])


def parser_with(configured: Sequence[str]) -> CommandParser:
    """The parser of the whole command line, where these commands know their arguments."""
    parser = CommandParser(
        prog="foldlog", description="One durable log; everything else is a fold over it.", epilog=EPILOG
    )
    parser.add_argument("--version", action="version", version=f"foldlog {__version__}", help="show it, and leave")
    commands = add_verbs(parser, "command")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name in configured:
            importlib.import_module(f"foldlog.cli.{name}").configure(command)
    for each in all_parsers(parser):
        # Its default is left out, so that a verb's parser does not undo what stands before the verb.
        each.add_argument(
            DEBUG, action="store_true", default=argparse.SUPPRESS, help="show where in the code an error comes from"
        )
    return parser


def parse(parser: CommandParser, arguments: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """The line, and what variables say where it says nothing."""
    called = next((word for word in arguments if not word.startswith("-")), None)
    variables = Variables({} if called in OWN_VARIABLES else environment)
    for each in all_parsers(parser):
        variables.prepare(each)
    parsed, too_much = parser.parse_known_args(arguments)
    if too_much:
        *_, called_last = parsers_called(parser, parsed)
        called_last.error(unknown_words_text(called_last, too_much))
    for each in parsers_called(parser, parsed):
        variables.fill(each, parsed)
    return parsed


def _fail(error: Exception, is_debugging: bool) -> int:
    flush()
    if is_debugging:
        traceback.print_exception(error)
    if isinstance(error, FoldlogError | OSError):
        remark(f"foldlog: {error_text(error)}")
        return code_of(error)
    remark(
        f"foldlog: this is a fault of foldlog's own ({type(error).__name__}: {error});"
        f" run it again with {DEBUG} and report what it shows"
    )
    return FAILED
