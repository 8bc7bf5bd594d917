"""Writes the payments to the broker, and counts how many of them were acknowledged.

The records are sent by Kafka's protocol, as idempotent batches with acks=all: a batch that is in flight when the broker
is killed is sent again to the next one, and is still in the log only once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from threading import Event as Flag
from threading import Thread
from typing import Final

from foldlog.client.outgoing import partition_for_key
from foldlog.client.wire.cluster import Cluster
from foldlog.clock import SystemClock
from foldlog.demo.claims import DemoFailed
from foldlog.demo.payments import PARTITIONS, TOPIC, Event, PaymentStream
from foldlog.errors import FoldlogError
from foldlog.records.loops import pack

TICK_S: Final = 0.1


class Writer:
    """Appends `rate` payments a second from its own thread, between `resume` and `pause`."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self.rate = rate
        self._bootstrap = bootstrap
        self._per_tick = max(1, round(rate * TICK_S))
        self._stream = PaymentStream()
        self._clock = SystemClock()
        self._acknowledged = 0
        self._at_most: int | None = None
        self._may_write = Flag()
        self._is_idle = Flag()
        self._stopping = Flag()
        self._failure: FoldlogError | None = None
        self._thread = Thread(target=self._run, name="demo-writer", daemon=True)
        self._thread.start()

    @property
    def acknowledged(self) -> int:
        """All records with a number below this were acknowledged: the broker has confirmed that they are on disk."""
        return self._acknowledged

    @property
    def made(self) -> Mapping[str, int]:
        """The number of records of each kind so far."""
        return Counter(self._stream.made)

    def resume(self) -> None:
        self._is_idle.clear()
        self._may_write.set()

    def stop_at(self, records: int | None) -> None:
        """Write no more once so many are acknowledged in all, until this is called again; None: go on for ever."""
        self._at_most = records

    def pause(self, within_s: float = 60.0) -> None:
        """Returns once no record is in flight."""
        self._may_write.clear()
        if not self._is_idle.wait(within_s):
            raise DemoFailed(f"the broker did not acknowledge the last payments within {within_s:.0f} s")
        self.check()

    def check(self) -> None:
        """DemoFailed if the writer has given up."""
        if self._failure is not None:
            raise DemoFailed(f"payments cannot be written any more: {self._failure}")

    def stop(self) -> None:
        self._stopping.set()
        self._may_write.set()

    def _run(self) -> None:
        try:
            with Cluster.open(self._bootstrap, {"client.id": "demo-shop"}) as cluster, cluster.producer() as producer:
                while not self._stopping.wait(TICK_S):
                    if not self._may_write.is_set():
                        self._is_idle.set()
                        self._may_write.wait()
                        self._is_idle.clear()  # here as well: `resume` may have come just before it was set
                        continue
                    at_most = self._at_most
                    if at_most is not None and self._acknowledged >= at_most:
                        continue
                    now_ms = self._clock.now_ms()
                    events = [self._stream.next(now_ms) for _ in range(self._per_tick)]
                    for partition, batch in batches(events).items():
                        producer.send(TOPIC, partition, batch)
                    producer.flush()
                    self._acknowledged += len(events)
        except FoldlogError as error:
            self._failure = error
            self._is_idle.set()


def batches(events: list[Event]) -> dict[int, bytearray]:
    """The events as one batch per partition; the events of a key go to one partition, in order."""
    sorted_out: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        sorted_out[partition_for_key(event.key, PARTITIONS)].append(event)
    return {
        partition: bytearray(pack([(one.timestamp_ms, one.key, one.value, one.headers) for one in chosen]))
        for partition, chosen in sorted_out.items()
    }
