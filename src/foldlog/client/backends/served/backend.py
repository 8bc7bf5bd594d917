"""A log whose directory another process writes: read from the files, everything else asked of that process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from foldlog.broker.broker import Broker
from foldlog.client.backends.directory import DirectoryBackend
from foldlog.client.backends.served.broker import DONE_BY_THE_WRITER, RemoteBroker
from foldlog.client.backends.served.catch_up import hurried
from foldlog.clock import Clock
from foldlog.files.base import Files
from foldlog.files.posix import PosixFiles

if TYPE_CHECKING:
    from foldlog.client.backends.served.queue import ServedTaking
    from foldlog.client.queue.queue import QueueSettings


class ServedBackend(DirectoryBackend):
    """A RemoteBroker, and the Broker that follows its files. Any thread."""

    LIMITS: ClassVar[Mapping[str, str]] = DONE_BY_THE_WRITER

    def __init__(self, followed: Broker, remote: RemoteBroker) -> None:
        """Use `open_served`."""
        super().__init__(followed, remote, remote.memberships())
        self.remote = remote

    @property
    def bootstrap(self) -> str | None:
        return self.remote.bootstrap

    @property
    def is_remote(self) -> bool:
        return True

    def taking(self, settings: QueueSettings) -> ServedTaking:
        return self.remote.taking(settings)


def open_served(path: str, files: Files | None, clock: Clock | None, address: str | None) -> ServedBackend:
    """The log of a directory whose writer listens on `address`, if known."""
    files = files or PosixFiles()
    followed = hurried(Broker.open(path, files=files, clock=clock, mode="r"), files)
    remote = RemoteBroker(followed, files, address)
    remote.learn_defaults()
    return ServedBackend(followed, remote)
