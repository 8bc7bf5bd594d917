"""A log whose directory another process writes: read from the files, everything else asked of that process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from foldlog.broker.broker import Broker
from foldlog.client.backends.directory import DirectoryBackend
from foldlog.client.backends.served.broker import DONE_BY_THE_WRITER, RemoteBroker
from foldlog.client.backends.served.catch_up import hurried
from foldlog.client.backends.transactions import DirectorySession
from foldlog.client.descriptions import OpenProducer, TransactionDescription
from foldlog.clock import Clock
from foldlog.files.base import Files
from foldlog.files.posix import PosixFiles

if TYPE_CHECKING:
    from foldlog.client.access import AccessAdmin
    from foldlog.client.backends.served.queue import ServedTaking
    from foldlog.client.queue.queue import QueueSettings


class ServedBackend(DirectoryBackend):
    """A RemoteBroker, and the Broker that follows its files. Any thread."""

    LIMITS: ClassVar[Mapping[str, str]] = DONE_BY_THE_WRITER

    def __init__(self, followed: Broker, remote: RemoteBroker, *, committed: bool = False) -> None:
        """Use `open_served`."""
        super().__init__(followed, remote, remote.memberships(), committed=committed)
        self.remote = remote

    @property
    def bootstrap(self) -> str | None:
        return self.remote.bootstrap

    def transactions(self, transactional_id: str) -> DirectorySession:
        remote = self.remote
        return DirectorySession(remote, remote.transactions, transactional_id, remote.transactional_partition)

    def list_transactions(self) -> list[TransactionDescription]:
        return self.remote.transactions.listed()

    def abort_transaction(self, found: TransactionDescription) -> None:
        self.remote.transactions.abort(found)

    def open_producers(self, topic: str, number: int) -> list[OpenProducer]:
        return self.remote.transactions.open_producers(topic, number)

    def abort_in_partition(self, topic: str, number: int, producer: OpenProducer) -> None:
        self.remote.transactions.abort_in_partition(topic, number, producer)

    def access(self) -> AccessAdmin:
        return self.remote.access

    @property
    def is_remote(self) -> bool:
        return True

    def taking(self, settings: QueueSettings) -> ServedTaking:
        return self.remote.taking(settings.of_log(committed=self._committed))


def open_served(
    path: str, files: Files | None, clock: Clock | None, address: str | None, *, committed: bool = False
) -> ServedBackend:
    """The log of a directory whose writer listens on `address`, if known. `committed`: see DirectoryBackend."""
    files = files or PosixFiles()
    followed = hurried(Broker.open(path, files=files, clock=clock, mode="r"), files)
    remote = RemoteBroker(followed, files, address)
    remote.learn_defaults()
    return ServedBackend(followed, remote, committed=committed)
