"""The ledger of a directory: through its writer if there is one, else by being it for the moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foldlog.client.log import Log
from foldlog.client.sharing import open_shared
from foldlog.errors import InvalidArgument, TopicExists, UnknownGroup
from foldlog.spark.origins.ledger import Entry
from foldlog.spark.origins.origin import OriginSpec


class PathLedger:
    """See `Ledger`."""

    def __init__(self, log: Log) -> None:
        """Use `open`."""
        self._log = log

    @classmethod
    def open(cls, spec: OriginSpec) -> PathLedger:
        if spec.path is None:
            raise InvalidArgument("a path is needed")
        return cls(open_shared(spec.path))

    def ensure_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        if name in self._log.topics(include_internal=True):
            return
        try:
            self._log.create_topic(name, partitions, config)
        except TopicExists:
            pass  # another runner was as quick

    def append(self, topic: str, entries: Iterable[Entry]) -> None:
        with self._log.producer() as producer:
            futures = [
                producer.send(topic, value=entry.value, key=entry.key, headers=entry.headers) for entry in entries
            ]
            producer.flush()
        for future in futures:
            future.result()

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self._log.reset_group(group, {(topic, partition): offset for partition, offset in offsets.items()})

    def delete_group(self, group: str) -> None:
        try:
            self._log.delete_group(group)
        except UnknownGroup:
            pass

    def close(self) -> None:
        self._log.close()
