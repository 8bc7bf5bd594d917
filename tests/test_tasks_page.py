"""docs/tasks.md is literally right: its buttons, headings and fields stand in the console, and its commands run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import foldlog
from foldlog.cli.main import main

ROOT = Path(__file__).parent.parent
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:4]]
    for line in (ROOT / "docs" / "tasks.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| task", "| ---"))
]
PAGE = "".join(path.read_text() for path in sorted((ROOT / "src/foldlog/console").glob("*.js")))
TABS = re.findall(r'"([^"]+)"', (ROOT / "src/foldlog/console/rooms.js").read_text())


def commands() -> list[str]:
    """Without what a shell does with their output."""
    found = [code for row in ROWS for code in re.findall(r"`(foldlog [^`]+)`", row[2])]
    return [re.split(r" \\\| | > ", command)[0] for command in found]


def test_there_are_twenty_and_what_they_name_stands_in_the_console() -> None:
    assert len(ROWS) == 20
    for task, console, _ in ROWS:
        for tab in re.findall(r"\*\*(.+?)\*\*", console):
            assert tab in TABS, task
        for label in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", console):
            assert re.search(rf'["`]{re.escape(label)}["` ]', PAGE), f"{task}: nothing is called {label!r}"


@pytest.mark.faults  # two seconds
def test_their_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDLOG_DIR", "data")
    with foldlog.open("data") as log:
        log.create_topic("orders", partitions=2)
        for number in range(4):
            log.append("orders", {"customer": {"id": 17}}, key="tx_001", partition=number % 2)
        for group in ("fraud", "old-report"):
            log.reset_group(group, {("orders", 0): 1})
    assert len(commands()) > 20
    for command in commands():
        words = shlex.split(command)[1:]
        if words[0] in ("fold", "user", "acl", "transaction") or "-F" in words:
            words.append("--help")  # they need a runner, a password, ACLs, a transaction, or never end
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        assert code == 0, f"{command}: {capsys.readouterr().err}"
