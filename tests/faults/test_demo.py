"""`foldlog demo --once` from its first line to its last: every claim of its checklist holds, and nothing is left.

The demo kills its own broker and its own pipeline with -9; and is killed itself, in the middle of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.command import COMMAND, environment
from foldlog.demo.descendants import alive, family_of, wait_for_end
from foldlog.demo.preflight import missing_pieces

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(missing_pieces()), reason="; ".join(missing_pieces()) or "nothing is missing"),
]
CLAIMS = 12


def start(scratch: Path, *arguments: str) -> subprocess.Popen[str]:
    scratch.mkdir()
    scratch.chmod(0o755)  # PostgreSQL's server may run as somebody else
    return subprocess.Popen(
        [*COMMAND, "demo", *arguments],
        env={**environment(), "TMPDIR": str(scratch)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(find_spec("psycopg") is None, reason="psycopg is not installed; pip install 'foldlog[views]'")
def test_every_line_of_the_checklist_holds_and_nothing_is_left(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    with start(scratch, "--once", "--rate", "300") as demo:
        out, err = demo.communicate()
    story, _, checklist = out.partition("What was claimed, and counted\n")
    assert demo.returncode == 0, f"{checklist or story[-3000:]}\n{err}"
    assert (checklist.count("✓"), checklist.count("✗")) == (CLAIMS, 0)
    assert f"All {CLAIMS} hold." in checklist
    assert err == ""
    assert os.listdir(scratch) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_interrupted_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    with start(scratch, "--once", "--rate", "300") as demo:
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
