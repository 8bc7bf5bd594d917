"""Producer ids: each is given out once in the life of a data directory, even after a crash.

Ids are taken from blocks. A block is reserved by writing its end to the file `producer-ids`, durably, before its first
id is given out, so a crash wastes the rest of a block and repeats nothing:

    next id: 3000
    crc32c: 8f50dd67
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from foldlog.errors import CorruptLog, LogClosed
from foldlog.files.base import Files, read_file, replace_file, would_block
from foldlog.limits import PRODUCER_ID_BLOCK

PRODUCER_IDS_NAME: Final = "producer-ids"
FOREIGN_ID_MAX: Final = 1 << 62
"""Larger ids were made up by clients: counting from 0 never gets there, so they need not be avoided."""

_FILE: Final = re.compile(rb"(?P<body>next id: (?P<next>[0-9]{1,19})\n)crc32c: (?P<crc>[0-9a-f]{8})\n")
_ADVICE: Final = "remove the file: ids then begin after the largest that is found in the topics"


class ProducerIds:
    """Gives out ids. Any thread; the file is first read with the first id.

    `largest_seen` is called once, if there is no file yet: topics may have come from another directory, with remembered
    ids of producers.
    """

    def __init__(self, files: Files, directory: str, largest_seen: Callable[[], int]) -> None:
        self._files = files
        self._path = f"{directory}/{PRODUCER_IDS_NAME}"
        self._largest_seen = largest_seen
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0
        self._closed = False

    def allocate(self, *, nowait: bool = False) -> int:
        """An id that is never given out again. Once in PRODUCER_ID_BLOCK calls it waits for the disk; with `nowait`
        that call raises BlockingIOError, and has to be repeated on a thread that may wait."""
        if nowait and self._next == self._end:
            raise would_block(self._path)
        with self._lock:
            if self._closed:
                raise LogClosed(f"{self._path} was closed; open the log again")
            if self._next == self._end:
                first = self._load()
                replace_file(self._files, self._path, _encode(first + PRODUCER_ID_BLOCK))
                self._next, self._end = first, first + PRODUCER_ID_BLOCK
            self._next += 1
            return self._next - 1

    def close(self) -> None:
        """Give out no more ids: the next writer of the directory continues from the file."""
        with self._lock:
            self._closed = True

    def _load(self) -> int:
        """The first id that is in no block yet. Read each time: the disk decides, also after a failed write."""
        try:
            return _decode(read_file(self._files, self._path), self._path)
        except FileNotFoundError:
            return 1 + self._largest_seen()


def _encode(next_id: int) -> bytes:
    body = f"next id: {next_id}\n".encode()
    return body + f"crc32c: {crc32c(body):08x}\n".encode()


def _decode(data: bytes, path: str) -> int:
    found = _FILE.fullmatch(data)
    if found is None:
        raise CorruptLog(path, 0, "it is not what was written there", _ADVICE)
    if int(found["crc"], 16) != crc32c(found["body"]):
        raise CorruptLog(path, 0, "its CRC-32C does not match its bytes", _ADVICE)
    return int(found["next"])
