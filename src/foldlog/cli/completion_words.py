"""What can stand where on a command line, read off the parsers: the words that completion offers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["topics", "groups", "files", "directories", "words", "nothing"]
"""What a value is. `words` are listed; topics and groups are asked for when they are wanted."""


@dataclass(frozen=True, slots=True)
class Value:
    """What can stand in one place."""

    kind: Kind
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """An option by all its names; `value` is None for a switch."""

    names: tuple[str, ...]
    about: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class LinePlace:
    """The line after `path`, such as ("topic", "list"): verbs that may follow, options, and what else."""

    path: tuple[str, ...]
    verbs: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    argument: Value


def places_in(parser: argparse.ArgumentParser) -> list[LinePlace]:
    """Of a parser and everything below it."""
    return list(_places(parser, ()))


def _places(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[LinePlace]:
    options: list[Option] = []
    verbs: list[tuple[str, str]] = []
    argument = Value("nothing")
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            verbs = [(str(one.dest), one.help or "") for one in action._get_subactions()]
            below = dict(action.choices)
        elif action.help == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            value = None if action.nargs == 0 else value_of(action, path)
            options.append(Option(tuple(action.option_strings), _about(action), value))
        elif argument.kind == "nothing":
            argument = value_of(action, path)
    yield LinePlace(path, tuple(verbs), tuple(options), argument)
    for name, inner in below.items():
        yield from _places(inner, (*path, name))


def value_of(action: argparse.Action, path: tuple[str, ...]) -> Value:
    """What the value of an option or an argument is, by its choices or else by the name that its help has for it."""
    if action.choices is not None:
        return Value("words", tuple(str(choice) for choice in action.choices))
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if name.startswith("TOPIC") or (name == "PATTERN" and path[:1] == ("topic",)):
        return Value("topics")
    if name.startswith("GROUP") or (name == "PATTERN" and path[:1] == ("group",)):
        return Value("groups")
    if name.startswith("DIR") or name == "D":
        return Value("directories")
    return Value("files") if name.startswith("FILE") else Value("nothing")


def _about(action: argparse.Action) -> str:
    return " ".join((action.help or "").split()).replace("%%", "%")
