"""The parser of every command: mistakes are one sentence with the next step, and names are never guessed.

Options are not abbreviated: `--part` would mean `--partition` today and nothing at all once there is `--partitions`.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from foldlog.cli.exit_codes import USAGE
from foldlog.cli.output import remark

Verbs: TypeAlias = "argparse._SubParsersAction[CommandParser]"
"""What a module adds its verbs to."""

_NEAREST_CUTOFF: Final = 0.6
_HELP_COLUMN: Final = 28


class ParagraphFormatter(argparse.HelpFormatter):
    """Wraps a description to the terminal, as argparse does, but keeps its paragraphs, and examples in them, apart."""

    def __init__(self, prog: str, **keywords: Any) -> None:
        keywords.setdefault("max_help_position", _HELP_COLUMN)
        super().__init__(prog, **keywords)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        # Its value once, behind all its names: "-d, --dir DIR".
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        # The verbs themselves, without a line above them that says VERB once more.
        return "".join(super(ParagraphFormatter, self)._format_action(verb) for verb in action._get_subactions())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(
            # What is indented is an example, and stays as it is.
            paragraph if paragraph.startswith("  ") else fill(paragraph, width, indent)
            for paragraph in text.split("\n\n")
        )


class CommandParser(argparse.ArgumentParser):
    """A parser of one command or verb."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        keywords.setdefault("formatter_class", ParagraphFormatter)
        keywords.setdefault("allow_abbrev", False)
        keywords["add_help"] = False
        super().__init__(*arguments, **keywords)
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action="help", help="show this, and leave")

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2. argparse would print the usage first, and bury the sentence below it."""
        end = "" if message.endswith("?") else ";"
        remark(f"foldlog: {message}{end} see: {self.prog} --help")
        sys.exit(USAGE)

    def _match_arguments_partial(self, actions: Sequence[argparse.Action], arg_strings_pattern: str) -> list[int]:
        """Leave arguments that may be many for after the options: in `TOPIC -k KEY FILE`, argparse would take the files
        to be none as soon as it has the topic, and wonder about FILE."""
        counts: list[int] = super()._match_arguments_partial(actions, arg_strings_pattern)
        if "O" in arg_strings_pattern:
            while counts and counts[-1] == 0 and actions[len(counts) - 1].nargs == argparse.ZERO_OR_MORE:
                counts.pop()
        return counts

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        near = _nearest(str(value), names)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names)}"
        if isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(None, f"no {action.dest} {value!r}; {hint}")
        raise argparse.ArgumentError(action, f"not {value!r}; {hint}")


def unknown_words_text(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """What to say of words that no option and no argument takes."""
    options = [name for action in parser._actions for name in action.option_strings]
    first = words[0]
    if not first.startswith("-"):
        return f"{first!r} is one word too many"
    near = _nearest(first.partition("=")[0], options)
    return f"there is no option {first!r}" + (f"; did you mean {near!r}?" if near else "")


def _nearest(word: str, names: Sequence[str]) -> str | None:
    near = difflib.get_close_matches(word, names, n=1, cutoff=_NEAREST_CUTOFF)
    return near[0] if near else None


def add_verbs(parser: argparse.ArgumentParser, kind: str = "verb") -> Verbs:
    """A noun's verbs. The noun alone shows its help, as a mistake: on standard error, with exit code 2."""

    def show_help(arguments: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return USAGE

    parser.set_defaults(run=show_help)
    return parser.add_subparsers(title=f"{kind}s", dest=kind, metavar=kind.upper(), parser_class=CommandParser)


def add_verb(
    verbs: Verbs, name: str, summary: str, run: Callable[[argparse.Namespace], int], more: str = ""
) -> CommandParser:
    """One verb: `summary` is its line in the list, `more` the paragraphs that follow it in its own help."""
    opening = f"{summary[0].upper()}{summary[1:]}."
    parser = verbs.add_parser(name, help=summary, description=f"{opening}\n\n{more}" if more else opening)
    parser.set_defaults(run=run)
    return parser
