"""What a batch may expand to is bounded wherever one is opened; what is stored already stays readable by a setting.

Bombs are made with the log's own builder and appended as they are, as another log would hold them. What was allocated
is seen from inside the process: tracemalloc counts every buffer that Python hands to a codec.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import foldlog
from foldlog.broker.broker import Broker
from foldlog.cli.main import main
from foldlog.client.backends.directory import broker_of
from foldlog.errors import DecompressedTooLarge
from foldlog.limits import DECODED_BYTES, DECOMPRESSED_BYTES_MAX
from foldlog.log.partition import Partition
from foldlog.records.batch import Compression
from foldlog.records.loops import pack

MIB = 1 << 20
LIMIT = "foldlog.max.decompressed.bytes"


def bomb(size_bytes: int, key: bytes = b"k") -> bytearray:
    return pack([(1, key, bytes(size_bytes), ())], Compression.ZSTD)


def held(broker: Broker, topic: str = "t") -> Partition:
    partition = broker.partition(topic, 0)
    assert isinstance(partition, Partition)
    return partition


def store(log: foldlog.Log, *batches: bytearray, topic: str = "t") -> None:
    """As they are, the way a copy of another log brings them."""
    partition = held(broker_of(log), topic)
    end = partition.log_end_offset
    for batch in batches:
        end = partition.append(batch, stored=True).next_offset
    partition.wait_acknowledged(end)


def peak_of(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def log(tmp_path: Path) -> foldlog.Log:
    opened = foldlog.open(str(tmp_path / "data"))
    opened.create_topic("t")
    return opened


def test_a_slice_of_small_batches_is_decoded_in_pieces_that_fit_into_memory(log: foldlog.Log) -> None:
    with log:
        store(log, *[bomb(15 * MIB) for _ in range(12)])
        sizes: list[int] = []

        def read() -> None:
            sizes.extend(len(record.value) for record in log.read("t"))

        assert peak_of(read) < 2 * (DECODED_BYTES + 2 * 15 * MIB)  # one piece is read while another is handed out
        assert sizes == [15 * MIB] * 12


def test_a_consumer_decodes_ahead_no_more_than_its_bound(log: foldlog.Log) -> None:
    with log:
        store(log, *[bomb(15 * MIB) for _ in range(12)])
        sizes: list[int] = []

        def consume() -> None:
            with log.consumer("t", auto_offset_reset="earliest") as consumer:
                while len(sizes) < 12:
                    sizes.extend(len(record.value) for record in consumer.poll(timeout_ms=30_000, max_records=1))

        assert peak_of(consume) < 2 * (DECODED_BYTES + 2 * 15 * MIB)


@pytest.mark.parametrize("reads", ["read", "consumer", "arrow", "time", "compact", "recompress"])
def test_what_expands_too_far_is_refused_by_every_reader_until_the_topic_allows_it(
    log: foldlog.Log, reads: str
) -> None:
    large = DECOMPRESSED_BYTES_MAX + MIB
    with log:
        log.alter_topic("t", {"cleanup.policy": "compact"})
        store(log, bomb(large), bomb(10, b"other"))

        def read() -> object:
            if reads == "read":
                return [len(record.value) for record in log.read("t")]
            if reads == "consumer":
                with log.consumer("t", auto_offset_reset="earliest") as consumer:
                    return consumer.poll(timeout_ms=30_000)
            if reads == "arrow":
                return log.read_arrow("t").num_rows
            if reads == "time":
                return held(broker_of(log)).offset_at_time(1)
            if reads == "compact":
                return log.compact("t")
            return log.recompress("t", "lz4")

        def refused() -> None:
            with pytest.raises(DecompressedTooLarge, match=LIMIT):
                read()

        assert peak_of(refused) < DECOMPRESSED_BYTES_MAX // 2  # its own account of its size was enough
        log.alter_topic("t", {LIMIT: 2 * large})
        assert read()


def test_a_reading_process_takes_its_bound_from_the_environment_where_it_cannot_change_the_topic(
    tmp_path: Path, log: foldlog.Log
) -> None:
    with log:
        store(log, bomb(DECOMPRESSED_BYTES_MAX + MIB))
    program = (
        f"import foldlog; print(sum(len(r.value) for r in foldlog.open({str(tmp_path / 'data')!r}, 'r').read('t')))"
    )

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **more}, capture_output=True, text=True, check=False
        )

    refused = run()
    assert refused.returncode
    assert "FOLDLOG_MAX_DECOMPRESSED_BYTES" in refused.stderr
    assert run(FOLDLOG_MAX_DECOMPRESSED_BYTES=str(100 * MIB)).stdout.strip() == str(DECOMPRESSED_BYTES_MAX + MIB)


def test_check_does_not_call_a_whole_batch_damaged_for_its_size(
    tmp_path: Path, log: foldlog.Log, capsys: pytest.CaptureFixture[str]
) -> None:
    with log:
        store(log, bomb(DECOMPRESSED_BYTES_MAX + MIB), bomb(10))
    assert main(["check", str(tmp_path / "data")]) == 0
    segment = next((tmp_path / "data").glob("t-0/*.log"))
    assert main(["dump", "--records", str(segment)]) != 0
    assert LIMIT in capsys.readouterr().err


def test_a_library_append_is_refused_by_what_it_expands_to(log: foldlog.Log) -> None:
    table = pa.table({"value": pa.array([bytes(17 * MIB)], pa.binary())})
    with log:
        with pytest.raises(DecompressedTooLarge, match=LIMIT):
            log.append_arrow("t", table, compression="zstd")
        assert held(broker_of(log)).log_end_offset == 0
        log.alter_topic("t", {LIMIT: 20 * MIB})
        assert log.append_arrow("t", table, compression="zstd") == {0: (0, 1)}


def test_the_default_follows_the_largest_batch_that_the_topic_takes(log: foldlog.Log) -> None:
    with log:
        config = held(broker_of(log)).config
        assert config.decompressed_limit == 16 * config.max_message_bytes
        log.alter_topic("t", {"max.message.bytes": 100})
        assert held(broker_of(log)).config.decompressed_limit == MIB
        log.alter_topic("t", {"max.message.bytes": 100 * MIB})
        assert held(broker_of(log)).config.decompressed_limit == 100 * MIB
        log.alter_topic("t", {LIMIT: 1000})
        assert held(broker_of(log)).config.decompressed_limit == 1000
