"""The example that the library was specified with runs as it stands, and does what its comments say."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import foldlog
from client.conftest import WAIT_S

pytest.importorskip("pyarrow", reason="pyarrow is not installed; enable with: pip install 'foldlog[arrow]'")


def test_the_example_runs(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders", partitions=3, config={"retention.ms": 604_800_000})
        placed = log.append("orders", {"tx_id": "tx_001", "amount_paise": 1999900}, key="tx_001")
        assert isinstance(placed, foldlog.RecordMetadata)
        with log.producer() as producer:
            producer.send_batch("orders", [{"value": b"%d" % number, "partition": 0} for number in range(20)])
        with log.producer(linger_ms=10, batch_records=1000, compression="zstd") as producer:
            sent = producer.send(
                "orders", value=b"...", key=b"k", headers=[("h", b"1")], partition=None, timestamp_ms=None
            )
            at = sent.result()
            assert (at.topic, at.timestamp_ms >= now_ms) == ("orders", True)
            producer.send_batch("orders", [{"value": b"a", "key": b"k"}])
            producer.flush()
        with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
            polled = 0
            for _record in consumer.poll(max_records=500, timeout_ms=1000):
                polled += 1
            consumer.commit()
        assert polled == 23
        assert sum(place.offset for place in log.committed("fraud").values()) == 23
        read = [record.offset for record in log.read("orders", 0, start=14, max_records=100)]
        assert read[0] == 14
        tail = log.read("orders", 0, start="end", follow=True)
        tailed: list[bytes | None] = []
        has_read = threading.Event()

        def follow() -> None:
            for record in tail:
                tailed.append(record.value)
                has_read.set()

        tailing = threading.Thread(target=follow)
        log.append("orders", b"written from now on", partition=0)
        tailing.start()
        table = log.read_arrow("orders", start={0: 14}, columns=["offset", "key", "value", "timestamp"])
        assert table.column("offset").to_pylist()[0] == 14
        log.append_arrow("orders", table)
        total = sum(end - start for start, end in log.offsets("orders").values())
        assert total == 24 + table.num_rows
        assert log.offsets_at("orders", timestamp_ms=now_ms)[0] == 0
        log.compact("orders")
        log.enforce_retention()
        assert has_read.wait(WAIT_S)  # before the log is closed, which ends it
    tailing.join(WAIT_S)
    assert tailed[0] == b"written from now on"
