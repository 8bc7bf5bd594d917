"""The codec: batches made and read in memory, beside aiokafka's compiled one. No disk."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from bench import records
from bench.appending import values
from bench.measuring import FULL, Place, Scale, Turns, timed
from bench.table import Row, Table, bytes_per_second, per_second, table_of

from foldlog.limits import BATCH_BYTES_MAX
from foldlog.records.loops import BatchBuilder, decode, walk

BATCH_RECORDS = (10, 1000)
_TIMESTAMP_MS = 1_700_000_000_000


def run(place: Place, scale: Scale) -> Table:
    rows = [row for size in BATCH_RECORDS for row in (*_records(scale, size), *_bytes(scale, size))]
    notes = [
        "100-byte values, uncompressed unless said. Small batches are the enemy: each is a header and a CRC-32C.",
        "Rows without a comparison are the best of many runs of one loop; the others are medians, in turns.",
    ]
    return table_of("The codec, in memory, beside aiokafka's", [*rows, *_loops(scale)], notes)


def _batches(sent: list[bytes], size: int) -> bytearray:
    joined = bytearray()
    for first in range(0, len(sent), size):
        builder = BatchBuilder(BATCH_BYTES_MAX)
        for value in sent[first : first + size]:
            builder.append(_TIMESTAMP_MS, None, value)
        joined += builder.build(base_offset=first)
    return joined


def _records(scale: Scale, size: int) -> list[Row]:
    """Python objects in, Python objects out."""
    sent = values(min(200_000, scale.send_records))
    data = bytes(_batches(sent, size))

    def encode_theirs() -> None:
        for first in range(0, len(sent), size):
            builder = DefaultRecordBatchBuilder(
                magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
                batch_size=1 << 30,
            )  # fmt: skip
            for at, value in enumerate(sent[first : first + size]):
                builder.append(at, _TIMESTAMP_MS, None, value, [])
            builder.build()

    def decode_theirs() -> None:
        found, kept = MemoryRecords(data), []
        while (batch := found.next_batch()) is not None:
            if not batch.validate_crc():
                raise RuntimeError("a CRC is wrong")
            kept.extend(batch)

    def decode_ours() -> None:
        walk(data)
        decode(data, "t", 0)

    encode = _compare(scale, len(sent), lambda: _batches(sent, size), encode_theirs)
    read = _compare(scale, len(sent), decode_ours, decode_theirs)
    return [
        _row(f"make batches of {size} from Python records", encode),
        _row(f"batches of {size} to Python records, CRC checked", read),
    ]


def _bytes(scale: Scale, size: int) -> list[Row]:
    """What a broker does with every batch: its header and its CRC."""
    data = bytes(_batches(values(min(200_000, scale.send_records)), size))

    def check_theirs() -> None:
        found = MemoryRecords(data)
        while (batch := found.next_batch()) is not None:
            batch.validate_crc()

    crc = _compare(scale, len(data), lambda: walk(data), check_theirs)
    return [
        Row(
            f"walk batches of {size}, CRC checked", bytes_per_second(crc.speed("ours")),
            f"aiokafka {bytes_per_second(crc.speed('theirs'))}", crc.ratio("ours", "theirs"),
        )
    ]  # fmt: skip


def _loops(scale: Scale) -> list[Row]:
    """Every compiled loop on its own: the best of many runs, as bench/records.py measures them."""
    if scale is not FULL:
        records.SECONDS_PER_ROW = 0.01
    return [Row(name, f"{value:.3g} {unit}", "-") for name, value, unit in records.run()]


def _compare(scale: Scale, amount: int, ours: Callable[[], object], theirs: Callable[[], object]) -> Turns:
    return Turns(scale.repeats, {"ours": lambda: amount / timed(ours), "theirs": lambda: amount / timed(theirs)})


def _row(name: str, found: Turns) -> Row:
    return Row(
        name, per_second(found.speed("ours")), f"aiokafka {per_second(found.speed('theirs'))}",
        found.ratio("ours", "theirs"),
    )  # fmt: skip
