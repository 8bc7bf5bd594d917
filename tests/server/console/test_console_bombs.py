"""Batches that expand a thousandfold do not make the console take gigabytes: of a strip, nor of the board of folds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from foldlog.broker.broker import Broker
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC
from foldlog.limits import CONSOLE_EXPANDED_BYTES_MAX
from foldlog.log.partition import Partition
from foldlog.records.batch import Compression
from foldlog.records.loops import pack
from foldlog.server.console import records
from foldlog.server.console.folds import FoldTopic
from foldlog.server.fold_guard import FoldGuard

MIB = 1 << 20
BOMB_BYTES = 12 * MIB
BOMBS = 12


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open(":memory:", background=False) as opened:
        yield opened


def with_bombs(broker: Broker, topic: str) -> Partition:
    broker.create_topic(topic, 1, FOLDS_CONFIG)
    partition = broker.partition(topic, 0)
    assert isinstance(partition, Partition)
    end = 0
    for _ in range(BOMBS):
        end = partition.append(pack([(1, b"k", bytes(BOMB_BYTES), ())], Compression.ZSTD)).next_offset
    partition.wait_acknowledged(end)
    return partition


def peak_of(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_strip_ends_where_its_batches_have_expanded_enough_and_the_next_goes_on(broker: Broker) -> None:
    partition = with_bombs(broker, "orders")
    seen: list[int] = []
    peak = 0

    def look() -> None:
        found = records.strip(partition, len(seen), 100)
        seen.extend(cell["offset"] for cell in found["cells"])
        assert all(cell["value_size"] == BOMB_BYTES for cell in found["cells"])

    while len(seen) < BOMBS:
        peak = max(peak, peak_of(look))
    assert seen == list(range(BOMBS))
    assert peak < CONSOLE_EXPANDED_BYTES_MAX + 4 * BOMB_BYTES


def test_the_strip_at_the_end_of_the_log_is_bounded_too(broker: Broker) -> None:
    partition = with_bombs(broker, "orders")
    assert peak_of(lambda: records.strip(partition, records.LAST, 100)) < CONSOLE_EXPANDED_BYTES_MAX + 4 * BOMB_BYTES


def test_the_board_of_folds_reads_all_of_its_topic_without_holding_it(broker: Broker) -> None:
    partition = with_bombs(broker, FOLDS_TOPIC)
    topic = FoldTopic(broker, FoldGuard(broker.path, broker.clock))
    assert peak_of(topic.read) < 2 * CONSOLE_EXPANDED_BYTES_MAX + 4 * BOMB_BYTES
    assert topic.is_read
    assert partition.high_watermark == BOMBS
