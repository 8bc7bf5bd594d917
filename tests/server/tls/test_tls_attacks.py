"""Clients that mean harm, or are set up wrongly, at a listener with TLS: each is refused with one line in the log that
says what it did, costs little while it is there, and leaves nothing behind; honest clients are served meanwhile.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import urllib.request
import warnings

import pytest

from certificates import DAY, Authority, client_context
from foldlog.files.posix import raise_descriptor_limit
from foldlog.limits import HTTP_CONNECTIONS_MAX, TLS_GROWN_BYTES, TLS_RECEIVE_BYTES, TLS_SHARE, TLS_STATE_BYTES
from foldlog.server.server import Server
from foldlog.server.tls import transport
from server.raw_client import TIMEOUT_S, RawClient, batch, fetch, produce, produced
from server.tls.conftest import Site
from server.tls.test_tls_listener import FETCH_VERSION, PRODUCE_VERSION, eventually, is_refused

HALF_OPEN = 1000


def client_hello(context: ssl.SSLContext | None = None) -> bytes:
    """The first bytes of an honest client."""
    outgoing = ssl.MemoryBIO()
    context = context or ssl.create_default_context()
    begun = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    return outgoing.read()


def connections_of(server: Server) -> int:
    assert server._node is not None
    return len(server._node.connections)


def is_served(client: RawClient) -> bool:
    return produced(client.ask(produce(batch(b"honest")), PRODUCE_VERSION))[0] == 0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handshakes have a fraction of a second."""
    monkeypatch.setattr(transport, "TLS_HANDSHAKE_MS", 300)


def is_cut_after(client: RawClient, byte: int) -> bool:
    """Whether the connection is gone, a moment after the byte was sent."""
    try:
        client.socket.sendall(bytes([byte]))
        return client.socket.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


# --- older versions, weaker ciphers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_older_versions_are_refused(site: Site, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture) -> None:
    site.serve()
    context = site.context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    assert is_refused(site, context)
    eventually(lambda: "it speaks no version of TLS that is served here" in caplog.text)


def test_ssl_3_is_refused(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """By hand, since no client can speak it any more."""
    site.serve()
    suites = b"\x00\x0a\x00\x05"
    body = b"\x03\x00" + bytes(32) + b"\x00" + len(suites).to_bytes(2, "big") + suites + b"\x01\x00"
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    client = site.plain()
    client.socket.sendall(b"\x16\x03\x00" + len(message).to_bytes(2, "big") + message)
    answer = client.socket.recv(100)
    assert answer[:1] in {b"", b"\x15"}, "an alert, or nothing"
    eventually(lambda: "TLS handshake refused" in caplog.text)


@pytest.mark.parametrize("ciphers", ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "NULL-SHA256", "ADH-AES128-SHA256"])
def test_weak_ciphers_are_refused(site: Site, ciphers: str, caplog: pytest.LogCaptureFixture) -> None:
    site.serve()
    context = site.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    assert is_refused(site, context)
    eventually(lambda: "it has none of the cipher suites that are served here" in caplog.text)


def test_a_hello_whose_version_was_lowered_on_the_way_does_not_end_in_an_older_one(site: Site) -> None:
    """Whoever sits between cuts the newer version out of the hello: the handshake fails, it does not fall back."""
    site.serve()
    hello = client_hello(site.context())
    assert b"\x03\x04" in hello
    client = site.plain()
    client.socket.sendall(hello.replace(b"\x03\x04\x03\x03", b"\x03\x02\x03\x02"))  # supported_versions: 1.1 alone
    answered = client.socket.recv(1000)
    assert answered[:1] != b"\x16" or answered[9:11] == b"\x03\x03"


# --- certificates of others -------------------------------------------------------------------------------------------


def test_certificates_that_are_not_taken(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.serve(ssl_client_auth="required")
    stranger = Authority("Test Authority")  # by the same name, with another key
    for context, why in (
        (site.context(), "it has no certificate, and ssl.client.auth=required"),
        (site.context("billing", stranger), "its certificate is not taken: "),
    ):
        assert is_refused(site, context)
        eventually(lambda why=why: why in caplog.text)  # type: ignore[misc]
        site.serve(ssl_client_auth="required")  # whose log has no line of this kind yet
    assert not is_refused(site, site.context("billing"))


def test_a_certificate_out_of_its_time_or_of_a_broker_is_no_clients(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.serve(ssl_client_auth="required")
    use = site.authority.broker("a broker")  # a stolen broker's certificate is not one of a client
    context = client_context(site.authority, use.write(site.keystore.with_name("use.pem")))
    assert is_refused(site, context)
    eventually(lambda: "its certificate is not taken: " in caplog.text)
    old = site.authority.client("billing", begins=-20 * DAY, ends=-DAY)
    assert is_refused(site, client_context(site.authority, old.write(site.keystore.with_name("old.pem"))))


# --- handshakes that are not finished ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rules", "reason"),
    [
        (None, "DEFAULT", "it has no certificate"),
        ("other", "DEFAULT", "its certificate is not taken: "),
        ("alice", "RULE:^CN=bob$/bob/", "no rule of ssl.principal.mapping.rules applies to 'CN=alice'"),
    ],
)
def test_who_is_refused_for_a_certificate_has_a_line_in_the_audit_log(
    site: Site, name: str | None, rules: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "foldlog.audit")
    site.serve(ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    assert is_refused(site, site.context(name, Authority() if name == "other" else None))

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "foldlog.audit"]

    eventually(lambda: len(lines()) == 1)
    assert lines()[0].startswith('principal="" address="127.0.0.1" action="login" names=[] result="refused" reason="')
    assert reason in lines()[0]


def test_a_thousand_half_open_handshakes_do_not_hinder_honest_clients(site: Site) -> None:
    raise_descriptor_limit()
    server = site.serve()
    honest = site.connect()
    hello = client_hello()
    before = server.memory_used_bytes
    opened: list[socket.socket] = []
    try:
        for number in range(HALF_OPEN):
            opened.append(socket.create_connection(server.addresses[0]))
            # Nothing, a byte, half of a hello, all of it: then silence.
            opened[-1].sendall(hello[: (0, 1, len(hello) // 2, len(hello))[number % 4]])
            if number % 100 == 0:
                assert is_served(honest)
        eventually(lambda: connections_of(server) == HALF_OPEN + 1)
        assert is_served(honest)
        assert is_served(site.connect())
        assert server.memory_used_bytes - before <= HALF_OPEN * len(hello)
    finally:
        for one in opened:
            one.close()
    eventually(lambda: connections_of(server) == 2)
    eventually(lambda: server.memory_used_bytes <= 2 * TLS_STATE_BYTES)
    assert server.strangers_used_bytes == 0


@pytest.mark.usefixtures("impatient")
def test_a_handshake_that_dawdles_is_cut(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    server = site.serve()
    silent, dawdling = site.plain(), site.plain()
    hello = client_hello()
    dawdling.socket.settimeout(0.02)
    assert any(is_cut_after(dawdling, byte) for byte in hello * 5), "the hello has come five times"
    assert silent.is_closed_by_peer()
    assert "its TLS handshake was not done within 300 ms" in caplog.text
    eventually(lambda: connections_of(server) == 0)


def test_a_finished_handshake_may_rest(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    server = site.serve()
    client = site.connect()
    monkeypatch.setattr(transport, "TLS_HANDSHAKE_MS", 300)
    silent = site.plain()
    assert silent.is_closed_by_peer()
    assert is_served(client)
    assert connections_of(server) == 1


def test_handshakes_count_as_connections_and_make_room_for_others(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    server = site.serve(max_connections=3)
    half_open = [site.plain() for _ in range(3)]
    eventually(lambda: connections_of(server) == 3)
    clients = [site.connect() for _ in range(3)]
    assert all(is_served(client) for client in clients)
    assert all(client.is_closed_by_peer() for client in half_open)
    assert "its TLS handshake made room for another client's" in caplog.text
    assert is_refused(site, site.context())  # those who are connected stay
    assert all(is_served(client) for client in clients)


def test_handshakes_count_for_their_address(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    server = site.serve(max_connections_per_ip=2)
    for _ in range(2):
        site.plain()
    eventually(lambda: connections_of(server) == 2)
    assert site.plain().is_closed_by_peer()
    assert "there are max.connections.per.ip=2 from 127.0.0.1 already" in caplog.text


def test_a_broker_stops_while_handshakes_are_under_way(site: Site) -> None:
    server = site.serve()
    clients = [site.plain() for _ in range(5)]
    clients[0].socket.sendall(client_hello())
    eventually(lambda: connections_of(server) == 5)
    server.stop()
    for client in clients:
        while not client.is_closed_by_peer():
            pass  # what it answered before


def test_a_handshake_cut_off_anywhere_leaves_nothing(site: Site) -> None:
    server = site.serve(ssl_client_auth="required")
    hello = client_hello(site.context("billing"))
    for size in range(0, len(hello) + 1, 7):
        client = site.plain()
        client.socket.sendall(hello[:size])
        client.close()
    eventually(lambda: connections_of(server) == 0)
    assert server.memory_used_bytes == 0
    assert not is_refused(site, site.context("billing"))


# --- bytes that are not TLS, or not allowed there ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (RawClient.frame, "it looks like a Kafka client without TLS"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "it looks like HTTP without TLS"),
        (b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10", "it looks like SSL 2"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it does not look like TLS"),
        (b"\x16\x03\x01\xff\xff" + bytes(100), "TLS record"),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "OpenSSL says"),
        (b"\x16\x03\x01\x00\x00" * 40, "OpenSSL says"),
    ],
    ids=["kafka", "http", "ssl2", "ssh", "size", "short", "empty"],
)
def test_what_is_not_tls_is_closed_with_a_line_that_says_what_it_looks_like(
    site: Site, start: object, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = site.serve()
    client = site.plain()
    client.socket.sendall(start if isinstance(start, bytes) else client.frame(fetch(0), FETCH_VERSION))
    while client.socket.recv(100):
        pass  # an alert
    eventually(lambda: what in caplog.text)
    assert caplog.text.count("\n") == 1
    eventually(lambda: connections_of(server) == 0)


def test_garbage_in_the_midst_of_a_connection_ends_it_alone(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    server = site.serve()
    other = site.connect()
    for garbage in (
        b"\x17\x03\x03\x00\x20" + os.urandom(32),
        b"\x17\x03\x03\xff\xff",
        b"\x16\x03\x03\x00\x04\x01\x00\x00\x00",
    ):
        client = site.connect()
        assert is_served(client)
        socket.socket.sendall(client.socket, garbage)
        assert client.is_closed_by_peer()
    assert "connection closed: " in caplog.text
    assert is_served(other)
    eventually(lambda: connections_of(server) == 1)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize(("version", "command"), [("-tls1_2", "R"), ("-tls1_3", "K")])
def test_renegotiation_is_refused_and_new_keys_are_taken(site: Site, version: str, command: str) -> None:
    """`R` asks for another handshake, which TLS 1.3 does not have; there `K` asks for new keys."""
    server = site.serve()
    host, port = server.addresses[0]
    asked = subprocess.Popen(
        ["openssl", "s_client", "-connect", f"{host}:{port}", version, "-CAfile", str(site.truststore)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert asked.stdin is not None
    assert asked.stdout is not None
    for line in asked.stdout:
        if "Verify return code" in line:
            break
    asked.stdin.write(f"{command}\n")
    asked.stdin.flush()
    if command == "K":
        asked.stdin.write("Q\n")
    said = asked.communicate(timeout=60)[0]
    assert ("no renegotiation" in said) == (command == "R"), said
    eventually(lambda: connections_of(server) == 0)
    assert is_served(site.connect())


# --- memory -----------------------------------------------------------------------------------------------------------


def test_what_connections_may_not_read_is_bounded_and_counted(site: Site) -> None:
    """Large requests that come to all but their last byte, on many connections, with little memory: no more is read."""
    limit = 2 << 20
    server = site.serve(queued_max_request_bytes=limit, socket_request_max_bytes=1 << 20)
    clients = [site.connect() for _ in range(8)]
    for client in clients:
        client.socket.settimeout(0.2)
        data = client.frame(produce(batch(os.urandom(900_000))), PRODUCE_VERSION)[:-1]
        try:
            client.socket.sendall(data)
        except TimeoutError:
            continue  # it is not read on
    bound = limit + 2 * (1 << 20) + len(clients) * (TLS_RECEIVE_BYTES + (1 << 20))
    eventually(lambda: server.memory_used_bytes > 0)
    assert server.memory_used_bytes <= bound
    for client in clients:
        client.close()
    eventually(lambda: server.memory_used_bytes == 0)


def test_answers_that_are_not_read_are_counted_and_stop_the_reading(site: Site) -> None:
    server = site.serve()
    writer = site.connect()
    for _ in range(4):
        assert produced(writer.ask(produce(batch(os.urandom(900_000))), PRODUCE_VERSION))[0] == 0
    writer.close()
    client = RawClient(server.addresses[0], receive_buffer_bytes=4096, tls=site.context())
    client.socket.settimeout(0.2)
    frame = client.frame(fetch(0, partition_max_bytes=1 << 20), FETCH_VERSION)
    with pytest.raises(TimeoutError):
        client.socket.sendall(frame * 100_000)
    eventually(lambda: server.memory_used_bytes > 900_000)
    assert server.memory_used_bytes < 16 << 20
    client.close()
    eventually(lambda: server.memory_used_bytes == 0)


# --- HTTP over TLS ----------------------------------------------------------------------------------------------------


def test_handshakes_of_http_are_bounded_and_end_with_the_broker(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    server = site.serve(foldlog_metrics="https://127.0.0.1:0")
    assert server.metrics_address is not None
    url = f"https://127.0.0.1:{server.metrics_address[1]}/healthz"
    opened = [socket.create_connection(server.metrics_address) for _ in range(2 * HTTP_CONNECTIONS_MAX)]
    refused = RawClient(server.metrics_address)
    assert refused.is_closed_by_peer()
    assert "there are too many TLS handshakes" in caplog.text
    opened.pop().close()

    def is_healthy() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=site.context()) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False  # it has not seen yet that one has left

    eventually(is_healthy)
    server.stop()
    for one in opened:
        one.close()


def test_what_openssl_keeps_counts_in_the_memory_bound_until_the_connection_is_closed(site: Site) -> None:
    server = site.serve()
    clients = [site.connect() for _ in range(5)]
    eventually(lambda: server.memory_used_bytes == 5 * TLS_STATE_BYTES)
    assert server.strangers_used_bytes == 0
    for client in clients[:2]:
        assert client.ask(produce(batch(bytes(20_000))), 9).responses[0].partition_responses[0].error_code == 0
    eventually(lambda: server.memory_used_bytes == 3 * TLS_STATE_BYTES + 2 * TLS_GROWN_BYTES)
    for client in clients:
        client.close()
    eventually(lambda: server.memory_used_bytes == 0)


def test_connections_that_would_take_the_memory_of_everybody_are_refused(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """With half of the memory for them there is always some for requests."""
    server = site.serve(queued_max_request_bytes=1 << 20, socket_request_max_bytes=1 << 20)
    room = (1 << 20) // TLS_SHARE // TLS_GROWN_BYTES
    honest = [site.connect() for _ in range(room)]
    assert is_served(honest[0])
    assert site.connect().is_closed_by_peer()
    assert "which is what queued.max.request.bytes has memory for" in caplog.text
    eventually(lambda: server.memory_used_bytes <= (1 << 20) // TLS_SHARE)  # a moment later for the refused one
    assert is_served(honest[-1])
    honest.pop().close()
    eventually(lambda: server.memory_used_bytes < room * TLS_STATE_BYTES)
    assert is_served(site.connect())
