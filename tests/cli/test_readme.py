"""The first screen of README.md, typed as it stands: the library, then `foldlog serve`, a Kafka client, the library.

Only the port is another one: 9092 may be taken where tests run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cli.command import WAIT_S, environment
from cli.serving import ANY_PORT, serving
from test_docs import ROOT, Block, blocks_of

HERE = "tests/cli/test_readme.py"


def run(block: Block, directory: Path, port: int = 0) -> list[str]:
    """Run a block in a process of its own; the lines it printed."""
    code = block.code.replace("127.0.0.1:9092", f"127.0.0.1:{port}")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_first_example_can_be_run_again(tmp_path: Path) -> None:
    blocks = blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
    library = next(block for block in blocks if block.language == "python")
    for times in (1, 2):
        printed = run(library, tmp_path)
        assert len(printed) == times
        assert all("'amount_paise': 1999900" in line for line in printed)


def test_what_a_client_sent_and_what_the_library_wrote_are_one_log(tmp_path: Path) -> None:
    blocks = [
        block for block in blocks_of((ROOT / "README.md").read_text(encoding="utf-8")) if block.language == "python"
    ]
    library, (client, embedded) = blocks[0], [block for block in blocks if HERE in (block.not_run or "")]
    (printed,) = run(library, tmp_path)
    assert "'amount_paise': 1999900" in printed
    with serving(str(tmp_path / "data"), *ANY_PORT) as broker:
        port = broker.address[1]
        (polled,) = run(client, tmp_path, port)
        assert "tx_00" in polled
        assert sorted(line.partition(" ")[0] for line in run(embedded, tmp_path, port)) == ["b'tx_001'", "b'tx_002'"]
        assert broker.end() == 0
