"""The three places a log can be in, as the command line names them: what the tests of its verbs share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import foldlog
from cli.serving import ANY_PORT, serving
from foldlog.cli.main import main

PLACES = ("directory", "broker", "served directory")
"""A directory that nobody serves; a broker; the directory that this broker serves."""


@dataclass(frozen=True)
class Place:
    """Where a log is: the options that name it, and the directory behind it."""

    name: str
    options: tuple[str, ...]
    directory: Path

    def open(self) -> foldlog.Log:
        """The log as a program has it, to arrange things and to look at them."""
        return foldlog.open(self.directory)


@contextmanager
def all_places(path: Path, *settings: str) -> Iterator[dict[str, Place]]:
    """One directory, and one broker with another and these settings, for as many tests as like to share them."""
    resting, served = path / "resting", path / "served"
    foldlog.open(resting).close()
    with serving(str(served), *ANY_PORT, *settings) as broker:
        host, port = broker.address
        yield {
            "directory": Place("directory", ("-d", str(resting)), resting),
            "broker": Place("broker", ("-b", f"{host}:{port}"), served),
            "served directory": Place("served directory", ("-d", str(served)), served),
        }
        assert broker.end() == 0


class Terminal:
    """Runs commands in this process, at a place."""

    def __init__(self, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
        self.place = place
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._capsys.readouterr()
        code = main([*words, *self.place.options])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    def done(self, *words: str) -> str:
        """What it printed; it has to succeed."""
        code, out, err = self(*words)
        assert code == 0, err
        return out

    def json(self, *words: str) -> Any:
        return json.loads(self.done(*words, "--format", "json"))

    def refused(self, code: int, *words: str) -> str:
        """The one sentence; nothing may have been printed besides."""
        found, out, err = self(*words)
        assert (found, out) == (code, ""), err
        assert err.startswith("foldlog: ")
        assert err.count("\n") == 1
        return err
