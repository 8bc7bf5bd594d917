"""Acknowledged means durable on a real disk too, with the compiled syncing threads and without them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from foldlog.broker.broker import Broker
from foldlog.log.durability import Syncer
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from foldlog.wire.messages.produce import ProduceResponse
from server.raw_client import RawClient, batch, fetch, fetched, produce, produced

PARTITIONS = 3
SENT = 60
IN_FLIGHT = 5


@pytest.fixture(params=["compiled threads", "Python threads"])
def lent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the server lends the log to sync with."""
    lent: list[object] = []
    lend = Syncer.lend

    def noted(syncer: Syncer, threads: object) -> bool:
        lent.append(threads)
        return lend(syncer, threads)  # type: ignore[arg-type]

    monkeypatch.setattr(Syncer, "lend", noted)
    if request.param == "Python threads":
        monkeypatch.setitem(sys.modules, "foldlog.files.sync_threads", None)
    else:
        pytest.importorskip("foldlog.files.sync_threads", reason="the compiled parts were not built")
        monkeypatch.setattr("foldlog.server.node.PURE_PYTHON", False)
    return lent


def write(server: Server, partition: int, acknowledged: list[tuple[int, int]]) -> None:
    """Keep some in flight, as producers do."""
    client = RawClient(server.addresses[0])
    sent = 0
    while len(acknowledged) < SENT:
        while sent < SENT and sent - len(acknowledged) < IN_FLIGHT:
            client.send(produce(batch(b"%d-%d" % (partition, sent)), partition=partition), 9)
            sent += 1
        acknowledged.append(produced(client.receive(ProduceResponse, 9)[1]))
    client.close()


def test_what_is_acknowledged_is_durable_in_order_and_read_again(
    tmp_path: Path, lent: list[object], request: pytest.FixtureRequest
) -> None:
    acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
    with Broker.open(str(tmp_path / "data")) as broker:
        broker.create_topic("orders", PARTITIONS, {"segment.bytes": 2000})  # so they roll beside the syncs
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            writers = [
                threading.Thread(target=write, args=(server, number, acknowledged[number]), daemon=True)
                for number in range(PARTITIONS)
            ]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join(60)
            assert acknowledged == [[(0, offset) for offset in range(SENT)]] * PARTITIONS
            assert len(lent) == ("compiled" in request.node.callspec.id)
            client = RawClient(server.addresses[0])
            assert fetched(client.ask(fetch(0), 11))[0] == b"0-0"
            client.close()
        for number in range(PARTITIONS):
            assert broker.partition("orders", number).high_watermark == SENT
    with Broker.open(str(tmp_path / "data"), mode="r") as broker:
        for number in range(PARTITIONS):
            assert broker.partition("orders", number).high_watermark == SENT


def test_the_log_syncs_by_itself_again_when_its_server_has_left(tmp_path: Path, lent: list[object]) -> None:
    with Broker.open(str(tmp_path / "data")) as broker:
        broker.create_topic("orders")
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            client = RawClient(server.addresses[0])
            assert produced(client.ask(produce(batch(b"served")), 9)) == (0, 0)
            client.close()
        partition = broker.writable_partition("orders", 0)
        told = threading.Event()
        partition.on_acknowledged(partition.append(batch(b"alone")).next_offset, lambda error: told.set())
        assert told.wait(30)
        assert partition.durable_offset == 2
