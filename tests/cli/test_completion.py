"""Completion: bash, zsh and fish run their scripts, which ask the real command; and every word there is, is offered.

The shells find the command in a directory of its own on their PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import foldlog
from cli.command import SOURCE, WAIT_S
from foldlog.cli.commands import COMMANDS, NAME, root, root_context
from foldlog.cli.completion import SHELLS, VARIABLE
from foldlog.cli.main import main
from foldlog.cli.parsing import Noun, Option, all_contexts
from foldlog.client.backends.backend import backend_of

ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_foldlog_completion foldlog
printf '%s\\n' "${COMPREPLY[@]}"
"""

ASK_ZSH = """
compdef() { :; }
_describe() { local -a offers; offers=("${(@P)3}"); print -l -- "${(@)offers%%:*}"; }
compadd() { print -l -- "${(@P)@[-1]}"; }
source "$1"; shift
words=("$@"); CURRENT=$#
_foldlog_completion
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the command, and the scripts by their shell."""
    path = tmp_path_factory.mktemp("completion")
    command = path / "foldlog"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{SOURCE}" exec "{sys.executable}" -m foldlog.cli.main "$@"\n')
    command.chmod(0o755)
    for shell, kind in SHELLS.items():
        (path / shell).write_text(kind(root(), {}, NAME, VARIABLE).source())
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log")
    with foldlog.open(path) as log:
        for name in ("orders", "outlets", "payments"):
            log.create_topic(name)
        log.reset_group("fraud", {("orders", 0): "start"})
        backend_of(log).access().set_password("alice", "secret of the tests")
    return path


def asked(home: Path, *command: str, **variables: str) -> set[str]:
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": f"{home}:{os.environ['PATH']}", **variables},
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return {line.partition("\t")[0] for line in done.stdout.splitlines() if line}


def offered(home: Path, *words: str, **variables: str) -> set[str]:
    """What bash offers for the last word."""
    return asked(home, "bash", "-c", ASK_BASH, "bash", str(home / "bash"), "foldlog", *words, **variables)


def offered_by_zsh(home: Path, *words: str) -> set[str]:
    return asked(home, "zsh", "-f", "-c", ASK_ZSH, "zsh", str(home / "zsh"), "foldlog", *words)


def offered_by_fish(home: Path, line: str) -> set[str]:
    """What fish offers at the end of the line, without the descriptions."""
    return asked(home, "fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", str(home / "fish"), line)


def test_commands_verbs_options_and_choices_are_offered(home: Path) -> None:
    assert offered(home, "") == set(COMMANDS)
    assert offered(home, "to") == {"topic"}
    assert offered(home, "--debug", "group", "") == {"list", "describe", "seek", "delete"}
    assert {"--dry-run", "--evict", "--to", "--bootstrap-server"} <= offered(home, "group", "seek", "-")
    assert offered(home, "group", "seek", "--dr") == {"--dry-run"}
    assert offered(home, "topic", "list", "--format", "") == {"text", "wide", "json"}
    assert offered(home, "completion", "") == {"bash", "zsh", "fish"}


def test_names_are_asked_for_where_the_line_or_the_environment_says(home: Path, directory: Path) -> None:
    assert offered(home, "topic", "describe", "-d", str(directory), "o") == {"orders", "outlets"}
    assert offered(home, "group", "seek", "", FOLDLOG_DIR=str(directory)) == {"fraud"}
    assert offered(home, "group", "seek", "fraud", "--topic", "p", FOLDLOG_DIR=str(directory)) == {"payments"}
    assert offered(home, "user", "delete", "", FOLDLOG_DIR=str(directory)) == {"alice"}
    assert offered(home, "quota", "delete", "--user", "a", FOLDLOG_DIR=str(directory)) == {"alice"}


def test_the_colon_of_an_address_does_not_cut_the_line(home: Path) -> None:
    line = ("topic", "list", "-b", "127.0.0.1:9092", "--form")
    assert offered(home, *line) == {"--format"}


def test_files_and_directories_are_offered_where_the_help_says_so(home: Path, tmp_path: Path) -> None:
    (tmp_path / "data set").mkdir()
    (tmp_path / "data.py").touch()
    begun = f"{tmp_path}/da"
    assert offered(home, "topic", "list", "--command-config", begun) == {f"{begun}ta set", f"{begun}ta.py"}
    assert offered(home, "topic", "list", "-d", begun) == {f"{begun}ta set"}


def test_no_log_offers_no_names_and_prints_nothing(home: Path, tmp_path: Path) -> None:
    assert offered(home, "topic", "describe", "-d", str(tmp_path), "") == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_offered(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the shells ask, but in this process."""

    def answer(line: str) -> str:
        words = line.split(" ")
        monkeypatch.setenv(VARIABLE, f"{shell}_complete")
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words) - 1))
        assert main([]) == 0
        return capsys.readouterr().out

    for ctx in all_contexts(root_context()):
        if isinstance(ctx.command, Noun):
            told = answer(f"{ctx.command_path} ")
            assert all(verb in told for verb in ctx.command.verbs)
        told = answer(f"{ctx.command_path} -")
        for option in (param for param in ctx.command.params if isinstance(param, Option) and not param.hidden):
            assert all(name in told for name in option.opts), (ctx.command_path, option.label)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_that_is_here_finds_no_mistake_in_its_script(shell: str, home: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; enable with: apt-get install {shell}")
    done = subprocess.run([shell, "-n", str(home / shell)], capture_output=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_fish_offers_the_same(directory: Path, home: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed; enable with: apt-get install fish")
    assert offered_by_fish(home, "foldlog to") == {"topic"}
    assert offered_by_fish(home, "foldlog group ") == {"list", "describe", "seek", "delete"}
    assert offered_by_fish(home, "foldlog group seek --dr") == {"--dry-run"}
    assert offered_by_fish(home, "foldlog topic list --format ") == {"text", "wide", "json"}
    assert offered_by_fish(home, f"foldlog topic describe -d {directory} o") == {"orders", "outlets"}


def test_zsh_offers_the_same(directory: Path, home: Path) -> None:
    """Its own functions that put offers on the screen are replaced by ones that print them."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed; enable with: apt-get install zsh")
    assert offered_by_zsh(home, "to") == {"topic"}
    assert offered_by_zsh(home, "group", "") == {"list", "describe", "seek", "delete"}
    assert offered_by_zsh(home, "group", "seek", "--dr") == {"--dry-run"}
    assert offered_by_zsh(home, "topic", "list", "--format", "") == {"text", "wide", "json"}
    assert offered_by_zsh(home, "topic", "describe", "-d", str(directory), "o") == {"orders", "outlets"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out.rstrip("\n") == (home / shell).read_text().rstrip("\n")


def test_another_shell_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "not 'tcsh'; there are bash, zsh, fish" in capsys.readouterr().err
