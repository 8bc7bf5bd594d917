"""Seeds of the simulator."""

from __future__ import annotations

from foldlog.testing.power_loss import PowerLossFiles
from scorecard.outcome import FaultClass, Outcome, Plant, until
from scorecard.simulator.planted import PLANTED, failing_seed
from scorecard.simulator.run import run as simulate
from scorecard.simulator.world import Plan

EACH = 100_000
"""Seeds of a slice."""


def run(seed: int, seconds: float) -> Outcome:
    outcome = Outcome()
    for number in until(seconds):
        own_seed = seed * EACH + number
        verdict = simulate(Plan(own_seed), PowerLossFiles)
        outcome.done["runs/of 1,500 steps"] += 1
        outcome.done.update(verdict.done)
        for what in verdict.wrong[:3]:
            outcome.found(what.partition(":")[0], what, f"make sim SEED={own_seed}")
    return outcome


def plant(name: str) -> Plant:
    return Plant(name, lambda: failing_seed(name) is not None)


CLASS = FaultClass(
    name="simulated",
    title="The simulator",
    what="""One process, one seed, virtual time, disk and network: the broker's own code with idempotent and
transactional producers, readers, a group and a fold, and between any two steps, and inside them, power cuts, kills,
failed syncs, full disks, messages that are late, lost or doubled, clients that die and zombies. What clients were told
is judged as the histories above are; the view is compared with its bookmark. A seed that fails replays exactly
(`make sim SEED=…`) and is shrunk. The fault model is in `scorecard/simulator/__init__.py`.""",
    finds=(
        "lost write", "aborted read", "dirty read", "fractured", "cycle", "duplicate", "inconsistent", "reordered",
        "skipped", "went back", "invented", "other",
    ),
    share=0.06,
    run=run,
    plants=tuple(plant(name) for name in PLANTED),
)  # fmt: skip
