"""The load client of the benchmark measures only what is right: a wrong answer ends the run instead of counting.

It runs against the benchmark's own sink, a server whose answers a test can spoil.
"""

from __future__ import annotations

import importlib
import struct
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

BATCH = bytes(range(200)) * 5
BIG_BATCH = bytes(100_000)


@pytest.fixture
def load_client(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("bench.broker_load")


@pytest.fixture
def sink(load_client: Any) -> Any:
    return importlib.import_module("bench.broker_sink")


def spoiled(answer: bytes, at: int, form: str, value: int) -> bytes:
    found = bytearray(answer)
    struct.pack_into(form, found, at, value)
    return bytes(found)


@pytest.mark.parametrize("batch", [BATCH, BIG_BATCH], ids=["small", "big"])
@pytest.mark.parametrize("connections", [1, 3])
def test_every_request_is_sent_whole_and_answered(load_client: Any, sink: Any, batch: bytes, connections: int) -> None:
    load = load_client.produce_load("topic", 7, batch, 10, acks=1, window=4)
    with sink.running(load.request_bytes, load.answers.example) as address:
        figures = load_client.run_flat_out(address, load.for_sink(), connections, 60.0, len(batch) * 500)
    assert figures.requests == 500
    assert figures.payload_bytes == 500 * len(batch)


def test_big_answers_are_received_whole(load_client: Any, sink: Any) -> None:
    load = load_client.fetch_load("topic", [3, 1, 2], BIG_BATCH, 10, window=4)
    assert load.offsets == [0, 0, 0, 10, 10, 20], "through the partitions in turn, as long as they have batches"
    with sink.running(load.request_bytes, load.answers.example) as address:
        figures = load_client.run_flat_out(address, load.for_sink(), 2, 60.0, len(BIG_BATCH) * 300)
    assert figures.payload_bytes == 300 * len(BIG_BATCH)


def test_offsets_that_do_not_follow_end_the_run(load_client: Any, sink: Any) -> None:
    load = load_client.produce_load("topic", 1, BATCH, 10, acks=1, window=4)
    with (
        sink.running(load.request_bytes, load.answers.example) as address,
        pytest.raises(load_client.LoadFailed, match="offset 0 where 10 was due"),
    ):
        load_client.run_flat_out(address, load, 1, 60.0, len(BATCH) * 10)


def test_an_error_code_ends_the_run(load_client: Any, sink: Any) -> None:
    load = load_client.produce_load("topic", 1, BATCH, 10, acks=1, window=4)
    answer = spoiled(load.answers.example, load.answers.error_at, ">h", 2)
    with (
        sink.running(load.request_bytes, answer) as address,
        pytest.raises(load_client.LoadFailed, match="CORRUPT_MESSAGE"),
    ):
        load_client.run_flat_out(address, load.for_sink(), 1, 60.0, len(BATCH) * 10)


def test_an_answer_of_another_length_ends_the_run(load_client: Any, sink: Any) -> None:
    load = load_client.fetch_load("topic", [1], BATCH, 10, window=1)
    answer = spoiled(load.answers.example, 0, ">i", 60)[:64]
    with (
        sink.running(load.request_bytes, answer) as address,
        pytest.raises(load_client.LoadFailed, match="an answer of 60 bytes"),
    ):
        load_client.run_flat_out(address, load.for_sink(), 1, 60.0, len(BATCH) * 10)


def test_at_a_rate_every_request_has_a_latency_from_when_it_was_due(load_client: Any, sink: Any) -> None:
    load = load_client.produce_load("topic", 1, BATCH, 10, acks=1, window=1)
    with sink.running(load.request_bytes, load.answers.example) as address:
        figures = load_client.run_at_rate(address, load.for_sink(), 5000.0, 0.02)
    assert figures.requests == len(figures.latencies_s) == 100
    assert figures.latencies_s == sorted(figures.latencies_s)
    assert figures.latencies_s[0] > 0
