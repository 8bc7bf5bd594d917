"""A full disk and a failing fsync, by the real kernel: RLIMIT_FSIZE in a child, a small tmpfs, strace.

A full disk is an error to the producer, not a crash: what was acknowledged stays, reading goes on, and appending works
again once there is space. A failed fdatasync poisons the partition: nothing is acknowledged any more until it is
reopened, and then everything acknowledged before is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import foldlog
from faults.processes import child, finish, next_line, tell

FILL = """
import foldlog
from foldlog.errors import StorageFull
path = sys.argv[1]
log = foldlog.open(path)
log.create_topic("events", config={"segment.bytes": 1 << 30})
"""

LIMITED = (
    FILL
    + """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
refused = 0
for number in range(200):
    try:
        at = log.append("events", b"%d " % number + b"x" * 4000)
        say(f"acknowledged {at.offset} {number}")
    except StorageFull as error:
        refused += 1
        if refused == 3:
            break
records = list(log.read("events", 0, start=0, max_records=1000))
say(f"read {len(records)}")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
at = log.append("events", b"1000 there is space again")
say(f"acknowledged {at.offset} 1000")
log.close()
"""
)


def values_of(path: str) -> dict[int, int]:
    """Offset → the number at the start of the value."""
    with foldlog.open(path) as log:
        start, end = log.offsets("events")[0]
        records = list(log.read("events", 0, start=start, max_records=end - start)) if end > start else []
    return {record.offset: int((record.value or b"").split(b" ")[0]) for record in records}


def test_a_file_at_its_size_limit_refuses_the_producer_and_resumes(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with child(LIMITED, path) as process:
        lines = finish(process)
    acknowledged = {int(line.split()[1]): int(line.split()[2]) for line in lines if line.startswith("acknowledged")}
    assert 50 < len(acknowledged) < 80
    assert f"read {len(acknowledged) - 1}" in lines, "what was acknowledged is read while the disk is full"
    assert list(acknowledged) == list(range(len(acknowledged))), "a refused record took no offset"
    assert values_of(path) == acknowledged


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no tmpfs can be mounted here; enable with: sudo make test")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


FULL = (
    FILL
    + """
for number in range(2000):
    try:
        at = log.append("events", b"%d " % number + b"x" * 8000)
        say(f"acknowledged {at.offset} {number}")
    except StorageFull:
        break
say("full")
sys.stdin.readline()
at = log.append("events", b"5000 there is space again")
say(f"acknowledged {at.offset} 5000")
log.close()
"""
)


def test_a_full_disk_refuses_the_producer_and_resumes_when_space_returns(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(500_000))
    path = str(small_disk / "data")
    acknowledged: dict[int, int] = {}
    with child(FULL, path) as process:
        while (line := next_line(process)) != "full":
            acknowledged[int(line.split()[1])] = int(line.split()[2])
        assert len(acknowledged) > 50
        ballast.unlink()
        tell(process, "go on")
        line = next_line(process)
        acknowledged[int(line.split()[1])] = int(line.split()[2])
        finish(process)
    assert list(acknowledged) == list(range(len(acknowledged)))
    assert values_of(path) == acknowledged


FAILING_SYNC = """
import foldlog
from foldlog.errors import PartitionPoisoned
path = sys.argv[1]
log = foldlog.open(path)
poisoned = 0
for number in range(40):
    try:
        at = log.append("events", b"%d " % number)
        say(f"acknowledged {at.offset} {number}")
    except PartitionPoisoned:
        poisoned += 1
say(f"poisoned {poisoned}")
records = list(log.read("events", 0, start=0, max_records=1000))
say(f"read {len(records)}")
log.close()
"""


def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed; enable with: apt-get install strace")
    probe = subprocess.run([found, "-f", "-o", "/dev/null", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("strace may not trace here; enable with: sysctl kernel.yama.ptrace_scope=0")
    return found


@pytest.mark.parametrize("failing", [3, 8, 15])
def test_a_failed_fdatasync_stops_acknowledgements_until_the_log_is_reopened(tmp_path: Path, failing: int) -> None:
    path = str(tmp_path / "data")
    with foldlog.open(path) as log:
        log.create_topic("events")
    wrapper = (strace(), "-f", "-o", os.devnull, "-e", f"inject=fdatasync:error=EIO:when={failing}")
    with child(FAILING_SYNC, path, wrapper=wrapper) as process:
        lines = finish(process)
    acknowledged = {int(line.split()[1]): int(line.split()[2]) for line in lines if line.startswith("acknowledged")}
    poisoned = next(int(line.split()[1]) for line in lines if line.startswith("poisoned"))
    assert len(acknowledged) + poisoned == 40
    assert poisoned > 0
    assert f"read {len(acknowledged)}" in lines, "reading goes on below the durable offset"
    after = values_of(path)
    assert {offset: after.get(offset) for offset in acknowledged} == acknowledged
    assert len(after) == len(acknowledged), "what a failed sync may have lost was cut, not served"
    with foldlog.open(path) as log:
        assert log.append("events", b"1000 reopened").offset == len(acknowledged)
