"""`make bench`, or `python -m bench`: speed beside the machine's limit and beside the alternatives, in one run.

Every figure of a row is measured in the same run, in turns, several times; the median counts. Absolute figures depend
on the machine and on what else it does: the ratios are the result.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench import (
    appending,
    broker,
    broker_acls,
    broker_fetches,
    broker_items,
    broker_registry,
    broker_requests,
    broker_tls,
    capture,
    codec,
    console,
    groups,
    opening,
    reading,
    spark_beside,
    spark_folds,
    spark_idle,
    spark_joins,
    spark_latency,
    spark_memory,
    spark_poison,
    spark_reduce,
    spark_sessions,
    spark_sink,
    spark_source,
    texts,
    tiers,
    transactions,
)
from bench.measuring import FULL, QUICK, Place, Scale
from bench.table import Table

from foldlog.records.loops import COMPILED

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results.md"

SECTIONS: dict[str, Callable[[Place, Scale], Table]] = {
    "codec": codec.run,
    "append": appending.run,
    "read": reading.run,
    "open": opening.run,
    "texts": texts.run,
    "broker": broker.run,
    "broker-matrix": broker.run_matrix,
    "requests": broker_requests.run,
    "fetches": broker_fetches.run,
    "items": broker_items.run,
    "tls": broker_tls.run,
    "acls": broker_acls.run,
    "registry": broker_registry.run,
    "transactions": transactions.run,
    "rebalances": groups.run_rebalances,
    "share-groups": groups.run_shares,
    "console": console.run,
    "capture": capture.run,
    "tiers": tiers.run,
    "spark-source": spark_source.run,
    "spark-sink": spark_sink.run,
    "folds": spark_folds.run,
    "folds-beside": spark_beside.run,
    "folds-sessions": spark_sessions.run,
    "folds-joins": spark_joins.run,
    "folds-states": spark_reduce.run,
    "folds-latency": spark_latency.run,
    "folds-idle": spark_idle.run,
    "folds-memory": spark_memory.run,
    "folds-poison": spark_poison.run,
}


def main() -> int:
    arguments = _parse()
    scale = QUICK if arguments.quick else FULL
    if arguments.fold_records is not None:
        scale = replace(scale, fold_records=arguments.fold_records)
    chosen = arguments.section or list(SECTIONS)
    root = _directory(arguments.dir)
    text = [_heading(scale)]
    print(text[0], flush=True)
    try:
        for name in chosen:
            start = time.perf_counter()
            table = SECTIONS[name](Place(root / name), scale).markdown()
            text.append(table)
            print(table, flush=True)
            print(f"({name}: {time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(root)
    if arguments.write:
        before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() and arguments.section else ""
        RESULTS.write_text(merged(before, text), encoding="utf-8")
        print(f"written to {RESULTS.relative_to(ROOT)}", file=sys.stderr)
    return 0


def merged(before: str, text: list[str]) -> str:
    """The report with these tables in place of its own of the same title; the heading is that of the newest run.

    >>> merged("# B\\n\\n## one\\n1\\n\\n## two\\n2\\n", ["# B\\n", "## two\\n3\\n"])
    '# B\\n\\n## one\\n1\\n\\n## two\\n3\\n'
    """
    tables = {}
    for table in [f"## {part.strip()}\n" for part in f"\n{before}".split("\n## ")[1:]] + text[1:]:
        tables[table.partition("\n")[0]] = table
    return "\n".join([text[0], *tables.values()])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--section", action="append", choices=list(SECTIONS), help="only this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, measures nothing")
    parser.add_argument(
        "--fold-records",
        type=int,
        metavar="N",
        help=f"records that the section 'folds' folds into each view (default: {FULL.fold_records})",
    )
    parser.add_argument("--write", action="store_true", help="also write bench/results.md: these sections of it")
    parser.add_argument("--dir", help="work in this directory (default: build/ of the repository, removed afterwards)")
    return parser.parse_args()


def _directory(chosen: str | None) -> Path:
    """A directory of its own on the disk that is to be measured: /tmp may be in memory."""
    parent = Path(chosen) if chosen else ROOT / "build"
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="bench-", dir=parent))


def _heading(scale: Scale) -> str:
    loops = "compiled loops" if COMPILED else "Python loops: nothing here says anything about the compiled ones"
    size = "" if scale.repeats == FULL.repeats else " Tiny sizes: these figures mean nothing."
    return (
        "# Benchmark\n\n"
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores,"
        f" {loops}, load average {os.getloadavg()[0]:.1f} at the start. Medians of {scale.repeats} turns; a ratio above"
        f" 1 means that ours is faster.{size}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
