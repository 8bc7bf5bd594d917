"""`python -m scorecard.simulator --seed N`: run seeds from N on. A seed that fails is shrunk, and its trace printed."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext


def main(arguments: Sequence[str] | None = None) -> int:
    from foldlog.testing.power_loss import PowerLossFiles
    from scorecard.simulator.planted import PLANTED, planted
    from scorecard.simulator.run import run, shrunk
    from scorecard.simulator.world import Plan

    parser = argparse.ArgumentParser(prog="python -m scorecard.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--count", type=int, default=1, help="how many seeds (default: 1)")
    parser.add_argument("--steps", type=int, default=1500, help="of each run (default: 1500)")
    parser.add_argument("--planted", choices=PLANTED, help="with this bug in the log, which has to be found")
    parser.add_argument("--trace", action="store_true", help="print the trace of a run that passes, too")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    done: Counter[str] = Counter()
    with planted(given.planted) if given.planted else nullcontext(PowerLossFiles) as disk:
        for seed in range(given.seed, given.seed + given.count):
            plan = Plan(seed, given.steps)
            verdict = run(plan, disk)
            done.update(verdict.done)
            print(f"seed {seed}: {len(verdict.wrong)} wrong, trace {verdict.digest}", flush=True)
            if given.trace and not verdict.wrong:
                print("\n".join(verdict.trace))
            if verdict.wrong:
                least = shrunk(plan, lambda one: bool(run(one, disk).wrong))
                shown = run(least, disk)
                print("\n".join(shown.trace[-60:]))
                print(f"shrunk to {least.steps} steps with {sorted(least.faults)} and {sorted(least.clients)}:")
                print("\n".join(shown.wrong[:5]))
                return 1
    print(", ".join(f"{name}: {count:,}" for name, count in sorted(done.items())))
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of text come in an order that Python chooses anew for each process: a seed has to decide that, too.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "scorecard.simulator", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
