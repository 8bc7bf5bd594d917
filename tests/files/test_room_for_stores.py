"""A store into the checkpoint never kills the process, whatever was done to the file: it has its room, or is refused.

A store through a map is SIGBUS where the file was cut short, or has a hole and the disk is full; a copy made with
`rsync -S` is full of holes. Each test runs in a process of its own, and the signal would be its exit status; for a full
disk in a namespace with a file system of 1 MiB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import foldlog
from faults.processes import child, finish, next_line, tell

IN_A_SMALL_FILE_SYSTEM = (
    "unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"',
)  # fmt: skip

SPARSE = """
import foldlog
from foldlog.errors import StorageFull
root = sys.argv[1]
path = root + "/data"

def make_sparse(name):
    # What rsync -S and cp --sparse=always leave: blocks of zeroes become holes.
    data = open(name, "rb").read()
    with open(name, "wb") as copy:
        for at in range(0, len(data), 4096):
            block = data[at : at + 4096]
            if block.strip(bytes(1)):
                copy.seek(at)
                copy.write(block)
        copy.truncate(len(data))

def fill(but_for_bytes=0):
    with open(root + "/ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            ballast.truncate(ballast.tell() - but_for_bytes)

with foldlog.open(path) as log:
    log.create_topic("events")
    log.append("events", b"kept")
make_sparse(path + "/checkpoint")
assert os.stat(path + "/checkpoint").st_blocks * 512 < os.stat(path + "/checkpoint").st_size
"""

FULL_BEFORE = (
    SPARSE
    + """
fill(but_for_bytes=16384)
try:
    with foldlog.open(path) as log:
        log.create_topic("more", partitions=40)
except StorageFull as error:
    say(f"refused: {error}")
with foldlog.open(path, mode="r") as log:
    say(f"read {[record.value for record in log.read('events')]}")
os.unlink(root + "/ballast")
with foldlog.open(path) as log:
    log.create_topic("more", partitions=40)
    say(f"read {[record.value for record in log.read('events')]}")
"""
)

FULL_AFTER = (
    SPARSE
    + """
log = foldlog.open(path)
fill()
try:
    log.create_topic("more", partitions=40)
    say("made")
except StorageFull as error:
    say(f"refused: {error}")
os.unlink(root + "/ballast")
log.append("events", b"after")
say(f"read {[record.value for record in log.read('events')]}")
log.close()
"""
)

CUT_SHORT = """
import foldlog
from foldlog.errors import CorruptLog
path = sys.argv[1] + "/data"
with foldlog.open(path) as log:
    log.create_topic("events", partitions=8)
    for number in range(8):
        log.append("events", b"kept", partition=number)
log = foldlog.open(path, mode="r")
say(str(log.offsets("events")[7]))
sys.stdin.readline()
for look in (lambda: log.offsets("events"), lambda: list(log.read("events", 7)), lambda: log.read_arrow("events")):
    try:
        look()
        say("answered")
    except CorruptLog as error:
        say(f"refused: {error.path}")
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Where the small file system is mounted, in the namespace of whoever mounts it."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here; enable with: apt-get install util-linux")
    probe = subprocess.run([*IN_A_SMALL_FILE_SYSTEM, str(tmp_path), "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("no namespace can be made here; enable with: sysctl kernel.unprivileged_userns_clone=1")
    return tmp_path


def test_a_sparse_checkpoint_on_a_full_disk_is_refused_and_loses_nothing(small: Path) -> None:
    with child(FULL_BEFORE, str(small), wrapper=(*IN_A_SMALL_FILE_SYSTEM, str(small))) as process:
        refused, beside, after = finish(process)
    assert "no space" in refused
    assert "free space" in refused
    assert (beside, after) == ("read [b'kept']", "read [b'kept']")


def test_a_disk_that_fills_up_after_the_open_leaves_room_for_every_slot(small: Path) -> None:
    with child(FULL_AFTER, str(small), wrapper=(*IN_A_SMALL_FILE_SYSTEM, str(small))) as process:
        answer, after = finish(process)
    assert answer.startswith("refused: ")
    assert "no space" in answer
    assert after == "read [b'kept', b'after']"


def test_a_checkpoint_that_is_cut_short_under_a_reader_is_an_error_to_it(tmp_path: Path) -> None:
    with child(CUT_SHORT, str(tmp_path)) as process:
        assert next_line(process) == "(0, 1)"
        (tmp_path / "data" / "checkpoint").open("r+b").truncate(0)
        tell(process, "look")
        lines = finish(process)
    assert lines == [f"refused: {tmp_path}/data/checkpoint"] * 3


CUT_UNDER_A_WRITER = """
import foldlog
from foldlog.errors import FoldlogError
log = foldlog.open(sys.argv[1] + "/data")
log.create_topic("events", partitions=3, config={"flush.messages": int(sys.argv[2])})
for number in range(3):
    log.append("events", b"kept", partition=number)
say("ready")
sys.stdin.readline()
for change in (
    lambda: log.append("events", b"after", partition=1),
    lambda: log.append("events", b"after", partition=2),
    lambda: log.create_topic("more", partitions=100),
    lambda: log.delete_records("events", {0: 1}),
):
    try:
        change()
        say("done")
    except FoldlogError as error:
        say(type(error).__name__)
say(f"read {[record.value for record in log.read('events', 0)]}")
try:
    log.close()
except FoldlogError as error:
    pass
say("closed")
"""


@pytest.mark.parametrize("size", [0, 100, 512, 2000])
@pytest.mark.parametrize("flush_messages", [1, 1000])
def test_a_checkpoint_that_is_cut_short_under_its_writer_stops_it_and_loses_nothing(
    tmp_path: Path, size: int, flush_messages: int
) -> None:
    path = tmp_path / "data"
    with child(CUT_UNDER_A_WRITER, str(tmp_path), str(flush_messages)) as process:
        assert next_line(process) == "ready"
        os.truncate(path / "checkpoint", size)
        tell(process, "go on")
        assert finish(process) == ["LockLost"] * 4 + ["read [b'kept']", "closed"]
    with foldlog.open(path) as log:
        assert [[record.value for record in log.read("events", number)] for number in range(3)] == [[b"kept"]] * 3


PUNCHED = """
import ctypes
import foldlog
from foldlog.errors import FoldlogError
root = sys.argv[1]
log = foldlog.open(root + "/data")
log.create_topic("events")
log.append("events", b"kept")
with open(root + "/data/checkpoint", "r+b") as file:
    size = os.fstat(file.fileno()).st_size
    FALLOC_FL_PUNCH_HOLE_KEEP_SIZE = 3
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    assert libc.fallocate(file.fileno(), FALLOC_FL_PUNCH_HOLE_KEEP_SIZE, 0, size) == 0
with open(root + "/ballast", "wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(4096))
    except OSError:
        pass
for _ in range(2):
    try:
        log.append("events", b"not acknowledged")
        say("acknowledged")
    except FoldlogError as error:
        say(f"{type(error).__name__}: {error}")
say(f"read {[record.value for record in log.read('events')]}")
os.unlink(root + "/ballast")
try:
    log.close()
except FoldlogError as error:
    pass
with foldlog.open(root + "/data") as log:
    say(f"begins with {[record.value for record in log.read('events')][0]}")
    log.append("events", b"again")
"""


def test_a_hole_that_is_punched_into_the_checkpoint_on_a_full_disk_is_an_error(small: Path) -> None:
    with child(PUNCHED, str(small), wrapper=(*IN_A_SMALL_FILE_SYSTEM, str(small))) as process:
        first, second, read, after = finish(process)
    assert "checkpoint" in first
    assert "no space" in first or "No space" in first
    assert first.split(":")[0] in ("PartitionPoisoned", "StorageFull")
    assert second.split(":")[0] in ("PartitionPoisoned", "StorageFull")
    assert (read, after) == ("read [b'kept']", "begins with b'kept'")
