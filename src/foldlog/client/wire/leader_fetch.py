"""Many partitions of a cluster read onward: each leader has one fetch at a time, for all of its partitions.

As Kafka's own consumer does it. The caller's thread asks all leaders, waits for all of them at once, and takes what
came. To find leaders, to connect, to log in and to ask where a log begins is left to other threads: who is slow in that
holds up nobody else.

A leader is asked again when what it answered is decoded, while the caller works on the records. A fetch for some of its
partitions would wait there for what these do not have, and meanwhile the others, which have more, could not be asked
for. So it does not wait, and is rare: for callers that are slow with one partition, or never read it.
"""

from __future__ import annotations

import math
import selectors
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from foldlog.client.wire.background import BackgroundCall, Wakeup
from foldlog.client.wire.connection import FrameMemory, WireConnection
from foldlog.client.wire.fetch import (
    BY_NAME,
    Fetched,
    enough_for,
    fetch_request,
    fetched_batches,
    out_of_range_now,
    receive_fetch,
)
from foldlog.client.wire.links import ClusterLinks, PartitionLeader
from foldlog.client.wire.properties import Address
from foldlog.client.wire.refusals import Passing, check_code
from foldlog.client.wire.retries import Backoff, LinkLost
from foldlog.errors import (
    BrokerUnreachable,
    FoldlogError,
    MalformedBytes,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.records.loops import Record, decode
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from foldlog.wire.schema import ZERO_UUID

_PART_S: Final = 0.05
"""How long the rest of an answer is waited for that has begun to come: then the others have their turn."""

_TopicAndNumber = tuple[str, int]
_Found = PartitionLeader | Passing | FoldlogError | OSError


class FetchPosition:
    """Where one partition is read, and what came of it and is not decoded yet. Belongs to its fetcher's thread.

    `read_to` is the offset up to which records were taken. While there is a `problem`, the partition is not asked for:
    `seek` or `go_on` end that.
    """

    def __init__(self, links: ClusterLinks, topic: str, number: int, offset: int) -> None:
        self.topic: Final = topic
        self.number: Final = number
        self.is_paused = False
        self.topic_id: bytes | None = None
        self.leader: PartitionLeader | None = None
        self.due_s = 0.0
        self.check: BackgroundCall[Passing | OffsetOutOfRange] | None = None
        self.max_bytes = max(1, min(links.properties.max_partition_fetch_bytes, links.properties.fetch_max_bytes))
        self._links = links
        self._backoff: Backoff | None = None
        self.seek(offset)

    def seek(self, offset: int) -> None:
        """Read on from there. What came, and what is on its way, is dropped."""
        self.offset = offset  # the next to ask for
        self.read_to = offset
        self.problem: FoldlogError | None = None
        self._pieces: deque[memoryview] = deque()
        self._memory: FrameMemory | None = None
        if self.check is not None:
            self.check.abandon()
            self.check = None

    def go_on(self) -> None:
        """The problem was told: try again, after a while."""
        self.problem = None
        self.due_s = time.monotonic() + self._links.properties.retry_backoff_max_ms / 1000

    def take(self, enough_bytes: int) -> list[Record]:
        """The next records of what came, a bounded part: few bytes may hold many. None, if none are there."""
        while self._pieces:
            records, next_offset = decode(
                self._pieces[0], self.topic, self.number, start_offset=self.read_to, enough_bytes=enough_bytes
            )
            if next_offset <= self.read_to:
                self._pieces.popleft()
                continue
            self.read_to = next_offset
            if next_offset >= self.offset:
                self._pieces.clear()
            if records:
                return records
        self.read_to = self.offset  # past what was left out: aborted transactions
        return []

    @property
    def is_unread(self) -> bool:
        """Whether something came that is not decoded yet."""
        return bool(self._pieces)

    def stands_in(self, memory: FrameMemory) -> bool:
        """Whether what is not decoded yet stands there."""
        return self._memory is memory and self.is_unread

    # --- for the fetcher ------------------------------------------------------------------------------------------

    def is_wanted(self, now_s: float) -> bool:
        """Whether there is something to ask for."""
        return (
            not self.is_paused
            and not self._pieces
            and self.problem is None
            and self.check is None
            and self.due_s <= now_s
        )

    def came(self, fetched: Fetched, memory: FrameMemory) -> None:
        self._backoff = None
        self.offset = fetched.next_offset
        self._pieces.extend(fetched.pieces)
        self._memory = memory
        if not self._pieces:
            self.read_to = self.offset

    def put_off(self, error: Passing | OSError | MalformedBytes) -> None:
        """Look for its leader again, after a while that grows. Garbage does not pass, and is told in the end."""
        self.leader = None
        self._backoff = self._backoff or self._links.backoff(math.inf)
        try:
            self.due_s = time.monotonic() + self._backoff.pause_s(error)
        except FoldlogError as told:
            self._backoff = None
            self.fail(told)

    def fail(self, error: FoldlogError) -> None:
        self.leader = None
        self.problem = error


class _Asked(NamedTuple):
    """A fetch that a leader has not answered: which partitions, by the name or id of their topic, from which offset."""

    correlation_id: int
    version: int
    at_s: float
    wanted: dict[tuple[str | bytes, int], tuple[FetchPosition, int]]


class _Leader:
    """A broker that leads some of the partitions. They take turns in being asked for first: an answer has a limit."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.positions: dict[_TopicAndNumber, FetchPosition] = {}
        self.connection: WireConnection | None = None
        self.connecting: BackgroundCall[WireConnection] | None = None
        self.asked: _Asked | None = None
        self.due_s = 0.0
        self.last_asked_s = -math.inf
        self.memory = FrameMemory()

    def drop(self) -> None:
        """The connection is of no use any more; what was asked is not answered."""
        connection, self.connection, self.asked = self.connection, None, None
        if connection is not None:
            connection.close()


class LeaderFetcher:
    """Reads partitions that come and go. One thread, but for `wake`; `close` it, since it has connections."""

    def __init__(self, links: ClusterLinks) -> None:
        self.wakeup = Wakeup()
        self.is_troubled = False
        """Whether a broker was lost and none has answered since."""
        self._links = links
        self._positions: dict[_TopicAndNumber, FetchPosition] = {}
        self._leaders: dict[Address, _Leader] = {}
        self._search: BackgroundCall[dict[_TopicAndNumber, _Found]] | None = None
        properties = links.properties
        self._patience_s = (properties.request_timeout_ms + properties.fetch_max_wait_ms) / 1000
        self._wait_s = properties.fetch_max_wait_ms / 1000

    # --- what is read ---------------------------------------------------------------------------------------------

    def add(self, topic: str, number: int, offset: int) -> FetchPosition:
        """Read this partition too, of the topic that has this name now: UnknownTopic once there is only another one."""
        made = FetchPosition(self._links, topic, number, offset)
        self._positions[topic, number] = made
        return made

    def remove(self, position: FetchPosition) -> None:
        partition = (position.topic, position.number)
        if self._positions.get(partition) is position:
            del self._positions[partition]
        if position.check is not None:
            position.check.abandon()
        for leader in self._leaders.values():
            if leader.positions.get(partition) is position:
                del leader.positions[partition]

    def wake(self) -> None:
        """Have `poll` return soon. From any thread."""
        self.wakeup.wake()

    def close(self) -> None:
        calls = [self._search, *(one.check for one in self._positions.values())]
        for call in calls:
            if call is not None:
                call.abandon()
        for leader in self._leaders.values():
            if leader.connecting is not None:
                leader.connecting.abandon()
        for leader in list(self._leaders.values()):
            self._let_go(leader)
        self._positions.clear()
        self.wakeup.close()

    def _let_go(self, leader: _Leader) -> None:
        """A connection on which an answer is still to come is of no use to anybody else."""
        del self._leaders[leader.address]
        if leader.connection is not None and leader.asked is None:
            self._links.give_back(leader.address, leader.connection)
        else:
            leader.drop()

    def forked(self) -> None:
        """In a forked child: let go of our copies, and leave the parent's connections as they are."""
        for leader in self._leaders.values():
            if leader.connection is not None:
                leader.connection.abandon()
        self._leaders.clear()
        self.wakeup.forked()

    # --- reading --------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[FetchPosition]:
        """Ask whom there is to ask, and take what has come: those that have something unread now, or a problem.

        Waits for a first answer, for that long at most; less if something else needs to be looked at.
        """
        news = self.ask()
        ready = self._ready(0.0 if news else timeout_s)
        late_s = time.monotonic() - self._patience_s
        for leader in list(self._leaders.values()):
            is_late = leader.asked is not None and leader.asked.at_s <= late_s
            if leader in ready or is_late:
                news += self._answered(leader, is_late=is_late)
        return news

    def ask(self) -> list[FetchPosition]:
        """Put on its way what can be asked, without waiting; those that have a problem now."""
        news = self._settled()
        now_s = time.monotonic()
        homeless = [one for one in self._positions.values() if one.leader is None and one.is_wanted(now_s)]
        if homeless and self._search is None:
            partitions = [(one.topic, one.number) for one in homeless]
            self._search = BackgroundCall(partial(_find_leaders, self._links, partitions), self.wakeup)
        for leader in list(self._leaders.values()):
            if leader.asked is not None or leader.connecting is not None:
                continue
            if not leader.positions:
                self._let_go(leader)
            elif leader.due_s <= now_s:
                news += self._ask(leader, now_s)
        return news

    def _ready(self, timeout_s: float) -> set[_Leader]:
        """The leaders whose answer has come, or begun to. Waits for one."""
        awaited = {
            leader: leader.connection
            for leader in self._leaders.values()
            if leader.asked is not None and leader.connection is not None
        }
        # What was received together with an answer before it is in memory already: no selector tells of it.
        ready = {leader for leader, connection in awaited.items() if connection.has_received}
        wait_s = 0.0 if ready else max(0.0, min(timeout_s, self._next_due_s() - time.monotonic()))
        with selectors.DefaultSelector() as selector:
            selector.register(self.wakeup, selectors.EVENT_READ)
            for leader, connection in awaited.items():
                selector.register(connection, selectors.EVENT_READ, leader)
            ready.update(key.data for key, _ in selector.select(wait_s) if key.data is not None)
        self.wakeup.reset()
        return ready

    def _next_due_s(self) -> float:
        """When something is to be done, even if nobody answers."""
        due_s = [one.due_s for one in self._positions.values() if one.leader is None and one.problem is None]
        for leader in self._leaders.values():
            if leader.asked is not None:
                due_s.append(leader.asked.at_s + self._patience_s)
            elif leader.connecting is None and leader.positions:
                due_s += [leader.due_s, leader.last_asked_s + self._wait_s]
        now_s = time.monotonic()
        return min((one for one in due_s if one > now_s), default=math.inf)

    # --- leaders --------------------------------------------------------------------------------------------------

    def _settled(self) -> list[FetchPosition]:
        """Goes on from what other threads have found out; those that have a problem now."""
        news: list[FetchPosition] = []
        if self._search is not None and self._search.is_over:
            search, self._search = self._search, None
            for partition, found in search.result().items():
                position = self._positions.get(partition)
                if position is not None and position.leader is None:
                    news += self._led(position, found)
        for leader in list(self._leaders.values()):
            if leader.connecting is not None and leader.connecting.is_over:
                news += self._connected(leader, leader.connecting)
        for position in self._positions.values():
            if position.check is not None and position.check.is_over:
                news += self._checked(position, position.check)
        return news

    def _led(self, position: FetchPosition, found: _Found) -> list[FetchPosition]:
        if isinstance(found, Passing | OSError | MalformedBytes):
            return self._put_off([position], found)
        if isinstance(found, BrokerUnreachable):
            return self._put_off([position], ConnectionError(str(found)))
        if isinstance(found, FoldlogError):
            position.fail(found)
            return [position]
        if position.topic_id is None:
            position.topic_id = found.topic.topic_id
        if found.topic.topic_id != position.topic_id:
            position.fail(UnknownTopic(position.topic))
            return [position]
        position.leader = found
        leader = self._leaders.setdefault(found.address, _Leader(found.address))
        leader.positions[position.topic, position.number] = position
        return []

    def _connected(self, leader: _Leader, connecting: BackgroundCall[WireConnection]) -> list[FetchPosition]:
        leader.connecting = None
        try:
            leader.connection = connecting.result()
        except (Passing, OSError, MalformedBytes) as error:
            return self._lose(leader, error)
        except FoldlogError as error:  # who we are is not believed there: another try changes nothing
            del self._leaders[leader.address]
            for position in leader.positions.values():
                position.fail(error)
            return list(leader.positions.values())
        return []

    def _checked(
        self, position: FetchPosition, check: BackgroundCall[Passing | OffsetOutOfRange]
    ) -> list[FetchPosition]:
        """What OFFSET_OUT_OF_RANGE was about."""
        position.check = None
        try:
            found: Passing | FoldlogError | OSError = check.result()
        except (FoldlogError, OSError) as error:
            found = error
        return self._refused(position, found)

    def _lose(self, leader: _Leader, error: Passing | OSError | MalformedBytes) -> list[FetchPosition]:
        """It cannot be asked. Who leads its partitions now is looked for; those that have a problem now."""
        leader.drop()
        self._leaders.pop(leader.address, None)
        return self._put_off(leader.positions.values(), error)

    def _put_off(
        self, positions: Iterable[FetchPosition], error: Passing | OSError | MalformedBytes
    ) -> list[FetchPosition]:
        if isinstance(error, OSError):
            self.is_troubled = True
        self._links.forget_leaders()
        news: list[FetchPosition] = []
        for position in list(positions):
            self._leave(position)
            if news and news[0].problem is not None:
                position.fail(news[0].problem)  # to find out what is wrong may take seconds: once is enough
            else:
                position.put_off(error)
            if position.problem is not None:
                news.append(position)
        return news

    def _leave(self, position: FetchPosition) -> None:
        if position.leader is not None:
            leader = self._leaders.get(position.leader.address)
            if leader is not None:
                leader.positions.pop((position.topic, position.number), None)

    # --- the question ---------------------------------------------------------------------------------------------

    def _ask(self, leader: _Leader, now_s: float) -> list[FetchPosition]:
        """Have it fetch for all that are wanted, if that is all of them, or not soon after the last time."""
        positions = leader.positions.values()
        is_part = any(one.is_unread and not one.is_paused for one in positions)
        if is_part and now_s < leader.last_asked_s + self._wait_s:
            return []
        wanted = [one for one in positions if one.is_wanted(now_s)]
        if not wanted:
            return []
        if leader.connection is not None and leader.connection.is_expiring:
            leader.drop()
        connection = leader.connection
        if connection is None:
            borrow = partial(self._links.borrow, leader.address)
            give_back = partial(self._links.give_back, leader.address)
            leader.connecting = BackgroundCall(borrow, self.wakeup, give_back)
            return []
        if any(one.stands_in(leader.memory) for one in positions):
            leader.memory = FrameMemory()
        try:
            self._send(leader, connection, wanted, 0 if is_part else self._links.properties.fetch_max_wait_ms)
        except (LinkLost, MalformedBytes) as error:
            return self._lose(leader, error)
        except FoldlogError as error:
            for position in wanted:
                self._leave(position)
                position.fail(error)
            return wanted
        except BaseException:
            leader.drop()
            raise
        return []

    def _send(self, leader: _Leader, connection: WireConnection, wanted: list[FetchPosition], max_wait_ms: int) -> None:
        with self._links.blaming(leader.address, connection):
            is_by_name = any(one.topic_id == ZERO_UUID for one in wanted)
            version = connection.version_of(FetchRequest, BY_NAME if is_by_name else None)
            now_s = time.monotonic()
            asked: dict[tuple[str | bytes, int], tuple[FetchPosition, int]] = {}
            topics: dict[str, FetchTopic] = {}
            parts: dict[str, list[FetchPartition]] = {}
            for one in wanted:
                if one.leader is None or one.topic_id is None:
                    continue
                asked[one.topic if version <= BY_NAME else one.topic_id, one.number] = (one, one.offset)
                parts.setdefault(one.topic, []).append(
                    FetchPartition(
                        partition=one.number,
                        current_leader_epoch=one.leader.epoch,
                        fetch_offset=one.offset,
                        partition_max_bytes=one.max_bytes,
                    )
                )
                topics[one.topic] = FetchTopic(topic=one.topic, topic_id=one.topic_id, partitions=parts[one.topic])
            largest = max(one.max_bytes for one in wanted)
            min_bytes = self._links.properties.fetch_min_bytes
            request = fetch_request(self._links.properties, list(topics.values()), largest, max_wait_ms, min_bytes)
            leader.asked = _Asked(connection.next_id(), version, now_s, asked)
            leader.last_asked_s = now_s
            connection.send(request, version, leader.asked.correlation_id)

    # --- the answer -----------------------------------------------------------------------------------------------

    def _answered(self, leader: _Leader, *, is_late: bool) -> list[FetchPosition]:
        asked, connection = leader.asked, leader.connection
        if asked is None or connection is None:
            return []
        try:
            with self._links.blaming(leader.address, connection):
                try:
                    answer = receive_fetch(connection, asked.correlation_id, asked.version, _PART_S, leader.memory)
                except TimeoutError:
                    if is_late:
                        raise
                    return []
            leader.asked = None
            self.is_troubled = False
            return self._sorted_out(leader, asked, answer)
        except (LinkLost, MalformedBytes) as error:
            return self._lose(leader, error)
        except BaseException:
            leader.drop()
            raise

    def _sorted_out(self, leader: _Leader, asked: _Asked, answer: FetchResponse) -> list[FetchPosition]:
        """Each partition's part, for those that still want it; those that have something unread now, or a problem."""
        now_s = time.monotonic()
        leader.due_s = now_s + answer.throttle_time_ms / 1000
        missing = dict(asked.wanted)
        parts: list[tuple[FetchPosition, int, PartitionData]] = []
        for topic in answer.responses:
            name = topic.topic if asked.version <= BY_NAME else topic.topic_id
            for data in topic.partitions:
                found = missing.pop((name, data.partition_index), None)
                if found is None:
                    raise MalformedBytes("Fetch response", "it is about a partition that was not asked for", 0)
                parts.append((*found, data))
        code = answer.error_code
        if missing and not code:
            raise MalformedBytes("Fetch response", "a partition is missing that was asked for", 0)
        if code:
            parts = [(position, offset, PartitionData(error_code=code)) for position, offset in asked.wanted.values()]
        news: list[FetchPosition] = []
        for position, offset, data in parts:
            is_ours = leader.positions.get((position.topic, position.number)) is position
            if is_ours and position.offset == offset and not position.is_unread:
                news += self._part(leader, position, data)
        if not news and now_s < asked.at_s + self._wait_s / 2:
            # A broker that neither waits nor has anything: it is left alone for a moment.
            leader.due_s = max(leader.due_s, now_s + self._links.properties.retry_backoff_ms / 1000)
        return news

    def _part(self, leader: _Leader, position: FetchPosition, data: PartitionData) -> list[FetchPosition]:
        topic, number, offset = position.topic, position.number, position.offset
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            look = partial(out_of_range_now, self._links, topic, number, offset)
            position.check = BackgroundCall(look, self.wakeup)
            return []
        whose = f"{topic}-{number} from {leader.address}"
        try:
            check_code(data.error_code, topic=topic, partition=number)
            fetched = fetched_batches(data, offset, self._links.properties.isolation_level, whose)
            position.max_bytes = enough_for(fetched, position.max_bytes, whose)
        except (Passing, FoldlogError) as error:
            return self._refused(position, error)
        position.came(fetched, leader.memory)
        if fetched.next_offset == offset:
            return []
        leader.positions[topic, number] = leader.positions.pop((topic, number))
        return [position]

    def _refused(self, position: FetchPosition, error: Passing | FoldlogError | OSError) -> list[FetchPosition]:
        """It has a problem, unless that passes."""
        if isinstance(error, BrokerUnreachable):
            error = ConnectionError(str(error))
        if isinstance(error, Passing | OSError | MalformedBytes):
            return self._put_off([position], error)
        self._leave(position)
        position.fail(error)
        return [position]


def _find_leaders(links: ClusterLinks, partitions: list[_TopicAndNumber]) -> dict[_TopicAndNumber, _Found]:
    """Who leads each of these partitions, or why that is not known. Nobody is asked twice about a topic."""
    found: dict[_TopicAndNumber, _Found] = {}
    unknown: dict[str, FoldlogError | OSError] = {}
    for partition in partitions:
        topic = partition[0]
        if topic in unknown:
            found[partition] = unknown[topic]
            continue
        try:
            found[partition] = links.leader(*partition)
        except (Passing, UnknownPartition) as error:
            found[partition] = error
        except (FoldlogError, OSError) as error:
            found[partition] = unknown[topic] = error
            if isinstance(error, BrokerUnreachable):
                return dict.fromkeys(partitions, error) | found
    return found
