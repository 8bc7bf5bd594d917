"""One language for three Kafka clients, so that a behaviour is written once and proved with each of them.

An adapter only translates: options into the client's own settings, its records and errors into the values below. It
repeats nothing, hides no error and waits for nothing but the client.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

BOUND_S = 60.0
"""When something that should come has not come: far more than a busy machine needs."""

POLL_S = 0.1
LONG_POLL_S = 2.0

Result = TypeVar("Result")

UNKNOWN_OFFSET = -1
"""Of a record that nobody acknowledged."""

Header = tuple[str, bytes | None]
Place = tuple[str, int]
"""Topic and partition."""


class Outgoing(NamedTuple):
    """A record to send. Without a partition it goes where the client's own partitioner wants it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Sent(NamedTuple):
    """What the client tells of a record that was acknowledged."""

    partition: int
    offset: int


class Received(NamedTuple):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Refused(Exception):
    """What a client raised. `code` is Kafka's number of the error; below zero it is the client's own (librdkafka)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """How to send. The defaults are quick, not careful."""

    codec: str = "none"
    acks: int = -1
    is_idempotent: bool = False
    batch_bytes: int = 16_384
    linger_ms: int = 5
    request_bytes_max: int = 8 * 1024 * 1024
    """Far above the broker's bound, so that it is the broker who refuses."""


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """How to read. `assignors` are Kafka's names, in order of preference."""

    group: str | None = None
    instance_id: str | None = None
    assignors: tuple[str, ...] = ("range",)
    reset: str = "earliest"
    isolation: str = "read_uncommitted"
    is_auto_committing: bool = False
    auto_commit_interval_ms: int = 100
    session_timeout_ms: int = 10_000
    heartbeat_ms: int = 200
    fetch_wait_ms: int = 100
    partition_fetch_bytes: int = 1024 * 1024


class AnyProducer(ABC):
    """A producer of one of the clients."""

    @abstractmethod
    def send(self, topic: str, records: Iterable[Outgoing]) -> list[Sent]:
        """Send all, wait for all. Refused if one of them was; the others may have been written."""

    @abstractmethod
    def close(self) -> None: ...


class AnyConsumer(ABC):
    """A consumer of one of the clients. Methods mean what they mean in Kafka's own.

    `given` and `taken` are what the rebalances of its group brought and took, in order.
    """

    def __init__(self) -> None:
        self.given: list[set[Place]] = []
        self.taken: list[set[Place]] = []

    @property
    def read_after(self) -> int:
        """How many of `taken` there were when the newest records were read. Most clients rebalance inside a poll only,
        so that none comes between it and who asks."""
        return len(self.taken)

    @abstractmethod
    def subscribe(self, topics: Sequence[str]) -> None: ...

    @abstractmethod
    def subscribe_pattern(self, pattern: str) -> None:
        """Topics whose whole name matches, also those that come later."""

    @abstractmethod
    def assign(self, places: Iterable[Place]) -> None: ...

    @abstractmethod
    def assignment(self) -> set[Place]: ...

    @abstractmethod
    def poll(self, wait_s: float = POLL_S) -> list[Received]:
        """What is there, or comes in that time; at once if something is there."""

    @abstractmethod
    def seek(self, place: Place, offset: int) -> None: ...

    @abstractmethod
    def seek_to_beginning(self, place: Place) -> None: ...

    @abstractmethod
    def seek_to_end(self, place: Place) -> None: ...

    @abstractmethod
    def position(self, place: Place) -> int: ...

    @abstractmethod
    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        """The first record at or after that time; None if there is none."""

    @abstractmethod
    def watermarks(self, place: Place) -> tuple[int, int]:
        """The first offset, and the one that is written next."""

    @abstractmethod
    def pause(self, place: Place) -> None: ...

    @abstractmethod
    def resume(self, place: Place) -> None: ...

    @abstractmethod
    def commit(self, offsets: Mapping[Place, tuple[int, str]] | None = None) -> None:
        """Wait until it is kept. Without offsets: what was polled."""

    @abstractmethod
    def commit_later(self) -> Callable[[], bool]:
        """Commit what was polled and do not wait; the function tells whether it is done, and raises if it failed."""

    @abstractmethod
    def committed(self, place: Place) -> int | None: ...

    @abstractmethod
    def close(self) -> None: ...


class AnyClient(ABC):
    """One of the clients, towards one broker. Closes what was opened through it."""

    name: str
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    has_null_headers = True
    """Whether its producer takes a header without a value."""
    assignors: tuple[str, ...] = ("range", "roundrobin")

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._opened: list[AnyProducer | AnyConsumer] = []

    @abstractmethod
    def make_producer(self, options: ProducerOptions) -> AnyProducer: ...

    @abstractmethod
    def make_consumer(self, options: ConsumerOptions) -> AnyConsumer: ...

    def producer(self, **options: Any) -> AnyProducer:
        made = self.make_producer(ProducerOptions(**options))
        self._opened.append(made)
        return made

    def consumer(self, **options: Any) -> AnyConsumer:
        made = self.make_consumer(ConsumerOptions(**options))
        self._opened.append(made)
        return made

    def member(self, topic: str, group: str, **options: Any) -> AnyConsumer:
        """A consumer of that topic in that group."""
        made = self.consumer(group=group, **options)
        made.subscribe([topic])
        return made

    def reader(self, topic: str, *partitions: int, **options: Any) -> AnyConsumer:
        """A consumer that reads these partitions by itself."""
        made = self.consumer(**options)
        made.assign([(topic, number) for number in partitions or (0,)])
        return made

    def told(self, code: int) -> int:
        """What the client makes of an error of the broker: its code, unless the client is too old to know it."""
        return code

    def close_one(self, opened: AnyProducer | AnyConsumer) -> None:
        self._opened.remove(opened)
        opened.close()

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


def read_until(
    consumers: Sequence[AnyConsumer] | AnyConsumer, is_done: Callable[[list[Received]], bool], wait_s: float = POLL_S
) -> list[Received]:
    """Poll all at once until that is so of everything read here; what was read."""
    polled = [consumers] if isinstance(consumers, AnyConsumer) else list(consumers)
    read: list[Received] = []
    deadline = time.monotonic() + BOUND_S
    while not is_done(read):
        assert time.monotonic() < deadline, f"{len(read)} read, assigned {[one.assignment() for one in polled]}"
        for records in at_once([partial(one.poll, wait_s) for one in polled]):
            read += records
    return read


def read_count(consumer: AnyConsumer, count: int) -> list[Received]:
    """Poll until that many have come, or more if there are more."""
    return read_until(consumer, lambda read: len(read) >= count, LONG_POLL_S)


def at_once(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """What each of these returns, called at the same time.

    Members of a group have to be polled like this: kafka-python forgets what a rebalance gave it if that comes while
    nobody polls, and joins again, so members that take turns never come to rest.
    """
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda call: call(), calls))


def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Look again and again until it is so. The look has to wait a moment itself: a poll, a request."""
    deadline = time.monotonic() + BOUND_S
    while not is_so():
        assert time.monotonic() < deadline, f"not in {BOUND_S:.0f} s: {what}"
