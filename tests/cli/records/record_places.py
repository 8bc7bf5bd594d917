"""The places that verbs about records are tried against: a directory, a broker, and a directory that a broker serves.

Commands run in this process, with its own parser, output and exit codes; only what is about processes needs one.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import foldlog
from cli.serving import ANY_PORT, serving
from foldlog.cli.commands import run_command

_numbers = itertools.count()


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


def run(*arguments: str, stdin: bytes = b"") -> Done:
    """Run one command here, to its end."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with (
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run_command(arguments)
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    return Done(code, out.buffer.getvalue(), err.getvalue())


@dataclass(frozen=True)
class RecordPlace:
    """Where topics are, as options say it."""

    kind: str
    options: tuple[str, str]

    def run(self, *arguments: str, stdin: bytes = b"") -> Done:
        return run("topic", *arguments, *self.options, stdin=stdin)

    def did(self, *arguments: str, stdin: bytes = b"") -> Done:
        """Run what has to work."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, done.err
        return done

    @contextlib.contextmanager
    def log(self) -> Iterator[foldlog.Log]:
        """This place, as a program opens it."""
        flag, value = self.options
        opened = foldlog.open(value) if flag == "-d" else foldlog.connect(f"kafka://{value}")
        with opened as log:
            yield log

    def topic(self, partitions: int = 1) -> str:
        """The name of a topic that nobody else uses. It keeps its records: some have old timestamps."""
        name = f"orders.{next(_numbers)}"
        with self.log() as log:
            log.create_topic(name, partitions, {"retention.ms": -1})
        return name


@contextlib.contextmanager
def all_places(directory: Path) -> Iterator[dict[str, RecordPlace]]:
    """Each of the three. One broker serves the directory of the third, and is the second."""
    served, alone = directory / "served", directory / "alone"
    with foldlog.open(alone):
        pass
    with serving(str(served), *ANY_PORT) as broker:
        host, port = broker.address
        yield {
            "directory": RecordPlace("directory", ("-d", str(alone))),
            "broker": RecordPlace("broker", ("-b", f"{host}:{port}")),
            "served": RecordPlace("served", ("-d", str(served))),
        }
        assert broker.end() == 0
