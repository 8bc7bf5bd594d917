"""Ranges of offsets from a cluster: one, or several at the same time, each from the leader of its partition.

One thread reads them all. Every partition has a connection on which a fetch is always under way, so that all leaders
work at once, and whoever has answered is taken next. Where there are several partitions, to find a leader, to connect
and to log in are left to other threads (cluster_search.py): whoever is slow in that holds up nobody else.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Generator, Iterable
from typing import NamedTuple

from foldlog.client.cluster_fetch import Fetched, PartitionFetcher
from foldlog.client.cluster_links import ClusterLinks
from foldlog.client.cluster_patience import Passing, Patience
from foldlog.client.cluster_requests import EARLIEST, LATEST, list_offsets, topic_config
from foldlog.client.cluster_search import Bell, LeaderSearch
from foldlog.client.wire_connection import WireConnection
from foldlog.errors import BrokerUnreachable, MalformedBytes, OffsetOutOfRange
from foldlog.limits import CLUSTER_EMPTY_ANSWERS_MAX, CLUSTER_RANGES_MAX


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

    OffsetOutOfRange if the log does not hold them all; UnknownTopic if the topic is not (any more) the one with that
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
    """The same for several ranges of different partitions, CLUSTER_RANGES_MAX at a time: in each in its order, and
    among them as the answers come. An answer is good until the next of its range is taken."""
    waiting = deque(wanted)
    readers: list[RangeReader] = []
    limit_s = (links.properties.request_timeout_ms + links.properties.fetch_max_wait_ms) / 1000
    with Bell() as bell:
        try:
            while waiting or readers:
                while waiting and len(readers) < CLUSTER_RANGES_MAX:
                    is_alone = not readers and len(waiting) == 1
                    readers.append(RangeReader(links, waiting.popleft()))
                    readers[-1].ask(None if is_alone else bell)
                for reader, is_late in _turns(readers, limit_s, bell):
                    fetched = reader.step(is_late=is_late)
                    if fetched is not None:
                        yield reader.wanted, fetched
                    if reader.is_done:
                        reader.close()
                        readers.remove(reader)
        finally:
            for reader in readers:
                reader.close()


def _turns(readers: list[RangeReader], limit_s: float, bell: Bell) -> list[tuple[RangeReader, bool]]:
    """Waits until some can go on, or have asked; those that can, each with whether it is because its leader has not
    answered in time."""
    searching = {reader for reader in readers if reader.is_searching}
    if len(readers) == 1 and not searching:
        (only,) = readers
        if only.awaited is None:
            time.sleep(max(0.0, only.due_s - time.monotonic()))
            only.ask()
        return [(only, False)] if only.is_done or only.awaited is not None else []  # it waits for its answer itself
    awaited = {reader: connection for reader in readers if (connection := reader.awaited) is not None}
    idle = [reader for reader in readers if reader not in awaited and reader not in searching]
    answered = {reader for reader, connection in awaited.items() if connection.has_received}
    until_s = min([reader.due_s for reader in idle] + [reader.asked_s + limit_s for reader in awaited], default=None)
    if answered:
        wait_s: float | None = 0.0
    else:
        wait_s = None if until_s is None else max(0.0, until_s - time.monotonic())
    with selectors.DefaultSelector() as selector:
        selector.register(bell, selectors.EVENT_READ)
        for reader, connection in awaited.items():
            selector.register(connection, selectors.EVENT_READ, reader)
        answered.update(key.data for key, _ in selector.select(wait_s) if key.data is not None)
    bell.quieten()
    now_s = time.monotonic()
    for reader in idle:
        if reader.due_s <= now_s:
            reader.ask(bell)  # a step would wait for the answer, and the others with it
    done = [reader for reader in idle if reader.is_done]
    late = [reader for reader in awaited if reader not in answered and reader.asked_s + limit_s <= now_s]
    return [*((reader, False) for reader in (*done, *answered)), *((reader, True) for reader in late)]


class RangeReader:
    """One range, step by step. One thread; `close` it. Not to be stepped before `due_s`, a time of the monotonic clock,
    unless to be told sooner that nothing has changed."""

    def __init__(self, links: ClusterLinks, wanted: WantedRange) -> None:
        self.wanted = wanted
        self.is_done = wanted.start >= wanted.stop
        self.due_s = 0.0
        self._links = links
        self._fetcher = PartitionFetcher(links, wanted.topic, wanted.partition, wanted.start, topic_id=wanted.topic_id)
        self._search: LeaderSearch | None = None
        self._patience: Patience | None = None
        self._drought: _Drought | None = None
        self._is_end_checked = False

    def ask(self, bell: Bell | None = None) -> None:
        """Put the next question on its way; where that cannot be now, it is due later. Raises as `step` does.

        With a bell, who has no leader has one looked for by another thread, and is to ask again when it rings.
        """
        if self.is_done:
            return
        try:
            if self._search is not None:
                search, self._search = self._search, None
                self._fetcher.connect(*search.result())
            elif bell is not None and not self._fetcher.is_connected:
                self._search = LeaderSearch(self._links, self.wanted.topic, self.wanted.partition, bell)
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
        self._patience = None
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
        self._patience = self._patience or self._links.patience()
        self.due_s = time.monotonic() + self._patience.pause_s(error)
        self._links.forget_leaders()

    def close(self) -> None:
        if self._search is not None:
            self._search.abandon()
        self._fetcher.close()


def _check_end(links: ClusterLinks, wanted: WantedRange) -> None:
    """A new leader may answer a fetch with an end that lags; asked for it, it says so and is asked again."""
    topic, partition, stop = wanted.topic, wanted.partition, wanted.stop
    end = list_offsets(links, topic, {partition: LATEST})[partition].offset
    if stop > end:
        start = list_offsets(links, topic, {partition: EARLIEST})[partition].offset
        raise OffsetOutOfRange(topic, partition, stop - 1, start, end, "it was never written, or cut off")


class _Drought:
    """Answers without records below the end. A quota or a slow store may be behind it, and it passes; but what is left
    of a compacted topic may also just end before its end.
    """

    def __init__(self, links: ClusterLinks, wanted: WantedRange, offset: int) -> None:
        self._links = links
        self._topic = wanted.topic
        self._patience = links.patience()
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
                policy = topic_config(self._links, self._topic, ["cleanup.policy"]).get("cleanup.policy", "")
                return "compact" in policy
        return False

    def pause_s(self) -> float:
        """How long to wait; raises if it has taken too long."""
        return self._patience.pause_s(Passing(self._error))
