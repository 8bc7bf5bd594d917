"""The grammar of every command, on click: options and arguments, environment variables, help, and usage errors.

A usage error is one sentence with the next step, and options are not abbreviated, since `--part` would mean
`--partition` today and become ambiguous once there is `--partitions`.

Every option of every command may come from the environment: `--bootstrap-server` is FOLDLOG_BOOTSTRAP_SERVER. The
command line overrides variables, even between different options that exclude each other: `-b HOST:PORT` overrides
FOLDLOG_DIR. An option that may be repeated takes several values, separated by spaces and quoted as in a shell; a switch
takes 1, true, yes, on, or 0, false, no, off. An empty variable is not set.

Only click's documented API is used or overridden here. What only help and errors need is imported where it is needed:
most command lines are right.
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import click
from click.core import ParameterSource
from click.types import BoolParamType

from foldlog.cli.exit_codes import USAGE
from foldlog.errors import CallerError, InvalidArgument

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PREFIX: Final = "FOLDLOG_"

GENERAL: Final = frozenset(
    PREFIX + name
    for name in (
        "BOOTSTRAP_SERVER",
        "COMMAND_CONFIG",
        "CONF",
        "DEBUG",
        "DIR",
        "FOLDS",
        "FOLDS_KEY",
        "FORMAT",
        "MASTER",
        "PROPERTY",
        "SOURCE",
        "YES",
    )
)
"""Variables that users set once for all commands. A command without such an option ignores them."""

DEBUG: Final = "--debug"

_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("0", "false", "no", "off")
_BEGINS_WITH_NUMBER: Final = re.compile(r"-\d")
_NEAREST_CUTOFF: Final = 0.6
_NAMES_WIDTH_MAX: Final = 24
"""Options with longer names and values have their help text on the next line."""
_WIDEST: Final = 1000
"""A help text is as wide as the terminal."""


class Arguments(SimpleNamespace):
    """The parsed command line and variables: an attribute for each option and argument of the command."""


Run: TypeAlias = Callable[[Arguments], int]
"""The function of a command; returns the exit code."""


# --- values ---------------------------------------------------------------------------------------------------------


class ValueType(click.ParamType):  # type: ignore[type-arg]  # only its newest versions have any
    """The type of an option's value or an argument. `read` converts the text, or raises CallerError, whose message
    becomes the usage error."""

    name = "value"

    def __init__(self, read: Callable[[str], object] | None, choices: Sequence[str]) -> None:
        self.choices = choices
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self.choices and value not in self.choices:
            self.fail(f"not {value!r}; {_hint(value, self.choices)}", param, ctx)
        if self._read is None:
            return value
        try:
            return self._read(value)
        except CallerError as error:
            self.fail(str(error), param, ctx)

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        import shlex

        try:
            return shlex.split(rv)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from foldlog.cli.completion import words_for

        return words_for(ctx, param, self.choices, incomplete)


class OnOrOff(BoolParamType):
    """A switch, whose variable has words for on and off."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, bool):
            return value
        try:
            return is_switched_on(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def is_switched_on(text: str) -> bool:
    """ValueError if it is neither on nor off."""
    word = text.strip().lower()
    if word not in (*_ON, *_OFF):
        raise ValueError(f"not {text!r}; it is {_ON[0]} or {_OFF[0]}")
    return word in _ON


def count_value(least: int, most: int | None = None) -> Callable[[str], int]:
    """For `read`: a whole number of at least so many, and at most so many."""
    span = f", {least} or more" if most is None else f" from {least} to {most}"

    def parsed(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 19 and least <= int(text) <= (most or int(text))):
            raise InvalidArgument(f"{text!r} is not a whole number{span}")
        return int(text)

    return parsed


# --- options and arguments ------------------------------------------------------------------------------------------


class Option(click.Option):
    """`section` is its section in the help; at most one of its `rivals` may be given; `is_needed`: it must be given."""

    def __init__(self, names: Sequence[str], *, is_needed: bool = False, takes_value: bool = True, **more: Any) -> None:
        super().__init__(names, **more)
        self.section = "options"
        self.rivals: tuple[Option, ...] = ()
        self.is_needed = is_needed
        self.takes_value = takes_value
        self.needs_value = takes_value and more.get("flag_value") is None

    @property
    def dest(self) -> str:
        """Its attribute in Arguments."""
        return self.name or ""

    @property
    def label(self) -> str:
        """Its name in messages."""
        return "/".join(self.opts)

    def shown(self, names: Sequence[str]) -> str:
        """These names of it, with its metavar."""
        shown = ", ".join(names)
        if self.needs_value:
            return f"{shown} {self.metavar}"
        return f"{shown} [{self.metavar}]" if self.takes_value else shown


class Argument(click.Argument):
    """A positional argument; `is_many`: it takes all remaining words."""

    def __init__(self, name: str, metavar: str, told: str, kind: ValueType, *, is_many: bool, is_needed: bool) -> None:
        # Checked once all parameters are known, so that one error names all that are missing.
        super().__init__([name], metavar=metavar, type=kind, nargs=-1 if is_many else 1, required=False)
        self.label = metavar
        self.told = told
        self.is_many = is_many
        self.is_needed = is_needed

    @property
    def shown(self) -> str:
        if self.is_many:
            return f"{self.label} [{self.label} ...]" if self.is_needed else f"[{self.label} ...]"
        return self.label if self.is_needed else f"[{self.label}]"


def argument(
    name: str,
    metavar: str,
    told: str,
    *,
    read: Callable[[str], object] | None = None,
    choices: Sequence[str] = (),
    is_many: bool = False,
    is_needed: bool = True,
) -> Argument:
    """A positional argument; `told` is its help."""
    return Argument(name, metavar, told, ValueType(read, choices), is_many=is_many, is_needed=is_needed)


def option(
    *names: str,
    metavar: str,
    told: str,
    dest: str | None = None,
    read: Callable[[str], object] | None = None,
    choices: Sequence[str] = (),
    default: str | None = None,
    bare: str | None = None,
    is_repeated: bool = False,
    is_needed: bool = False,
    is_hidden: bool = False,
) -> Option:
    """An option with a value; `told` is its help, `bare` its value if none follows."""
    more: dict[str, Any] = {} if bare is None else {"is_flag": False, "flag_value": bare}
    return Option(
        [*names, dest or _dest(names)],
        metavar=metavar,
        help=told,
        type=ValueType(read, choices),
        default=default,
        multiple=is_repeated,
        is_needed=is_needed,
        hidden=is_hidden,
        envvar=_variable(names),
        **more,
    )


def switch(*names: str, told: str) -> Option:
    """An option without a value; `told` is its help."""
    dest = [*names, _dest(names)]
    return Option(dest, is_flag=True, type=OnOrOff(), help=told, takes_value=False, envvar=_variable(names))


def one_of(*options: Option) -> list[Option]:
    """At most one of them may be given."""
    for each in options:
        each.rivals = options
    return list(options)


def in_section(title: str, *options: Option) -> list[Option]:
    """Shown together in the help, under the title."""
    for each in options:
        each.section = title
    return list(options)


def _dest(names: Sequence[str]) -> str:
    return names[-1].lstrip("-").replace("-", "_")


def _variable(names: Sequence[str]) -> str | None:
    long = next((name for name in names if name.startswith("--")), None)
    return None if long is None else PREFIX + long.removeprefix("--").replace("-", "_").upper()


def _help_option() -> Option:
    def show(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
        if is_asked and not ctx.resilient_parsing:
            from foldlog.cli.output import say

            say(ctx.get_help())
            ctx.exit()

    return Option(
        ["-h", "--help"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="show this help and exit",
        takes_value=False,
    )


def _debug_option() -> Option:
    """On the command line it is looked for before anything is parsed; here it is only accepted."""
    taken = switch(DEBUG, told="show where in the code an error comes from")
    taken.expose_value = False
    return taken


# --- commands -------------------------------------------------------------------------------------------------------


class Verb(click.Command):
    """One command or verb. Its name and its line in the list come from the noun that loads it."""

    def __init__(self, run: Run, params: Sequence[click.Parameter], description: str, more: str) -> None:
        super().__init__(
            name=None,
            params=[_help_option(), *params, _debug_option()],
            add_help_option=False,
            context_settings={"allow_extra_args": True, "max_content_width": _WIDEST},
        )
        self.run = run
        self._description = description
        self._more = more

    @property
    def description(self) -> str:
        if self._description:
            return self._description
        summary = self.short_help or ""
        opening = f"{summary[:1].upper()}{summary[1:]}."
        return f"{opening}\n\n{self._more}" if self._more else opening

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # for completion of an incomplete line
            return super().parse_args(ctx, args)
        _refuse_missing_values(ctx, self.params, args)
        with _own_words(ctx, self.params, args):
            rest = super().parse_args(ctx, list(args))
        _settle_rivals(ctx, self.params)
        _refuse_missing(ctx, self.params)
        if rest:
            raise click.UsageError(f"{rest[0]!r} is one word too many", ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        return self.run(self.arguments(ctx))

    def arguments(self, ctx: click.Context) -> Arguments:
        """The parsed values. A repeatable one is a list, or None if an option was not given."""
        found = Arguments(verb=ctx.info_name)
        for param in self.params:
            if param.expose_value and param.name is not None:
                value = ctx.params.get(param.name)
                if isinstance(param, Argument) and param.is_many:
                    value = list(value or ())
                elif param.multiple:
                    value = list(value) if value else None
                setattr(found, param.name, value)
        return found

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_help(ctx, formatter, self.params, self.description)


def command(
    *params: click.Parameter, description: str = "", more: str = "", has_variables: bool = True
) -> Callable[[Run], Verb]:
    """Decorates a function as a command. Without a description, its help begins with its line in the list of commands,
    followed by the paragraphs of `more`."""
    if not has_variables:
        for param in params:
            param.envvar = None
    return lambda run: Verb(run, params, description, more)


class LazyVerb(NamedTuple):
    """An entry in a list of commands: its module and function below this package, and a one-line summary."""

    target: str
    summary: str


class Noun(click.Group):
    """A group of commands. Only the one that is called is imported: a broker starts sooner without the others.

    Without a command it prints its help to standard error and exits with code 2.
    """

    def __init__(
        self,
        verbs: Mapping[str, LazyVerb],
        description: str,
        *,
        kind: str = "verb",
        epilog: str = "",
        params: Sequence[Option] = (),
    ) -> None:
        super().__init__(
            name=None,
            params=[_help_option(), *params, _debug_option()],
            add_help_option=False,
            invoke_without_command=True,
            context_settings={"max_content_width": _WIDEST},
        )
        self.verbs = verbs
        self.description = description
        self.kind = kind
        self.epilog = epilog

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        listed = self.verbs.get(cmd_name)
        if listed is None:
            return None
        module, _, name = listed.target.partition(":")
        found: click.Command = getattr(importlib.import_module(f"foldlog.cli.{module}"), name)
        found.name, found.short_help = cmd_name, listed.summary
        return found

    def below(self, ctx: click.Context) -> Iterator[click.Context]:
        """A context for each of its commands, as if called without arguments."""
        for name in self.verbs:
            inner = self.get_command(ctx, name)
            if inner is not None:
                yield click.Context(inner, ctx, name, **inner.context_settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.verbs and not ctx.resilient_parsing:
            raise click.UsageError(f"no {self.kind} {args[0]!r}; {_hint(args[0], list(self.verbs))}", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _own_words(ctx, self.params, args):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        result = super().invoke(ctx)
        if ctx.invoked_subcommand is not None:
            return result
        print(ctx.get_help(), file=sys.stderr, flush=True)
        return USAGE

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_help(ctx, formatter, self.params, self.description)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        offered = [
            CompletionItem(name, help=verb.summary) for name, verb in self.verbs.items() if name.startswith(incomplete)
        ]
        return offered + click.Command.shell_complete(self, ctx, incomplete)


def all_contexts(ctx: click.Context) -> Iterator[click.Context]:
    """The context of a command, and those of everything below it."""
    yield ctx
    if isinstance(ctx.command, Noun):
        for inner in ctx.command.below(ctx):
            yield from all_contexts(inner)


# --- usage errors ---------------------------------------------------------------------------------------------------


def mistake_text(error: click.UsageError) -> str:
    """The message, and where to read more."""
    message = error.message
    if isinstance(error, click.BadParameter) and isinstance(error.param, Option | Argument) and error.ctx is not None:
        source = error.ctx.get_parameter_source(error.param.name or "")
        is_of_variable = source is not ParameterSource.COMMANDLINE and error.param.envvar
        where = f"the environment variable {error.param.envvar}" if is_of_variable else f"argument {error.param.label}"
        message = f"{where}: {message}"
    end = "" if message.endswith("?") else ";"
    return f"foldlog: {message}{end} see: {error.ctx.command_path if error.ctx else 'foldlog'} --help"


@contextmanager
def _own_words(ctx: click.Context, params: Sequence[click.Parameter], args: Sequence[str]) -> Iterator[None]:
    """Replaces click's usage errors by foldlog's."""
    words = list(args)
    try:
        yield
    except (click.NoSuchOption, click.BadOptionUsage) as error:
        raise click.UsageError(_option_mistake(error, params, words), ctx) from None


def _option_mistake(
    error: click.NoSuchOption | click.BadOptionUsage, params: Sequence[click.Parameter], words: Sequence[str]
) -> str:
    word = next((word for word in words if word.startswith(error.option_name)), error.option_name)
    options = {name: param for param in params if isinstance(param, Option) for name in param.opts}
    if isinstance(error, click.NoSuchOption):
        near = _nearest(word.partition("=")[0], list(options))
        return f"there is no option {word!r}" + (f"; did you mean {near!r}?" if near else "")
    found = options[error.option_name]
    problem = "expected one argument" if found.takes_value else f"ignored explicit argument {word.partition('=')[2]!r}"
    return f"argument {found.label}: {problem}"


def _refuse_missing_values(ctx: click.Context, params: Sequence[click.Parameter], args: Sequence[str]) -> None:
    """An option is not another option's value: in `--format --quiet` one is missing. click would accept it."""
    valued = {name: param for param in params if isinstance(param, Option) and param.needs_value for name in param.opts}
    for word, after in itertools.pairwise(args):
        if word == "--":
            return
        is_option = len(after) > 1 and after[0] == "-" and " " not in after and not _BEGINS_WITH_NUMBER.match(after)
        if word in valued and is_option:
            raise click.UsageError(f"argument {valued[word].label}: expected one argument", ctx)


def _refuse_missing(ctx: click.Context, params: Sequence[click.Parameter]) -> None:
    missing = [
        param.label
        for param in params
        if isinstance(param, Option | Argument) and param.is_needed and ctx.params.get(param.name or "") in (None, ())
    ]
    if missing:
        raise click.UsageError(f"the following arguments are required: {', '.join(missing)}", ctx)


def _settle_rivals(ctx: click.Context, params: Sequence[click.Parameter]) -> None:
    """For options that exclude each other: the command line overrides variables, and neither may name two."""
    for rivals in {param.rivals for param in params if isinstance(param, Option)}:
        said = _coming_from(ctx, rivals, ParameterSource.COMMANDLINE)
        if len(said) > 1:
            raise click.UsageError(f"argument {said[1].label}: not allowed with argument {said[0].label}", ctx)
        variables = _coming_from(ctx, rivals, ParameterSource.ENVIRONMENT)
        if said:
            ctx.params.update({rival.dest: None if rival.takes_value else False for rival in variables})
        elif len(variables) > 1:
            names = " and ".join(str(rival.envvar) for rival in variables)
            flags = " or ".join(rival.opts[0] for rival in variables)
            raise click.UsageError(f"{names} are set, and only one of them can be; unset one, or say {flags}", ctx)


def _coming_from(ctx: click.Context, options: Sequence[Option], source: ParameterSource) -> list[Option]:
    """The options whose value has this source, in command line order, which is click's."""
    by_dest = {option.dest: option for option in options}
    return [by_dest[name] for name in ctx.params if name in by_dest and ctx.get_parameter_source(name) is source]


def _hint(word: str, names: Sequence[str]) -> str:
    near = _nearest(word, names)
    return f"did you mean {near!r}?" if near else f"there are {', '.join(names)}"


def _nearest(word: str, names: Sequence[str]) -> str | None:
    import difflib

    near = difflib.get_close_matches(word, names, n=1, cutoff=_NEAREST_CUTOFF)
    return near[0] if near else None


# --- help -----------------------------------------------------------------------------------------------------------


def write_help(
    ctx: click.Context, formatter: click.HelpFormatter, params: Sequence[click.Parameter], description: str
) -> None:
    """The usage, the description, and each argument, option and verb in a row of two columns."""
    options = [param for param in params if isinstance(param, Option) and not param.hidden]
    arguments = [param for param in params if isinstance(param, Argument)]
    noun = ctx.command if isinstance(ctx.command, Noun) else None
    words = [each.shown for each in arguments] + ([f"{noun.kind.upper()} ..."] if noun else [])
    formatter.write(_usage(ctx.command_path, _option_words(options), words, formatter.width))
    _write_paragraphs(formatter, description)
    sections = _sections(arguments, options)
    if noun is not None:
        sections[f"{noun.kind}s"] = [(name, verb.summary) for name, verb in noun.verbs.items()]
    width = min(_NAMES_WIDTH_MAX, max(len(names) for rows in sections.values() for names, _ in rows))
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl([(names.ljust(width), told) for names, told in rows], col_max=width)
    if noun is not None and noun.epilog:
        _write_paragraphs(formatter, noun.epilog)


def _sections(arguments: Sequence[Argument], options: Sequence[Option]) -> dict[str, list[tuple[str, str]]]:
    """The rows of the help, by section."""
    sections = {"arguments": [(each.label, each.told) for each in arguments]} if arguments else {}
    sections["options"] = []
    for each in options:
        sections.setdefault(each.section, []).append((each.shown(each.opts), each.help or ""))
    return sections


def _option_words(options: Sequence[Option]) -> list[str]:
    """Options for the usage line; mutually exclusive ones joined by " | "."""
    words: dict[int, str] = {}
    for each in options:
        rivals = [rival for rival in each.rivals if not rival.hidden] or [each]
        shown = " | ".join(rival.shown(rival.opts[:1]) for rival in rivals)
        words[id(rivals[0])] = shown if each.is_needed else f"[{shown}]"
    return list(words.values())


def _usage(name: str, options: Sequence[str], arguments: Sequence[str], width: int) -> str:
    """On one line if it fits; else the options, then the arguments, without breaking a word."""
    opening = f"usage: {name}"
    line = " ".join([opening, *options, *arguments])
    if len(line) <= width:
        return f"{line}\n"
    indent = " " * (len(opening) + 1)
    lines = [indent + text for words in (options, arguments) for text in _filled(words, width - len(indent))]
    return "\n".join([f"{opening} {lines[0].lstrip()}", *lines[1:], ""])


def _filled(words: Sequence[str], width: int) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = ""
        line = f"{line} {word}" if line else word
    if line:
        yield line


def _write_paragraphs(formatter: click.HelpFormatter, text: str) -> None:
    """Wrapped to the terminal, except for indented paragraphs: examples stay as they are."""
    for paragraph in text.split("\n\n"):
        words = " ".join(paragraph.split())
        whole = paragraph if paragraph.startswith("  ") else click.wrap_text(words, formatter.width)
        formatter.write(f"\n{whole}\n")
