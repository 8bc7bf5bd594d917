"""`make bench-kafka` runs for real, with tiny sizes: both brokers, read by all three clients, from the disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from clusters.maven import KAFKA, JarsUnavailable, fetch

ROOT = Path(__file__).resolve().parent.parent.parent
BENCH_TIMEOUT_S = 280


def test_both_brokers_are_read_by_every_client_and_the_page_has_the_figures() -> None:
    try:
        fetch(KAFKA)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [sys.executable, "-m", "bench.kafka", "--quick", "--only", "consume"],
        cwd=ROOT, capture_output=True, text=True, timeout=BENCH_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
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
