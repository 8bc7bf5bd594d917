"""How the command behaves at its edges: help, version, mistakes, interrupts and closed pipes. Never a traceback.

Runs it as a process: exit codes and standard error are the thing under test.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import foldlog
from cli.command import COMMAND, WAIT_S, environment, start
from cli.command import foldlog as run
from foldlog.cli import exit_codes
from foldlog.cli.commands import COMMANDS


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command, summary in COMMANDS.items():
        assert f"{command} ".encode() in done.stdout
        assert " ".join(summary.split()).encode() in b" ".join(done.stdout.split())
    for command in ("check", "node", "serve"):
        assert run(command, "--help").returncode == 0


def test_every_help_fits_the_terminal_and_keeps_its_paragraphs() -> None:
    for command in ("check", "node", "serve"):
        done = subprocess.run(
            [*COMMAND, command, "--help"],
            env={**environment(), "COLUMNS": "80"}, capture_output=True, timeout=WAIT_S, check=True, text=True,
        )  # fmt: skip
        assert max(len(line) for line in done.stdout.splitlines()) <= 80
        assert command != "check" or "\n\nWith --cut-out, " in done.stdout


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout.decode() == f"foldlog {foldlog.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("dance",),
        ("node", "--segment-records", "0"),
        ("node", "--segment-records", "many"),
        ("node", "--dir", ""),
        ("check",),
        ("check", "here", "there"),
        ("serve",),
        ("serve", ""),
        ("serve", "here", "there"),
        ("serve", "here", "--listen", "nowhere"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_says_what_is_wrong(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert b"foldlog" in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


def test_what_cannot_be_done_is_one_sentence_and_an_exit_code_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for code, arguments in (
        (exit_codes.NOT_FOUND, ("check", str(tmp_path / "none"))),
        (exit_codes.FAILED, ("node", "--dir", str(tmp_path / "file"))),
    ):
        done = run(*arguments)
        assert done.returncode == code
        assert done.stderr.startswith(b"foldlog: ")
        assert done.stderr.count(b"\n") == 1


def test_a_second_writer_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with start("node", "--dir", str(tmp_path)) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(b'{"src":"c0","dest":"n1","body":{"type":"init","msg_id":1,"node_id":"n1"}}\n')
        first.stdin.flush()
        assert b"init_ok" in first.stdout.readline()
        done = run("node", "--dir", str(tmp_path))
        assert done.returncode == exit_codes.UNREACHABLE
        assert str(first.pid).encode() in done.stderr
        first.stdin.close()
        assert first.wait(WAIT_S) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_node_closes_its_log_and_says_nothing(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with start("node", TMPDIR=str(tmp_path)) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        assert node.stderr is not None
        node.stdin.write(b'{"src":"c0","dest":"n1","body":{"type":"init","msg_id":1,"node_id":"n1"}}\n')
        node.stdin.flush()
        assert b"init_ok" in node.stdout.readline()
        assert len(list(tmp_path.iterdir())) == 1, "without --dir it works in a temporary directory"
        node.send_signal(number)
        assert node.wait(WAIT_S) == code
        assert node.stderr.read() == b""
    assert list(tmp_path.iterdir()) == [], "and leaves nothing behind"


@pytest.mark.parametrize("module", ["argparse", "foldlog.cli.commands", "foldlog.cli.serve", "foldlog.server.server"])
def test_an_interrupt_while_modules_are_loaded_is_silent(module: str, tmp_path: Path) -> None:
    """The signal comes exactly when this module is looked for."""
    code = f"""
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            print("interrupted", flush=True)
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from foldlog.cli.main import main
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
        env=environment(), capture_output=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, b"interrupted\n", b"")


def test_a_full_standard_output_of_a_node_is_said_in_one_sentence() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "node"],
            input=b'{"src":"c0","dest":"n1","body":{"type":"init","msg_id":1,"node_id":"n1"}}\n',
            env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=WAIT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(b"foldlog: standard output cannot be written")
    assert done.stderr.count(b"\n") == 1


def test_a_reader_that_goes_away_ends_the_node_quietly() -> None:
    with start("node") as node:
        assert node.stdin is not None
        assert node.stdout is not None
        assert node.stderr is not None
        node.stdout.close()
        node.stdin.write(b'{"src":"c0","dest":"n1","body":{"type":"init","msg_id":1,"node_id":"n1"}}\n')
        node.stdin.flush()
        assert node.wait(WAIT_S) == 141
        assert node.stderr.read() == b""


def test_a_closed_standard_output_is_said_in_one_sentence() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "node"],
        env=environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
