"""How much is measured: `FULL` for figures, `QUICK` to see that everything runs.

What is too short shows how a client starts: with 60 MB, half of what Java's producer needed was its compiler.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Rounds, and the size of one measurement in each section. Bytes are those of values, but for what is on disk."""

    name: str
    every_combination: bool
    """Of clients, sizes, acks, partitions and codecs; else one with most of it off, and one with all of it on."""
    rounds: int
    start_rounds: int
    warm_up_bytes: int
    produce_bytes: int
    java_produce_bytes: int
    raw_bytes: int
    consume_bytes: int
    latency_s: float
    latency_warm_up_s: float
    fdatasyncs: int
    idle_s: float
    load_bytes: int
    restart_bytes: int
    restart_rounds: int
    spark_bytes: int
    spark_rounds: int
    upsert_records: int
    fan_out_records: int
    # With defaults: rounds that were kept before there were these sections say nothing of them.
    small_transactions: int = 300
    medium_transactions: int = 200
    large_transactions: int = 30
    group_members: int = 100
    taken_records: int = 100_000
    taken_single_records: int = 500
    secure_bytes: int = 80_000_000
    acls: int = 1000
    request_s: float = 0.8
    rate_s: float = 1.5
    fetched_bytes: int = 300_000_000


FULL = Effort(
    name="full",
    every_combination=True,
    rounds=3,
    start_rounds=5,
    warm_up_bytes=100_000_000,
    produce_bytes=150_000_000,
    java_produce_bytes=120_000_000,
    raw_bytes=400_000_000,
    consume_bytes=200_000_000,
    latency_s=8.0,
    latency_warm_up_s=1.0,
    fdatasyncs=2000,
    idle_s=3.0,
    load_bytes=200_000_000,
    restart_bytes=5_000_000_000,
    restart_rounds=3,
    spark_bytes=100_000_000,
    spark_rounds=3,
    upsert_records=200_000,
    fan_out_records=100_000,
)

QUICK = Effort(
    name="quick",
    every_combination=False,
    rounds=1,
    start_rounds=1,
    warm_up_bytes=100_000,
    produce_bytes=1_000_000,
    java_produce_bytes=1_000_000,
    raw_bytes=4_000_000,
    consume_bytes=1_000_000,
    latency_s=0.5,
    latency_warm_up_s=0.2,
    fdatasyncs=50,
    idle_s=0.2,
    load_bytes=1_000_000,
    restart_bytes=200_000_000,
    restart_rounds=1,
    spark_bytes=1_000_000,
    spark_rounds=1,
    upsert_records=2000,
    fan_out_records=1000,
    small_transactions=3,
    medium_transactions=2,
    large_transactions=1,
    group_members=5,
    taken_records=2_000,
    taken_single_records=5,
    secure_bytes=1_000_000,
    acls=20,
    request_s=0.1,
    rate_s=0.2,
    fetched_bytes=2_000_000,
)
