"""How the command behaves at its edges: help, version, mistakes, interrupts and closed pipes. Never a traceback.

Runs it as a process: exit codes and standard error are the thing under test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import foldlog
from cli.command import COMMAND, WAIT_S, environment, start
from cli.command import foldlog as run
from foldlog.cli import exit_codes
from foldlog.cli.commands import COMMANDS, root_context
from foldlog.cli.main import main
from foldlog.cli.parsing import all_contexts


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command, (_, summary) in COMMANDS.items():
        assert f"{command} ".encode() in done.stdout
        assert " ".join(summary.split()).encode() in b" ".join(done.stdout.split())
    for command in ("check", "node", "serve"):
        assert run(command, "--help").returncode == 0


def test_a_help_keeps_its_paragraphs_and_its_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    create = next(ctx for ctx in all_contexts(root_context()) if ctx.command_path == "foldlog topic create")
    assert "\n\n  foldlog topic create orders -p 3 -c retention.ms=7d -d data\n\n" in create.get_help()


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
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_says_what_is_wrong(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert "foldlog" in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("dance",),
        ("serve",),
        ("serve", ""),
        ("serve", "here", "there"),
        ("serve", "here", "--listen", "nowhere"),
    ],
)
def test_a_process_with_a_wrong_command_line_ends_with_exit_code_2(arguments: tuple[str, ...]) -> None:
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


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "describe", "nope"),
        ("topic", "describe", "nope*"),
        ("topic", "consume", "nope"),
        ("topic", "delete", "nope"),
        ("group", "describe", "nope"),
        ("group", "describe", "nope*"),
        ("group", "delete", "nope"),
        ("fold", "status", "nope"),
        ("fold", "rewind", "nope", "--to", "start"),
        ("fold", "drop", "nope"),
        ("fold", "pause", "nope"),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_exit_code_3_whatever_the_command(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folds.py").write_text(
        "import foldlog.spark as fl\n"
        "@fl.fold(fl.topic('t', key='k', schema='a INT'), into=fl.table('v.db', 't'))\n"
        "def mirror(rows): return rows\n"
    )
    with foldlog.open("data") as log:
        log.create_topic("t")
    assert main([*words, "-d", "data"]) == exit_codes.NOT_FOUND
    assert capsys.readouterr().err.startswith("foldlog: ")


@pytest.mark.parametrize("arguments", [("--debug", "check", "none"), ("check", "none", "--debug")])
def test_debug_shows_where_an_error_comes_from_before_and_after_the_command(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(arguments)) == exit_codes.NOT_FOUND
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("foldlog: there is no log in none")


def test_debug_may_come_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLOG_DEBUG", "1")
    assert main(["check", "none"]) == exit_codes.NOT_FOUND
    assert capsys.readouterr().err.startswith("Traceback")


def test_a_fault_of_our_own_is_a_sentence_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.cli.version.facts", lambda: os.environ["MISSING"])
    assert main(["version", "--format", "json"]) == exit_codes.FAILED
    assert capsys.readouterr().err == (
        "foldlog: this is a fault of foldlog's own (KeyError: 'MISSING'); run it again with --debug and report what it"
        " shows\n"
    )


def test_options_are_not_abbreviated_and_words_are_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, told in (
        (["chekc"], "no command 'chekc'; did you mean 'check'? see: foldlog --help"),
        (["topic", "lst"], "no verb 'lst'; did you mean 'list'? see: foldlog topic --help"),
        (["topic", "list", "--form"], "no option '--form'; did you mean '--format'? see: foldlog topic list --help"),
        (["version", "please"], "'please' is one word too many; see: foldlog version --help"),
        (["topic", "describe"], "the following arguments are required: TOPIC"),
    ):
        assert main(arguments) == exit_codes.USAGE
        err = capsys.readouterr().err
        assert told in err
        assert err.count("\n") == 1


def test_a_noun_alone_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["topic"], ["group"], ["fold"]):
        assert main(arguments) == exit_codes.USAGE
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("usage: foldlog")


def test_a_second_writer_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    """Where the first is a program that does not listen, so that nobody can go through it."""
    with foldlog.open(tmp_path):
        done = run("topic", "create", "orders", "-d", str(tmp_path))
        assert done.returncode == exit_codes.UNREACHABLE
        assert str(os.getpid()).encode() in done.stderr


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


@pytest.mark.parametrize("module", ["click", "foldlog.cli.commands", "foldlog.cli.serve", "foldlog.server.server"])
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


def test_help_and_a_look_at_a_directory_load_nothing_heavy(tmp_path: Path) -> None:
    foldlog.open(tmp_path).close()
    code = """
import sys
from foldlog.cli.main import main
main(sys.argv[1:])
heavy = {"pyarrow", "pyspark", "confluent_kafka", "uvloop", "asyncio", "rich", "foldlog.server"}
print(sorted(heavy & set(sys.modules)))
"""
    for arguments in (["topic", "--help"], ["group", "--help"], ["topic", "list", "-q", "-d", str(tmp_path)]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment(), capture_output=True, timeout=WAIT_S, check=True, text=True,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == "[]", arguments
