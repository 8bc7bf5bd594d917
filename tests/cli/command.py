"""The foldlog command as a process of its own: what the tests of the command line share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from foldlog.cli.commands import call
from foldlog.cli.parsing import Arguments, Verb

SOURCE = Path(__file__).resolve().parents[2] / "src"
COMMAND = [sys.executable, "-c", "import sys; from foldlog.cli.main import main; sys.exit(main())"]
WAIT_S = 60


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE)}


def foldlog(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run it to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, env=environment(), capture_output=True, timeout=WAIT_S, check=False
    )


def start(*arguments: str, **extra: str) -> subprocess.Popen[bytes]:
    """Run it, with pipes to talk to it."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env={**environment(), **extra},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def parsed(words: Sequence[str], **variables: str) -> Arguments:
    """What the command would be called with, where only these variables of foldlog's are set."""
    others = {name: text for name, text in os.environ.items() if not name.startswith("FOLDLOG_")}
    with (
        mock.patch.dict(os.environ, {**others, **variables}, clear=True),
        mock.patch.object(Verb, "invoke", Verb.arguments),
    ):
        found: object = call(words)
    assert isinstance(found, Arguments)
    return found
