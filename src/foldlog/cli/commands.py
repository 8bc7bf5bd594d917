"""The list of commands, and how one is run: its arguments, its exit code, its errors as sentences."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

import click

from foldlog import __version__
from foldlog.cli.exit_codes import FAILED, USAGE, code_of
from foldlog.cli.output import OutputRefused, flush, remark, say
from foldlog.cli.parsing import DEBUG, LazyVerb, Noun, Option, is_switched_on, mistake_text
from foldlog.cli.wording import error_text
from foldlog.errors import FoldlogError

NAME: Final = "foldlog"

COMMANDS: Final = {
    "topic": LazyVerb("topic.topic:NOUN", "create, show and change topics; write and read records"),
    "group": LazyVerb("group.group:NOUN", "show how far groups have read, and move them"),
    "transaction": LazyVerb("transaction.transaction:NOUN", "show open transactions, and abort them"),
    "user": LazyVerb("access.user:NOUN", "manage users who log in with a password"),
    "acl": LazyVerb("access.acl:NOUN", "control who may do what"),
    "quota": LazyVerb("access.quota:NOUN", "limit how much clients may use"),
    "certificate": LazyVerb("access.certificate:NOUN", "renew the certificates of serve --secure"),
    "fold": LazyVerb("fold.fold:NOUN", "keep views of topics up to date, and replay them"),
    "capture": LazyVerb("capture.capture:NOUN", "capture the changes of a database as topics"),
    "serve": LazyVerb("serve:run", "serve a log as a Kafka-compatible broker"),
    "node": LazyVerb("node.node:run", "serve a log as JSON lines on standard input and output"),
    "check": LazyVerb("files.check:run", "verify every byte of a log, and repair it"),
    "dump": LazyVerb("files.dump:run", "show the segments, batches and indexes of a log as they are on disk"),
    "restore": LazyVerb("files.restore:run", "make a log's directory from its store of segments"),
    "copy": LazyVerb("copy.copy:run", "copy topics between directories and brokers"),
    "bench": LazyVerb("bench.bench:run", "measure the speed of a log on this machine"),
    "demo": LazyVerb("demo:run", "show everything at work, in about a minute"),
    "version": LazyVerb("version:run", "show what is installed, and whether the kernels are compiled"),
    "completion": LazyVerb("completion:run", "print a completion script for your shell"),
}

EPILOG: Final = """\
For help on a command: foldlog COMMAND --help

Every option can be set in the environment: --bootstrap-server by FOLDLOG_BOOTSTRAP_SERVER."""


def root() -> Noun:
    """The whole command line. A command is imported when it is called."""

    def show(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
        if is_asked and not ctx.resilient_parsing:
            say(f"{NAME} {__version__}")
            ctx.exit()

    version = Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="show the version and exit",
        takes_value=False,
    )
    return Noun(
        COMMANDS,
        "One durable log; everything else is a fold over it.",
        kind="command",
        epilog=EPILOG,
        params=[version],
    )


def root_context() -> click.Context:
    """The context of an empty command line, to walk through all commands."""
    noun = root()
    return click.Context(noun, info_name=NAME, **noun.context_settings)


def call(arguments: Sequence[str]) -> int:
    """Parse the line and run its command; returns the exit code. click.UsageError if the line is wrong.

    Bypasses click's own `main`, which handles interrupts and closed pipes differently.
    """
    noun = root()
    try:
        with noun.make_context(NAME, list(arguments)) as ctx:
            code: int = noun.invoke(ctx)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    return code


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and print its errors; returns the exit code."""
    try:
        code = _run(arguments)
        flush()
    except OutputRefused as error:
        return _fail(error, is_debugging=DEBUG in arguments)
    return code


def _run(arguments: Sequence[str]) -> int:
    is_debugging = _is_debugging(arguments, os.environ)
    try:
        return call(arguments)
    except click.UsageError as error:
        remark(mistake_text(error))
        return USAGE
    except SystemExit as leaving:  # a command leaves so on SIGTERM
        return leaving.code if isinstance(leaving.code, int) else USAGE
    except (BrokenPipeError, OutputRefused):
        raise
    except Exception as error:  # every error becomes a sentence; --debug shows the rest
        if not isinstance(error, FoldlogError) and _is_of_interrupt(error):
            raise KeyboardInterrupt from error
        return _fail(error, is_debugging)


def _is_of_interrupt(error: BaseException | None) -> bool:
    """Whether it is a Ctrl-C pressed inside an extension module: it surfaces as an error of the interpreter."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_debugging(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Looks at the raw words: errors while they are parsed, or while a module is loaded, are to be shown, too."""
    try:
        return DEBUG in arguments or is_switched_on(environment.get("FOLDLOG_DEBUG") or "0")
    except ValueError:
        return False  # the line's parser reports it


def _fail(error: Exception, is_debugging: bool) -> int:
    flush()
    if is_debugging:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, FoldlogError | OSError):
        remark(f"foldlog: {error_text(error)}")
        return code_of(error)
    remark(
        f"foldlog: this is a fault of foldlog's own ({type(error).__name__}: {error});"
        f" run it again with {DEBUG} and report what it shows"
    )
    return FAILED
