"""Who writes the directory now, and how to reach it: the lock file names it.

There are three cases. Somebody writes it and listens: here is a connection. Nobody writes it: this process may, for a
moment. Somebody writes it and does not listen: an error that names it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock

from foldlog.broker.broker import Broker
from foldlog.broker.data_directory import writer_of
from foldlog.client.backends.served.connection import Connection
from foldlog.clock import Clock
from foldlog.errors import DirectoryLocked, MalformedBytes, WriterUnreachable
from foldlog.files.base import Files
from foldlog.files.holder import WriterInfo
from foldlog.limits import (
    READER_POLL_MAX_MS,
    READER_POLL_MIN_MS,
    WRITER_LOSSES_MAX,
    WRITER_REST_MS,
    WRITER_SEARCH_MS,
)


class WriterSearch:
    """Looks for the writer of one directory. Any thread.

    Waits in real time, whatever clock the log has: it waits for other processes.
    """

    def __init__(self, files: Files, path: str, clock: Clock, directory_id: str) -> None:
        self.path = path
        self._files = files
        self._clock = clock
        self._directory_id = directory_id
        self._one_moment = Lock()
        self._kept: Broker | None = None
        self._rested_s = 0.0
        self._last: WriterInfo | None = None
        self.topic_defaults: Mapping[str, str] = {}
        """What the last writer set for topics that do not: this process does the same, while it is the writer."""

    @property
    def writer(self) -> WriterInfo | None:
        """The writer that was last reached."""
        return self._last

    def connect(self) -> Connection | None:
        """A connection to the process that writes and listens; None if nobody writes.

        One that has the lock and does not listen, or does not answer, may be just starting or ending: it is looked at
        again for a while. DirectoryLocked if it does not listen then, WriterUnreachable if it does not answer.
        """
        deadline_s = time.monotonic() + WRITER_SEARCH_MS / 1000
        pause_ms = READER_POLL_MIN_MS
        while True:
            holder = None if self._kept is not None else writer_of(self._files, self.path)
            if holder is None:
                return None
            remaining_s = deadline_s - time.monotonic()
            why = ""
            if holder.address is not None:
                try:
                    connection = Connection.open(
                        holder, self.path, self._directory_id, max(remaining_s, READER_POLL_MAX_MS / 1000)
                    )
                except (OSError, MalformedBytes) as error:
                    why = str(error) or type(error).__name__
                else:
                    self._last = holder
                    return connection
            if remaining_s <= 0:
                if holder.address is None:
                    raise DirectoryLocked(self.path, holder.pid)
                raise WriterUnreachable(self.path, holder.pid, holder.address, why)
            time.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, READER_POLL_MAX_MS)

    def lost(self, holder: WriterInfo | None, why: str) -> WriterUnreachable:
        """What to raise when a process that was reached does not answer any more."""
        holder = holder or self._last or WriterInfo(None)
        return WriterUnreachable(self.path, holder.pid, holder.address, why)

    @contextmanager
    def moment(self) -> Iterator[Broker | None]:
        """Be the writer as long as the block lasts; None if another process has become it meanwhile.

        Between two moments the lock is free for long enough that a server which is starting gets it.
        """
        with self._one_moment:
            if self._kept is not None:
                yield self._kept
                return
            with self._as_writer() as broker:
                yield broker

    @contextmanager
    def kept_moment(self) -> Iterator[None]:
        """All moments while the block lasts are one, if nobody writes the directory: opening it, and the rest between
        two moments, took most of the time of a call. Keep it short, for others find the lock taken.
        """
        if writer_of(self._files, self.path) is not None:
            yield
            return
        with ExitStack() as opened:
            with self._one_moment:
                self._kept = opened.enter_context(self._as_writer())
            try:
                yield
            finally:
                with self._one_moment:  # whoever uses it, on whatever thread, is done
                    self._kept = None

    @contextmanager
    def _as_writer(self) -> Iterator[Broker | None]:
        time.sleep(max(0.0, self._rested_s - time.monotonic()))
        try:
            broker = Broker.open(
                self.path, files=self._files, clock=self._clock, background=False, topic_defaults=self.topic_defaults
            )
        except DirectoryLocked:
            yield None
            return
        try:
            with broker:
                yield broker
        finally:
            self._rested_s = time.monotonic() + WRITER_REST_MS / 1000


class WriterLosses:
    """Connections to the writer that were lost in a row without one answer. Belongs to one thread."""

    def __init__(self, search: WriterSearch) -> None:
        self._search = search
        self._count = 0

    def add(self, holder: WriterInfo, why: str) -> None:
        """One more. WriterUnreachable if it is not worth another try; the count then begins anew."""
        self._count += 1
        if self._count >= WRITER_LOSSES_MAX:
            self._count = 0
            raise self._search.lost(holder, why)

    def answered(self) -> None:
        self._count = 0
