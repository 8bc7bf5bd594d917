"""The HTTP listener answers what it should, and what it should not answer costs one connection and one debug line.

Real sockets on uvloop, as in the broker. Well-behaved requests come from the standard library's client; the others are
bytes. Nothing here waits for a time to pass: limits are made small, and the end of the connection is awaited.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import TypeVar

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.errors import AddressUnavailable, InvalidConfig, UnknownTopic
from foldlog.exposition import CONTENT_TYPE
from foldlog.server.config.settings import ServerSettings
from foldlog.server.http.http import HttpLimits, HttpServer, start_http
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute, HttpRoutes
from foldlog.server.metrics.metrics import Metrics
from foldlog.server.node import BrokerNode
from foldlog.testing.sim_clock import SimClock

Result = TypeVar("Result")

WAIT_S = 60
"""For what is certain to come: only a hang is longer."""


def run(scenario: Callable[[], Awaitable[Result]]) -> Result:
    async def bounded() -> Result:
        async with asyncio.timeout(WAIT_S):
            return await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


@dataclass
class Site:
    """A server that runs, and what a client sees of it."""

    node: BrokerNode
    server: HttpServer

    async def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
        return await asyncio.to_thread(ask, self.server.port, method, path, body)

    async def send(self, data: bytes) -> bytes:
        """Everything that comes back for these bytes, until the server closes."""
        reader, writer = await self.connect()
        with closing(writer):
            writer.write(data)
            return await reader.read()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port)


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as connection:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


@asynccontextmanager
async def serving(
    routes: Sequence[HttpRoute] = (), limits: HttpLimits | None = None, properties: Mapping[str, object] | None = None
) -> AsyncIterator[Site]:
    with Broker.open(":memory:", background=False, clock=SimClock()) as broker:
        node = BrokerNode(broker, ServerSettings.parse(properties or {}), Metrics(), asyncio.get_running_loop())
        server = await start_http(node, "127.0.0.1", 0, routes=routes, limits=limits)
        try:
            yield Site(node, server)
        finally:
            await server.close()
            node.close()


# --- pages ------------------------------------------------------------------------------------------------------------


def test_metrics_are_a_page_that_prometheus_reads() -> None:
    async def scenario() -> tuple[int, dict[str, str], bytes]:
        async with serving() as site:
            site.node.broker.create_topic("orders", 2)
            site.node.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(0)})
            site.node.metrics.request_done(0, 0.01)
            site.node.memory.change(1000)
            return await site.ask("GET", "/metrics")

    status, headers, body = run(scenario)
    assert (status, headers["content-type"]) == (200, CONTENT_TYPE)
    samples = [sample for family in text_string_to_metric_families(body.decode()) for sample in family.samples]
    found = {sample.name: sample.value for sample in samples}
    assert found["foldlog_request_memory_bytes"] == 1000
    assert found["foldlog_request_memory_limit_bytes"] == ServerSettings().queued_max_request_bytes
    assert found["foldlog_uptime_seconds"] == 0
    assert found["foldlog_group_partition_lag"] == 0
    assert found["process_cpu_seconds_total"] > 0
    assert {sample.labels["api"] for sample in samples if sample.name == "foldlog_request_errors_total"} == {"Produce"}


def test_metrics_of_single_partitions_can_be_left_out() -> None:
    async def scenario() -> tuple[bytes, bytes]:
        async with serving() as site:
            site.node.broker.create_topic("orders", 2)
            return (await site.ask("GET", "/metrics"))[2], (await site.ask("GET", "/metrics?per_partition=false"))[2]

    whole, short = run(scenario)
    assert b'partition="1"' in whole
    assert b"partition=" not in short
    assert b"foldlog_partitions{" in short


def test_many_who_scrape_at_once_are_all_answered() -> None:
    async def scenario() -> list[int]:
        async with serving() as site:
            return [status for status, _, _ in await asyncio.gather(*(site.ask("GET", "/metrics") for _ in range(8)))]

    assert run(scenario) == [200] * 8


def test_a_broker_that_serves_is_healthy_until_it_leaves_or_its_log_is_closed() -> None:
    async def scenario() -> list[tuple[int, bytes]]:
        async with serving() as site:
            answers = [await site.ask("GET", "/healthz")]
            site.node.is_leaving = True
            answers.append(await site.ask("GET", "/healthz"))
            site.node.is_leaving = False
            site.node.broker.close()
            answers.append(await site.ask("GET", "/healthz"))
            answers.append(await site.ask("GET", "/metrics"))
            return [(status, body) for status, _, body in answers]

    assert run(scenario) == [
        (200, b"ok\n"),
        (503, b"the broker is leaving\n"),
        (503, b"the log in :memory: is closed; open it again\n"),
        (503, b"the log in :memory: is closed; open it again\n"),
    ]


def test_the_first_page_names_the_others() -> None:
    async def scenario() -> tuple[int, dict[str, str], bytes]:
        async with serving() as site:
            return await site.ask("GET", "/")

    status, headers, body = run(scenario)
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert b"/metrics" in body
    assert b"/healthz" in body


def test_head_tells_the_length_and_sends_no_body() -> None:
    async def scenario() -> bytes:
        async with serving() as site:
            return await site.send(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

    head, _, body = run(scenario).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: 3" in head.lower()
    assert body == b""


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("GET", "/nothing", 404, None),
        ("GET", "/metrics/more", 404, None),
        ("POST", "/metrics", 405, "GET, HEAD"),
        ("DELETE", "/", 405, "GET, HEAD"),
        ("OPTIONS", "*", 404, None),
        ("GET", "http://localhost/healthz", 200, None),
        ("GET", "http://elsewhere/healthz", 403, None),
    ],
)
def test_other_pages_and_methods_are_refused_by_name(method: str, path: str, status: int, allowed: str | None) -> None:
    async def scenario() -> tuple[int, dict[str, str], bytes]:
        async with serving() as site:
            return await site.ask(method, path)

    found, headers, _ = run(scenario)
    assert (found, headers.get("allow")) == (status, allowed)


# --- connections ------------------------------------------------------------------------------------------------------


def test_a_connection_serves_one_request_after_the_other() -> None:
    async def scenario() -> list[bytes]:
        async with serving() as site:
            return await asyncio.to_thread(ask_twice, site.server.port)

    def ask_twice(port: int) -> list[bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as connection:
            bodies = []
            sockets = set()
            for path in ("/healthz", "/nothing", "/healthz"):
                connection.request("GET", path)
                sockets.add(connection.sock)
                bodies.append(connection.getresponse().read())
            assert len(sockets) == 1
            return bodies

    first, _, third = run(scenario)
    assert first == third == b"ok\n"


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def scenario() -> bytes:
        async with serving() as site:
            request = b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
            return await site.send(
                request % (b"/healthz", b"") + request % (b"/no", b"") + request % (b"/", b"Connection: close\r\n")
            )

    answers = run(scenario).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"404", b"200"]


def test_a_request_may_come_a_byte_at_a_time() -> None:
    async def scenario() -> bytes:
        async with serving() as site:
            reader, writer = await site.connect()
            with closing(writer):
                for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
                    writer.write(bytes([byte]))
                    await writer.drain()
                return await reader.read()

    assert run(scenario).endswith(b"\r\n\r\nok\n")


def test_one_too_many_is_told_so_and_the_others_go_on() -> None:
    async def scenario() -> tuple[bytes, bytes]:
        async with serving(limits=HttpLimits(connections_max=1)) as site:
            reader, writer = await site.connect()
            request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
            with closing(writer):
                writer.write(request)
                await reader.readuntil(b"ok\n")
                refused = await site.send(b"")
                writer.write(request)
                return refused, await reader.readuntil(b"ok\n")

    refused, served = run(scenario)
    assert refused.startswith(b"HTTP/1.1 503")
    assert served.startswith(b"HTTP/1.1 200")


def test_a_port_that_is_taken_is_one_sentence() -> None:
    async def scenario() -> None:
        async with serving() as site:
            await start_http(site.node, "127.0.0.1", site.server.port)

    with pytest.raises(AddressUnavailable, match=r"cannot listen on 127\.0\.0\.1:\d+: another process listens there"):
        run(scenario)


def test_an_address_that_others_reach_has_to_be_asked_for() -> None:
    async def refused() -> None:
        async with serving() as site:
            await start_http(site.node, "0.0.0.0", 0)

    async def insecure() -> int:
        async with serving(properties={"foldlog.insecure": "true"}) as site:
            server = await start_http(site.node, "0.0.0.0", 0)
            try:
                return (await asyncio.to_thread(ask, server.port, "GET", "/healthz"))[0]
            finally:
                await server.close()

    with pytest.raises(InvalidConfig, match="--insecure"):
        run(refused)
    assert run(insecure) == 200


def test_closing_cuts_off_who_is_connected_and_frees_the_port() -> None:
    async def scenario() -> bytes:
        async with serving() as site:
            port = site.server.port
            reader, writer = await site.connect()
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"ok\n")
            await site.server.close()
            with closing(writer):
                rest = await reader.read()
            with closing(socket.create_server(("127.0.0.1", port))):
                return rest

    assert run(scenario) == b""


# --- routes -----------------------------------------------------------------------------------------------------------


def test_a_route_gets_path_query_headers_and_body() -> None:
    async def echo(request: HttpRequest) -> HttpResponse:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        return HttpResponse.json(
            {
                "path": request.path,
                "query": dict(request.query),
                "host": request.headers["host"],
                "n": len(request.body),
            }
        )

    async def scenario() -> tuple[int, bytes]:
        async with serving([HttpRoute("POST", "/api/*", echo)]) as site:
            status, _, body = await site.ask("POST", "/api/topics/a%20b?tail=1&empty=", b"x" * 200_000)
            return status, body.replace(str(site.server.port).encode(), b"PORT")

    assert run(scenario) == (
        200,
        b'{"path": "/api/topics/a b", "query": {"tail": "1", "empty": ""}, "host": "127.0.0.1:PORT", "n": 200000}',
    )


def test_the_nearest_route_answers() -> None:
    def named(name: str) -> Callable[[HttpRequest], HttpResponse]:
        return lambda _: HttpResponse.text(name)

    paths = ("/", "/*", "/api/*", "/api/topics/*", "/api/topics/one")
    routes = HttpRoutes([HttpRoute("GET", path, named(path)) for path in paths])

    def found(path: str) -> bytes:
        handler = routes.find(HttpRequest("GET", path))
        assert not isinstance(handler, HttpResponse)
        answer = handler(HttpRequest("GET", path))
        assert isinstance(answer, HttpResponse)
        assert isinstance(answer.body, bytes)
        return answer.body.strip()

    asked = ("/", "/x", "/api", "/api/", "/api/x/y", "/api/topics/one", "/api/topics/one/two", "/apis")
    assert [found(path) for path in asked] == [
        b"/", b"/*", b"/*", b"/api/*", b"/api/*", b"/api/topics/one", b"/api/topics/*", b"/*",
    ]  # fmt: skip


def test_a_stream_is_sent_as_it_comes_and_ended_when_it_ends() -> None:
    async def scenario() -> tuple[list[bytes], bytes]:
        more = asyncio.Event()

        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"first"
            await more.wait()
            yield b"second"

        async with serving([HttpRoute("GET", "/events", lambda _: HttpResponse(body=pieces()))]) as site:
            reader, writer = await site.connect()
            with closing(writer):
                writer.write(
                    b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
                )
                head = await reader.readuntil(b"first")
                more.set()
                return [head[:15], await reader.readuntil(b"0\r\n\r\n")], await reader.readuntil(b"ok\n")

    (head, rest), after = run(scenario)
    assert head == b"HTTP/1.1 200 OK"
    assert b"second" in rest
    assert after.startswith(b"HTTP/1.1 200 OK")


def test_a_stream_is_closed_when_nobody_reads_it() -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        async def endless() -> AsyncGenerator[bytes, None]:
            try:
                while True:
                    yield b"x" * 100_000
            finally:
                closed.set()

        async with serving([HttpRoute("GET", "/events", lambda _: HttpResponse(body=endless()))]) as site:
            reader, writer = await site.connect()
            writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.abort()
            await closed.wait()

    run(scenario)


def test_the_head_of_a_stream_is_only_its_head() -> None:
    began = []

    async def pieces() -> AsyncGenerator[bytes, None]:
        began.append(True)
        yield b"x"

    async def scenario() -> bytes:
        async with serving([HttpRoute("GET", "/events", lambda _: HttpResponse(body=pieces()))]) as site:
            request = b"HEAD /events HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
            return await site.send(request % b"" + request % b"Connection: close\r\n")

    answers = run(scenario).split(b"HTTP/1.1 ")[1:]
    assert [answer[-4:] for answer in answers] == [b"\r\n\r\n"] * 2
    assert began == []


def test_a_handler_that_fails_costs_its_answer_and_not_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: HttpRequest) -> HttpResponse:
        raise ZeroDivisionError("secret")

    def refuse(_: HttpRequest) -> HttpResponse:
        raise UnknownTopic("orders")

    async def scenario() -> list[tuple[int, bytes]]:
        async with serving([HttpRoute("GET", "/fail", fail), HttpRoute("GET", "/refuse", refuse)]) as site:
            answers = [await site.ask("GET", path) for path in ("/fail", "/refuse", "/healthz")]
            return [(status, body) for status, _, body in answers]

    failed, refused, healthy = run(scenario)
    assert failed == (500, b"the broker failed to answer; its log says why\n")
    assert refused == (503, b"no topic 'orders'; create it with create_topic()\n")
    assert healthy == (200, b"ok\n")
    assert [record.levelname for record in caplog.records if record.name == "foldlog.http"] == ["ERROR"]


# --- what should not come ---------------------------------------------------------------------------------------------

KAFKA_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)

POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""What a client hides behind a request, for whoever reads its length differently than the proxy in front."""

BAD = {
    "a Kafka client": (KAFKA_API_VERSIONS, 400),
    "a TLS client": (bytes.fromhex("16030100c8010000c40303"), 400),
    "no HTTP": (b"hello there\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "a header without a colon": (b"GET / HTTP/1.1\r\nHost: localhost\r\nnonsense\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "a negative length": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
    "one length twice": (POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
    "one length twice in a line": (POST + b"Content-Length: 1, 1\r\n\r\na", 400),
    "a length and chunks": (POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "chunks and a length": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
    "chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 9000 + b"\r\na\r\n0\r\n\r\n" + HIDDEN, 411),
    "chunks in HTTP/1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 411),
    "an unknown encoding": (POST + b"Transfer-Encoding: xchunked\r\n\r\n", 411),
    "a length with a sign": (POST + b"Content-Length: +1\r\n\r\na", 400),
    "a length in another base": (POST + b"Content-Length: 0x1\r\n\r\na", 400),
    "a space before the colon": (POST + b"Content-Length : 1\r\n\r\na", 400),
    "a folded header": (POST + b"X-One: a\r\n b\r\n\r\n", 400),
    "a header folded with a tab": (POST + b"X-One: a\r\n\tContent-Length: 9\r\n\r\n", 400),
    "lines that end with LF alone": (b"GET / HTTP/1.1\nHost: localhost\n\n", 400),
    "one line that ends with LF alone": (POST + b"X-One: a\nContent-Length: 9\r\n\r\n", 400),
    "an end of headers without CR": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\n", 400),
    "a CR in a header": (POST + b"X-One: a\rContent-Length: 9\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: x\r\n\r\n", 400),
    "a bad address": (b"GET http://[::1/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "another host in the target": (b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "another port in the target": (b"GET http://localhost:1/ HTTP/1.1\r\nHost: localhost:2\r\n\r\n", 400),
    "HTTP/1.2": (b"GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n", 505),
    "HTTP/2.0": (b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    "the first words of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "headers without end": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: " + b"a" * 100_000, 431),
    "a target without end": (b"GET /" + b"a" * 100_000, 431),
    "a body too large": (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n" + bytes(2_000_000),
        413,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_one_debug_line_and_the_others_go_on(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, status = BAD[name]

    async def scenario() -> tuple[bytes, int]:
        async with serving() as site:
            return await site.send(data), (await site.ask("GET", "/healthz"))[0]

    with caplog.at_level(logging.DEBUG, logger="foldlog.http"):
        answer, healthy = run(scenario)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1") == 1
    assert healthy == 200
    lines = [record for record in caplog.records if record.name == "foldlog.http"]
    assert [record.levelname for record in lines] == ["DEBUG"]


def test_who_stays_after_a_refusal_is_closed_without_another_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.server.http.http._LINGER_S", 0.01)

    async def scenario() -> bytes:
        async with serving() as site:
            reader, writer = await site.connect()
            with closing(writer):
                writer.write(BAD["two hosts"][0])
                answer = await reader.read()
                await asyncio.gather(*site.server._tasks)
                return answer

    with caplog.at_level(logging.DEBUG, logger="foldlog.http"):
        assert run(scenario).startswith(b"HTTP/1.1 400 ")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "foldlog.http"]
    assert "request refused" in line


def test_the_second_request_of_a_connection_is_looked_at_as_the_first_is() -> None:
    async def scenario() -> bytes:
        async with serving() as site:
            return await site.send(
                HIDDEN + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-One: a\r\n b\r\n\r\n" + HIDDEN
            )

    answer = run(scenario)
    assert [answer.count(b"HTTP/1.1 %d" % status) for status in (200, 400)] == [1, 1]


def test_a_target_that_names_the_same_host_is_served() -> None:
    async def scenario() -> bytes:
        async with serving() as site:
            return await site.send(
                b"GET http://LocalHost/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )

    assert run(scenario).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/no/such/page"])
def test_a_name_that_somebody_else_made_to_point_here_is_refused(path: str) -> None:
    async def scenario(host: bytes) -> bytes:
        async with serving(properties={"advertised.listeners": "broker.example:9092"}) as site:
            request = b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
            return await site.send(request % (path.encode(), host))

    refused = run(lambda: scenario(b"rebound.example:8080"))
    assert refused.startswith(b"HTTP/1.1 403")
    assert b"'rebound.example' is no name of this broker" in refused
    for host in (b"localhost:8080", b"127.0.0.1", b"[::1]:8080", b"LocalHost.", b"broker.example:9092"):
        assert not run(lambda host=host: scenario(host)).startswith(b"HTTP/1.1 403")  # type: ignore[misc]


def test_a_client_that_leaves_in_the_middle_of_a_request_is_forgotten() -> None:
    async def scenario() -> bytes:
        async with serving() as site:
            reader, writer = await site.connect()
            with closing(writer):
                writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
                writer.write_eof()
                return await reader.read()

    assert run(scenario).startswith(b"HTTP/1.1 400")


def test_a_client_that_never_ends_its_request_is_cut_off() -> None:
    async def scenario() -> bytes:
        async with serving(limits=HttpLimits(stall_ms=20)) as site:
            return await site.send(b"GET / HTTP/1.1\r\nHost:")

    assert run(scenario) == b""


def test_a_client_that_says_nothing_is_cut_off() -> None:
    async def scenario() -> bytes:
        async with serving(limits=HttpLimits(stall_ms=20)) as site:
            return await site.send(b"")

    assert run(scenario) == b""


def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    """The answer is larger than what the sockets hold. That the server gave up shows in the stream being closed."""

    async def scenario() -> None:
        closed = asyncio.Event()

        async def large() -> AsyncGenerator[bytes, None]:
            try:
                for _ in range(1000):
                    yield bytes(1 << 20)
            finally:
                closed.set()

        routes = [HttpRoute("GET", "/large", lambda _: HttpResponse(body=large()))]
        async with serving(routes, limits=HttpLimits(stall_ms=50)) as site:
            with closing(socket.create_connection(("127.0.0.1", site.server.port))) as connection:
                connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await closed.wait()

    run(scenario)


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    async def scenario() -> tuple[bytes, bytes]:
        routes = [HttpRoute("POST", "/size", lambda request: HttpResponse.text(str(len(request.body))))]
        async with serving(routes) as site:
            reader, writer = await site.connect()
            with closing(writer):
                writer.write(
                    b"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
                )
                asked = await reader.readuntil(b"\r\n\r\n")
                writer.write(b"abcde")
                return asked, await reader.readuntil(b"\r\n\r\n5\n")

    asked, answer = run(scenario)
    assert asked.startswith(b"HTTP/1.1 100 ")
    assert answer.startswith(b"HTTP/1.1 200 ")


@settings(max_examples=5)
@given(st.lists(st.one_of(st.binary(max_size=200), st.binary(max_size=50).map(lambda b: b"GET " + b)), min_size=20))
def test_any_bytes_end_in_an_answer_or_in_nothing_and_never_in_an_error_of_ours(pieces: list[bytes]) -> None:
    async def scenario() -> int:
        async with serving() as site:
            for piece in pieces:
                reader, writer = await site.connect()
                with closing(writer):
                    writer.write(piece)
                    writer.write_eof()
                    answer = await reader.read()
                assert answer == b"" or answer[:10] in {b"HTTP/1.1 4", b"HTTP/1.1 5", b"HTTP/1.1 2"}, answer
                assert b"HTTP/1.1 500" not in answer
            return (await site.ask("GET", "/healthz"))[0]

    assert run(scenario) == 200
