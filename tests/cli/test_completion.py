"""Completion: bash and fish run their scripts, zsh reads its own; all are made from the parsers.

The shells ask the real command for names of topics and groups.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import foldlog
from cli.command import SOURCE, WAIT_S, environment
from foldlog.cli.commands import COMMANDS, parser_with
from foldlog.cli.completion_scripts import SCRIPTS
from foldlog.cli.completion_words import places_in
from foldlog.cli.main import main

ASK = """
source "$1"; shift
foldlog() { PYTHONPATH="$SOURCE" "$PYTHON" -m foldlog.cli.main "$@"; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_foldlog
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "foldlog.bash"
    path.write_text(SCRIPTS["bash"](places_in(parser_with(list(COMMANDS)))))
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log")
    with foldlog.open(path) as log:
        for name in ("orders", "outlets", "payments"):
            log.create_topic(name)
        log.reset_group("fraud", {("orders", 0): "start"})
    return path


def offered(script: Path, *words: str, **variables: str) -> set[str]:
    """What bash offers for the last word."""
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", str(script), "foldlog", *words],
        env={**environment(), "SOURCE": str(SOURCE), "PYTHON": sys.executable, **variables},
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_commands_verbs_options_and_choices_are_offered(script: Path) -> None:
    assert offered(script, "") == set(COMMANDS)
    assert offered(script, "to") == {"topic"}
    assert offered(script, "--debug", "group", "") == {"list", "describe", "seek", "delete"}
    assert {"--dry-run", "--evict", "--to", "--bootstrap-server"} <= offered(script, "group", "seek", "-")
    assert offered(script, "group", "seek", "--dr") == {"--dry-run"}
    assert offered(script, "topic", "list", "--format", "") == {"text", "wide", "json"}
    assert offered(script, "completion", "") == {"bash", "zsh", "fish"}


def test_names_are_asked_for_where_the_line_or_the_environment_says(script: Path, directory: Path) -> None:
    assert offered(script, "topic", "describe", "-d", str(directory), "o") == {"orders", "outlets"}
    assert offered(script, "group", "seek", "", FOLDLOG_DIR=str(directory)) == {"fraud"}
    assert offered(script, "group", "seek", "fraud", "--topic", "p", FOLDLOG_DIR=str(directory)) == {"payments"}


def test_no_log_offers_no_names_and_prints_nothing(script: Path, tmp_path: Path) -> None:
    assert offered(script, "topic", "describe", "-d", str(tmp_path), "") == set()


def test_the_scripts_know_every_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SCRIPTS:
        assert main(["completion", shell]) == 0
        text = capsys.readouterr().out
        for place in places_in(parser_with(list(COMMANDS))):
            for verb, _ in place.verbs:
                assert verb in text
            for option in place.options:
                assert all(name in text or f"-l {name[2:]}" in text for name in option.names), (shell, option)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_that_is_here_finds_no_mistake_in_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; enable with: apt-get install {shell}")
    path = tmp_path / "script"
    path.write_text(SCRIPTS[shell](places_in(parser_with(list(COMMANDS)))))
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def offered_by_fish(script: Path, line: str) -> set[str]:
    """What fish offers at the end of the line, without the descriptions."""
    asking = 'function foldlog; PYTHONPATH="$SOURCE" $PYTHON -m foldlog.cli.main $argv; end; source $argv[1]'
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"{asking}; complete -C $argv[2]", str(script), line],
        env={**environment(), "SOURCE": str(SOURCE), "PYTHON": sys.executable},
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return {offer.partition("\t")[0] for offer in done.stdout.splitlines()}


def test_fish_offers_the_same(directory: Path, tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed; enable with: apt-get install fish")
    path = tmp_path / "foldlog.fish"
    path.write_text(SCRIPTS["fish"](places_in(parser_with(list(COMMANDS)))))
    assert offered_by_fish(path, "foldlog to") == {"topic"}
    assert offered_by_fish(path, "foldlog group ") == {"list", "describe", "seek", "delete"}
    assert offered_by_fish(path, "foldlog group seek --dr") == {"--dry-run"}
    assert offered_by_fish(path, "foldlog topic list --format ") == {"text", "wide", "json"}
    assert offered_by_fish(path, f"foldlog topic describe -d {directory} o") == {"orders", "outlets"}


def test_another_shell_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "not 'tcsh'; there are bash, zsh, fish" in capsys.readouterr().err
