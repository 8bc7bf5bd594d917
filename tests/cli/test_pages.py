"""Every `foldlog` command that README.md and docs/ give to type is one that foldlog takes, option by option."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from cli.command import parsed
from cli.page_commands import foldlog_commands
from test_docs import PAGES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_on_a_page_is_one(path: Path) -> None:
    refused = []
    for command in foldlog_commands(path.read_text(encoding="utf-8")):
        words = shlex.split(command)[1:]
        if "…" in command or words[-1:] in (["--help"], ["--version"]):
            continue
        try:
            parsed(words, FOLDLOG_DIR="data")
        except click.UsageError:
            refused.append(command)
    assert not refused, f"{path.name} gives to type what is refused: {refused}"


def test_commands_are_found_between_pipes_redirections_and_comments() -> None:
    page = "```sh\necho x | foldlog topic produce a -K ':' > log   # foldlog no\nls && foldlog topic list\n```\n"
    assert foldlog_commands(page) == ["foldlog topic produce a -K :", "foldlog topic list"]


def test_a_command_that_is_none_is_refused() -> None:
    with pytest.raises(click.UsageError):
        parsed(["topic", "list", "--no-such-option"])
