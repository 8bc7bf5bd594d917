"""Writes that are durable when they return, without the page cache: the same bytes and faults as a write and a sync."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from foldlog.errors import WrongProcess
from foldlog.files import posix
from foldlog.files.base import DirectFile, aligned_memory
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFile, PosixFiles

BLOCK = 4096


@pytest.fixture(params=["direct", "without", "refused"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PosixFile:
    """Four blocks of a file system that can write directly, of one that cannot, and of one that refuses our blocks."""
    if request.param == "without":
        monkeypatch.setattr(posix, "_open_directly", lambda _: -1)
    elif request.param == "refused":
        monkeypatch.setattr(posix, "_writes_directly", refused)
    (tmp_path / "file").write_bytes(b"." * 4 * BLOCK)
    return PosixFiles().open(str(tmp_path / "file"), write=True)


def refused(direct: int, memory: memoryview, position: int) -> bool:
    assert direct >= 0
    return False


def filled(size: int) -> memoryview:
    memory = aligned_memory(size)
    memory[:] = os.urandom(size)
    return memory


def test_what_was_written_reads_back_here_and_elsewhere(file: PosixFile) -> None:
    memory = filled(2 * BLOCK)
    file.write_durably(BLOCK, memory)
    file.write(0, [b"through the page cache"])
    expected = b"through the page cache".ljust(BLOCK, b".") + bytes(memory) + b"." * BLOCK
    assert file.read(0, 5 * BLOCK) == Path(file.path).read_bytes() == expected
    file.write_durably(0, memory)
    assert file.read(0, BLOCK) == memory[:BLOCK]


def test_a_file_whose_name_is_gone_is_not_durable(file: PosixFile) -> None:
    os.unlink(file.path)
    with pytest.raises(FileNotFoundError):
        file.write_durably(0, filled(BLOCK))


def test_a_name_that_another_file_has_now_is_left_alone(file: PosixFile) -> None:
    os.rename(file.path, file.path + ".moved")
    Path(file.path).write_bytes(b"another")
    memory = filled(BLOCK)
    file.write_durably(0, memory)
    assert Path(file.path).read_bytes() == b"another"
    assert Path(file.path + ".moved").read_bytes()[:BLOCK] == memory


def test_a_forked_child_writes_nothing(file: PosixFile) -> None:
    file._owner.forked = True
    with pytest.raises(WrongProcess):
        file.write_durably(0, filled(BLOCK))
    assert file.read(0, BLOCK) == b"." * BLOCK


def test_a_fault_of_the_disk_is_not_tried_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"." * BLOCK)
    file = PosixFiles().open(str(tmp_path / "file"), write=True)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(posix, "_open_directly", os.dup)
    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.write_durably(0, filled(BLOCK))
    assert file.read(0, BLOCK) == b"." * BLOCK


def test_a_closed_file_leaves_no_descriptor(file: PosixFile) -> None:
    before = set(os.listdir("/proc/self/fd"))
    file.write_durably(0, filled(BLOCK))
    file.close()
    file.close()
    assert not any(os.path.exists(f"/proc/self/fd/{one}") for one in set(os.listdir("/proc/self/fd")) - before)
    with pytest.raises(OSError):
        file.read(0, 1)


def test_only_files_on_a_disk_can(file: PosixFile) -> None:
    assert isinstance(file, DirectFile)
    assert not isinstance(MemoryFiles().open("one", write=True, create=True), DirectFile)
