"""The stream of events: all of it first, then what changed, merged for who is slow; nothing while nobody listens."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.limits import CONSOLE_LISTENERS_MAX
from foldlog.records.loops import pack
from foldlog.server.config.settings import ServerSettings
from foldlog.server.console.events import ConsoleEvent, EventFeed, merged_by, merged_dicts
from foldlog.server.console.rates import Rates
from foldlog.server.console.site import start_console
from foldlog.server.http.http import HttpLimits
from foldlog.server.metrics.metrics import Metrics
from foldlog.server.net.listeners import Listener
from foldlog.server.node import BrokerNode
from foldlog.testing.sim_clock import SimClock
from server.console.console_site import WAIT_S, Event, console

FOREVER = {"retention.ms": -1}

REQUEST = b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def take_until(events: Iterator[Event], is_last: Callable[[Event], bool]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        found.append(event)
        if is_last(event):
            return found
    raise AssertionError(f"the stream ended with {found}")


def named(name: str, holds: Callable[[Any], bool] = bool) -> Callable[[Event], bool]:
    return lambda event: event.name == name and holds(event.data)


# --- over HTTP --------------------------------------------------------------------------------------------------------


def test_a_listener_is_told_everything_first_and_then_what_moved() -> None:
    with console() as site:
        site.broker.create_topic("orders", 2)
        site.append("orders", 0, (b"a", b"1"), (b"a", b"2"))
        site.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(1)})
        with site.events() as events:
            first = take_until(events, named("groups"))
            assert first[0] == Event(
                "ends", {"__consumer_offsets": {"0": [0, 1]}, "orders": {"0": [0, 2], "1": [0, 0]}}
            )
            assert first[1].data == [
                {
                    "group": "fraud", "type": "classic", "is_fold": False, "state": "Empty", "members": 0,
                    "cursors": [{"topic": "orders", "partition": 0, "offset": 1, "is_committed": True, "lag": 1}],
                }
            ]  # fmt: skip
            site.append("orders", 1, (b"a", b"1"))
            moved = take_until(events, named("ends"))[-1]
            assert moved.data == {"orders": {"1": [0, 1]}}
            site.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(2)})
            committed = take_until(events, named("groups", lambda data: data[0]["cursors"][0]["offset"] == 2))[-1]
            assert [group["group"] for group in committed.data] == ["fraud"]


def test_the_edge_moves_the_start_and_topics_and_groups_that_come_or_go_are_told() -> None:
    with console() as site:
        site.broker.create_topic("orders")
        site.append("orders", 0, (b"a", b"1"), (b"a", b"2"))
        site.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(1)})
        with site.events() as events:
            take_until(events, named("groups"))
            site.broker.writable_partition("orders", 0).delete_records(1)
            assert take_until(events, named("ends"))[-1].data == {"orders": {"0": [1, 2]}}
            site.broker.create_topic("prices")
            take_until(events, lambda event: event.name == "topics")
            site.broker.delete_group("fraud")
            take_until(events, lambda event: event.name == "topics")
            assert site.get("/api/overview")["groups"] == []


def test_rates_come_by_themselves() -> None:
    with console() as site:
        site.broker.create_topic("orders")
        with site.events() as events:
            take_until(events, named("ends"))
            site.append("orders", 0, *((b"a", b"1") for _ in range(1000)))
            rates = take_until(events, named("rates"))[-1].data
            assert rates["orders"]["records_per_s"] > 0
            assert rates["orders"]["bytes_per_s"] > 0
            (orders,) = (each for each in site.get("/api/overview")["topics"] if each["name"] == "orders")
            assert orders["records_per_s"] > 0


def test_more_pages_than_can_listen_are_refused_and_one_that_leaves_makes_room() -> None:
    with console() as site, ExitStack() as pages:
        site.broker.create_topic("orders")
        opened = [pages.enter_context(site.events()) for _ in range(CONSOLE_LISTENERS_MAX)]
        for events in opened:
            take_until(events, named("ends"))
        refused = site.ask("GET", "/api/events")
        assert refused.status == 503
        assert "close one" in refused.json["error"]
        pages.close()
        while site.ask("HEAD", "/api/events").status == 503:
            site.append("orders", 0, (b"a", b"1"))  # a write finds out that nobody reads
        with site.events() as events:
            take_until(events, named("ends"))


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """With a small limit of time and much to tell, its connection ends; that of one who reads goes on."""

    async def scenario() -> None:
        with Broker.open(":memory:") as broker:
            node = BrokerNode(broker, ServerSettings.parse({}), Metrics(), asyncio.get_running_loop())
            limits = HttpLimits(stall_ms=200)
            site = await start_console(node, Listener("CONSOLE", "127.0.0.1", 0), bootstrap="", limits=limits)
            site.feed.contribute(lambda: ("noise", "x" * 100_000))
            try:
                with closing(socket.socket()) as deaf:
                    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    deaf.connect(("127.0.0.1", site.port))
                    deaf.sendall(REQUEST)
                    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
                    with closing(writer):
                        writer.write(REQUEST)
                        while site.feed.listener_count < 2:
                            await reader.read(1 << 16)
                        while site.feed.listener_count == 2:
                            await reader.read(1 << 16)
                        assert await reader.read(1 << 16)
                        assert site.feed.listener_count == 1
            finally:
                await site.close()
                node.close()

    run(scenario)


def _batch() -> bytes:
    return bytes(pack([(1000, b"k", b"v", ())]))


# --- the feed by itself -----------------------------------------------------------------------------------------------


async def pieces(stream: AsyncGenerator[bytes, None], count: int) -> list[bytes]:
    return [await anext(stream) for _ in range(count)]


async def turn() -> None:
    """Let others on the loop do what they have to do now."""
    await asyncio.to_thread(int)


def run(scenario: Callable[[], Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(WAIT_S):
            return await scenario()

    return asyncio.run(bounded())


def test_nobody_is_asked_while_nobody_listens() -> None:
    async def scenario() -> None:
        asked = 0

        def changes() -> ConsoleEvent | None:
            nonlocal asked
            asked += 1
            return ConsoleEvent("n", asked)

        feed = EventFeed(gather_s=0)
        feed.contribute(changes)
        assert asked == 0
        async with aclosing(feed.stream()) as stream:
            await pieces(stream, 3)
        assert asked > 1
        assert feed.listener_count == 0
        while feed.is_gathering:
            await turn()
        at_rest = asked
        for _ in range(5):
            await turn()
        assert asked == at_rest
        async with aclosing(feed.stream()) as stream:
            await pieces(stream, 2)
        assert asked > at_rest
        await feed.close()

    run(scenario)


def test_what_a_slow_listener_missed_is_merged_and_comes_as_one() -> None:
    async def scenario() -> list[bytes]:
        data = iter([{"a": {"0": 1}}, {"a": {"1": 5}, "b": {"0": 2}}, {"a": {"0": 3}}])
        told: list[ConsoleEvent | None] = []

        async def changes() -> ConsoleEvent | None:
            found = next(data, None)
            told.append(None if found is None else ConsoleEvent("ends", found))
            return told[-1]

        feed = EventFeed(gather_s=0)
        feed.contribute(changes, whole=lambda: ("ends", {"z": {}}), merge=merged_dicts)
        async with aclosing(feed.stream()) as stream:
            await pieces(stream, 1)
            first = await anext(stream)
            while len(told) < 4:
                await turn()
            rest = await anext(stream)
        await feed.close()
        return [first, rest]

    first, rest = run(scenario)
    # The first change is part of what a new listener is told as a whole.
    assert first == b'event: ends\ndata: {"z": {}}\n\n'
    assert rest == b'event: ends\ndata: {"a": {"1": 5, "0": 3}, "b": {"0": 2}}\n\n'


def test_a_contributor_that_fails_does_not_keep_the_others_from_telling(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> bytes:
        def broken() -> ConsoleEvent | None:
            raise RuntimeError("not today")

        feed = EventFeed(gather_s=0)
        feed.contribute(broken)
        feed.contribute(lambda: ("folds", [{"fold": "shop"}]), merge=merged_by("fold"))
        async with aclosing(feed.stream()) as stream:
            found = (await pieces(stream, 4))[-1]
        await feed.close()
        return found

    assert run(scenario) == b'event: folds\ndata: [{"fold": "shop"}]\n\n'
    assert sum("events failed" in record.message for record in caplog.records) == 1


def test_a_quiet_stream_says_a_line_now_and_then() -> None:
    async def scenario() -> list[bytes]:
        feed = EventFeed(gather_s=0, comment_s=0)
        feed.contribute(lambda: None)
        async with aclosing(feed.stream()) as stream:
            found = await pieces(stream, 3)
        await feed.close()
        return found

    assert run(scenario) == [b"retry: 1000\n\n", b": nothing new\n\n", b": nothing new\n\n"]


# --- rates ------------------------------------------------------------------------------------------------------------


def test_rates_follow_the_ends_and_the_bytes_whatever_retention_removes() -> None:
    with Broker.open(":memory:", background=False, clock=SimClock()) as broker:
        batch = _batch()
        broker.create_topic("orders", 2, {"foldlog.segment.records": 10, "retention.bytes": 15 * len(batch)} | FOREVER)
        partition = broker.writable_partition("orders", 0)

        def append(count: int) -> None:
            for _ in range(count):
                partition.append(batch)
            partition.sync()

        rates = Rates()
        append(25)
        assert rates.sample(broker, 1000.0) == {}
        append(10)
        assert broker.enforce_retention("orders") == 2
        append(15)
        assert rates.sample(broker, 1999.0) == {}
        changed = rates.sample(broker, 2000.0)
        assert changed == {"orders": {"records_per_s": 25.0, "bytes_per_s": 25.0 * len(batch)}}
        assert rates.of("orders") == changed["orders"]
        assert rates.all() == changed
        assert rates.sample(broker, 3000.0)["orders"]["records_per_s"] == 12.5
        assert rates.sample(broker, 4000.0)["orders"]["records_per_s"] == 0
        assert rates.sample(broker, 5000.0) == {}
        assert rates.all() == {}
        assert rates.of("unknown") == {"records_per_s": 0.0, "bytes_per_s": 0.0}


def test_a_topic_that_is_new_and_a_partition_that_is_opened_have_rates_at_once(tmp_path: Path) -> None:
    batch = _batch()
    with Broker.open(str(tmp_path), background=False) as broker:
        broker.create_topic("old")
        partition = broker.writable_partition("old", 0)
        partition.append(batch)
        partition.sync()
    with Broker.open(str(tmp_path), background=False) as broker:
        rates = Rates()
        rates.sample(broker, 1000.0)
        broker.create_topic("new")
        for name in ("old", "new"):
            partition = broker.writable_partition(name, 0)
            for _ in range(4):
                partition.append(batch)
            partition.sync()
        found = rates.sample(broker, 2000.0)
        assert found == {name: {"records_per_s": 4.0, "bytes_per_s": 4.0 * len(batch)} for name in ("new", "old")}


def test_what_was_seen_long_ago_says_nothing_about_now() -> None:
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("orders")
        rates = Rates()
        rates.sample(broker, 1000.0)
        partition = broker.writable_partition("orders", 0)
        partition.append(_batch())
        partition.sync()
        assert rates.sample(broker, 60_000.0) == {}
        assert rates.of("orders")["records_per_s"] == 0


def test_tabs_that_are_closed_in_any_moment_log_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A browser that leaves resets its connections: before their first event, between two, and in the middle of one."""
    with console() as site:
        site.broker.create_topic("orders")
        for turn in range(30):
            tabs = [socket.create_connection((site.host, site.port)) for _ in range(6)]
            for number, tab in enumerate(tabs):
                tab.sendall(b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"[: None if number else 20])
                tab.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if turn % 3 and number:
                    assert tab.recv(100)
            site.append("orders", 0, (b"k", b"v" * 1000))
            for tab in tabs:
                tab.close()
            site.append("orders", 0, (b"k", b"v" * 1000))
        site.get("/api/overview")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
