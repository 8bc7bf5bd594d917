"""Clients that speak TLS, over real sockets: what they are served, who they are, and how a connection ends."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable

import pytest

from certificates import Authority
from foldlog.server.net.connection import unacknowledged_bytes
from foldlog.server.server import Server
from foldlog.wire.messages.fetch import FetchResponse
from foldlog.wire.messages.produce import ProduceResponse
from server.raw_client import TIMEOUT_S, RawClient, batch, fetch, fetched, produce, produced
from server.tls.conftest import Site

PRODUCE_VERSION, FETCH_VERSION = 9, 12


def eventually(is_so: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + TIMEOUT_S, threading.Event()
    while not is_so():
        assert time.monotonic() < deadline
        pause.wait(0.01)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_records_go_and_come(site: Site, version: str) -> None:
    site.serve(ssl_enabled_protocols=version)
    client = site.connect()
    assert isinstance(client.socket, ssl.SSLSocket)
    assert client.socket.version() == version
    values = [b"small", b"x" * 16384, b"y" * 700_000, b"z"]
    for number, value in enumerate(values):
        assert produced(client.ask(produce(batch(value)), PRODUCE_VERSION)) == (0, number)
    assert fetched(client.ask(fetch(0), FETCH_VERSION)) == values


def test_many_requests_under_way_are_answered_in_their_order(site: Site) -> None:
    site.serve()
    client = site.connect()
    sizes = [1, 100, 5000, 16384, 40_000, 200_000] * 10
    for size in sizes:  # from this thread: before Python 3.13, two must not use a TLS socket at once
        client.send(produce(batch(b"v" * size)), PRODUCE_VERSION)
    for number in range(len(sizes)):
        correlation, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
        assert (correlation, produced(answer)) == (number + 1, (0, number))


class PipedClient(RawClient):
    """A client whose encrypted bytes the test sends as it likes."""

    def __init__(self, server: Server, context: ssl.SSLContext) -> None:
        super().__init__(server.addresses[0])
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                self.tls.do_handshake()
                self.socket.sendall(self.outgoing.read())
                return
            except ssl.SSLWantReadError:
                self.socket.sendall(self.outgoing.read())
                self.incoming.write(self.socket.recv(1 << 16))

    def is_received(self) -> bool:
        """Whether the broker's system has all that was sent."""
        return unacknowledged_bytes(self.socket) == 0

    def encrypted(self, data: bytes) -> bytes:
        while data:
            data = data[self.tls.write(data) :]
        return self.outgoing.read()

    def receive_exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                part = self.tls.read(size - len(found))
            except ssl.SSLWantReadError:
                received = self.socket.recv(1 << 16)
                if not received:
                    raise ConnectionError("closed without a close_notify") from None
                self.incoming.write(received)
                continue
            except ssl.SSLZeroReturnError:
                part = b""
            if not part:
                raise ConnectionError("closed")
            found += part
        return bytes(found)


def test_records_that_come_byte_by_byte_are_put_together(site: Site) -> None:
    client = PipedClient(site.serve(), site.context())
    for byte in client.encrypted(client.frame(produce(batch(b"slow")), PRODUCE_VERSION)):
        client.socket.sendall(bytes([byte]))
    assert produced(client.receive(ProduceResponse, PRODUCE_VERSION)[1]) == (0, 0)
    client.close()


def test_what_was_decrypted_waits_while_the_connection_may_not_read(site: Site) -> None:
    """One fetch waits for records; another has to wait for it, came in two pieces, and has more behind it."""
    client = PipedClient(site.serve(), site.context())
    frames = [client.frame(fetch(0, max_wait_ms=wait_ms), FETCH_VERSION) for wait_ms in (400, 1, 1)]
    frames.append(client.frame(produce(batch(b"x")), PRODUCE_VERSION))
    start = client.encrypted(frames[0] + frames[1][:20])
    for wire in (start, client.encrypted(frames[1][20:] + b"".join(frames[2:]))):
        client.socket.sendall(wire)
        eventually(client.is_received)
    for number in (1, 2, 3):
        assert client.receive(FetchResponse, FETCH_VERSION)[0] == number
    correlation, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
    assert (correlation, produced(answer)) == (4, (0, 0))
    client.close()


def test_requests_before_a_close_notify_are_answered_and_it_is_answered_itself(site: Site) -> None:
    client = PipedClient(site.serve(), site.context())
    wire = client.encrypted(client.frame(fetch(0, max_wait_ms=300), FETCH_VERSION))
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.socket.sendall(wire + client.outgoing.read())
    client.receive(FetchResponse, FETCH_VERSION)
    with pytest.raises(ConnectionError, match=r"^closed$"):
        client.receive_exactly(1)
    client.close()


def test_a_broker_that_stops_answers_what_is_under_way_and_says_goodbye(site: Site) -> None:
    server = site.serve()
    client = site.connect()
    for number in range(50):
        client.send(produce(batch(b"%d" % number)), PRODUCE_VERSION)
    assert produced(_answer(client)) == (0, 0)
    server.stop()
    answered = 1
    while True:
        try:
            assert produced(_answer(client)) == (0, answered)
        except ConnectionError:
            break  # and not an SSLEOFError: the end was announced
        answered += 1
    assert answered >= 1


def _answer(client: RawClient) -> ProduceResponse:
    return client.receive(ProduceResponse, PRODUCE_VERSION)[1]


# --- who they are -----------------------------------------------------------------------------------------------------


def test_the_certificate_names_the_principal(site: Site) -> None:
    site.serve(ssl_client_auth="required")
    client = site.connect(context=site.context("billing, the one"))
    client.ask(produce(batch(b"x")), PRODUCE_VERSION)
    assert site.principals.seen == {r"User:CN=billing\, the one"}


def test_rules_make_another_name_of_it_and_who_has_none_stays_outside(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.serve(ssl_client_auth="requested", ssl_principal_mapping_rules="RULE:^CN=([a-z]+)$/$1@shop/U")
    site.connect(context=site.context("billing")).ask(produce(batch(b"x")), PRODUCE_VERSION)
    assert site.principals.seen == {"User:BILLING@SHOP"}
    assert is_refused(site, site.context("nobody,CN=admin"))
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert r"no rule of ssl.principal.mapping.rules applies to 'CN=nobody\\,CN\\=admin'" in said


def test_where_a_certificate_is_asked_for_and_not_required_one_may_have_none(site: Site) -> None:
    site.serve(ssl_client_auth="requested")
    site.connect().ask(produce(batch(b"x")), PRODUCE_VERSION)
    assert site.principals.seen == {"User:ANONYMOUS"}


def test_where_none_is_asked_for_nobody_is_anybody(site: Site) -> None:
    site.serve()
    site.connect(context=site.context("billing")).ask(produce(batch(b"x")), PRODUCE_VERSION)
    assert site.principals.seen == {"User:ANONYMOUS"}


def is_refused(site: Site, context: ssl.SSLContext) -> bool:
    """Whether a client is not served. With TLS 1.3 it learns that after its own half of the handshake."""
    try:
        client = site.connect(context=context)
        client.ask(produce(batch(b"x")), PRODUCE_VERSION)
    except (OSError, ConnectionError):
        return True
    return False


# --- certificates while it runs ---------------------------------------------------------------------------------------


def certificate_at(server: Server, site: Site) -> bytes:
    with site.context().wrap_socket(
        socket.create_connection(server.addresses[0]), server_hostname="127.0.0.1"
    ) as connected:
        return connected.getpeercert(binary_form=True) or b""


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "by itself"])
def test_new_certificates_are_used_without_a_restart_and_live_connections_stay(
    site: Site, is_asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = site.serve()
    client = site.connect()
    renewed = site.authority.broker("renewed")
    renewed.write(site.keystore.with_suffix(".new")).rename(site.keystore)
    if is_asked:
        server.reload_certificates()
    eventually(lambda: certificate_at(server, site) == renewed.der)
    assert produced(client.ask(produce(batch(b"x")), PRODUCE_VERSION)) == (0, 0)


def test_an_authority_that_is_taken_out_lets_nobody_in_any_more(site: Site) -> None:
    server = site.serve(ssl_client_auth="required")
    context = site.context("billing")
    assert not is_refused(site, context)
    site.truststore.write_text(Authority("another").pem)
    server.reload_certificates()
    assert is_refused(site, context)


def test_a_handshake_holds_memory_of_strangers_and_its_connection_that_of_everybody(site: Site) -> None:
    server = site.serve()
    begun = [site.plain() for _ in range(20)]
    for client in begun:
        client.socket.sendall(b"\x16\x03\x01\x40\x00" + bytes(10_000))
    eventually(lambda: server.strangers_used_bytes >= 20 * 10_000)
    assert server.memory_used_bytes == 0
    honest = site.connect()
    honest.socket.sendall((300_000).to_bytes(4, "big") + bytes(100_000))
    eventually(lambda: server.memory_used_bytes >= 100_000)
    for client in (*begun, honest):
        client.close()
    eventually(lambda: server.strangers_used_bytes == server.memory_used_bytes == 0)
