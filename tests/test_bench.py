"""The benchmark runs and fills its table. Nothing here looks at a clock: figures are for people, on a quiet machine.

Runs `python -m bench --quick`, whose sizes are tiny, as the process that `make bench` runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults  # with the other long runs
ROOT = Path(__file__).resolve().parent.parent

ROWS = {
    "codec": [
        "make batches of 10 from Python records",
        "batches of 1000 to Python records, CRC checked",
        "walk batches of 10, CRC checked",
        "validate, 1000 a batch",
        "pack_arrow, 10 a batch",
        "to_arrow, 4 columns, 10 a batch",
    ],
    "append": [
        "append_arrow",
        "producer.send",
        "log.append, one at a time",
        "TinyLog",
        "SQLite, a commit each",
        "SQLite, batched",
        "persist-queue",
        "records per fdatasync",
    ],
    "read": [
        "consumer.poll",
        "SELECT ... ORDER BY id",
        "read_arrow, offset, key, value, timestamp",
        "at a random offset",
    ],
    "open": ["closed cleanly", "open the log and every partition", "open after kill -9, 0 MB", "not synced"],
    "texts": [
        "write latency, one durable record, p50 / p99",
        "write latency, batched",
        "write throughput",
        "read latency, cached",
        "replay from the start",
        "retention: drop half",
        "N readers, all together",
        "4 KB writes one after the other",
        "4 KB writes scattered",
    ],
    "broker": [
        "cold start to first ack, an empty directory",
        "cold start to first ack, the same after kill -9",
        "produce acks=1, 64 KB, 1 connection, 1 partition",
        "page-cache append",
        "produce acks=all, 1 MB, 8 connections, 8 partitions",
        "write+fdatasync each",
        "fetch, 1 MB, 8 connections, 8 partitions",
        "loopback, same sizes",
        "produce acks=all, 4 KB at 500/s: p50 / p99 / p99.9",
        "librdkafka from Python",
        "memory, idle",
    ],
    "tls": [
        "produce acks=all, 64 KB, 1 connection, 1 partition, TLS",
        "fetch, 64 KB, 8 connections, 8 partitions, TLS",
        "plaintext",
        "a connection with its handshake",
        "memory of an idle connection",
    ],
    "acls": [
        "produce acks=1, 4 KB, 1 connection, 1 partition",
        "produce acks=all, 64 KB, 1 connection, 1 partition",
        "its question",
        "a decision of a topic that was not asked for yet",
    ],
    "capture": [
        "PostgreSQL into the log, snapshot",
        "PostgreSQL into the log, stream, one transaction",
        "PostgreSQL into the log, stream, transactions of 1 row",
        "PostgreSQL into the log, the same, up to 1,000 together",
    ],
    "registry": [
        "produce, 4 KB, values validated",
        "produce, 64 KB, values validated",
        "register a new schema",
        "look a schema up",
        "get a schema by its id",
    ],
    "tiers": ["read back from a bucket", "produce while segments are copied", "Spark, a topic in a store"],
    "console": [
        "the broker's CPU for a record, console open",
        "p50 / p99 of acknowledgements",
        "events of ends, at most",
        "a strip of 400 cells over HTTP",
        "a strip of 400 cells in a log of",
    ],
    "transactions": [
        "produce, 1 record a transaction",
        "produce, 10,000 records a transaction",
        "read_committed, 10,000 records a transaction",
        "read_committed, raw fetches, no transactions",
        "read_committed, raw fetches, few transactions",
        "read_committed, raw fetches, many transactions",
    ],
    "rebalances": ["consumer protocol beside classic"],
    "share-groups": ["500 records a fetch, acknowledged with the next", "1 record a fetch"],
    "broker-matrix": ["4 KB, 1 connection, 1 partition", "64 KB, 8 connections, 3 partitions", "acks=all, lz4"],
}


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("section", ROWS)
def test_a_section_has_its_rows_and_leaves_nothing_behind(section: str, tmp_path: Path) -> None:
    done = run_bench("--section", section, "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    for row in ROWS[section]:
        assert any(row in line for line in lines), f"no row {row!r} in:\n{done.stdout}"
    widths = {line.count("|") for line in lines}
    assert len(widths) == 1, "a table whose lines have different numbers of cells"
    assert "Tiny sizes" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_section_is_refused_by_name() -> None:
    done = run_bench("--section", "dance")
    assert done.returncode == 2
    assert "dance" in done.stderr
