"""Members of a group share its partitions, come, go and vanish; what was committed is read once, and nothing is lost.

Each behaviour is written once and run with confluent-kafka, kafka-python and aiokafka, over TCP, against a broker on
real files, with every assignor the client has.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clients.aiokafka_client import AiokafkaClient
from clients.any_client import AnyClient, AnyConsumer, Place, Refused, read_count, read_until
from clients.conftest import CLIENTS, NewTopic
from clients.cutting_proxy import CuttingProxy
from clients.group_work import PARTITIONS, Work, is_shared
from foldlog.broker.broker import Broker
from foldlog.client.log import Log
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode

COOPERATIVE = "cooperative-sticky"


@pytest.fixture
def wide(new_topic: NewTopic) -> str:
    """A topic with some partitions."""
    return new_topic(PARTITIONS)


def places(topic: str) -> set[Place]:
    return {(topic, number) for number in range(PARTITIONS)}


def settle(members: list[AnyConsumer], topic: str) -> None:
    read_until(members, lambda _: is_shared(members, places(topic)))


def generation_of(broker: Broker, group: str) -> int:
    return broker.describe_group(group).generation


@pytest.fixture(
    params=[(kind, assignor) for kind in CLIENTS for assignor in kind.assignors],
    ids=lambda pair: f"{pair[0].name}-{pair[1]}",
)
def kind_and_assignor(request: pytest.FixtureRequest) -> tuple[type[AnyClient], str]:
    """Every client with every assignor it has."""
    found: tuple[type[AnyClient], str] = request.param
    return found


@pytest.fixture
def assignor(kind_and_assignor: tuple[type[AnyClient], str]) -> str:
    return kind_and_assignor[1]


@pytest.fixture
def assigning_client(kind_and_assignor: tuple[type[AnyClient], str], server: Server) -> Iterator[AnyClient]:
    made = kind_and_assignor[0](server.bootstrap)
    yield made
    made.close()


def test_members_come_and_go_and_every_record_is_done_once(
    assigning_client: AnyClient, assignor: str, log: Log, wide: str, group: str
) -> None:
    client = assigning_client
    work = Work(log, wide)
    work.give(20)
    members = [client.member(wide, group, assignors=(assignor,))]
    work.finish(members)
    members.append(client.member(wide, group, assignors=(assignor,)))
    work.give(20)
    work.finish(members)
    settle(members, wide)
    taken = set().union(*members[0].taken)
    if assignor == COOPERATIVE:
        # Only what the other one got; an eager group gives up everything and deals anew.
        assert taken == members[1].assignment()
    else:
        assert taken == places(wide)
    client.close_one(members.pop(0))
    work.give(20)
    work.finish(members)
    assert members[0].assignment() == places(wide)
    assert work.is_right


def test_what_aiokafka_read_before_a_rebalance_it_reads_again_and_commits_then(
    server: Server, log: Log, wide: str, group: str
) -> None:
    """Its rebalances run whether or not it is polled: else a member counts records that it is given twice."""
    client = AiokafkaClient(server.bootstrap)
    first = client.member(wide, group)
    for number in range(PARTITIONS):
        log.append(wide, b"work", partition=number)
    assert len(read_count(first, PARTITIONS)) == PARTITIONS
    second = client.member(wide, group)
    read_until(second, lambda _: is_shared([first, second], places(wide)))
    kept = dict.fromkeys(first.assignment(), (1, ""))
    with pytest.raises(Refused):
        first.commit(kept)
    assert {(one.topic, one.partition) for one in read_count(first, len(kept))} == set(kept)
    first.commit(kept)
    assert [first.committed(place) for place in kept] == [1] * len(kept)
    client.close()


def test_members_of_all_clients_are_one_group(clients: list[AnyClient], log: Log, wide: str, group: str) -> None:
    work = Work(log, wide)
    members = [client.member(wide, group) for client in clients]
    work.give(10)
    work.finish(members)
    settle(members, wide)
    work.give(10)
    work.finish(members)
    assert work.is_right


def test_a_static_member_that_restarts_has_its_partitions_again_and_disturbs_nobody(
    client: AnyClient, broker: Broker, log: Log, wide: str, group: str
) -> None:
    work = Work(log, wide)
    members = [client.member(wide, group, instance_id=name) for name in ("a", "b")]
    settle(members, wide)
    work.give(10)
    work.finish(members)
    generation, before, taken = generation_of(broker, group), members[1].assignment(), list(members[0].taken)

    client.close_one(members[1])
    members[1] = client.member(wide, group, instance_id="b")
    read_until(members, lambda _: members[1].assignment() == before)
    work.give(10)
    work.finish(members)
    assert work.is_right
    assert members[0].taken == taken
    assert generation_of(broker, group) == generation


def test_the_second_with_an_instance_id_shuts_out_the_first(client: AnyClient, topic: str, group: str) -> None:
    first = client.member(topic, group, instance_id="one")
    read_until(first, lambda _: bool(first.assignment()))
    second = client.member(topic, group, instance_id="one")
    read_until(second, lambda _: bool(second.assignment()))
    with pytest.raises(Refused) as refusal:
        read_until(first, lambda _: first.commit({(topic, 0): (0, "")}) is not None)
    assert refusal.value.code == client.told(ErrorCode.FENCED_INSTANCE_ID)


def test_the_work_of_a_member_that_vanishes_is_done_by_the_others_until_it_is_back(
    client: AnyClient, broker: Broker, log: Log, wide: str, group: str
) -> None:
    proxy = CuttingProxy()
    settings = ServerSettings.parse({"listeners": "127.0.0.1:0", "advertised.listeners": proxy.address})
    with Server.start(broker, settings) as server:
        proxy.towards(server.addresses[0])
        far = type(client)(proxy.address)
        vanishing = far.member(wide, group, session_timeout_ms=1000)
        staying = client.member(wide, group)
        settle([vanishing, staying], wide)
        proxy.vanish()
        work = Work(log, wide)
        work.give(10)
        work.finish([staying])
        assert staying.assignment() == places(wide)
        proxy.come_back()
        settle([vanishing, staying], wide)
        work.give(10)
        work.finish([vanishing, staying])
        assert work.is_right
        far.close()
        proxy.close()


def test_members_find_partitions_and_topics_that_come_later(
    client: AnyClient, broker: Broker, log: Log, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    member = client.consumer(group=group)
    member.subscribe_pattern(f"{topic}(-more)?")
    log.append(topic, b"first")
    assert [record.value for record in read_count(member, 1)] == [b"first"]
    member.commit()
    broker.grow_topic(topic, 2)
    log.append(topic, b"grown", partition=1)
    assert [record.value for record in read_count(member, 1)] == [b"grown"]
    member.commit()
    broker.create_topic(f"{topic}-more")
    log.append(f"{topic}-more", b"made")
    assert [record.value for record in read_count(member, 1)] == [b"made"]


def test_a_group_that_is_over_and_comes_again_goes_on(client: AnyClient, log: Log, wide: str, group: str) -> None:
    work = Work(log, wide)
    for _ in range(3):
        work.give(5)
        member = client.member(wide, group)
        work.finish([member])
        client.close_one(member)
    assert work.is_right
