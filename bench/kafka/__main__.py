"""`make bench-kafka`, or `python -m bench.kafka`: Apache Kafka, foldlog and kfake beside each other, in one run.

Both brokers are processes on the loopback with their data on the same disk. Every figure is measured in rounds, one
side after the other in each, with the same clients; the median counts, and every round is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.kafka import (
    consume,
    fan_out,
    groups,
    latency,
    machine,
    page,
    produce,
    requests,
    restart,
    results,
    security,
    spark,
    start,
    topics,
    transactions,
)
from bench.kafka.effort import FULL, QUICK, Effort
from bench.kafka.recorder import Recorder
from bench.kafka.results import SectionRun
from bench.measuring import Place
from clusters.franz_go import GoUnavailable
from clusters.maven import JarsUnavailable
from clusters.processes import StartFailed

from foldlog.records.loops import COMPILED

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench" / "kafka_results.json"
DOCS = ROOT / "docs"

SECTIONS: dict[str, Callable[[Recorder, Path], None]] = {
    "produce": produce.run,
    "consume": consume.run,
    "latency": latency.run,
    "start": start.run,
    "restart": restart.run,
    "spark": spark.run,
    "fan-out": fan_out.run,
    "transactions": transactions.run,
    "rebalances": groups.run_rebalances,
    "share-groups": groups.run_shares,
    "security": security.run,
    "requests": requests.run_produce,
    "round-robin-100": partial(requests.run_round_robin, 100),
    "round-robin-1000": partial(requests.run_round_robin, 1000),
    "fetches": requests.run_fetch,
    "rates": requests.run_rates,
    "footprint": requests.run_footprint,
}


def main(words: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(words)
    try:
        return _run(arguments)
    except (JarsUnavailable, GoUnavailable, StartFailed, restart.DiskTooSmall, topics.NotCold) as error:
        print(error, file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    if not COMPILED and not arguments.quick:
        print("the compiled loops are not built: the figures would say nothing; see make setup", file=sys.stderr)
        return 1
    if arguments.where and arguments.write:
        print("--write needs whole sections: leave --where out", file=sys.stderr)
        return 1
    kept = results.load(RESULTS)
    if arguments.page:
        page.write(kept, DOCS)
        return 0
    effort = QUICK if arguments.quick else FULL
    home = _directory(arguments.dir)
    measured: dict[str, SectionRun] = {}
    try:
        for name in arguments.only or list(SECTIONS):
            measured[name] = measure(name, effort, home, _command(arguments), dict(arguments.where))
            if arguments.write:  # after each: a run that is cut short keeps what it has
                kept = results.merged(kept, measured, list(SECTIONS))
                results.save(RESULTS, kept)
                page.write(kept, DOCS)
    finally:
        shutil.rmtree(home)
    print("\n".join(_medians(measured)) if arguments.where else page.page(measured)[0])
    return 0


def measure(name: str, effort: Effort, home: Path, command: str, where: Mapping[str, str]) -> SectionRun:
    """One section, with the machine's limits measured right before it."""
    print(f"{name}", file=sys.stderr, flush=True)
    begun, load_average = time.monotonic(), os.getloadavg()[0]
    place = Place(home / f"{name}-place")
    recorder = Recorder(place, effort, where)
    limits = machine.limits(place, effort)
    SECTIONS[name](recorder, home / name)
    seconds = time.monotonic() - begun
    print(f"({name}: {seconds:.0f} s)", file=sys.stderr, flush=True)
    return SectionRun(
        name, command, datetime.now(UTC).date().isoformat(), effort, round(seconds, 1), load_average,
        machine.versions(), machine.facts(home), limits, tuple(recorder.measurements),
    )  # fmt: skip


def _sections(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in SECTIONS:
            raise argparse.ArgumentTypeError(f"there is no section {name!r}; there are {', '.join(SECTIONS)}")
    return names


def _property(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _medians(measured: Mapping[str, SectionRun]) -> list[str]:
    """A line for each figure of each side, for who looks at a few cases."""
    lines = []
    for section in measured.values():
        rounds = results.Rounds(section.measurements)
        for one in section.measurements:
            if one.round == 0:
                found = {name: rounds.spread(one.case, one.side, name).median for name in one.figures}
                told = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
                lines.append(f"{section.name}: {' '.join(map(str, one.case.values()))}, {one.side}: {told}")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=_sections, metavar="NAME,…", help=f"of {', '.join(SECTIONS)} (default: all)")
    parser.add_argument(
        "--where", action="append", default=[], type=_property, metavar="NAME=VALUE",
        help="only cases with this property, such as client=raw or acks=all; may be repeated; goes without --write",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, measures nothing")
    parser.add_argument("--write", action="store_true", help="also keep the rounds, and write docs/benchmarks.md anew")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from the rounds kept")
    parser.add_argument("--dir", help="work in this directory (default: build/ of the repository, removed afterwards)")
    return parser


def _command(arguments: argparse.Namespace) -> str:
    """What to type for the same figures."""
    words = (["--quick"] if arguments.quick else []) + (["--only", ",".join(arguments.only)] if arguments.only else [])
    return "make bench-kafka" + (f' ARGS="{" ".join(words)}"' if words else "")


def _directory(chosen: str | None) -> Path:
    """A directory of its own on the disk that is to be measured: /tmp may be in memory."""
    parent = Path(chosen) if chosen else ROOT / "build"
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="bench-kafka-", dir=parent))


if __name__ == "__main__":
    sys.exit(main())
