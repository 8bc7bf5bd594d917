"""On a terminal, what cannot be undone is asked for first; scripts are not asked. A real terminal (a pty) is used."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

import foldlog
from cli.command import COMMAND, WAIT_S, environment
from cli.command import foldlog as run
from foldlog.cli import exit_codes


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders")
        log.append("orders", "paid")
    return tmp_path / "data"


def answered(answer: str, *words: str, **variables: str) -> tuple[int, str]:
    """Run it with a terminal for everything, and type `answer`; exit code and what stands on the screen."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=theirs, stdout=theirs, stderr=theirs, env={**environment(), "TERM": "xterm", **variables},
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, answer.encode())
        screen = b""
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # how Linux tells that the other end is closed
                break
            if not data:
                break
            screen += data
        return process.wait(WAIT_S), screen.decode().replace("\r\n", "\n")
    finally:
        os.close(ours)


def topics(data: Path) -> list[str]:
    with foldlog.open(data, mode="r") as log:
        return log.topics()


@pytest.mark.parametrize("answer", ["\x04", "yesterday\n"])
def test_no_and_anything_but_yes_leave_everything_as_it_is(data: Path, answer: str) -> None:
    code, screen = answered(answer, "topic", "delete", "orders", "-d", str(data))
    assert code == exit_codes.FAILED
    assert "delete orders (1 partition, 1 offset, " in screen
    assert screen.endswith("nothing was changed\n")
    assert topics(data) == ["orders"]


def test_yes_does_it(data: Path) -> None:
    code, screen = answered("y\n", "topic", "delete", "orders", "-d", str(data))
    assert (code, topics(data)) == (0, [])
    assert "for good? [y/N]" in screen


def test_nobody_is_asked_with_yes_or_in_a_script(data: Path) -> None:
    code, screen = answered("", "topic", "trim", "orders", "--before", "end", "--yes", "-d", str(data))
    assert (code, "[y/N]" in screen) == (0, False)
    assert screen.startswith("\x1b[1mTOPIC"), "and the heads of the table are bold on a terminal"
    done = run("topic", "delete", "orders", "-d", str(data))
    assert (done.returncode, topics(data)) == (0, [])


def test_a_group_with_members_is_moved_when_the_person_at_the_terminal_says_so(data: Path) -> None:
    with (
        foldlog.open(data, listen=True) as log,
        log.consumer(["orders"], group="live", auto_offset_reset="earliest", auto_commit=False) as member,
    ):
        assert len(member.poll(timeout_ms=20_000)) == 1
        member.commit()
        words = ("group", "seek", "live", "--to", "start", "-d", str(data))
        code, screen = answered("n\n", *words)
        assert code == exit_codes.FAILED
        assert "group 'live' has 1 member: " in screen
        assert "make them rejoin at the new place? [y/N]" in screen
        code, screen = answered("y\n", *words)
        assert code == 0, screen
        assert [record.offset for record in member.poll(timeout_ms=20_000)] == [0]
