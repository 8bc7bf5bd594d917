"""Strangers at the console and /metrics: one address holds connections, handshakes and memory, and nobody else waits.

Real sockets, of two addresses of this machine.
"""

from __future__ import annotations

import base64
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority, client_context
from foldlog.limits import HTTP_CONNECTIONS_MAX, HTTP_STRANGERS_PER_ADDRESS_MAX
from foldlog.server.server import Server
from server.access.sasl_broker import PASSWORD, SIMPLE_USER, sasl_broker

STRANGER = "127.0.0.2"
USER = "127.0.0.1"
WAIT_S = 60
"""For what is certain to come: only a hang is longer."""

CLOSED = 0
"""No answer: beyond twice its places, an address is not even told so."""

LOGIN = {"Authorization": "Basic " + base64.b64encode(f"{SIMPLE_USER}:{PASSWORD}".encode()).decode()}
HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\n"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of this machine on Linux only")


@contextmanager
def flooded(
    address: tuple[str, int], sent: bytes, count: int = 2 * HTTP_CONNECTIONS_MAX
) -> Iterator[list[socket.socket]]:
    """So many connections of a stranger, each with the beginning of something."""
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            made = stack.enter_context(socket.create_connection(address, WAIT_S, source_address=(STRANGER, 0)))
            try:
                made.sendall(sent)
            except ConnectionError:
                pass  # closed already, as it may be
            held.append(made)
        yield held


def address_of(server: Server, place: str) -> tuple[str, int]:
    found: Any = server.metrics_address if place == "metrics" else server.console_address
    assert found is not None
    return found  # type: ignore[no-any-return]


def asked(address: tuple[str, int], path: str, tls: ssl.SSLContext | None = None, source: str = USER) -> int:
    made: HTTPConnection = (
        HTTPConnection(*address, timeout=WAIT_S, source_address=(source, 0))
        if tls is None
        else HTTPSConnection("localhost", address[1], timeout=WAIT_S, source_address=(source, 0), context=tls)
    )
    try:
        made.request("GET", path, headers=LOGIN)
        return made.getresponse().status
    except ConnectionError:
        return CLOSED
    finally:
        made.close()


PLACES = {"metrics": "/healthz", "console": "/api/overview"}


@pytest.mark.parametrize("place", PLACES)
def test_connections_that_one_address_holds_keep_nobody_else_out(place: str) -> None:
    with sasl_broker({f"foldlog.{place}": "127.0.0.1:0"}) as (_, server):
        address = address_of(server, place)
        with flooded(address, HALF) as held:
            for _ in range(3):
                assert asked(address, PLACES[place]) == 200
            assert held[HTTP_STRANGERS_PER_ADDRESS_MAX].recv(12) == b"HTTP/1.1 503"
        until(lambda: asked(address, PLACES[place], source=STRANGER) == 200)


@pytest.mark.parametrize("place", PLACES)
def test_nor_do_its_handshakes(place: str, tmp_path: Path) -> None:
    authority = Authority()
    settings = {
        f"foldlog.{place}": "https://127.0.0.1:0",
        "ssl.keystore.location": str(authority.broker().write(tmp_path / "broker.pem")),
    }
    with sasl_broker(settings) as (_, server):
        address = address_of(server, place)
        with flooded(address, b"\x16\x03\x01\x02\x00", 3 * HTTP_CONNECTIONS_MAX):
            assert asked(address, PLACES[place], client_context(authority)) == 200


def test_who_has_logged_in_is_no_stranger() -> None:
    with sasl_broker({"foldlog.console": "127.0.0.1:0"}) as (_, server), ExitStack() as stack:
        for _ in range(3 * HTTP_STRANGERS_PER_ADDRESS_MAX):
            kept = HTTPConnection(*address_of(server, "console"), timeout=WAIT_S)
            stack.callback(kept.close)
            kept.request("GET", "/api/overview", headers=LOGIN)
            answer = kept.getresponse()
            answer.read()
            assert answer.status == 200


def test_bodies_of_strangers_are_counted_in_their_memory_and_given_back() -> None:
    settings = {"foldlog.console": "127.0.0.1:0", "foldlog.metrics": "127.0.0.1:0", "foldlog.metrics.open": "true"}
    with sasl_broker(settings) as (_, server):
        head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        with flooded(address_of(server, "console"), head + b"x" * 900_000, 2):
            until(lambda: stranger_bytes(server) == 1_800_000)
        until(lambda: stranger_bytes(server) == 0)


def stranger_bytes(server: Server) -> int:
    made = HTTPConnection(*address_of(server, "metrics"), timeout=WAIT_S)
    try:
        made.request("GET", "/metrics")
        found = re.search(rb"^foldlog_stranger_memory_bytes (\S+)$", made.getresponse().read(), re.MULTILINE)
    finally:
        made.close()
    assert found is not None
    return int(float(found[1]))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
