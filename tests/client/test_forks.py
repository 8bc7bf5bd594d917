"""After a fork, what was opened before it belongs to the parent: a child is refused, in words, and hangs nowhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import foldlog
from foldlog.errors import WrongProcess


def in_child(call: Callable[[], object]) -> str:
    """What `call` does in a forked child: the name of what it raised, or "fine"."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call()
            said = "fine"
        except BaseException as error:  # noqa: BLE001 whatever it is, the parent is told
            said = type(error).__name__
        os.write(write_end, said.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders")
        producer = log.producer(linger_ms=60_000)
        waiting = producer.send("orders", b"parent")
        consumer = log.consumer(["orders"], group="fraud", auto_offset_reset="earliest")
        tx = log.transaction("etl")
        refused = (
            lambda: tx.send("orders", b"child"),
            tx.commit,
            tx.abort,
            lambda: tx.commit_offsets("fraud", {("orders", 0): 1}),
            lambda: log.transaction("other"),
            lambda: producer.send("orders", b"child"),
            lambda: producer.send_batch("orders", [{"value": b"child"}]),
            producer.flush,
            lambda: log.append("orders", b"child"),
            consumer.poll,
            consumer.commit,
            lambda: log.consumer(["orders"], group="fraud"),
        )
        for call in refused:
            assert in_child(call) == WrongProcess.__name__
        for harmless in (producer.close, consumer.close, log.close):
            assert in_child(harmless) == "fine"
        producer.flush()
        assert waiting.result(0).offset == 0
        assert [record.value for record in consumer.poll()] == [b"parent"]
