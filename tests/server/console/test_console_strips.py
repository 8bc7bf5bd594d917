"""A strip accounts for every offset of its window, whatever compaction and retention left, and costs what it costs by
its own size and not by the log's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog.broker.broker import Broker
from foldlog.limits import CONSOLE_FIELD_BYTES_MAX, CONSOLE_READ_BYTES_MAX
from foldlog.log.partition import Partition
from foldlog.log.reading import FetchedBatches
from foldlog.records.batch import Compression
from foldlog.records.loops import BatchBuilder, decode, pack
from foldlog.server.console.records import KEY_CHARS_MAX, held, short_key, shown, strip
from foldlog.testing.sim_clock import SimClock


@contextmanager
def partition_of(**config: object) -> Iterator[Partition]:
    with Broker.open(":memory:", background=False, clock=SimClock()) as broker:
        broker.create_topic("orders", 1, {name.replace("_", "."): value for name, value in config.items()})
        yield broker.writable_partition("orders", 0)


def live_offsets(partition: Partition) -> list[int]:
    found: list[int] = []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        data, next_offset, _ = partition.read(offset)
        found += [record.offset for record in decode(data, "orders", 0, start_offset=offset)[0]]
        offset = next_offset
    return found


def accounted(found: dict[str, Any]) -> list[int]:
    """The offsets of cells and gaps, in order; an offset that is in both, or twice, is twice in it."""
    offsets = [cell["offset"] for cell in found["cells"]]
    for first, following in found["gaps"]:
        assert first < following
        offsets += range(first, following)
    return sorted(offsets)


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.sampled_from([b"a", b"b", b"c", None]), min_size=1, max_size=6), max_size=12),
    segment_records=st.integers(1, 8),
    before=st.integers(0, 20),
    windows=st.lists(st.tuples(st.integers(-1, 60), st.integers(1, 9)), min_size=1, max_size=6),
)
def test_every_offset_of_a_strip_is_a_cell_or_in_a_gap(
    batches: list[list[bytes | None]], segment_records: int, before: int, windows: list[tuple[int, int]]
) -> None:
    with partition_of(foldlog_segment_records=segment_records) as partition:
        for keys in batches:
            partition.append(pack([(1000, key or b"z%d" % len(keys), b"v", ()) for key in keys]))
        partition.sync()
        partition.compact(force=True)
        partition.delete_records(min(before, partition.high_watermark))
        live = set(live_offsets(partition))
        end = partition.high_watermark
        for from_offset, count in windows:
            found = strip(partition, from_offset, count)
            assert partition.log_start_offset <= found["from"] <= found["next"] <= end
            assert accounted(found) == list(range(found["from"], found["next"]))
            cells = [cell["offset"] for cell in found["cells"]]
            assert set(cells) == live & set(range(found["from"], found["next"]))
            assert len(cells) <= count
            if from_offset == -1:
                assert cells == sorted(live)[-count:]
            else:
                assert cells == sorted(offset for offset in live if offset >= from_offset)[:count]


def test_strips_one_after_the_other_are_the_whole_log() -> None:
    with partition_of() as partition:
        for number in range(40):
            partition.append(pack([(1000 + number, b"k", b"v" * number, ()) for _ in range(7)]))
        partition.sync()
        seen: list[int] = []
        offset = 0
        while offset < partition.high_watermark:
            found = strip(partition, offset, 33)
            seen += [cell["offset"] for cell in found["cells"]]
            offset = found["next"]
        assert seen == list(range(280))


def test_a_strip_of_large_records_ends_where_it_has_read_enough_and_says_where_to_go_on() -> None:
    value = b"x" * 700_000
    with partition_of() as partition:
        for _ in range(20):
            partition.append(pack([(1000, b"k", value, ())]))
        partition.sync()
        found = strip(partition, 0, 400)
        assert 0 < len(found["cells"]) <= CONSOLE_READ_BYTES_MAX // len(value) + 1
        assert found["next"] == len(found["cells"])
        assert strip(partition, 19, 400)["cells"][0]["value_size"] == len(value)


def test_a_strip_reads_as_much_of_a_long_log_as_of_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in bytes read, not in time."""
    reads: list[int] = []
    plain_read = Partition.read

    def counted_read(partition: Partition, offset: int, *arguments: Any, **options: Any) -> FetchedBatches:
        found = plain_read(partition, offset, *arguments, **options)
        reads.append(len(found.data))
        return found

    def cost(batches: int) -> tuple[int, int]:
        with partition_of(segment_bytes=200_000) as partition:
            batch = pack([(1000, b"key-%d" % n, b"v" * 50, ()) for n in range(100)])
            for _ in range(batches):
                partition.append(batch)
            partition.sync()
            middle = partition.high_watermark // 2
            reads.clear()
            with monkeypatch.context() as patched:
                patched.setattr(Partition, "read", counted_read)
                strip(partition, middle, 200)
            return len(reads), sum(reads)

    short, long = cost(10), cost(2000)
    assert long[0] <= short[0] + 1
    assert long[1] <= 256 * 1024 + 20_000


def test_cells_of_compressed_batches_and_of_the_middle_of_a_batch_are_the_right_ones() -> None:
    with partition_of() as partition:
        for codec in Compression:
            builder = BatchBuilder(1 << 20)
            for number in range(10):
                builder.append(1000 + number, b"%s-%d" % (codec.name.encode(), number), b"v")
            partition.append(builder.build(int(codec)))
        partition.sync()
        found = strip(partition, 27, 6)
        assert [(cell["key"], cell["batch"]) for cell in found["cells"]] == [
            ("SNAPPY-7", 20), ("SNAPPY-8", 20), ("SNAPPY-9", 20), ("LZ4-0", 30), ("LZ4-1", 30), ("LZ4-2", 30),
        ]  # fmt: skip


@given(st.binary(max_size=300))
def test_any_key_is_a_short_label(key: bytes) -> None:
    label = short_key(key)
    assert label is not None
    assert len(label) <= KEY_CHARS_MAX
    json.dumps(label).encode()
    if len(key) <= KEY_CHARS_MAX and key.isascii():
        assert label == key.decode()


@pytest.mark.parametrize("character", ["a", "é", "€", "🙂"])
@pytest.mark.parametrize("shift", range(4))
def test_a_long_text_is_cut_between_two_characters(character: str, shift: int) -> None:
    data = b"-" * shift + character.encode() * (CONSOLE_FIELD_BYTES_MAX // len(character.encode()) + 9)
    found = shown(data)
    assert found is not None
    assert (found["size"], found["is_cut"]) == (len(data), True)
    assert data.decode().startswith(found["text"])
    assert CONSOLE_FIELD_BYTES_MAX - 4 < len(found["text"].encode()) <= CONSOLE_FIELD_BYTES_MAX


def test_an_open_transaction_shows_where_committed_records_end_and_by_whom() -> None:
    with Broker.open(":memory:", background=False, clock=SimClock()) as broker:
        broker.create_topic("orders", 1)
        partition = broker.writable_partition("orders", 0)
        partition.wait_acknowledged(partition.append(pack([(1, None, b"plain", ())])).next_offset)
        assert held(broker, partition) is None
        numbers = broker.transactions.init_producer("etl", 60_000)
        builder = BatchBuilder(1000)
        builder.append(7, None, b"within")
        batch = builder.build(producer_id=numbers[0], producer_epoch=numbers[1], base_sequence=0, transactional=True)
        partition.wait_acknowledged(broker.transactions.append("etl", partition, batch, add=True).next_offset)
        found = held(broker, partition)
        assert found is not None
        assert found["offset"] == 1
        (holder,) = found["by"]
        assert (holder["transactional_id"], holder["producer_id"], holder["first_offset"]) == ("etl", numbers[0], 1)
        broker.transactions.end("etl", *numbers, commit=True)
        assert held(broker, partition) is None
