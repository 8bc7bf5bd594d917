"""Writes docs/reference/cli.md: the help of every command and verb, from the commands themselves.

    python scripts/write_cli_reference.py            # write it
    python scripts/write_cli_reference.py --check    # exit with 1 if it is not what would be written

The text is as wide as a page, whatever the terminal. A test runs the check, so the page cannot be stale.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import click

from foldlog.cli.commands import root_context
from foldlog.cli.parsing import Noun

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
WIDTH = 100
HEADING = """\
# The command line: every command and option

For people who look up an option: what `--help` says of each command. [The command
line](../command_line.md) says how they work together. Written by `scripts/write_cli_reference.py`.
"""


def reference() -> str:
    """The page. Terminal and environment have no say in it."""
    with mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH)}):
        return "\n".join([HEADING, *_sections(root_context(), 2)])


def _sections(ctx: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * level} {ctx.command_path}\n\n```text\n{ctx.get_help().rstrip()}\n```\n"
    if isinstance(ctx.command, Noun):
        for inner in ctx.command.below(ctx):
            yield from _sections(inner, min(level + 1, 4))


def main(arguments: list[str]) -> int:
    text = reference()
    if "--check" in arguments:
        is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'current' if is_current else 'stale: run scripts/write_cli_reference.py'}")
        return 0 if is_current else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
