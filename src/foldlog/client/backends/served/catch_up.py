"""A reading process asks the directory's writer to sync, where it is asked itself where the log ends.

A server may have acknowledged what it has not synced yet (acks=1), and readers see only what is durable. Whoever reads
the files of its directory would deny such a record, so it asks: where the partition ends, which a server answers once
all that was acknowledged is durable. A writer that does not listen acknowledges nothing before it is durable.
"""

from __future__ import annotations

import logging
import weakref
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from foldlog.broker.data_directory import writer_of
from foldlog.client.forks import watch_forks
from foldlog.errors import FoldlogError

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.client.backends.served.calls import Calls
    from foldlog.files.base import Files

logger = logging.getLogger("foldlog")


class WriterHurry:
    """See `foldlog.log.follower.Hurry`. Any thread; connects when it is first needed, which is seldom."""

    def __init__(self, followed: Broker, files: Files) -> None:
        self._path = followed.path
        self._directory_id = followed.directory_id
        self._clock = followed.clock
        self._files = files
        self._lock = Lock()
        self._calls: Calls | None = None
        self._is_over = False
        watch_forks(self.forked)

    def __call__(self, topic: str, number: int) -> None:
        if self._is_over:
            return
        try:
            holder = writer_of(self._files, self._path)
            if holder is None or holder.address is None:
                return
            # Here, since few processes ever ask: neither messages nor sockets are loaded by those that only read.
            from foldlog.client.backends.served.calls import NobodyWrites
            from foldlog.client.wire.questions import LATEST, list_offsets

            # Answered once all that was acknowledged is durable.
            with suppress(NobodyWrites):
                self._connected().ask(list_offsets(topic, {number: LATEST}))
        except FoldlogError as error:
            # What is durable can be read all the same; a disk that fails is for its writer to tell.
            logger.debug("the writer of %s did not sync %s-%d: %s", self._path, topic, number, error)

    def _connected(self) -> Calls:
        from foldlog.client.backends.served.calls import Calls
        from foldlog.client.backends.served.search import WriterSearch

        with self._lock:
            if self._calls is None:
                self._calls = Calls(WriterSearch(self._files, self._path, self._clock, self._directory_id))
                weakref.finalize(self, self._calls.let_go)
            return self._calls

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        self._is_over = True
        if self._calls is not None:
            self._calls.close()

    def forked(self) -> None:
        """In a forked child the connection is the parent's: it sees what is durable."""
        self._is_over = True
        if self._calls is not None:
            self._calls.forked()


def hurried(broker: Broker, files: Files) -> Broker:
    """`broker`, which only reads its directory, with its writer asked where the log ends."""
    broker.hurry_with(WriterHurry(broker, files))
    return broker
