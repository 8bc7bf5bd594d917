"""A connection takes requests in any pieces and in any number, starts them in order and answers them in order.

Raw sockets, so that frames can be cut, joined and pipelined as no client library does.
"""

from __future__ import annotations

import socket

import pytest

from foldlog.broker.broker import Broker
from foldlog.limits import REQUESTS_IN_FLIGHT_MAX
from foldlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from foldlog.wire.messages.fetch import FetchResponse
from foldlog.wire.messages.metadata import MetadataRequest, MetadataResponse
from foldlog.wire.messages.produce import ProduceResponse
from server.conftest import Connect, Serve
from server.raw_client import RawClient, batch, fetch, fetched, produce, produced


def test_a_frame_may_come_byte_by_byte(connect: Connect) -> None:
    client = connect()
    for byte in client.frame(produce(batch(b"one")), 9):
        client.socket.sendall(bytes([byte]))
    assert produced(client.receive(ProduceResponse, 9)[1]) == (0, 0)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 60, 300_000])
def test_a_frame_may_be_cut_anywhere_and_followed_by_another(connect: Connect, cut: int) -> None:
    client = connect()
    both = client.frame(produce(batch(b"x" * 400_000)), 9) + client.frame(produce(batch(b"two")), 9)
    client.socket.sendall(both[:cut])
    client.socket.sendall(both[cut:])
    assert [produced(client.receive(ProduceResponse, 9)[1]) for _ in range(2)] == [(0, 0), (0, 1)]


def test_answers_come_in_the_order_of_requests_whatever_finishes_first(connect: Connect) -> None:
    client = connect()
    # The first waits for records, the second waits for a sync, the third is answered at once.
    first = client.send(fetch(0, partition=1, max_wait_ms=200), 11)
    second = client.send(produce(batch(b"one")), 9)
    third = client.send(ApiVersionsRequest(), 0)
    assert client.receive(FetchResponse, 11)[0] == first
    assert client.receive(ProduceResponse, 9)[0] == second
    assert client.receive(ApiVersionsResponse, 0)[0] == third


def test_a_request_behind_a_long_poll_is_not_kept_from_working(connect: Connect) -> None:
    client = connect()
    client.send(fetch(0, max_wait_ms=25_000), 11)
    client.send(produce(batch(b"one")), 9)  # ends the long poll before it
    assert fetched(client.receive(FetchResponse, 11)[1]) == [b"one"]
    assert produced(client.receive(ProduceResponse, 9)[1]) == (0, 0)


def test_a_thousand_requests_sent_at_once_are_all_answered_in_order(connect: Connect) -> None:
    client = connect()
    count = 8 * REQUESTS_IN_FLIGHT_MAX
    frames = b"".join(client.frame(produce(batch(b"%d" % n)), 9) for n in range(count))
    client.socket.sendall(frames)
    answers = [client.receive(ProduceResponse, 9) for _ in range(count)]
    assert [correlation_id for correlation_id, _ in answers] == list(range(1, count + 1))
    assert [produced(answer) for _, answer in answers] == [(0, n) for n in range(count)]


def test_fetches_sent_at_once_are_answered_one_after_the_other(connect: Connect) -> None:
    client = connect()
    client.ask(produce(batch(*[b"x" * 1000] * 200)), 9)
    client.socket.sendall(b"".join(client.frame(fetch(0), 11) for _ in range(300)))
    answers = [fetched(client.receive(FetchResponse, 11)[1]) for _ in range(300)]
    assert {len(answer) for answer in answers} == {200}


def test_requests_of_one_connection_see_what_those_before_them_did(connect: Connect) -> None:
    client = connect()
    client.send(MetadataRequest(topics=None), 5)
    client.send(produce(batch(b"one"), acks=1), 9)
    client.send(fetch(0, max_wait_ms=10_000), 11)
    client.receive(MetadataResponse, 5)
    client.receive(ProduceResponse, 9)
    assert fetched(client.receive(FetchResponse, 11)[1]) == [b"one"]


def test_who_stops_sending_still_gets_its_answers(connect: Connect) -> None:
    client = connect()
    client.send(produce(batch(b"one")), 9)
    client.send(fetch(0, max_wait_ms=10_000), 11)
    client.socket.shutdown(socket.SHUT_WR)
    assert produced(client.receive(ProduceResponse, 9)[1]) == (0, 0)
    assert fetched(client.receive(FetchResponse, 11)[1]) == [b"one"]
    assert client.is_closed_by_peer()


def test_produce_without_acks_has_no_answer(connect: Connect) -> None:
    client = connect()
    client.send(produce(batch(b"one"), acks=0), 9)
    assert produced(client.ask(produce(batch(b"two")), 9)) == (0, 1)


def test_an_error_of_a_produce_without_acks_ends_the_connection(connect: Connect) -> None:
    client = connect()
    client.send(produce(batch(b"one"), topic="nowhere", acks=0), 9)
    assert client.is_closed_by_peer()


def test_a_connection_too_many_is_closed_and_the_others_go_on(serve: Serve) -> None:
    server = serve({"max.connections": 2})
    clients = [RawClient(server.addresses[0]) for _ in range(2)]
    for client in clients:
        client.ask(ApiVersionsRequest(), 0)
    late = RawClient(server.addresses[0])
    assert late.is_closed_by_peer()
    for client in clients:
        client.ask(ApiVersionsRequest(), 0)
        client.close()
    late.close()


def test_stopping_answers_what_is_under_way(serve: Serve, broker: Broker) -> None:
    server = serve()
    client = RawClient(server.addresses[0])
    client.send(produce(batch(b"one")), 9)
    client.send(fetch(0, partition=2, max_wait_ms=60_000), 11)
    # The first answer says that the requests have been taken.
    assert produced(client.receive(ProduceResponse, 9)[1]) == (0, 0)
    server.stop()
    assert fetched(client.receive(FetchResponse, 11)[1]) == []
    assert client.is_closed_by_peer()
    client.close()
    assert broker.partition("orders", 0).high_watermark == 1
