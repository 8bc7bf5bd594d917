"""A queue of a cluster: librdkafka's share consumer, which confluent-kafka has from 2.16 on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from foldlog.broker.share.messages import AcknowledgeType
from foldlog.client.backends.cluster.faults import Where
from foldlog.client.backends.cluster.handles import Handles, Trouble, confluent
from foldlog.client.backends.cluster.records import record_of
from foldlog.client.queue.queue import QueueSettings, TakenRecord
from foldlog.errors import FoldlogError, InvalidArgument, InvalidRecordState, ReadOnly
from foldlog.records.loops import Record

_POLL_S: Final = 0.1
_COMMIT_S: Final = 30.0
NEEDED: Final = "2.16"


def check_share_consumer() -> None:
    """Raises InvalidArgument where the installed confluent-kafka has no share consumer."""
    module = confluent()
    if not hasattr(module, "ShareConsumer"):
        raise InvalidArgument(
            f"log.queue() on a cluster needs confluent-kafka {NEEDED} or newer, and {module.__version__} is installed;"
            f" run: pip install 'confluent-kafka>={NEEDED}'"
        )


class ClusterTaking:
    """A member of a share group of a cluster. One thread at a time.

    librdkafka gives out whole batches, and no further ones before each record of the last was acknowledged: what is
    left of a batch is kept for the next take.
    """

    def __init__(self, handles: Handles, settings: QueueSettings, cannot_renew: ReadOnly) -> None:
        self._handles = handles
        self._cannot_renew = cannot_renew
        self._trouble = Trouble()
        self._waiting: deque[TakenRecord] = deque()
        self._held: set[tuple[str, int, int]] = set()
        self._consumer: Any = handles.share_consumer(
            {"group.id": settings.group, "share.acknowledgement.mode": "explicit"}, self._trouble
        )
        self._consumer.subscribe(list(settings.topics))

    def take(self, max_records: int, timeout_ms: float | None) -> list[TakenRecord]:
        until_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while not self._waiting:
            self._handles.check_usable()
            if self._held:
                raise InvalidArgument(
                    f"{len(self._held)} records that were taken are not acknowledged yet, and librdkafka gives out no"
                    " more before that: ack, release or reject them first"
                )
            left_s = _POLL_S if until_s is None else max(0.0, until_s - time.monotonic())
            self._waiting += self._poll(min(left_s, _POLL_S))
            if until_s is not None and time.monotonic() >= until_s:
                break
        taken = [self._waiting.popleft() for _ in range(min(max_records, len(self._waiting)))]
        self._held.update((one.record.topic, one.record.partition, one.record.offset) for one in taken)
        return taken

    def _poll(self, timeout_s: float) -> list[TakenRecord]:
        try:
            messages = self._consumer.poll(timeout_s)
        except self._handles.kafka_exception as error:
            raise self._fault(error) from error
        found = []
        for message in messages:
            if message.error() is not None:
                raise self._fault(self._handles.kafka_exception(message.error()))
            found.append(TakenRecord(record_of(message), int(message.delivery_count() or 1)))
        return found

    def acknowledge(self, records: Sequence[Record], kind: AcknowledgeType) -> None:
        try:
            for record in records:
                self._consumer.acknowledge_offset(record.topic, record.partition, record.offset, int(kind))
            results = self._consumer.commit_sync(_COMMIT_S)
        except self._handles.kafka_exception as error:
            raise self._fault(error) from error
        finally:
            self._held.difference_update((one.topic, one.partition, one.offset) for one in records)
        for partition, failed in results.items():
            if failed is not None:
                if failed.args[0].name() == "INVALID_RECORD_STATE":
                    raise InvalidRecordState(f"{partition.topic}-{partition.partition}: {failed.args[0].str()}")
                raise self._fault(failed)

    def renew(self, records: Sequence[Record]) -> NoReturn:
        raise self._cannot_renew

    def close(self) -> None:
        if not self._handles.is_closed:
            self._consumer.close()

    def _fault(self, error: Exception) -> FoldlogError:
        return self._handles.fault(error, Where(), self._trouble)
