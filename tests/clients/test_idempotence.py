"""An idempotent producer's records are in the log once and in order, whatever the network does to its requests.

Between client and broker is a proxy that cuts connections: before a request, in the middle of it, after the broker
wrote the records and before the client hears of it, in the middle of the answer; and that delivers requests twice.
Every third request or so fails, with several under way. Without idempotence a lost answer doubles its records, which
shows that the proxy does what it says.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle

import pytest

from clients.any_client import AnyClient, Outgoing, Sent
from clients.conftest import CLIENTS, NewTopic
from clients.cutting_proxy import CuttingProxy, Fault, NextFault
from foldlog.broker.broker import Broker
from foldlog.client.log import Log
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server

PARTITIONS = 3
FAULTS = 25


def now_and_then(seed: int) -> NextFault:
    """Every kind of fault in turn, each after one to four requests that go well."""
    dice = random.Random(seed)
    kinds = cycle(Fault)
    left = dice.randint(1, 4)

    def next_fault() -> Fault | None:
        nonlocal left
        left -= 1
        if left >= 0:
            return None
        left = dice.randint(1, 4)
        return next(kinds)

    return next_fault


@pytest.fixture
def proxy(broker: Broker) -> Iterator[CuttingProxy]:
    """The only way to a broker that advertises it."""
    made = CuttingProxy(now_and_then(seed=3))
    settings = ServerSettings.parse({"listeners": "127.0.0.1:0", "advertised.listeners": made.address})
    with Server.start(broker, settings) as server:
        made.towards(server.addresses[0])
        yield made
        made.close()


@pytest.fixture(params=CLIENTS, ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, proxy: CuttingProxy) -> Iterator[AnyClient]:
    made: AnyClient = request.param(proxy.address)
    yield made
    made.close()


def values(log: Log, topic: str, partition: int) -> list[bytes]:
    return [record.value for record in log.read(topic, partition)]


def test_every_record_is_there_once_and_in_order(
    client: AnyClient, proxy: CuttingProxy, log: Log, new_topic: NewTopic
) -> None:
    topic = new_topic(PARTITIONS)
    producer = client.producer(is_idempotent=True, batch_bytes=300, linger_ms=1)
    records: list[Outgoing] = []
    sent: list[Sent] = []
    # Clients put more or less into a request, so the count is of what went wrong.
    while proxy.faults.total() < FAULTS:
        start = len(records)
        records += [Outgoing(b"%06d" % number, partition=number % PARTITIONS) for number in range(start, start + 600)]
        sent += producer.send(topic, records[start:])
    for partition in range(PARTITIONS):
        assert values(log, topic, partition) == [one.value for one in records if one.partition == partition]
    # Also what was sent again was answered with the offset it has.
    assert [(one.partition, one.offset) for one in sent] == [
        (number % PARTITIONS, number // PARTITIONS) for number in range(len(records))
    ]
    assert set(proxy.faults) == set(Fault), "not every kind of fault happened"
    assert all(first == second for first, second in proxy.doubled_answers)


def test_without_idempotence_a_lost_answer_doubles_records(
    client: AnyClient, proxy: CuttingProxy, log: Log, topic: str
) -> None:
    lost = iter([Fault.ANSWER_LOST])
    proxy.next_fault = lambda: next(lost, None)
    client.producer(is_idempotent=False).send(topic, [Outgoing(b"value")])
    assert values(log, topic, 0) == [b"value", b"value"]
