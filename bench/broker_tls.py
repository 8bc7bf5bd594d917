"""The broker over TLS: produce and fetch beside the same without, and what a handshake costs.

One broker with both listeners, the load client of `bench.broker` on each in turn. With TLS the client pays for
encryption as the broker does, so the broker's own processor time stands beside the speed.
"""

from __future__ import annotations

import ipaddress
import select
import socket
import ssl
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from bench import broker_process
from bench.broker import ACKS_ALL, WINDOWS, Layout, batch_of
from bench.broker_load import Figures, Load, LoadConnection, ask, connect, fetch_load, produce_load, run_flat_out
from bench.broker_process import BrokerProcess
from bench.measuring import FULL, Place, Scale
from bench.table import Row, Table, bytes_per_second, duration, table_of
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from foldlog.wire.messages import api_versions

MIB = 1 << 20
_WARM_UP_S = 20.0
_FETCH_REQUESTS_MAX = 500
_KEPT_S = 2.5
"""What a connection keeps for its next request is given back after a second."""

Start = Callable[[], AbstractContextManager[BrokerProcess]]


def run(place: Place, scale: Scale) -> Table:
    seconds, turns, handshakes = (0.5, 5, 200) if scale is FULL else (0.02, 1, 3)
    bytes_max = 256 * MIB if scale is FULL else 2 * MIB
    path = place.fresh()
    context = make_certificate(path / "broker.pem")
    flags = ("--listen", "SSL://127.0.0.1:0", "-X", f"ssl.keystore.location={path / 'broker.pem'}")
    rows: list[Row] = []
    start = partial(broker_process.running, path / "log", *flags)
    with start() as broker:
        for number, layout in enumerate((Layout("4 KB", 1, 1), Layout("64 KB", 1, 1), Layout("64 KB", 8, 8))):
            for what, load in _loads(broker, layout, f"bench-{number:05d}", seconds, bytes_max):
                rows.append(_compared(broker, context, what, load, layout.connections, seconds, turns, bytes_max))
        rows.append(_handshakes(broker, context, handshakes))
        # Not larger: what is read for larger answers is kept for a second, with TLS and without.
        reading = _loads(broker, Layout("64 KB", 1, 1), "bench-idle", seconds, bytes_max, 64 << 10)[1][1]
    rows += _idle_connections(start, context, handshakes, reading)
    place.give_back(path)
    return table_of("The broker, over TLS", rows, _NOTES)


_NOTES = [
    "TLS 1.3 with AES-256-GCM, a certificate with a key on P-256; 'processor' is the broker's own time for a megabyte.",
    "The system has client and broker share a core now and then, most with 8 connections: fetches vary by half.",
]


def make_certificate(path: Path) -> ssl.SSLContext:
    """A broker's certificate for 127.0.0.1 in a PEM file, and the context of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    form = serialization.PrivateFormat.PKCS8
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()) + pem.encode())
    return ssl.create_default_context(cadata=pem)


def _loads(
    broker: BrokerProcess, layout: Layout, topic: str, seconds: float, bytes_max: int, fetch_bytes: int = MIB
) -> list[tuple[str, Load]]:
    """Produce, and fetch of what is in another topic."""
    batch, records = batch_of(layout.size, layout.codec)
    loads = []
    for name in (f"{topic}-written", f"{topic}-read"):
        broker.create_topic(name, layout.partitions)
        load = produce_load(name, layout.partitions, batch, records, ACKS_ALL, WINDOWS[layout.size])
        load = replace(load, is_shared=True)
        run_flat_out(broker.address, load, 1, _WARM_UP_S, 0)
        loads.append(load)
    written = run_flat_out(broker.address, loads[1], 1, seconds, bytes_max // 4)
    batches = [min(end // records, _FETCH_REQUESTS_MAX) for end in written.ends]
    together = max(1, fetch_bytes // len(batch))
    return [
        (f"produce acks=all, {layout}", loads[0]),
        (f"fetch, {layout}", fetch_load(f"{topic}-read", batches, batch, records, WINDOWS["1 MB"], together)),
    ]


def _compared(
    broker: BrokerProcess,
    context: ssl.SSLContext,
    what: str,
    load: Load,
    connections: int,
    seconds: float,
    turns: int,
    bytes_max: int,
) -> Row:
    plain: list[tuple[Figures, float]] = []
    secure: list[tuple[Figures, float]] = []
    for _ in range(turns):
        for found, address, with_tls in ((plain, broker.address, None), (secure, broker.tls_address, context)):
            before = broker.cpu_s()
            figures = run_flat_out(address, load, connections, seconds, bytes_max, with_tls)
            found.append((figures, broker.cpu_s() - before))
    ratio = statistics.median(
        tls.bytes_per_second / bare.bytes_per_second for (tls, _), (bare, _) in zip(secure, plain, strict=True)
    )
    return Row(f"{what}, TLS", _shown(secure), f"plaintext {_shown(plain)}", ratio)


def _shown(found: list[tuple[Figures, float]]) -> str:
    speed = statistics.median(figures.bytes_per_second for figures, _ in found)
    megabytes = sum(figures.payload_bytes for figures, _ in found) / 1e6
    return f"{bytes_per_second(speed)}, processor {sum(cpu for _, cpu in found) / megabytes * 1000:.2f} ms/MB"


def _handshakes(broker: BrokerProcess, context: ssl.SSLContext, count: int) -> Row:
    before, begun = broker.threads_cpu_s(), time.perf_counter()
    for _ in range(count):
        _connected(broker, context).close()
    took, cpu = (time.perf_counter() - begun) / count, (broker.threads_cpu_s() - before) / count
    return Row("a connection with its handshake", duration(took), f"{duration(cpu)} of the broker's processor time")


def _idle_connections(start: Start, context: ssl.SSLContext, count: int, load: Load) -> list[Row]:
    """Memory of connections that do nothing, and of those that did, each beside the same in plaintext.

    Each of a broker that was just started: memory that others have left is used again, and would hide some of it.
    """
    rows = []
    for what, work in (("an idle connection", None), ("an idle connection after answers of 64 KB", load)):
        sizes = []
        for with_tls in (context, None):
            with start() as broker:
                opened = _opened(broker, with_tls, max(1, count // 10), work)
                before = broker.memory_bytes()
                opened += _opened(broker, with_tls, count, work)
                time.sleep(_KEPT_S)
                sizes.append((broker.memory_bytes() - before) / count)
                for one in opened:
                    one.close()
        secure, plain = (f"{size / 1000:.0f} KB" for size in sizes)
        rows.append(Row(f"memory of {what}", secure, f"plaintext {plain}"))
    return rows


def _opened(
    broker: BrokerProcess, context: ssl.SSLContext | None, count: int, load: Load | None
) -> list[LoadConnection | socket.socket]:
    """That many connections; with `load` each has had two of its answers."""
    if load is None:
        return [_connected(broker, context) for _ in range(count)]
    address = broker.address if context is None else broker.tls_address
    opened: list[LoadConnection | socket.socket] = []
    for number in range(count):
        one = LoadConnection(address, load, number, context)
        one.send(2)
        while one.in_flight:
            select.select([one.socket], [], [])
            one.receive()
        opened.append(one)
    return opened


def _connected(broker: BrokerProcess, context: ssl.SSLContext | None) -> socket.socket:
    """A connection that has asked for the versions: what is set up with the first request is there."""
    plain = connect(broker.address if context is None else broker.tls_address)
    connected = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
    ask(connected, api_versions.ApiVersionsRequest(), 0, api_versions.RESPONSE)
    return connected
