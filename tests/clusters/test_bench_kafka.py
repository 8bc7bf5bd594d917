"""`make bench-kafka` runs for real, with tiny sizes: both brokers, read by all three clients, from the disk; their
transactions, their groups and their queues.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from clusters.franz_go import GoUnavailable, kfake_program
from clusters.maven import KAFKA, JarsUnavailable, fetch

ROOT = Path(__file__).resolve().parent.parent.parent
BENCH_TIMEOUT_S = 840
"""Each section starts its brokers anew: three and a half minutes on two cores where fifteen processes want them."""

pytestmark = pytest.mark.timeout(BENCH_TIMEOUT_S + 60)


def bench(sections: str) -> subprocess.CompletedProcess[str]:
    try:
        fetch(KAFKA)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [sys.executable, "-m", "bench.kafka", "--quick", "--only", sections],
        cwd=ROOT, capture_output=True, text=True, timeout=BENCH_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_transactions_groups_and_queues_of_both_brokers_have_their_rows() -> None:
    done = bench("transactions,rebalances,share-groups")
    for row in (
        "| 1 record |", "| 10,000 records |", "| 1 → 5 members, consumer protocol |", "classic protocol |",
        "| 500 records a fetch, acknowledged with the next fetch |", "| 1 record a fetch, acknowledged by requests",
    ):  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if row in line]
        assert lines, f"no row {row!r}"
        assert all(line.count("CPU ") == 2 for line in lines), lines


def test_both_brokers_are_read_by_every_client_and_the_page_has_the_figures() -> None:
    done = bench("consume")
    assert "## Consume" in done.stdout
    for client in ("librdkafka", "kafka-consumer-perf-test", "raw protocol"):
        _, _, figures = done.stdout.partition(f"**{client}**\n")
        rows = [
            line for line in figures.strip().partition("\n\n")[0].splitlines() if line.startswith(("| 100 B", "| 1 KB"))
        ]
        assert len(rows) == 2, client
        assert all(row.count("/s**") == 2 and row.count("CPU ") == 2 for row in rows), rows
    assert "the figures mean nothing" in done.stdout
    assert "(consume: " in done.stderr


def test_kfake_has_its_columns_where_requests_are_counted() -> None:
    try:
        kfake_program()
    except GoUnavailable as missing:
        pytest.skip(str(missing))
    done = bench("requests,round-robin-100,fetches,rates,footprint")
    for row in (
        "| 4 KB, 1 connection |",
        "| 64 KB, 4 connections |",
        "| 16 KB |",
        "| 16 connections |",
        "| 500 requests/s |",
    ):
        assert row in done.stdout, f"no row {row!r}"
    assert "kfake, synced" in done.stdout
