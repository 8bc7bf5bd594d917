"""The foldlog command as a process of its own: what the tests of the command line share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
