"""A directory that the system refuses: one sentence that names the file once and says what to do next."""

from __future__ import annotations

import errno
import os

import pytest

from foldlog.broker.data_directory import cannot_open
from foldlog.errors import StorageError, StorageFull

PATH = "/data"
FILE = "/data/.lock"


def refusal(number: int, mode: str = "w") -> StorageError:
    return cannot_open(PATH, mode, OSError(number, os.strerror(number), FILE))


@pytest.mark.parametrize(
    ("number", "mode", "words"),
    [
        (errno.EROFS, "w", "is on a read-only file system; mount it for writing, or open the log with mode='r'"),
        (errno.EROFS, "r", "is on a read-only file system; mount it for writing"),
        (errno.EACCES, "w", "is not this process's to use; change its permissions, or open the log with mode='r'"),
        (errno.EIO, "w", "the system refuses /data/.lock; check the path, and the disk it is on"),
        (errno.EISDIR, "w", "move it away"),
    ],
)
def test_what_the_system_refuses_is_named_once_with_advice(number: int, mode: str, words: str) -> None:
    sentence = str(refusal(number, mode))
    assert words in sentence
    assert sentence.count(FILE) == 1


def test_a_full_disk_stays_one() -> None:
    assert isinstance(refusal(errno.ENOSPC), StorageFull)
    assert not isinstance(refusal(errno.EIO), StorageFull)
