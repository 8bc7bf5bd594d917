"""Topics for Spark to read, made quickly: durable at the end only, as they are read and not measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench import alternatives

import foldlog

if TYPE_CHECKING:
    import pyarrow as pa

    Chunk = Callable[[int, int], pa.Table]

PLAIN = "t"
PAYMENTS = "payments"
PAYMENTS_SCHEMA = "merchant STRING, amount_paise BIGINT, note STRING, at TIMESTAMP"

ORDERS, PAID = "orders", "paid"
ORDERS_SCHEMA = "order_id BIGINT, customer STRING, amount BIGINT"
PAID_SCHEMA = "order_id BIGINT, method STRING"

_CHUNK_RECORDS = 250_000
_MERCHANTS = 500
_PAYMENTS_A_SECOND = 500
_NOTES = ("two chai", "monthly rent", "order paid late", "refund of a ticket", "")


def make_plain(path: Path, records: int, value_bytes: int, partitions: int, keys: int | None = None) -> None:
    """Values of that many bytes under keys of 12, of which there are `keys` (None: as many as records)."""
    import numpy as np
    import pyarrow as pa

    def chunk(first: int, count: int) -> pa.Table:
        numbers = np.arange(first, first + count)
        filler = np.random.default_rng(first).integers(0, 256, count * value_bytes, dtype=np.uint8)
        edges = np.arange(0, (count + 1) * value_bytes, value_bytes, dtype=np.int32)
        value = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(filler)])
        # A prime step visits every key before it visits one again.
        chosen = numbers if keys is None else numbers * 7_919 % keys
        key = pa.array([b"key%09d" % number for number in chosen], pa.binary())
        return pa.table({"key": key, "value": value})

    _make(path, PLAIN, records, partitions, chunk)


def make_payments(path: Path, records: int, partitions: int, bad_one_of: int = 0) -> None:
    """JSON of about 100 bytes; about two records a key, and every twentieth is a tombstone. One of `bad_one_of` is no
    JSON; with 0 none.
    """
    import pyarrow as pa

    def chunk(first: int, count: int) -> pa.Table:
        numbers = range(first, first + count)
        keys = [b"tx-%09d" % (number * 7_919 % max(1, records // 2)) for number in numbers]
        return pa.table({"key": pa.array(keys), "value": pa.array([value(number) for number in numbers])})

    def value(number: int) -> bytes | None:
        if bad_one_of and number % bad_one_of == bad_one_of // 2:
            return b"not a payment"
        return None if number % 20 == 19 else payment(number)

    _make(path, PAYMENTS, records, partitions, chunk)


def make_orders(path: Path, records: int, partitions: int) -> None:
    """Orders, and in another topic a payment of each, in another order. Records without keys."""
    import pyarrow as pa

    def orders(first: int, count: int) -> pa.Table:
        values = [
            b'{"order_id":%d,"customer":"customer-%05d","amount":%d}'
            % (number, number * 31 % 10_000, number * 7 % 9_999)
            for number in range(first, first + count)
        ]
        return pa.table({"key": pa.nulls(count, pa.binary()), "value": pa.array(values)})

    def paid(first: int, count: int) -> pa.Table:
        # Backwards: the stream has to keep all of one side until its partners come.
        values = [b'{"order_id":%d,"method":"upi"}' % (records - 1 - number) for number in range(first, first + count)]
        return pa.table({"key": pa.nulls(count, pa.binary()), "value": pa.array(values)})

    _make(path, ORDERS, records, partitions, orders)
    _make(path, PAID, records, partitions, paid)


def payment(number: int) -> bytes:
    """JSON of about 100 bytes."""
    minute, second = divmod(number // _PAYMENTS_A_SECOND % 86_400, 60)
    at = b"2026-01-15T%02d:%02d:%02dZ" % (minute // 60, minute % 60, second)
    note = _NOTES[number % len(_NOTES)].encode()
    return b'{"merchant":"merchant-%03d","amount_paise":%d,"note":"%b","at":"%b"}' % (
        number * 31 % _MERCHANTS,
        number * 7 % 99_999 + 1,
        note,
        at,
    )


def _make(path: Path, topic: str, records: int, partitions: int, chunk: Chunk) -> None:
    with foldlog.open(path, files=alternatives.UnsyncedFiles(), background=False) as log:
        if topic not in log.topics():
            log.create_topic(topic, partitions, {"retention.ms": -1})
        written = sum(end for _, end in log.offsets(topic).values())  # where an earlier run has stopped
        for first in range(written, records, _CHUNK_RECORDS):
            log.append_arrow(topic, chunk(first, min(_CHUNK_RECORDS, records - first)))
    os.sync()
