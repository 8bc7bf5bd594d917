"""`foldlog demo --once` from its first line to its last: every claim of its checklist holds, and nothing is left.

The demo kills its own broker and its own pipeline with -9; and is killed itself, in the middle of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import COMMAND, environment
from foldlog.demo.descendants import alive, family_of, wait_for_end
from foldlog.demo.run import missing_pieces

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(missing_pieces()), reason="; ".join(missing_pieces()) or "nothing is missing"),
]
CLAIMS = 12


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the demo makes its directory. Not in pytest's, which PostgreSQL's user may not enter."""
    made = Path(tempfile.mkdtemp(prefix="foldlog-test-demo-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def start(scratch: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "demo", "--once", "--rate", "300"],
        env={**environment(), "TMPDIR": str(scratch)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_every_line_of_the_checklist_holds_and_nothing_is_left(scratch: Path) -> None:
    with start(scratch) as demo:
        out, err = demo.communicate()
    story, _, checklist = out.partition("What was claimed, and counted\n")
    assert demo.returncode == 0, f"{checklist or story[-3000:]}\n{err}"
    assert (checklist.count("✓"), checklist.count("✗")) == (CLAIMS, 0)
    assert f"All {CLAIMS} hold." in checklist
    assert err == ""
    assert os.listdir(scratch) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_interrupted_leaves_nothing(scratch: Path, number: signal.Signals) -> None:
    with start(scratch) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("2. "):  # everything has been started by now
                break
        family = family_of(demo.pid)
        assert len(family) > 4
        demo.send_signal(number)
        demo.stdout.read()
        code = demo.wait()
    assert code == (-number if number is signal.SIGKILL else 130)
    assert wait_for_end(family, 30.0) == []
    assert alive(family) == []
    assert os.listdir(scratch) == []
