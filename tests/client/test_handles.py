"""The compiled handles and their Python twins do the same: every test here runs against both."""

from __future__ import annotations

import importlib
import pickle
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from foldlog.client import handle_types
from foldlog.errors import StorageFull, WaitTimeout
from foldlog.records.loops import BatchBuilder, decode


@pytest.fixture(params=["handles_py", "handles"])
def handles(request: pytest.FixtureRequest) -> Any:
    try:
        return importlib.import_module(f"foldlog.client.{request.param}")
    except ImportError:
        pytest.skip("the compiled handles were not built; enable with: python setup.py build_ext --inplace")


def test_metadata_is_a_value(handles: Any) -> None:
    one = handles.RecordMetadata("orders", 1, 2, 3)
    assert one == handles.RecordMetadata("orders", 1, 2, 3)
    assert hash(one) == hash(handles.RecordMetadata("orders", 1, 2, 3))
    assert one != handles.RecordMetadata("orders", 1, 2, 4)
    assert one != ("orders", 1, 2, 3)
    assert repr(one) == "RecordMetadata(topic='orders', partition=1, offset=2, timestamp_ms=3)"
    with pytest.raises(AttributeError):
        one.offset = 5
    match one:
        case handles.RecordMetadata(topic, partition, offset, timestamp_ms):
            assert (topic, partition, offset, timestamp_ms) == ("orders", 1, 2, 3)
        case _:
            raise AssertionError("it has match args")


def test_metadata_can_be_pickled_and_read_by_the_twin_in_use(handles: Any) -> None:
    again = pickle.loads(pickle.dumps(handles.RecordMetadata("orders", 1, 2, 3)))
    assert again == handle_types.RecordMetadata("orders", 1, 2, 3)


def test_one_acknowledgement_resolves_all_futures_of_a_batch(handles: Any) -> None:
    ack = handles.BatchAck("orders", 1)
    futures = [handles.SendFuture(ack, index, 100 + index) for index in range(3)]
    assert not any(future.done() for future in futures)
    ack.written(40, -1)
    assert not any(future.done() for future in futures), "written is not durable"
    assert "pending" in repr(futures[0])
    ack.finish()
    assert [future.result(0) for future in futures] == [
        handles.RecordMetadata("orders", 1, 40 + index, 100 + index) for index in range(3)
    ]
    assert futures[1].exception() is None
    assert "durable at offset 41" in repr(futures[1])


def test_the_time_of_the_append_replaces_the_one_given(handles: Any) -> None:
    ack = handles.BatchAck("orders", 0)
    ack.written(0, 777)
    ack.finish()
    assert handles.SendFuture(ack, 0, 5).result().timestamp_ms == 777


def test_a_failure_is_raised_by_every_future_and_only_the_first_fate_counts(handles: Any) -> None:
    ack = handles.BatchAck("orders", 0)
    futures = [handles.SendFuture(ack, index, 0) for index in range(2)]
    ack.finish(StorageFull("full"))
    ack.finish()
    for future in futures:
        with pytest.raises(StorageFull):
            future.result()
        assert isinstance(future.exception(), StorageFull)
    assert "failed" in repr(futures[0])


def test_waiting_in_vain_is_a_timeout(handles: Any) -> None:
    future = handles.SendFuture(handles.BatchAck("orders", 0), 0, 0)
    with pytest.raises(WaitTimeout, match="orders-0"):
        future.result(0)
    with pytest.raises(TimeoutError):
        future.exception(0)


def test_whoever_waits_is_woken(handles: Any) -> None:
    ack = handles.BatchAck("orders", 0)
    results: list[int] = []
    waiting = [
        threading.Thread(target=lambda index=index: results.append(handles.SendFuture(ack, index, 0).result(60).offset))
        for index in range(4)
    ]
    for thread in waiting:
        thread.start()
    ack.written(10, -1)
    ack.finish()
    for thread in waiting:
        thread.join(60)
    assert sorted(results) == [10, 11, 12, 13]


def test_callbacks_run_before_who_waits_goes_on(handles: Any) -> None:
    ack = handles.BatchAck("orders", 0)
    future = handles.SendFuture(ack, 0, 0)
    called: list[object] = []
    future.add_done_callback(called.append)
    finishing = threading.Thread(target=ack.finish)
    finishing.start()
    assert ack.wait(60)
    assert called == [future]
    finishing.join(60)
    future.add_done_callback(called.append)
    assert called == [future, future]


def test_a_record_is_put_into_the_open_batch_of_its_partition_or_nothing_is_done(handles: Any) -> None:
    lock = threading.Lock()
    filled: list[tuple[Any, Any]] = []

    def fill(queue: Any, batch: Any) -> None:
        assert not lock.locked()
        filled.append((queue, batch))

    builder = BatchBuilder(1 << 20, 3)
    batch = SimpleNamespace(ack=handles.BatchAck("t", 0), builder=builder)
    queue = SimpleNamespace(open=batch)
    closed = SimpleNamespace(open=None)
    infos = {"t": SimpleNamespace(sticky=queue, queues=[queue], count=1), "new": SimpleNamespace(sticky=None)}
    infos["shut"] = SimpleNamespace(sticky=closed)
    sender = SimpleNamespace(_refusal=None, filled=fill)
    batches = handles.OpenBatches(sender, lock, infos, 2, lambda: 6)
    sender._refusal = ValueError
    assert batches.send("t", b"v", None, None, None, 5) is None
    sender._refusal = None
    for value, key, headers, partition, timestamp_ms in (
        ("text", None, None, None, 5),
        (b"v", 7, None, None, 5),
        (b"v", None, {"h": b"1"}, None, 5),
        (b"v", None, None, 0, 5),
        (b"v", None, None, None, -1),
        (b"v", None, None, None, 1 << 63),
        (b"v", None, None, None, True),
    ):
        assert batches.send("t", value, key, headers, partition, timestamp_ms) is None
    assert builder.count == 0
    assert type(batches.send("t", b"v", None, None, None, 5)) is handles.SendFuture
    assert type(batches.send("t", b"v", b"k", (), None, None)) is handles.SendFuture
    assert not filled
    assert type(batches.put("t", 7, b"k", None, (("h", b"1"),))) is handles.SendFuture
    assert filled == [(queue, batch)]
    for topic in ("t", "other", "new", "shut", ["t"], None):
        assert batches.put(topic, 8, None, b"v", ()) is None
    found, _ = decode(builder.build(), "t", 0)
    assert [(one.timestamp_ms, one.key, one.value) for one in found] == [
        (5, None, b"v"),
        (6, b"k", b"v"),
        (7, b"k", None),
    ]
    assert not lock.locked()
