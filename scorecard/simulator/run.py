"""One run from its seed to its verdict; and the least that still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from foldlog.testing.power_loss import PowerLossFiles
from scorecard.histories.rules import judge
from scorecard.simulator.clients import NUMBERS, Told, records_from
from scorecard.simulator.world import CLIENTS, FAULTS, Client, Plan, World

TRANSACTIONAL = ("t0", "t1")
ENDING_STEPS_MAX = 5000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, the run's trace and its digest, and what was done."""

    wrong: list[str]
    digest: str
    trace: list[str]
    done: dict[str, int]


class Run:
    """A world with its clients."""

    def __init__(self, plan: Plan, disk: type[PowerLossFiles]) -> None:
        self.plan = plan
        self.world = World(plan, disk)
        self.told = Told(self.world)
        self.clients: dict[str, Client] = {}
        self._lives = {
            "p0": ("idempotent", self.told.idempotent),
            "p1": ("idempotent", self.told.idempotent),
            **dict.fromkeys(TRANSACTIONAL, ("transactional", self.told.transactional)),
            "r0": ("reader", self.told.reader),
            "g0": ("group", self.told.group),
            "f0": ("fold", self.told.fold),
            "f1": ("fold", self.told.fold),
        }
        for name, (kind, _) in self._lives.items():
            if kind in plan.clients:
                self._begin(name, name)

    def _begin(self, slot: str, name: str) -> None:
        self.clients[slot] = Client(self.world, name, self._lives[slot][1])

    def _change_clients(self, number: int) -> None:
        world = self.world
        dies, zombie = world.strikes("client dies", 0.01), world.strikes("zombie", 0.01)
        if not dies and not zombie:
            return
        slots = sorted(slot for slot in self.clients if slot != "p0" and slot != "p1")
        if not slots:
            return
        slot = world.stream("who dies").choice(slots)
        before = self.clients[slot]
        before.is_replaced = True
        if dies:
            before.die()
        self._begin(slot, f"{slot}#{number}")

    def go(self) -> Verdict:
        try:
            for number in range(self.plan.steps):
                self._change_clients(number)
                if not self.world.step():
                    break
            self._end()
            wrong = [f"{one.kind}: {one.what}" for one in judge(self.told.history)]
            self.told.judge_view()
            self.told.judge_groups(self.world.broker)
            wrong += self.told.wrong
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            wrong = [f"{type(error).__name__}: {error}"]
        finally:
            self.told.close()
        done = {
            **self.world.done,
            "steps/taken": len(self.world.told),
            "steps/file operations": self.world.power.operation,
            "clients/transactions": len(self.told.history.transactions),
            "clients/records read": sum(len(poll.records) for poll in self.told.history.polls),
            "clients/ranges folded": self.told.folds,
        }
        return Verdict(wrong, self.world.trace.hexdigest()[:16], self.world.told, done)

    def _end(self) -> None:
        """No faults any more: everything ends, and is read."""
        world = self.world
        world.stopping = True
        world.restart()
        for name in TRANSACTIONAL:
            world.on_broker(lambda broker, name=name: broker.transactions.init_producer(name, 1000))  # type: ignore[misc]
        for place, number in NUMBERS.items():
            offset, found = 0, []
            for _ in range(ENDING_STEPS_MAX):
                records, following = records_from(world.broker, *place, offset)
                found += records
                if following == offset:
                    break
                offset = following
            self.told.history.final[number] = found


def run(plan: Plan, disk: type[PowerLossFiles] = PowerLossFiles) -> Verdict:
    return Run(plan, disk).go()


def shrunk(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """The least of it that still fails: fewer faults, fewer clients, fewer steps. Each is tried once."""
    for name in (*FAULTS, *CLIENTS):
        fewer = plan.without(name)
        if fewer != plan and fails(fewer):
            plan = fewer
    lowest, highest = 0, plan.steps
    while highest - lowest > max(1, highest // 20):
        middle = (lowest + highest) // 2
        if fails(replace(plan, steps=middle)):
            highest = middle
        else:
            lowest = middle
    return replace(plan, steps=highest)
