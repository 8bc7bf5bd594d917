"""A read that must not wait is answered from memory or refused, never cut short.

What a kernel may answer is played by a stand-in for preadv, one answer after the other; one test drops real pages of a
real file from memory, where the file system of the temporary directory lets it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from foldlog.files import posix
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFile, PosixFiles

PAGE = os.sysconf("SC_PAGESIZE")
FAR = 1024
"""Pages: a kernel may read a large folio, of up to 2 MiB, where one page is asked for."""
NOWAIT = 8  # RWF_NOWAIT on Linux; the stand-in only has to tell it from 0
DATA = bytes(range(200))


class Kernel:
    """Answers each preadv as told, the last answer again and again; a preadv that may wait is a real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: int | Exception) -> None:
        self._real = os.preadv
        self._answers = list(answers)
        self.asked: list[tuple[int, int]] = []
        monkeypatch.setattr(posix, "_NOWAIT", NOWAIT)
        monkeypatch.setattr(os, "preadv", self.preadv)

    def preadv(self, descriptor: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        self.asked.append((position, flags))
        if not flags:
            return self._real(descriptor, buffers, position)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return self._real(descriptor, [buffers[0][:answer]], position)


@pytest.fixture
def file(tmp_path: Path) -> PosixFile:
    file = PosixFiles().open(f"{tmp_path}/a", write=True, create=True)
    file.write(0, [DATA])
    return file


def again() -> BlockingIOError:
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_what_is_in_memory_is_read(file: PosixFile, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, len(DATA))
    buffer = bytearray(150)
    assert file.read_into(10, buffer, nowait=True) == 150
    assert buffer == DATA[10:160]
    assert kernel.asked == [(10, NOWAIT)]


def test_what_is_not_in_memory_is_refused(file: PosixFile, monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel(monkeypatch, again())
    with pytest.raises(BlockingIOError):
        file.read_into(0, bytearray(10), nowait=True)


def test_what_is_only_partly_in_memory_is_refused(file: PosixFile, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, 64, again())
    with pytest.raises(BlockingIOError):
        file.read_into(0, bytearray(150), nowait=True)
    assert kernel.asked == [(0, NOWAIT), (64, NOWAIT)]


def test_pieces_that_are_all_in_memory_are_one_read(file: PosixFile, monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel(monkeypatch, 64)
    buffer = bytearray(180)
    assert file.read_into(0, buffer, nowait=True) == 180
    assert buffer == DATA[:180]


def test_the_end_of_the_file_is_not_taken_for_a_missing_page(file: PosixFile, monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel(monkeypatch, len(DATA))
    assert file.read_into(190, bytearray(50), nowait=True) == 10
    assert file.read_into(200, bytearray(50), nowait=True) == 0


def test_a_kernel_that_says_nothing_where_it_means_wait_is_not_believed(
    file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """preadv2(2), BUGS: Linux 5.9 and 5.10 may return 0 although the file does not end there."""
    Kernel(monkeypatch, 0)
    with pytest.raises(BlockingIOError):
        file.read_into(0, bytearray(50), nowait=True)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_that_cannot_tell_is_asked_once_and_then_waited_for(
    file: PosixFile, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    kernel = Kernel(monkeypatch, OSError(number, os.strerror(number)))
    buffer = bytearray(50)
    for _ in range(2):
        assert file.read_into(5, buffer, nowait=True) == 50
        assert buffer == DATA[5:55]
    assert kernel.asked == [(5, NOWAIT), (5, 0), (5, 0)]


def test_a_real_fault_is_not_taken_for_a_file_system_that_cannot_tell(
    file: PosixFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kernel(monkeypatch, OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.read_into(0, bytearray(50), nowait=True)


def test_a_system_without_the_flag_waits(file: PosixFile, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, again())
    monkeypatch.setattr(posix, "_NOWAIT", 0)
    assert file.read_into(0, bytearray(50), nowait=True) == 50
    assert kernel.asked == [(0, 0)]


def test_memory_never_waits() -> None:
    file = MemoryFiles().open("a", write=True, create=True)
    file.write(0, [DATA])
    buffer = bytearray(50)
    assert file.read_into(3, buffer, nowait=True) == 50
    assert buffer == DATA[3:53]


def test_real_pages_that_were_dropped_are_refused_until_somebody_has_read_them(tmp_path: Path) -> None:
    path = f"{tmp_path}/pages"
    file = PosixFiles().open(path, write=True, create=True)
    file.write(0, [os.urandom(8 * PAGE)])
    file.sync()
    drop_pages(path)
    buffer = bytearray(8 * PAGE)
    with pytest.raises(BlockingIOError):
        file.read_into(0, buffer, nowait=True)
    assert file.read_into(0, buffer) == len(buffer)
    whole = bytes(buffer)
    assert file.read_into(0, buffer, nowait=True) == len(buffer)
    assert buffer == whole


def test_real_pages_of_which_only_the_first_is_in_memory_are_refused(tmp_path: Path) -> None:
    path = f"{tmp_path}/pages"
    file = PosixFiles().open(path, write=True, create=True)
    file.write(0, [os.urandom(FAR * PAGE)])
    file.sync()
    drop_pages(path)
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # or the kernel reads the neighbours too
    os.pread(descriptor, 1, 0)
    os.close(descriptor)
    assert file.read_into(0, bytearray(PAGE), nowait=True) == PAGE
    with pytest.raises(BlockingIOError):
        file.read_into(0, bytearray(FAR * PAGE), nowait=True)


def drop_pages(path: str) -> None:
    """Take the file out of memory, or skip where that cannot be done."""
    why = "the temporary directory is in memory or its pages cannot be dropped; enable with: pytest --basetemp=<a disk>"
    if not hasattr(os, "RWF_NOWAIT") or not hasattr(os, "posix_fadvise"):
        pytest.skip(why)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(descriptor, [bytearray(PAGE)], 4 * PAGE, os.RWF_NOWAIT)
    except BlockingIOError:
        return
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    finally:
        os.close(descriptor)
    pytest.skip(why)
