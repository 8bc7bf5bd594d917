"""`python -m scorecard`: run the fault classes in turn, add to what was counted, write docs/scorecard.md.

The exit code is 1 if something was found, or a planted bug was not.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

from scorecard.card import BUILD, Card, source_of_the_log  # noqa: E402
from scorecard.classes import CLASSES  # noqa: E402
from scorecard.outcome import FaultClass, Finding, Outcome  # noqa: E402
from scorecard.page import PAGE, page, totals  # noqa: E402

SHORT_MINUTES = 10.0
"""A run that is not longer is a short one: each class once, and not those that need Spark."""
LAP_MINUTES = 30.0
"""Of a longer run: each class comes once in a lap."""
PATIENCE_S = 600.0
"""Beyond its time, for a slice to end at a whole step. Then it hangs, which is a finding."""


def say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scorecard", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long in all (default: 60)")
    parser.add_argument("--class", dest="only", action="append", choices=[one.name for one in CLASSES])
    parser.add_argument("--jobs", type=int, default=1, help="slices that run beside each other (default: 1)")
    parser.add_argument("--no-page", action="store_true", help="leave docs/scorecard.md as it is")
    parser.add_argument("--no-plants", action="store_true", help="plant nothing")
    parser.add_argument("--page-only", action="store_true", help="write the page from what was counted")
    parser.add_argument("--slice", nargs=3, metavar=("CLASS", "SEED", "SECONDS"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.slice:
        return run_slice(*given.slice)
    card = Card.load(BUILD / "state.json", source_of_the_log())
    if not given.page_only:
        run_all(card, given)
    if not given.no_page:
        PAGE.write_text(page(card), encoding="utf-8")
        say(f"written: {PAGE.relative_to(ROOT)}")
    return verdict(card)


def run_all(card: Card, given: argparse.Namespace) -> None:
    is_short = given.minutes <= SHORT_MINUTES
    chosen = [one for one in CLASSES if given.only is None or one.name in given.only]
    shares = {one.name: one.short_share if is_short and one.short_share >= 0 else one.share for one in chosen}
    chosen = [one for one in chosen if shares[one.name] > 0 or given.only]
    whole = sum(shares[one.name] for one in chosen) or 1.0
    laps = 1 if is_short else max(1, round(given.minutes / LAP_MINUTES))
    end = time.monotonic() + given.minutes * 60
    with ThreadPoolExecutor(given.jobs) as pool:
        for _ in range(laps):
            waiting = []
            for fault in chosen:
                seconds = given.minutes * 60 / laps * given.jobs * (shares[fault.name] or 1.0) / whole
                waiting.append(pool.submit(one_slice, card, fault, seconds, end, given.no_plants))
            for slice_of in waiting:
                slice_of.result()


def one_slice(card: Card, fault: FaultClass, seconds: float, end: float, no_plants: bool) -> None:
    """Run it in a process of its own, and add what it counted. A process that dies or hangs is a finding."""
    if time.monotonic() > end:
        say(f"{fault.name}: there is no time left for it")
        return
    seed, tally = card.next_seed(fault.name), card.of(fault.name)
    planted = not no_plants and len(tally.plants) < len(fault.plants)
    began = time.monotonic()
    command = [sys.executable, "-m", "scorecard", "--slice", fault.name, str(seed), str(seconds)]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "SCORECARD_PLANTS": "1" if planted else ""}
    # A session of its own: what it started is ended with it.
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complaint = process.communicate(timeout=seconds + PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, complaint = process.communicate()
        complaint = f"it hung\n{complaint}"
    outcome = Outcome()
    try:
        told = json.loads(said.splitlines()[-1])
        outcome = Outcome(Counter(told["done"]), [Finding(**one) for one in told["findings"]], told["notes"])
        tally.plants.update(told["plants"])
    except (ValueError, IndexError, KeyError):
        outcome.found("ended", f"exit code {process.returncode}: {complaint[-700:]}", " ".join(command[1:]))
    tally.add(seed, time.monotonic() - began, outcome)
    card.save()
    done = ", ".join(f"{count:,} {name}" for name, count in totals(outcome.done).items())
    say(f"{fault.name}, seed {seed}, {time.monotonic() - began:.0f} s: {done}; {len(outcome.findings)} found")
    for finding in outcome.findings[:5]:
        say(f"  {finding.kind}: {finding.what[:300]}")


def run_slice(name: str, seed: str, seconds: str) -> int:
    """In the process of its own: the last line says what was counted."""
    logging.disable(logging.CRITICAL)
    fault = next(one for one in CLASSES if one.name == name)
    plants = {}
    if os.environ.get("SCORECARD_PLANTS"):
        plants = {plant.name: plant.is_found() for plant in fault.plants}
    outcome = fault.run(int(seed), float(seconds))
    told = {
        "done": outcome.done,
        "findings": [asdict(finding) for finding in outcome.findings],
        "notes": outcome.notes,
        "plants": plants,
    }
    print(json.dumps(told), flush=True)
    return 0


def verdict(card: Card) -> int:
    found = sum(len(tally.findings) for tally in card.tallies.values())
    missed = [
        f"{name}: {plant}"
        for name, tally in card.tallies.items()
        for plant, is_found in tally.plants.items()
        if not is_found
    ]
    for one in missed:
        say(f"planted, and not found: {one}")
    say(f"{found} found in all, of {sum(len(tally.seeds) for tally in card.tallies.values())} slices")
    return 1 if found or missed else 0


if __name__ == "__main__":
    sys.exit(main())
