"""Virtual time, the network, the disk and the broker on it, and every fault between two steps."""

from __future__ import annotations

import errno
import hashlib
import heapq
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from broker.small_broker import die
from faults.test_power_loss_whole_transactions import wait_for_each
from foldlog.broker.broker import Broker
from foldlog.broker.transactions import store
from foldlog.errors import FoldlogError, PartitionPoisoned, StorageError, StorageFull
from foldlog.testing.faulty_files import NEEDS_SPACE, NO_FAULT, Fault, FaultyFiles
from foldlog.testing.power_loss import Fate, PowerLossFiles
from foldlog.testing.sim_clock import SimClock

START_MS = 1_700_000_000_000
TIMEOUT_MS = 400
"""After which a client asks again."""
TOPICS = {"orders": 3, "refunds": 1}

FAULTS = (
    "power cut", "power cut in an operation", "kill", "failed sync", "full disk", "lost message", "late message",
    "doubled message", "client dies", "zombie", "fold dies", "restart", "cleaning",
)  # fmt: skip
CLIENTS = ("idempotent", "transactional", "reader", "group", "fold")

Answer = Any
Request = tuple[str, Callable[[Broker], Answer]]
Life = Generator[Request, Answer, None]
"""What a client does: it yields requests, and is sent the answers."""


class PowerGone(BaseException):
    """Ends whatever the broker was doing. Not an Exception: nothing may take it for an error that it can handle."""


def is_passing(error: StorageError) -> bool:
    """Whether it comes of a disk that fails now; a log that is found damaged is a finding."""
    return type(error) in (StorageError, StorageFull, PartitionPoisoned)


class Fenced(Exception):
    """For a client: it is not the one of its name any more, and ends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What decides a run. Shrinking takes away from it."""

    seed: int
    steps: int = 1500
    faults: frozenset[str] = frozenset(FAULTS)
    clients: frozenset[str] = frozenset(CLIENTS)

    def without(self, name: str) -> Plan:
        return replace(self, faults=self.faults - {name}, clients=self.clients - {name})


@dataclass(order=True, slots=True)
class Event:
    """Something that happens at a time. Events of one time happen in an order that the seed decides."""

    due_ms: int
    tie: float
    number: int
    name: str = field(compare=False)
    action: Callable[[], None] = field(compare=False)


class World:
    """A run. Everything random has a stream of its own by name, so that taking away one thing leaves the others."""

    def __init__(self, plan: Plan, disk: type[PowerLossFiles] = PowerLossFiles) -> None:
        self.plan = plan
        self.clock = SimClock(START_MS)
        self.trace = hashlib.sha256()
        self.told: list[str] = []
        self.done: dict[str, int] = {}
        self.stopping = False
        self._disk = disk
        self._events: list[Event] = []
        self._numbers = count()
        self._streams: dict[str, random.Random] = {}
        self._cut_at = -1
        self._image: Any = None
        self.power = disk()
        self.files = FaultyFiles(self.power)
        self._attach()
        self.broker: Broker = self._opened()
        for topic, partitions in TOPICS.items():
            self.broker.create_topic(topic, partitions, {"segment.bytes": 2048})

    # Chance

    def stream(self, name: str) -> random.Random:
        if name not in self._streams:
            self._streams[name] = random.Random(f"{self.plan.seed}/{name}")
        return self._streams[name]

    def strikes(self, fault: str, chance: float) -> bool:
        """Whether a fault happens now."""
        is_now = self.stream(fault).random() < chance
        if is_now and fault in self.plan.faults and not self.stopping:
            self.say(f"fault: {fault}")
            self.done[f"faults/{fault}"] = self.done.get(f"faults/{fault}", 0) + 1
            return True
        return False

    def say(self, line: str) -> None:
        """Into the trace, by which two runs are compared."""
        line = f"{self.clock.now_ms() - START_MS:>7} ms  {line}"
        self.trace.update(line.encode() + b"\n")
        self.told.append(line)

    # Time

    def later(self, delay_ms: int, name: str, action: Callable[[], None]) -> None:
        due = self.clock.now_ms() + delay_ms
        heapq.heappush(self._events, Event(due, self.stream("ties").random(), next(self._numbers), name, action))

    def step(self) -> bool:
        """One event, with faults before it. False if there is nothing left to happen."""
        if not self._events:
            return False
        self._disturb()
        event = heapq.heappop(self._events)
        self.clock.advance(max(0, event.due_ms - self.clock.now_ms()))
        self.say(event.name)
        event.action()
        return True

    # Faults

    def _disturb(self) -> None:
        if self.strikes("power cut", 0.006):
            self._image = self._after_a_cut()
            self._power_returns()
        if self.strikes("power cut in an operation", 0.02):
            self._cut_at = self.power.operation + self.stream("where it cuts").randrange(1, 25)
        if self.strikes("kill", 0.01):
            self.kill()
        if self.strikes("restart", 0.004):
            self.restart()
        if self.strikes("failed sync", 0.006):
            self.power.fail_next_sync(reaches_disk=self.stream("what it loses").random() < 0.5)
        if self.strikes("full disk", 0.004):
            part = self.stream("how much is written").choice((0.0, 0.5))
            self.files.fault = Fault(lambda one: errno.ENOSPC if one.kind in NEEDS_SPACE else 0, part=part)
            self.later(300, "there is space again", self._mend)
        if self.strikes("cleaning", 0.02):
            self.on_broker(clean)

    def _mend(self) -> None:
        self.files.fault = NO_FAULT

    def _attach(self) -> None:
        self.power.on_operation = self._operated

    def _operated(self) -> None:
        if self._image is not None:
            raise PowerGone  # what a `finally` still tries to do
        if 0 <= self._cut_at <= self.power.operation and not self.stopping:
            self._image = self._after_a_cut()
            self.say(f"the power goes after: {self.power.last_operation}")
            raise PowerGone

    def _after_a_cut(self) -> Any:
        rng = self.stream("what a cut leaves")
        fates = rng.choices(list(Fate), weights=(3, 4, 1, 2), k=len(self.power.unsynced()))
        return self.power.image(fates, rng)

    def _power_returns(self) -> None:
        """A new process on what the cut left; the power may go again while it recovers."""
        while self._image is not None:
            self._cut_at = -1
            self.power = self._disk(self._image)
            self._image = None
            self.files = FaultyFiles(self.power)
            self._attach()
            if self.strikes("power cut in an operation", 0.2):
                self._cut_at = self.power.operation + self.stream("where it cuts").randrange(1, 40)
            try:
                self.broker = self._opened()
            except PowerGone:
                continue

    def kill(self) -> None:
        die(self.power._live)
        self._open_again()

    def restart(self) -> None:
        try:
            self.broker.close()
        except FoldlogError as error:
            self.say(f"closing: {type(error).__name__}")
        except PowerGone:
            self._power_returns()
            return
        self.kill()

    def _open_again(self) -> None:
        """An open may fail on a disk that is full, or for a sync that fails: the next one is on a disk that works."""
        for _ in range(3):
            try:
                self.broker = self._opened()
                return
            except PowerGone:
                self._power_returns()
                return
            except FoldlogError as error:
                self.say(f"opening: {type(error).__name__}")
                die(self.power._live)
                self._mend()
        raise AssertionError("the broker does not open")

    def _opened(self) -> Broker:
        broker = Broker.open("data", files=self.files, clock=self.clock, background=False)
        for name in broker.topics(include_internal=True):
            for number in range(broker.topic(name).partition_count):
                broker.partition(name, number)
        return broker

    # The network

    def on_broker(self, call: Callable[[Broker], Answer]) -> Answer:
        """What the broker answers: a value, an error of ours, or nothing (None) where the power went."""
        before = store._wait_for_all
        store._wait_for_all = wait_for_each  # type: ignore[assignment]
        try:
            answer = call(self.broker)
            if isinstance(answer, int | tuple):
                self.say(f"  answered {str(answer)[:100]}")
            return (answer,)
        except StorageError as error:
            self.say(f"refused: {type(error).__name__}")
            if not is_passing(error):
                raise
            if not isinstance(error, StorageFull):
                self.restart()
            return error
        except FoldlogError as error:
            self.say(f"refused: {type(error).__name__}")
            return error
        except PowerGone:
            self._power_returns()
            return None
        finally:
            store._wait_for_all = before

    def send(self, name: str, call: Callable[[Broker], Answer], reply: Callable[[Answer], None]) -> None:
        """A request and its answer, each of which may be late, lost or there twice."""
        for _ in range(2 if self.strikes("doubled message", 0.04) else 1):
            if self.strikes("lost message", 0.03):
                continue
            self.later(self._delay(), name, lambda: self._deliver(call, reply))

    def _delay(self) -> int:
        rng = self.stream("delays")
        return rng.randrange(1, 10) + (rng.randrange(2000) if self.strikes("late message", 0.03) else 0)

    def _deliver(self, call: Callable[[Broker], Answer], reply: Callable[[Answer], None]) -> None:
        answer = self.on_broker(call)
        if answer is not None and not self.strikes("lost message", 0.03):
            self.later(self._delay(), "answer", lambda: reply(answer))


def clean(broker: Broker) -> None:
    """Roll and compact what the broker keeps for itself, and let the background do what is due."""
    for name in broker.topics(include_internal=True):
        if name.startswith("__"):
            for number in range(broker.topic(name).partition_count):
                broker.writable_partition(name, number).roll()
            broker.compact(name)
    broker.run_due()


class Client:
    """Runs a life: sends what it asks for until an answer comes, and asks again when none does."""

    def __init__(self, world: World, name: str, life: Callable[[Client], Life]) -> None:
        self.world, self.name = world, name
        self.is_alive = True
        self.is_replaced = False
        self._asked = 0
        self._life = life(self)
        world.later(world.stream(name).randrange(50), f"{name} begins", lambda: self._go_on(None))

    def die(self) -> None:
        self.is_alive = False

    def _go_on(self, answer: Answer) -> None:
        if not self.is_alive or self.world.stopping:
            return
        try:
            name, call = self._life.send(answer)
        except (StopIteration, Fenced):
            self.is_alive = False
            return
        self._asked += 1
        self._ask(self._asked, f"{self.name}: {name}", call)

    def _ask(self, number: int, name: str, call: Callable[[Broker], Answer]) -> None:
        if not self.is_alive or number != self._asked or self.world.stopping:
            return
        self.world.send(name, call, lambda answer: self._hear(number, name, call, answer))
        self.world.later(TIMEOUT_MS, f"{self.name} waits", lambda: self._ask(number, name, call))

    def _hear(self, number: int, name: str, call: Callable[[Broker], Answer], answer: Answer) -> None:
        if number != self._asked or not self.is_alive:
            return  # an answer to what was asked before, or twice
        if isinstance(answer, StorageError):
            return  # asked again when its time is over
        self._asked += 1
        self._go_on(answer)
