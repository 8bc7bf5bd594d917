"""A log whose directory this process writes, or only reads; others may reach it through a listener."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from foldlog.broker.broker import Broker
from foldlog.client.backends.backend import LogListener
from foldlog.client.backends.directory import DirectoryBackend
from foldlog.client.backends.served.catch_up import hurried
from foldlog.client.backends.transactions import DirectorySession, abort_here, list_here, open_producers_here
from foldlog.client.consumer.membership import Memberships
from foldlog.client.descriptions import OpenProducer, Topic, TransactionDescription
from foldlog.client.fold_bulletin import refuse_made_otherwise
from foldlog.client.outgoing import TransactionalProducer
from foldlog.files.base import Files
from foldlog.files.posix import PosixFiles
from foldlog.log.partition import Appended, Partition

if TYPE_CHECKING:
    from foldlog.client.access import AccessAdmin
    from foldlog.client.queue.local import LocalTaking
    from foldlog.client.queue.queue import QueueSettings


class LocalBackend(DirectoryBackend):
    """The Broker of this process. Any thread."""

    def __init__(self, broker: Broker, files: Files | None = None, *, committed: bool = False) -> None:
        """`files` are those that `broker` was opened with; `committed`: see DirectoryBackend."""
        if broker.read_only:
            hurried(broker, files or PosixFiles())
        super().__init__(broker, broker, Memberships(broker), committed=committed)
        self._files = files or PosixFiles()
        self._listener: LogListener | None = None

    @property
    def bootstrap(self) -> str | None:
        return None if self._listener is None else self._listener.bootstrap

    @property
    def is_remote(self) -> bool:
        return False

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, object] | None, replication_factor: int | None
    ) -> Topic:
        refuse_made_otherwise(name, partitions, config)
        return super().create_topic(name, partitions, config, replication_factor)

    def transactions(self, transactional_id: str) -> DirectorySession:
        broker = self.reader

        def opens(topic: str, number: int, _: TransactionalProducer) -> Partition:
            return broker.writable_partition(topic, number)

        def appends(producer: TransactionalProducer, log: Partition, data: bytearray) -> Appended:
            return broker.transactions.append(producer.transactional_id, log, data, add=True)

        return DirectorySession(broker, broker.transactions, transactional_id, opens, appends)

    def list_transactions(self) -> list[TransactionDescription]:
        return list_here(self.reader)

    def abort_transaction(self, found: TransactionDescription) -> None:
        self.reader.transactions.abort(found.transactional_id)

    def open_producers(self, topic: str, number: int) -> list[OpenProducer]:
        return open_producers_here(self.reader, topic, number)

    def abort_in_partition(self, topic: str, number: int, producer: OpenProducer) -> None:
        abort_here(self.reader, topic, number, producer)

    def access(self) -> AccessAdmin:
        from foldlog.client.access import AccessAdmin, HereAccess

        return AccessAdmin(HereAccess(self.reader, self._files))

    def taking(self, settings: QueueSettings) -> LocalTaking:
        from foldlog.client.queue.local import LocalTaking

        return LocalTaking(self.reader, settings.of_log(committed=self._committed))

    def listen_through(self, listener: LogListener) -> None:
        """The log is served from here on; closing it stops the listener first."""
        self._listener = listener
        self._memberships.meet_others()

    def stop_listening(self) -> None:
        if self._listener is not None and not self._is_forked:
            self._listener.stop()
