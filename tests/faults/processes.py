"""Child processes for the fault tests: started with the sources under test, spoken to over pipes, never slept for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
PRELUDE = """
import os, sys
sys.path.insert(0, {source!r})
def say(text):
    os.write(1, text.encode() + b"\\n")  # one system call: lines of many threads do not mix, and survive kill -9
"""


@contextmanager
def child(program: str, *arguments: str, wrapper: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """A Python process running `program`, with `say` defined; killed at the end of the block if it still runs."""
    code = PRELUDE.format(source=str(SOURCE)) + program
    command = [*wrapper, sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line the child says; fails with what it wrote to stderr if it ended instead."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(f"the child ended with {process.wait()}: {complaint(process)}")
    return line.rstrip("\n")


def tell(process: subprocess.Popen[str], text: str) -> None:
    """A line to the child."""
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()


def last_lines(process: subprocess.Popen[str]) -> list[str]:
    """Everything a child that ends, or was killed, still had to say. Not `communicate`: it skips what is buffered."""
    assert process.stdout is not None
    return process.stdout.read().splitlines()


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Let the child end by itself; everything it still had to say."""
    lines = last_lines(process)
    status = process.wait()
    assert status == 0, f"the child ended with {status}: {complaint(process)}"
    return lines


def complaint(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.read()[-2000:]
