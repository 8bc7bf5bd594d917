"""FOLDLOG_* variables: every option of every command may come from the environment.

`--bootstrap-server` is FOLDLOG_BOOTSTRAP_SERVER. What the command line says goes before a variable, also where they are
different options of which only one can be: `-b HOST:PORT` passes over FOLDLOG_DIR. An option that may be repeated takes
several values, separated by spaces and quoted as in a shell; a switch takes 1, true, yes, on, or 0, false, no, off. A
variable that is empty is not set.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

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
        "FORMAT",
        "MASTER",
        "PROPERTY",
        "SOURCE",
        "YES",
    )
)
"""What people set once for all commands. A command that has no such option does not wonder about them."""

_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("0", "false", "no", "off")


class _NotGiven:
    """What an option has that the command line does not name."""


_NOT_GIVEN: Final = _NotGiven()


def variable_of(action: argparse.Action) -> str | None:
    """
    >>> parser = argparse.ArgumentParser()
    >>> variable_of(parser.add_argument("-b", "--bootstrap-server"))
    'FOLDLOG_BOOTSTRAP_SERVER'
    """
    if isinstance(action, argparse._HelpAction | argparse._VersionAction):
        return None
    long = next((option for option in action.option_strings if option.startswith("--")), None)
    return None if long is None else PREFIX + long.removeprefix("--").replace("-", "_").upper()


def is_switched_on(text: str) -> bool:
    """ValueError if it is neither on nor off."""
    word = text.strip().lower()
    if word not in (*_ON, *_OFF):
        raise ValueError(f"not {text!r}; it is {_ON[0]} or {_OFF[0]}")
    return word in _ON


class Variables:
    """The variables that are set, over the options of some parsers. For one command line: the parsers are changed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._set = {name: text for name, text in environment.items() if name.startswith(PREFIX) and text}
        self._defaults: dict[argparse.Action, Any] = {}

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """Before the line is parsed: an option whose variable is set need not be on it."""
        for group in parser._mutually_exclusive_groups:
            if any(self._text(action) is not None for action in group._group_actions):
                group.required = False
        for action in parser._actions:
            if self._text(action) is not None:
                self._defaults[action] = action.default
                action.required = False
                action.default = None if isinstance(action, argparse._AppendAction) else _NOT_GIVEN

    def fill(self, parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
        """After it was parsed: give the options that it does not name their variables' values."""
        for group in parser._mutually_exclusive_groups:
            self._fill_group(parser, arguments, group._group_actions)
        for action in parser._actions:
            if self._is_open(action, arguments):
                setattr(arguments, action.dest, self._value(parser, action))

    def _fill_group(
        self, parser: argparse.ArgumentParser, arguments: argparse.Namespace, actions: list[argparse.Action]
    ) -> None:
        open_ones = [action for action in actions if self._is_open(action, arguments)]
        # One that has a variable and is not open any more was given, and so was one that has none and a value.
        is_given = any(
            getattr(arguments, action.dest, None) != self._defaults.get(action, action.default)
            for action in actions
            if action not in open_ones
        )
        if len(open_ones) > 1 and not is_given:
            names = " and ".join(str(variable_of(action)) for action in open_ones)
            flags = " or ".join(action.option_strings[0] for action in open_ones)
            parser.error(f"{names} are set, and only one of them can be; unset one, or say {flags}")
        if is_given:
            for action in open_ones:
                setattr(arguments, action.dest, self._defaults[action])

    def _text(self, action: argparse.Action) -> str | None:
        return self._set.get(variable_of(action) or "")

    def _is_open(self, action: argparse.Action, arguments: argparse.Namespace) -> bool:
        if action not in self._defaults:
            return False
        found = getattr(arguments, action.dest, None)
        return found is None if isinstance(action, argparse._AppendAction) else found is _NOT_GIVEN

    def _value(self, parser: argparse.ArgumentParser, action: argparse.Action) -> object:
        variable, text = variable_of(action), self._text(action) or ""
        try:
            if action.nargs == 0:
                return action.const if is_switched_on(text) else self._defaults[action]
            if isinstance(action, argparse._AppendAction) or action.nargs in ("+", "*"):
                return [self._checked(parser, action, word) for word in shlex.split(text)]
            return self._checked(parser, action, text)
        except argparse.ArgumentError as error:
            parser.error(f"the environment variable {variable}: {error.message}")
        except ValueError as error:
            parser.error(f"the environment variable {variable}: {error}")

    @staticmethod
    def _checked(parser: argparse.ArgumentParser, action: argparse.Action, text: str) -> object:
        value = parser._get_value(action, text)
        parser._check_value(action, value)
        return value


def parsers_called(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Iterator[argparse.ArgumentParser]:
    """The parser, and those of the command and the verb that the line named."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            chosen = action.choices.get(getattr(arguments, action.dest, None) or "")
            if chosen is not None:
                yield from parsers_called(chosen, arguments)


def all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and everything below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from all_parsers(inner)
