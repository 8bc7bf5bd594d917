"""docs/tutorial.md, typed as it stands: every file written, every command run, every output compared.

Shell blocks run in bash, with `foldlog` and `python` of this environment; only `foldlog fold` runs in this process,
which has a Spark session already. A block of text after a block of commands is what they print, standard error among
it; `…` stands for anything. The broker of "another terminal" is a real one on a free port, which the files then name.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cli.command import SOURCE, WAIT_S
from cli.serving import serving
from foldlog.cli.main import main
from test_docs import DOCS, Block, blocks_of, page

HERE = "tests/spark/folds/test_tutorial.py"
FILE = re.compile(r"# (?P<name>\w+\.py)\n")
ENDS_WITH = re.compile(r"# ends with (?P<code>\d+)")
ANOTHER_TERMINAL = "<!-- in another terminal -->"
DEFAULT_PORT = "127.0.0.1:9092"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory for PATH with the `foldlog` and the `python` of this environment."""
    folder = tmp_path / "bin"
    folder.mkdir()
    call = "import sys; from foldlog.cli.main import main; sys.exit(main())"
    for name, words in (("foldlog", [sys.executable, "-c", call]), ("python", [sys.executable])):
        (folder / name).write_text(f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {shlex.join(words)} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@dataclass
class Reader:
    """Somebody who follows the page, in the directory `place`."""

    place: Path
    tools: Path
    capsys: pytest.CaptureFixture[str]
    brokers: ExitStack
    address: str = DEFAULT_PORT
    variables: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, code: str) -> None:
        (self.place / name).write_text(code.replace(DEFAULT_PORT, self.address), encoding="utf-8")

    def serve(self, command: str) -> None:
        """The broker of the page, but on free ports."""
        words = shlex.split(command)[2:]
        free = ["--listen", "127.0.0.1:0", *words, "127.0.0.1:0"]
        self.address = "{}:{}".format(*self.brokers.enter_context(serving(*free)).address)

    def type(self, line: str) -> str:
        """What a line prints. It has to end with 0, unless its comment says otherwise."""
        expected = int(found["code"]) if (found := ENDS_WITH.search(line)) else 0
        words = shlex.split(line, comments=True)
        if words[:2] == ["foldlog", "fold"]:
            ended = main(words[1:])
            printed, told = self.capsys.readouterr()
            # Progress is told with rates, which are never the same; a fault is a fault of the tutorial.
            assert ended == expected, told
            return printed
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.place,
            env={**os.environ, **self.variables, "PATH": f"{self.tools}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == expected, f"{line}: {done.stdout}"
        return done.stdout


def steps() -> Iterator[tuple[Block, bool]]:
    """The blocks of the page in order, and whether each is for another terminal."""
    text = page(DOCS / "tutorial.md")
    lines = text.splitlines()
    for block in blocks_of(text):
        yield block, lines[block.line - 3].strip() == ANOTHER_TERMINAL


def is_printed(shown: str, printed: str) -> bool:
    """Line by line, and blanks between words as few or as many as there are."""
    pattern = "\n".join(
        ".*".join(r"\s+".join(map(re.escape, part.split(" "))) for part in re.sub(" +", " ", line).split("…"))
        for line in shown.splitlines()
    )
    return re.fullmatch(pattern, printed.strip("\n")) is not None


def test_a_shown_output_is_compared_but_for_what_it_leaves_open() -> None:
    assert is_printed("A  B\n1  …", "A      B\n1  anything at all\n")
    assert not is_printed("A  B\n1  …", "A  B\n2  anything")
    assert not is_printed("A", "A\nB")


@pytest.mark.faults  # with the other long runs
@pytest.mark.timeout(600)  # some forty processes and four runs of Spark: seconds each on a machine that is busy
def test_the_tutorial_is_what_happens(
    spark: SparkSession,
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ExitStack() as brokers:
        reader = Reader(tmp_path, tools, capsys, brokers)
        printed, ran = "", 0
        for block, is_elsewhere in steps():
            name = FILE.match(block.code)
            if block.not_run is not None and HERE not in block.not_run:
                continue
            if name is not None:
                reader.write(name["name"], block.code)
            elif block.language == "text":
                shown = block.code.replace(DEFAULT_PORT, reader.address)
                assert is_elsewhere_output(shown) or is_printed(shown, printed), f"line {block.line}: {printed}"
            elif is_elsewhere:
                reader.serve(block.code)
            elif block.code.startswith("mkdir shop"):
                reader.place = tmp_path / "shop"
                reader.place.mkdir()
                reader.variables = {"FOLDLOG_DIR": "data"}
                monkeypatch.setenv("FOLDLOG_DIR", "data")
                monkeypatch.chdir(reader.place)
            else:
                lines = [line for line in block.code.splitlines() if line.strip()]
                printed = "".join(reader.type(line) for line in lines)
                ran += len(lines)
        assert ran > 20


def is_elsewhere_output(shown: str) -> bool:
    """The ready line of the broker, which `serving` has compared already; its ports are others here."""
    return shown.startswith("foldlog is serving data on")
