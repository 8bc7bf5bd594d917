"""Secrets among the words of a command line, which all users of a machine can read (`ps`): where they are, a warning
that names the file instead, and a process title without them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from foldlog.cli.output import remark

_ASSIGNMENT: Final = re.compile(r"(?:-X|--[a-z-]+=)?(?P<name>[A-Za-z][\w.]*\.[\w.]+)=(?P<secret>.+)", re.DOTALL)
_IN_QUERY: Final = re.compile(r"[?&](?P<name>[\w.]+)=(?P<secret>[^&]+)")
_IN_ADDRESS: Final = re.compile(r"\w+://[^/?@:]*:(?P<secret>[^/?@]+)@")
_TOKEN_FLAG: Final = "--console-token"
_SERVE: Final = "serve"
_POSTGRES: Final = ("postgresql://", "postgres://")
_ONE_SIDE: Final = re.compile(r"--(from|to)\b")


class ShownSecret(NamedTuple):
    """One of them: what it is of, the value, and the option that takes a file instead."""

    name: str
    secret: str
    instead: str

    @property
    def warning(self) -> str:
        return (
            f"{self.name} is on the command line, where other users of this machine can read it; put it into a file"
            f" that only you can read, and name that with {self.instead}"
        )


def find_shown(words: Sequence[str]) -> list[ShownSecret]:
    """
    >>> find_shown(["topic", "list", "-X", "sasl.password=hunter2"])[0].warning.partition(",")[0]
    'sasl.password is on the command line'
    >>> find_shown(["topic", "produce", "orders", "password=1"])
    []
    """
    is_serve = list(words[:1]) == [_SERVE]
    found: list[ShownSecret] = []
    for before, word in zip(["", *words], words, strict=False):
        side = _ONE_SIDE.match(word) or _ONE_SIDE.match(before)
        option = "--config FILE" if is_serve else f"--{side[1]}-config FILE" if side else "--command-config FILE"
        if before == _TOKEN_FLAG or word.startswith(f"{_TOKEN_FLAG}="):
            found.append(ShownSecret(_TOKEN_FLAG, word.removeprefix(f"{_TOKEN_FLAG}="), option))
        elif "://" in word:
            option = "PGPASSFILE" if word.startswith(_POSTGRES) else option
            in_query = [(one["name"], one["secret"]) for one in _IN_QUERY.finditer(word) if _is_secret(one["name"])]
            in_address = [("a password", one["secret"]) for one in _IN_ADDRESS.finditer(word)]
            found += [ShownSecret(*one, option) for one in (*in_query, *in_address)]
        elif (one := _ASSIGNMENT.fullmatch(word)) is not None and _is_secret(one["name"]):
            found.append(ShownSecret(one["name"], one["secret"], option))
    return found


def _is_secret(name: str) -> bool:
    from foldlog.server.config.properties_file import has_secret_name  # asked for few words; help loads no server

    return has_secret_name(name)


def warn_of_secrets(words: Sequence[str]) -> None:
    """Say which words of this process's command line others should not read, and hide them from now on."""
    shown = find_shown(words)
    if not shown:
        return
    _hide_from_title(one.secret for one in shown)
    if words[0] != _SERVE:  # its warnings are lines of its log
        for one in shown:
            remark(f"foldlog: {one.warning}")


def _hide_from_title(secrets: Iterable[str]) -> None:
    """Overwrite them in this process's own title, as the system shows it to others (Linux; elsewhere nothing happens).

    They were there for a moment: a warning is given all the same.
    """
    import ctypes

    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, of proc(5)
    except (OSError, IndexError, ValueError):
        return
    if not 0 < start < end:
        return
    title = (ctypes.c_char * (end - start)).from_address(start)
    shown = title.raw
    for secret in map(os.fsencode, secrets):
        shown = shown.replace(secret, b"x" * len(secret))
    title.raw = shown
