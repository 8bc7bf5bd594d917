"""Ranges of offsets from a cluster: one, or several at the same time, each from the leader of its partition.

One thread reads them all. Every partition has a connection on which a fetch is always under way, so that all leaders
work at once, and whoever has answered is taken next. Where there are several partitions, to find a leader, to connect
and to log in are left to other threads: whoever is slow in that holds up nobody else.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from foldlog.client.wire.admin import list_offsets, topic_settings
from foldlog.client.wire.background import BackgroundCall, Wakeup
from foldlog.client.wire.connection import WireConnection
from foldlog.client.wire.fetch import Fetched, PartitionFetcher
from foldlog.client.wire.links import ClusterLinks, PartitionLeader
from foldlog.client.wire.questions import EARLIEST, LATEST
from foldlog.client.wire.refusals import Passing
from foldlog.client.wire.retries import Backoff
from foldlog.errors import BrokerUnreachable, MalformedBytes
from foldlog.limits import CLUSTER_EMPTY_ANSWERS_MAX, CLUSTER_RANGES_MAX
from foldlog.log.checkpoint import out_of_range
from foldlog.records.batch import MAX_INT64


class WantedRange(NamedTuple):
    """Offsets of one partition, `stop` excluded; of the topic that has that id, if one is given."""

    topic: str
    partition: int
    start: int
    stop: int
    topic_id: bytes | None = None


def fetch_range(
    links: ClusterLinks, topic: str, partition: int, start: int, stop: int, *, topic_id: bytes | None = None
) -> Generator[Fetched, None, None]:
    """Everything from `start` to before `stop`: each answer is good until the next is taken. Gaps are legal.

    OffsetOutOfRange if the log does not hold them all; UnknownTopic if the topic is not any more the one with that
    id. A broker that is lost on the way is gone on from, or from whoever leads then, exactly where it was.
    """
    reader = RangeReader(links, WantedRange(topic, partition, start, stop, topic_id))
    try:
        while not reader.is_done:
            time.sleep(max(0.0, reader.due_s - time.monotonic()))
            fetched = reader.step()
            if fetched is not None:
                yield fetched
    finally:
        reader.close()


def fetch_ranges(
    links: ClusterLinks, wanted: Iterable[WantedRange]
) -> Generator[tuple[WantedRange, Fetched], None, None]:
    """`fetch_range` for several ranges of different partitions, CLUSTER_RANGES_MAX at a time: in each in its order, and
    among them as the answers come. An answer is good until the next of its range is taken."""
    waiting = deque(wanted)
    readers: list[RangeReader] = []
    limit_s = (links.properties.request_timeout_ms + links.properties.fetch_max_wait_ms) / 1000
    with Wakeup() as wakeup:
        try:
            while waiting or readers:
                while waiting and len(readers) < CLUSTER_RANGES_MAX:
                    is_alone = not readers and len(waiting) == 1
                    readers.append(RangeReader(links, waiting.popleft()))
                    readers[-1].ask(None if is_alone else wakeup)
                for reader, is_late in _turns(readers, limit_s, wakeup):
                    fetched = reader.step(is_late=is_late)
                    if fetched is not None:
                        yield reader.wanted, fetched
                    if reader.is_done:
                        reader.close()
                        readers.remove(reader)
        finally:
            for reader in readers:
                reader.close()


def _turns(readers: list[RangeReader], limit_s: float, wakeup: Wakeup) -> list[tuple[RangeReader, bool]]:
    """Waits until some can go on, or have asked; those that can, each with whether it is because its leader has not
    answered in time."""
    searching = {reader for reader in readers if reader.is_searching}
    if len(readers) == 1 and not searching:
        return _turn_of_only(readers[0])
    awaited = {reader: connection for reader in readers if (connection := reader.awaited) is not None}
    idle = [reader for reader in readers if reader not in awaited and reader not in searching]
    until_s = min([reader.due_s for reader in idle] + [reader.asked_s + limit_s for reader in awaited], default=None)
    answered = _answered(awaited, until_s, wakeup)
    late = [reader for reader in awaited if reader not in answered and reader.asked_s + limit_s <= time.monotonic()]
    done = _asked_again(idle, wakeup)
    return [*((reader, False) for reader in (*done, *answered)), *((reader, True) for reader in late)]


def _asked_again(idle: list[RangeReader], wakeup: Wakeup) -> list[RangeReader]:
    """Has those ask that are due: a step would wait for the answer, and the others with it. Those that need not."""
    now_s = time.monotonic()
    for reader in idle:
        if reader.due_s <= now_s:
            reader.ask(wakeup)
    return [reader for reader in idle if reader.is_done]


def _turn_of_only(reader: RangeReader) -> list[tuple[RangeReader, bool]]:
    """Who reads alone waits for its answer itself, in its next step."""
    if reader.awaited is None:
        time.sleep(max(0.0, reader.due_s - time.monotonic()))
        reader.ask()
    return [(reader, False)] if reader.is_done or reader.awaited is not None else []


def _answered(awaited: Mapping[RangeReader, WireConnection], until_s: float | None, wakeup: Wakeup) -> set[RangeReader]:
    """Those whose leader has answered. Waits for one until then, or until a search is over."""
    # What was received together with an answer before it is in memory already: no selector tells of it.
    answered = {reader for reader, connection in awaited.items() if connection.has_received}
    wait_s = 0.0 if answered else None if until_s is None else max(0.0, until_s - time.monotonic())
    with selectors.DefaultSelector() as selector:
        selector.register(wakeup, selectors.EVENT_READ)
        for reader, connection in awaited.items():
            selector.register(connection, selectors.EVENT_READ, reader)
        answered.update(key.data for key, _ in selector.select(wait_s) if key.data is not None)
    wakeup.reset()
    return answered


class RangeReader:
    """One range, step by step. One thread; `close` it. Not to be stepped before `due_s`, a time of the monotonic clock,
    unless to be told sooner that nothing has changed."""

    def __init__(self, links: ClusterLinks, wanted: WantedRange) -> None:
        self.wanted = wanted
        self.is_done = wanted.start >= wanted.stop
        self.due_s = 0.0
        self._links = links
        self._fetcher = PartitionFetcher(links, wanted.topic, wanted.partition, wanted.start, topic_id=wanted.topic_id)
        self._search: BackgroundCall[tuple[PartitionLeader, WireConnection]] | None = None
        self._backoff: Backoff | None = None
        self._drought: _Drought | None = None
        self._is_end_checked = False

    def ask(self, wakeup: Wakeup | None = None) -> None:
        """Put the next question on its way; where that cannot be now, it is due later. Raises as `step` does.

        With a wakeup, who has no leader has one looked for by another thread, and is to ask again when it wakes.
        """
        if self.is_done:
            return
        try:
            if self._search is not None:
                search, self._search = self._search, None
                self._fetcher.connect(*search.result())
            elif wakeup is not None and not self._fetcher.is_connected:
                reach = partial(self._links.reach, self.wanted.topic, self.wanted.partition)
                self._search = BackgroundCall(reach, wakeup, self._links.give_back_to)
                return
            self._fetcher.ask()
        except (Passing, OSError, MalformedBytes) as error:
            self._put_off(error)

    @property
    def is_searching(self) -> bool:
        """Whether its leader is being looked for. Once that is over, it is to ask again."""
        return self._search is not None and not self._search.is_over

    @property
    def awaited(self) -> WireConnection | None:
        """The connection that an answer is to come on; None if nothing was asked."""
        return self._fetcher.awaited

    @property
    def asked_s(self) -> float:
        """When that was asked for."""
        return self._fetcher.asked_s

    def step(self, *, is_late: bool = False) -> Fetched | None:
        """The next records; None if there are none yet, or no more. Waits for an answer that was asked for, unless
        `is_late`: the caller has waited for it.

        What does not pass within default.api.timeout.ms is raised.
        """
        if self.is_done:
            return None
        offset, wanted = self._fetcher.offset, self.wanted
        try:
            fetched = self._fetcher.try_next(before=wanted.stop, is_late=is_late)
        except (Passing, OSError, MalformedBytes) as error:
            self._put_off(error)
            return None
        self._backoff = None
        if fetched.end < wanted.stop and not self._is_end_checked:
            _check_end(self._links, wanted)
            self._is_end_checked = True
        if fetched.next_offset > offset:
            self._drought = None
            self.is_done = fetched.next_offset >= wanted.stop
            return fetched
        self._drought = self._drought or _Drought(self._links, wanted, offset)
        if self._drought.is_gap(is_sure=fetched.end >= wanted.stop and not fetched.throttle_ms):
            self.is_done = True
        else:
            self.due_s = time.monotonic() + self._drought.pause_s()
        return None

    def _put_off(self, error: Passing | OSError | MalformedBytes) -> None:
        self._backoff = self._backoff or self._links.backoff()
        self.due_s = time.monotonic() + self._backoff.pause_s(error)
        self._links.forget_leaders()

    def close(self) -> None:
        if self._search is not None:
            self._search.abandon()
        self._fetcher.close()


class TailReader:
    """One partition from an offset on, for who waits for what is not there yet. One thread; `close` it."""

    def __init__(self, links: ClusterLinks, topic: str, partition: int, offset: int) -> None:
        self._links = links
        self._fetcher = PartitionFetcher(links, topic, partition, offset)
        self._backoff: Backoff | None = None
        self._due_s = 0.0

    def next(self, timeout_s: float) -> Fetched | None:
        """What comes next, with what follows it asked for already; None if nothing has come in that time.

        What does not pass within default.api.timeout.ms is raised. Takes longer while a leader is looked for.
        """
        until_s = time.monotonic() + timeout_s
        if self._due_s > until_s:
            time.sleep(timeout_s)
            return None
        time.sleep(max(0.0, self._due_s - time.monotonic()))
        try:
            self._fetcher.ask()
            is_late = not self._is_answered(until_s)
            if is_late and time.monotonic() < self._fetcher.asked_s + self._patience_s:
                return None
            offset = self._fetcher.offset
            fetched = self._fetcher.try_next(before=MAX_INT64, is_late=is_late)
        except (Passing, OSError, MalformedBytes) as error:
            self._backoff = self._backoff or self._links.backoff()
            self._due_s = time.monotonic() + self._backoff.pause_s(error)
            self._links.forget_leaders()
            return None
        self._backoff = None
        return fetched if fetched.next_offset > offset else None

    @property
    def _patience_s(self) -> float:
        properties = self._links.properties
        return (properties.request_timeout_ms + properties.fetch_max_wait_ms) / 1000

    def _is_answered(self, until_s: float) -> bool:
        """Whether an answer has come, or its beginning, after waiting for it until then."""
        connection = self._fetcher.awaited
        if connection is None or connection.has_received:
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            return bool(selector.select(max(0.0, until_s - time.monotonic())))

    def close(self) -> None:
        self._fetcher.close()


def _check_end(links: ClusterLinks, wanted: WantedRange) -> None:
    """A new leader may answer a fetch with an end that lags; asked for it, it says so and is asked again."""
    topic, partition, stop = wanted.topic, wanted.partition, wanted.stop
    end = list_offsets(links, topic, {partition: LATEST})[partition].offset
    if stop > end:
        start = list_offsets(links, topic, {partition: EARLIEST})[partition].offset
        raise out_of_range((topic, partition), stop - 1, start, end)


class _Drought:
    """Answers without records below the end. A quota or a slow store may be behind it, and it passes; but what is left
    of a compacted topic may also just end before its end.
    """

    def __init__(self, links: ClusterLinks, wanted: WantedRange, offset: int) -> None:
        self._links = links
        self._topic = wanted.topic
        self._backoff = links.backoff()
        self._answers = 0
        self._error = BrokerUnreachable(
            [str(address) for address in links.addresses],
            f"the log goes on at offset {offset} of {wanted.topic}-{wanted.partition}, and no records come",
            links.properties.security_protocol,
        )

    def is_gap(self, *, is_sure: bool) -> bool:
        """Whether there is nothing to wait for.

        `is_sure`: who gave nothing knows the end, as a new leader may not, and is not holding back.
        """
        if is_sure:
            self._answers += 1
            if self._answers == CLUSTER_EMPTY_ANSWERS_MAX:
                policy = topic_settings(self._links, self._topic, ["cleanup.policy"]).get("cleanup.policy")
                return policy is not None and "compact" in policy.value
        return False

    def pause_s(self) -> float:
        """How long to wait; raises if it has taken too long."""
        return self._backoff.pause_s(Passing(self._error))
