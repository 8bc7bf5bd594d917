"""A queue of a directory that this process writes: asks the broker directly."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from foldlog.broker.broker import Broker
from foldlog.broker.groups.consumer.messages import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatResult
from foldlog.broker.groups.errors import GroupErrorCode, raise_for
from foldlog.broker.share.messages import AcknowledgeType, ShareHeartbeat
from foldlog.broker.share.store import Saved
from foldlog.client.consumer.arrivals import Arrivals
from foldlog.client.groups import not_of_a_queue
from foldlog.client.queue.queue import TAKE_MAX_BYTES, QueueSettings, TakenRecord, by_partition, unpacked
from foldlog.errors import FoldlogError, LogClosed
from foldlog.records.loops import Record

_HOST = "/127.0.0.1"


class LocalTaking:
    """A member of a share group in the process of its coordinator. One thread at a time.

    It reports when it takes and renews, and not in between: a worker that is silent for longer than the session is
    taken for gone, and joins again when it asks for more. Its locks have timed out before that, unless the group is set
    otherwise.
    """

    def __init__(self, broker: Broker, settings: QueueSettings) -> None:
        self._broker = broker
        self._store = broker.shares
        self._settings = settings
        self._member = str(uuid.uuid4())
        self._epoch = JOIN_EPOCH
        self._next_report_ms = 0.0
        self._assigned: list[tuple[str, int]] = []
        self._turn = 0
        self._arrivals = Arrivals()
        for topic in settings.topics:
            broker.topic(topic)
        if settings.group_settings:
            broker.group_configs.change(settings.group, lambda own: {**own, **settings.group_settings})
        self._report()
        self._store.begin(settings.group, self._assigned)
        self._store.watchers.append(self._available)

    def _available(self, group: str, topic_id: bytes, number: int) -> None:
        if group == self._settings.group:
            self._arrivals.ring()

    def take(self, max_records: int, timeout_ms: float | None) -> list[TakenRecord]:
        clock = self._broker.clock
        until_ms = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        while True:
            self._arrivals.reset()
            self._report_if_due()
            found = self._look(max_records)
            if self._arrivals.is_closed:
                raise LogClosed("the queue was closed while it waited; open another with log.queue()")
            left_ms = None if until_ms is None else until_ms - clock.monotonic_ms()
            if found or (left_ms is not None and left_ms <= 0):
                return found
            report_ms = max(1.0, self._next_report_ms - clock.monotonic_ms())
            self._arrivals.wait(report_ms if left_ms is None else min(left_ms, report_ms))

    def _look(self, max_records: int) -> list[TakenRecord]:
        """One pass over the partitions, beginning with another one each time."""
        found: list[TakenRecord] = []
        self._turn += 1
        at = self._turn % len(self._assigned) if self._assigned else 0
        for topic, number in self._assigned[at:] + self._assigned[:at]:
            if len(found) >= max_records:
                break
            self._arrivals.watch(self._broker.partition(topic, number))
            got = self._store.take(
                self._settings.group,
                self._member,
                topic,
                number,
                max_bytes=TAKE_MAX_BYTES,
                records_max=max_records - len(found),
            )
            records, gaps = unpacked(topic, number, got.data, got.acquired)
            if gaps:
                self._store.acknowledge(self._settings.group, self._member, topic, number, gaps)
            if got.saved is not None:
                got.saved.wait()
            found += records
        return found

    def acknowledge(self, records: Sequence[Record], kind: AcknowledgeType) -> None:
        saved: list[Saved] = []
        first: FoldlogError | None = None
        for (topic, number), batches in by_partition(records, kind).items():
            try:
                one = self._store.acknowledge(self._settings.group, self._member, topic, number, batches)
                if one is not None:
                    saved.append(one)
            except FoldlogError as error:
                first = first or error  # those of other partitions count all the same
        for one in saved:
            one.wait()
        if first is not None:
            raise first

    def renew(self, records: Sequence[Record]) -> None:
        self._report_if_due()  # a member that is taken for gone loses its locks, however new they are
        self.acknowledge(records, AcknowledgeType.RENEW)

    def _report_if_due(self) -> None:
        if self._broker.clock.monotonic_ms() >= self._next_report_ms:
            self._report()

    def _report(self) -> None:
        """Join, or say that it is still there."""
        result = self._beat(self._epoch)
        if result.error in (GroupErrorCode.UNKNOWN_MEMBER_ID, GroupErrorCode.FENCED_MEMBER_EPOCH):
            result = self._beat(JOIN_EPOCH)
        if result.error is GroupErrorCode.GROUP_ID_NOT_FOUND:
            raise not_of_a_queue(self._settings.group)
        raise_for(result.error, self._settings.group)
        self._epoch = result.member_epoch
        self._next_report_ms = self._broker.clock.monotonic_ms() + result.heartbeat_interval_ms
        if result.assignment is not None:
            names = {bytes.fromhex(topic.topic_id): topic.name for topic in self._broker.catalog.topics.values()}
            self._assigned = [(names[one], number) for one, number in sorted(result.assignment) if one in names]

    def _beat(self, epoch: int) -> HeartbeatResult:
        request = ShareHeartbeat(
            self._settings.group,
            self._member,
            epoch,
            topics=self._settings.topics if epoch == JOIN_EPOCH else None,
            client_id="foldlog",
            client_host=_HOST,
        )
        with self._broker.coordinator() as coordinator:
            return coordinator.share_heartbeat(request)

    def close(self) -> None:
        self._arrivals.close()
        self._store.watchers.remove(self._available)
        self._store.release(self._settings.group, self._member)
        self._beat(LEAVE_EPOCH)
