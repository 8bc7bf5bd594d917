"""What a Fetch costs: requests a second, and the broker's processor time for each.

Beside reading from the page cache, which `bench.broker_requests` has, what consumers do most of the time: wait for the
next record, and go on with a session of many partitions.
"""

from __future__ import annotations

import gc
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from bench import broker_process
from bench.broker import KIB, MIB, batch_of_bytes
from bench.broker_load import (
    CLIENT_ID,
    CORRELATION_ID,
    FETCH_VERSION,
    PRODUCE_VERSION,
    LoadFailed,
    ask,
    connect,
    fetch_load,
    produce_load,
    run_flat_out,
)
from bench.broker_process import BrokerProcess
from bench.measuring import FULL, Place, Scale
from bench.table import Table

from foldlog.wire.frames import decode_response, encode_request
from foldlog.wire.messages import fetch, produce
from foldlog.wire.schema import Request

_CONNECTIONS = (1, 4, 16)
_SESSION_PARTITIONS = 100
_BATCH_BYTES = 64 * KIB
_SMALL_BYTES = 4 * KIB
_RECORD_BYTES = 1 * KIB
_RELAXED = str((1 << 63) - 1)
_LENGTH = struct.Struct(">i")


class Fetches:
    """The measurements that share one broker process."""

    def __init__(self, broker: BrokerProcess, seconds: float, bytes_max: int) -> None:
        self._broker = broker
        self._seconds = seconds
        self._bytes_max = bytes_max
        self._numbers = count()

    def fill(self, topic: str, partitions: int, batch_bytes: int) -> list[int]:
        """Write batches of that size; how many each partition has."""
        self._broker.create_topic(topic, partitions, flush_messages=_RELAXED)
        batch, records = batch_of_bytes(batch_bytes, "none")
        load = produce_load(topic, partitions, batch, records, -1, 16)
        written = run_flat_out(self._broker.address, load, 1, 20.0, self._bytes_max)
        return [written.requests // partitions] * partitions

    def read(self, topic: str, batches: list[int], batch_bytes: int, fetch_bytes: int, connections: int) -> str:
        batch, records = batch_of_bytes(batch_bytes, "none")
        load = fetch_load(topic, batches, batch, records, 4, max(1, fetch_bytes // len(batch)))
        gc.collect()
        before = self._broker.threads_cpu_s()
        found = run_flat_out(self._broker.address, load, connections, self._seconds, 1 << 50)
        cpu_s = self._broker.threads_cpu_s() - before
        speed = f", {found.bytes_per_second / 1e9:.2f} GB/s" if fetch_bytes > batch_bytes else ""
        return f"{found.requests / found.seconds:,.0f}/s, {cpu_s / found.requests * 1e6:.1f} us{speed}"

    def woken(self) -> str:
        """A fetch that waits at the end of the log, and a record with acks=1 that wakes it."""
        topic = f"woken-{next(self._numbers)}"
        self._broker.create_topic(topic, 1, flush_messages=_RELAXED)
        batch, records = batch_of_bytes(_RECORD_BYTES, "none")
        sent = produce.PartitionProduceData(index=0, records=batch)
        request = produce.ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[produce.TopicProduceData(name=topic, partition_data=[sent])]
        )
        record = _framed(request, PRODUCE_VERSION)
        with connect(self._broker.address) as reader, connect(self._broker.address) as writer:
            offset = 0

            def turn() -> None:
                nonlocal offset
                reader.sendall(_framed(_asks(topic, [(0, offset)], max_wait_ms=10_000), FETCH_VERSION))
                writer.sendall(record)
                answer = _taken(reader)
                if not answer.responses[0].partitions[0].records:
                    raise LoadFailed("a fetch was woken for nothing")
                offset += records
                writer.recv(1 << 16)

            return self._timed(turn)

    def session(self, topic: str, end: int, *, has_news: bool) -> str:
        """A session of many partitions: nothing new in any, or a batch of one of them."""
        numbers = [(number, end) for number in range(_SESSION_PARTITIONS)]
        with connect(self._broker.address) as reader:
            first = _asks(topic, numbers, session_epoch=0)
            session_id = ask(reader, first, FETCH_VERSION, fetch.FetchResponse).session_id
            epoch = 0

            def turn() -> None:
                nonlocal epoch
                epoch += 1
                moved = [(epoch % _SESSION_PARTITIONS, 0)] if has_news else []
                back = [((epoch - 1) % _SESSION_PARTITIONS, end)] if has_news else []
                request = _asks(topic, moved + back, session_epoch=epoch, session_id=session_id)
                reader.sendall(_framed(request, FETCH_VERSION))
                answer = _taken(reader)
                if answer.error_code or (len(answer.responses) > 0) is not has_news:
                    raise LoadFailed(f"a session's answer: {answer}")

            return self._timed(turn)

    def _timed(self, turn: Callable[[], None]) -> str:
        for _ in range(20):
            turn()
        gc.collect()
        before, start, turns = self._broker.threads_cpu_s(), time.perf_counter(), 0
        while time.perf_counter() < start + self._seconds:
            turn()
            turns += 1
        took_s, cpu_s = time.perf_counter() - start, self._broker.threads_cpu_s() - before
        return f"{turns / took_s:,.0f}/s, {cpu_s / turns * 1e6:.1f} us"


def _asks(
    topic: str, wanted: list[tuple[int, int]], *, max_wait_ms: int = 0, session_id: int = 0, session_epoch: int = -1
) -> fetch.FetchRequest:
    partitions = [
        fetch.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=MIB)
        for number, offset in wanted
    ]
    return fetch.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=MIB, session_id=session_id, session_epoch=session_epoch,
        topics=[fetch.FetchTopic(topic=topic, partitions=partitions)] if partitions else [],
    )  # fmt: skip


def _framed(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version, CORRELATION_ID, CLIENT_ID))


def _taken(opened: socket.socket) -> fetch.FetchResponse:
    received = bytearray()
    while len(received) < _LENGTH.size or len(received) < _LENGTH.size + _LENGTH.unpack_from(received)[0]:
        part = opened.recv(1 << 20)
        if not part:
            raise LoadFailed("the connection was closed")
        received += part
    return decode_response(fetch.FetchResponse, FETCH_VERSION, bytes(received[_LENGTH.size :]))[1]


def run(place: Place, scale: Scale) -> Table:
    turns, seconds, bytes_max = (3, 0.7, 256 * MIB) if scale is FULL else (1, 0.02, MIB)
    path = place.fresh()
    with broker_process.running(path / "log") as broker:
        fetches = Fetches(broker, seconds, bytes_max)
        large, small = fetches.fill("large", 4, _BATCH_BYTES), fetches.fill("small", 4, _SMALL_BYTES)
        broker.create_topic("many", _SESSION_PARTITIONS, flush_messages=_RELAXED)
        batch, records = batch_of_bytes(_RECORD_BYTES, "none")
        each_one = produce_load("many", _SESSION_PARTITIONS, batch, records, -1, 16)
        run_flat_out(broker.address, each_one, 1, 20.0, 0)
        cases: dict[str, Callable[[], str]] = {}
        for connections in _CONNECTIONS:
            each = "1 connection" if connections == 1 else f"{connections} connections"
            for what, topic, batches, batch_bytes, fetch_bytes in (
                ("1 MiB in batches of 64 KB", "large", large, _BATCH_BYTES, MIB),
                ("one batch of 4 KB", "small", small, _SMALL_BYTES, 1),
            ):
                read = partial(fetches.read, topic, batches, batch_bytes, fetch_bytes, connections)
                cases[f"{what}, {each}"] = read
        many = f"a session of {_SESSION_PARTITIONS} partitions"
        cases["a long poll, woken by a record (both requests)"] = fetches.woken
        cases[f"{many}, nothing new"] = partial(fetches.session, "many", records, has_news=False)
        cases[f"{many}, a batch of one"] = partial(fetches.session, "many", records, has_news=True)
        found = {name: [case() for _ in range(turns)] for name, case in cases.items()}
        lines = [[name, _median(cells)] for name, cells in found.items()]
    place.give_back(path)
    notes = [
        "Requests a second, and processor time of the broker for each, in all its threads; the median turn.",
        "Four requests are in flight on each connection that reads from the page cache, else one.",
    ]
    return Table("What a fetch costs", ["fetch", "requests a second, processor time of each"], lines, notes)


def _median(cells: list[str]) -> str:
    """The turn whose processor time is in the middle."""
    return sorted(cells, key=lambda cell: float(cell.split(", ")[1].split()[0]))[(len(cells) - 1) // 2]
