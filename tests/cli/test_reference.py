"""docs/reference/cli.md is what the commands say, and every help text fits a terminal of 80 columns."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from foldlog.cli.commands import root_context
from foldlog.cli.parsing import Noun, Option, Verb, all_contexts

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 80


def test_the_reference_is_what_the_commands_say() -> None:
    found = importlib.util.spec_from_file_location("write_cli_reference", ROOT / "scripts" / "write_cli_reference.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.reference(), "run: python scripts/write_cli_reference.py"


def test_every_help_fits_a_terminal_and_every_option_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    for ctx in all_contexts(root_context()):
        text = ctx.get_help()
        long = [line for line in text.splitlines() if len(line) > WIDTH]
        assert not long, f"{ctx.command_path}: {long}"
        assert isinstance(ctx.command, Noun | Verb)
        assert ctx.command.description, f"{ctx.command_path} does not say what it does"
        silent = [param.name for param in ctx.command.params if isinstance(param, Option) and not param.help]
        assert not silent, f"{ctx.command_path}: {silent}"
