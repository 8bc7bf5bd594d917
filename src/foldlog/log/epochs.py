"""Which leader epoch wrote which offsets: `leader-epoch-checkpoint`, in Kafka's text format.

Offset and epoch together identify a record for good. An offset alone does not: after an unclean end the log may be cut,
and the next append gives the same offset to another record. So the epoch rises with each unclean open, and a client
that remembers an offset with its epoch (a fold's bookmark, a consumer) can ask where that epoch ended.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from foldlog.errors import CorruptLog
from foldlog.files.base import Files, read_file, replace_file
from foldlog.log.segment import ANY_OFFSET, Segment

logger = logging.getLogger("foldlog.log")

NAME = "leader-epoch-checkpoint"


class Epochs:
    """Ascending pairs of (epoch, first offset written in it). Replaced, and durable, before an epoch's first batch.

    Owned by the partition's appender; readers take `starts`, an immutable tuple. The text has no checksum: every
    read compares it with the epochs inside the batches, and a disagreement is CorruptLog.
    """

    def __init__(self, files: Files, directory: str, starts: tuple[tuple[int, int], ...]) -> None:
        self._files = files
        self.path = f"{directory}/{NAME}"
        self.starts = starts
        self.latest = starts[-1][0] if starts else -1

    @classmethod
    def load(cls, files: Files, directory: str) -> Epochs:
        """Read the file. Raises CorruptLog if it is missing or malformed."""
        path = f"{directory}/{NAME}"
        try:
            return cls(files, directory, parse_epochs(read_file(files, path)))
        except FileNotFoundError:
            raise CorruptLog(path, 0, "the file is missing") from None
        except ValueError as error:
            raise CorruptLog(path, 0, f"not a leader epoch checkpoint ({error})") from None

    @classmethod
    def load_or_rebuild(cls, files: Files, directory: str, segments: Sequence[Segment]) -> Epochs:
        """As `load`, but a missing or unreadable file is made anew from the epochs inside the batches."""
        try:
            return cls.load(files, directory)
        except CorruptLog as error:
            logger.warning("%s: %s; rebuilt from the batches", error.path, error.reason)
        # Every read compares the text with the batches, so one made from them cannot disagree.
        starts: list[tuple[int, int]] = []
        for segment in segments:
            for _, headers in segment.scan(0, segment.base_offset, gaps_below=ANY_OFFSET):
                for header in headers:
                    if not starts or header.leader_epoch > starts[-1][0]:
                        starts.append((header.leader_epoch, header.base_offset))
        rebuilt = cls(files, directory, tuple(starts) or ((0, segments[0].base_offset),))
        replace_file(files, rebuilt.path, format_epochs(rebuilt.starts))
        return rebuilt

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch: batches from `start_offset` on carry `epoch`. Durable on return."""
        # An epoch that began here or later has nothing left in the log: what it wrote was cut. Its pair is dropped:
        # both columns ascend, and a client that asks for it gets the end of the epoch before, and so learns of the cut.
        kept = tuple(pair for pair in self.starts if pair[1] < start_offset and pair[0] < epoch)
        starts = (*kept, (epoch, start_offset))
        replace_file(self._files, self.path, format_epochs(starts))
        # Set last: after a failure the next append has to try again.
        self.starts, self.latest = starts, epoch

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the latest epoch not after `epoch`, where it ended); (-1, -1) if all are after it."""
        found = (-1, -1)
        for at, (known, _) in enumerate(self.starts):
            if known > epoch:
                break
            # It ended where the next one began: what it wrote beyond was cut before that. A follower that is further
            # has records that no longer exist.
            found = (known, self.starts[at + 1][1] if at + 1 < len(self.starts) else log_end_offset)
        return found


def format_epochs(starts: tuple[tuple[int, int], ...]) -> bytes:
    lines = ["0", str(len(starts)), *(f"{epoch} {offset}" for epoch, offset in starts)]
    return ("\n".join(lines) + "\n").encode()


def parse_epochs(data: bytes) -> tuple[tuple[int, int], ...]:
    """The inverse of `format_epochs`. Raises ValueError."""
    version, count, *lines = data.decode("ascii").splitlines()
    if version != "0" or int(count) != len(lines):
        raise ValueError("version or count is off")
    starts: list[tuple[int, int]] = []
    for line in lines:
        epoch, offset = (int(number) for number in line.split(" "))
        if epoch < 0 or offset < 0 or (starts and (epoch <= starts[-1][0] or offset <= starts[-1][1])):
            raise ValueError(f"{line!r} is out of order")
        starts.append((epoch, offset))
    return tuple(starts)
