"""One request of a connection, from its coming to its answer."""

from __future__ import annotations

from foldlog.server.call import Later
from foldlog.wire.codec import Chunk
from foldlog.wire.frames import RequestHeader


class Exchange:
    """A request under way. `chunks` is its answer, encoded; None while it is not known."""

    __slots__ = ("began", "chunks", "has_error", "header", "later")

    def __init__(self, header: RequestHeader, began: float) -> None:
        self.header = header
        self.began = began
        self.chunks: list[Chunk] | None = None
        self.has_error = False
        self.later: Later | None = None
