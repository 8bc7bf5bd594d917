"""docs/reference/cli.md is what the parsers say, and every help text fits a terminal of 80 columns."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from foldlog.cli.commands import COMMANDS, parser_with
from foldlog.cli.variables import all_parsers

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 80


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse breaks lines otherwise in other versions")
def test_the_reference_is_what_the_commands_say() -> None:
    found = importlib.util.spec_from_file_location("write_cli_reference", ROOT / "scripts" / "write_cli_reference.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.reference(), "run: python scripts/write_cli_reference.py"


def test_every_help_fits_a_terminal_and_every_option_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    for parser in all_parsers(parser_with(list(COMMANDS))):
        text = parser.format_help()
        long = [line for line in text.splitlines() if len(line) > WIDTH]
        assert not long, f"{parser.prog}: {long}"
        assert parser.description, f"{parser.prog} does not say what it does"
        silent = [action.dest for action in parser._actions if not action.help and action.option_strings]
        assert not silent, f"{parser.prog}: {silent}"
