"""What is started for a cluster ends with whoever started it, however that ends; and with what it started itself."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters.processes import ClusterProcess

ROOT = Path(__file__).resolve().parents[1]
WAIT_S = 60

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes of others, as Linux can")

CHILD = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
"""Stands for a JVM that has started a program itself."""

STARTER = f"""
import sys, time
from pathlib import Path
from clusters.processes import ClusterProcess
started = ClusterProcess("a child", [sys.executable, "-c", {CHILD!r}], Path(sys.argv[1]))
started.start()
started.wait_until(lambda: started.tail().endswith("\\n"))
print(started.pid, started.tail().strip(), flush=True)
time.sleep(600)
"""


@contextmanager
def ending(pids: list[int]) -> Iterator[None]:
    """All of these processes run at the beginning of the block, and end in it or soon after."""
    handles = [os.pidfd_open(pid) for pid in pids]
    try:
        assert not select.select(handles, [], [], 0)[0], "one has ended before"
        yield
        for pid, handle in zip(pids, handles, strict=True):
            assert select.select([handle], [], [], WAIT_S)[0], f"{pid} still runs"
    finally:
        for handle in handles:
            os.close(handle)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_a_cluster_ends_with_the_process_that_started_it(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path / "child.log")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as starter:
        assert starter.stdout is not None
        started = [int(word) for word in starter.stdout.readline().split()]
        assert len(started) == 2
        with ending(started):
            os.killpg(starter.pid, number)  # as a shell, make and CI do it: all of the group at once
            starter.wait(WAIT_S)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_what_a_process_of_a_cluster_has_started_ends_with_it(tmp_path: Path, end: str) -> None:
    started = ClusterProcess("a child", [sys.executable, "-c", CHILD], tmp_path / "child.log")
    started.start()
    started.wait_until(lambda: started.tail().endswith("\n"))
    with ending([started.pid, int(started.tail())]):
        getattr(started, end)()
    started.start()
    assert started.is_running
    started.kill()
