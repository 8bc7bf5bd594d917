"""docs/reference/access.md has what a broker answers: every API, to every identity, at a listener of every protocol."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from foldlog.wire.messages import APIS, NAMES

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "write_access_table.py"


def test_the_page_is_what_a_broker_answers() -> None:
    found = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    text = module.PAGE.read_text(encoding="utf-8")
    assert text == module.wanted(), "run: python scripts/write_access_table.py"
    for key in APIS:
        assert f"| {NAMES[key]} |" in text
