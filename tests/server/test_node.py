"""What connections share: calls from other threads to the loop, topics by id, and threads that end with the broker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from foldlog.broker.broker import Broker
from server.conftest import Serve
from server.raw_client import RawClient, batch, produce, produced
from server.small_node import SmallNode


@pytest.fixture
def small() -> Iterator[SmallNode]:
    node = SmallNode()
    yield node
    node.close()


def test_a_call_that_fails_does_not_keep_the_next_from_the_loop(
    small: SmallNode, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int] = []

    def fail() -> None:
        raise ValueError("a fault of the first")

    small.node.soon(fail)
    small.node.soon(called.append, 2)
    with caplog.at_level(logging.ERROR, "foldlog.server"):
        small.turn()
    assert called == [2]
    assert "a fault of the first" in caplog.text


def test_a_topic_is_found_by_its_id_as_long_as_it_is_there(small: SmallNode) -> None:
    ids = small.node.topic_ids
    first = bytes.fromhex(small.broker.create_topic("orders").topic_id)
    assert ids.name_of(first) == "orders"
    small.broker.delete_topic("orders")
    assert ids.name_of(first) is None
    second = bytes.fromhex(small.broker.create_topic("orders").topic_id)
    assert ids.name_of(first) is None
    assert ids.name_of(second) == "orders"


def test_ids_of_no_topic_do_not_cost_a_look_at_all_topics_each(
    small: SmallNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = bytes.fromhex(small.broker.create_topic("orders").topic_id)
    looks: list[bool] = []
    topics = small.broker.topics

    def counted(include_internal: bool = False) -> list[str]:
        looks.append(include_internal)
        return topics(include_internal)

    monkeypatch.setattr(small.broker, "topics", counted)
    for number in range(100):
        assert small.node.topic_ids.name_of(number.to_bytes(16, "big")) is None
    assert small.node.topic_ids.name_of(topic_id) == "orders"
    assert len(looks) <= 1


def test_no_thread_outlives_the_server(serve: Serve, broker: Broker) -> None:
    before = {thread.ident for thread in threading.enumerate()}
    server = serve()
    client = RawClient(server.addresses[0])
    assert [produced(client.ask(produce(batch(b"x" * 500_000)), 9)) for _ in range(2)] == [(0, 0), (0, 1)]
    client.close()
    server.stop()
    left = [thread.name for thread in threading.enumerate() if thread.ident not in before]
    assert [
        name
        for name in left
        if not name.startswith(("foldlog-sync", "foldlog-timers", "foldlog-retention", "foldlog-compaction"))
    ] == []
