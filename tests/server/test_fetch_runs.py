"""The fast path of Fetch answers what the handler answers, byte for byte.

Two servers share one log: one takes the fast path where it can, the other has none. Requests name topics with small
segments, compressed batches, gaps of compaction, transactions that were committed, aborted or are open, a start that
moved, nothing at all; sessions go on from answer to answer, while records come. Others are broken at random, and so are
the files.
"""

from __future__ import annotations

import os
import shutil
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog.broker.broker import Broker
from foldlog.clock import Clock
from foldlog.errors import StorageError
from foldlog.files.memory import MemoryFiles
from foldlog.log.partition import Partition
from foldlog.records.loops import COMPILED, pack
from foldlog.server.config.settings import ServerSettings
from foldlog.server.fetches import fast_path
from foldlog.server.fetches.fast_path import FastFetch, FetchFastPath
from foldlog.server.fetches.fetching import Fetching, FetchReading
from foldlog.server.fetches.sessions import FetchSessions
from foldlog.server.server import Server
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind, Operation
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import decode_response, encode_request
from foldlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from foldlog.wire.messages.produce import ProduceResponse
from server.raw_client import RawClient, fetch, produce

pytestmark = pytest.mark.skipif(not COMPILED, reason="without compiled modules there is no fast path")

EXAMPLES = int(os.environ.get("FOLDLOG_FUZZ_EXAMPLES", "60"))
NOW_MS = 1_700_000_000_000
VERSIONS = (4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 18)
KINDS = ("plain", "compacted", "transactions", "empty", "moved", "absent")
PARTITIONS = 2
OFFSETS_MAX = 140


def batch(*values: bytes, key: bytes | None = None, codec: int = 0) -> bytearray:
    return bytearray(pack([(NOW_MS, key, value, ()) for value in values], compression=codec))


def transactional(value: bytes, producer_id: int, sequence: int) -> bytes:
    made = batch(value)
    struct.pack_into(">qhi", made, 43, producer_id, 0, sequence)
    made[22] |= 0x10
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)


def fill(broker: Broker) -> None:
    config = {"segment.bytes": "4000", "index.interval.bytes": "300"}
    broker.create_topic("plain", PARTITIONS, config)
    broker.create_topic("compacted", PARTITIONS, {**config, "cleanup.policy": "compact"})
    for name in ("transactions", "empty", "moved"):
        broker.create_topic(name, PARTITIONS, {} if name == "transactions" else config)
    for number in range(PARTITIONS):
        opened = {name: cast(Partition, broker.partition(name, number)) for name in KINDS[:-1]}
        for at in range(60):
            opened["plain"].append(bytes(batch(*[b"%d" % at * (1 + at % 40)] * (1 + at % 4), codec=at % 5)))
            opened["compacted"].append(bytes(batch(b"%d" % at * 20, key=b"k%d" % (at % 7))))
            opened["moved"].append(bytes(batch(b"x" * 100)))
        opened["compacted"].compact(force=True)
        opened["moved"].sync()
        opened["moved"].delete_records(31)
        ends = opened["transactions"]
        for at in range(24):
            of_transaction = transactional(b"t" * (at * 30), 900 + at % 3, at // 3)
            ends.append(of_transaction, foreign=True, begins_transaction=True)
            if at % 6 >= 3 and at < 21:
                ends.append_marker(900 + at % 3, 0, 0, commit=at % 2 == 0, transaction_version=1)
            ends.append(bytes(batch(b"between")))
        for one in opened.values():
            one.sync()


@dataclass
class Both:
    broker: Broker
    fast: Server
    slow: Server
    numbers: Iterator[int] = field(default_factory=count)
    taken: int = 0
    again: int = 0  # how often of these a pass was left to Python

    def topic_id(self, name: str) -> bytes:
        topic = self.broker.find_topic(name)
        return bytes(range(16)) if topic is None else bytes.fromhex(topic.topic_id)


def serve(broker: Broker) -> Server:
    return Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"}))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    patch = pytest.MonkeyPatch()
    begin_sessions = FetchSessions.__init__

    def seeded(sessions: FetchSessions, slots_max: int, clock: Clock) -> None:
        begin_sessions(sessions, slots_max, clock, seed=7)  # their ids are equal then

    patch.setattr(FetchSessions, "__init__", seeded)
    path = tmp_path_factory.mktemp("fetched")
    with Broker.open(str(path / "first")) as first:
        fill(first)
        shutil.copytree(path / "first", path / "log")  # as a crash leaves it: the next open begins another epoch
    with Broker.open(str(path / "log")) as broker:
        for name in KINDS[:3]:
            partition = cast(Partition, broker.partition(name, 0))
            partition.append(bytes(batch(b"later", key=b"later")))
            partition.sync()
        with patch.context() as slowly:
            slowly.setattr(fast_path, "_compiled", lambda: None)
            slow = serve(broker)
        made = Both(broker, serve(broker), slow)
        begin = FetchFastPath.begin

        def counted(path: FetchFastPath, *arguments: Any) -> Any:
            found = begin(path, *arguments)
            made.taken += found is not None
            return found

        patch.setattr(FetchFastPath, "begin", counted)
        read = Fetching._read

        def read_again(fetch: Fetching, *, nowait: bool) -> FetchReading | None:
            made.again += isinstance(fetch, FastFetch)
            return read(fetch, nowait=nowait)

        patch.setattr(Fetching, "_read", read_again)
        yield made
        patch.undo()
        made.fast.stop()
        made.slow.stop()


# --- requests

Place = tuple[str, int, int, int, int]
"""Topic, partition, offset, bytes, and the leader epoch that the client knows."""

PLACES = st.tuples(
    st.sampled_from([*KINDS, "plain", "plain", "transactions"]),
    st.sampled_from([0, 0, 0, 1, 1, 7]),
    st.one_of(st.integers(0, OFFSETS_MAX), st.sampled_from([-1, 0, 10_000])),
    st.one_of(st.integers(0, 3000), st.sampled_from([1 << 20, 1 << 20, -1])),
    st.sampled_from([-1, -1, -1, -1, 1, 1, 0, 2]),
)


@dataclass(frozen=True)
class Asked:
    places: Sequence[Place]
    max_bytes: int
    committed: bool
    last_epoch: int
    gone: Sequence[tuple[str, int]] = ()

    def request(self, both: Both, session_id: int = 0, epoch: int = -1) -> FetchRequest:
        topics = [
            FetchTopic(
                topic=name,
                topic_id=both.topic_id(name),
                partitions=[
                    FetchPartition(
                        partition=number,
                        fetch_offset=offset,
                        partition_max_bytes=size,
                        current_leader_epoch=leader_epoch,
                        last_fetched_epoch=self.last_epoch,
                    )
                ],
            )
            for name, number, offset, size, leader_epoch in self.places
        ]
        gone = [
            ForgottenTopic(topic=name, topic_id=both.topic_id(name), partitions=[number]) for name, number in self.gone
        ]
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=self.max_bytes,
            isolation_level=int(self.committed),
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=gone,
        )


def asked(places: st.SearchStrategy[Place]) -> st.SearchStrategy[Asked]:
    return st.builds(
        Asked,
        st.lists(places, max_size=5),
        st.one_of(st.integers(0, 6000), st.just(50 << 20)),
        st.booleans(),
        st.sampled_from([-1, -1, -1, 0, 1, 3]),
        st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1)), max_size=2),
    )


ANY = asked(PLACES)


def frame_of(request: FetchRequest, version: int) -> bytes:
    return b"".join(encode_request(request, version, 77, "me"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(one=ANY, version=st.sampled_from(VERSIONS))
def test_answers_are_those_of_the_handler(both: Both, one: Asked, version: int) -> None:
    frame = frame_of(one.request(both), version)
    found = []
    for server in (both.fast, both.slow):
        client = RawClient(server.addresses[0])
        client.socket.sendall(frame * 2)
        found.append([client.receive_frame(), client.receive_frame()])
        client.close()
    assert found[0] == found[1]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    steps=st.lists(st.tuples(ANY, st.sampled_from([0, 0, 0, 0, 0, 1, -2]), st.integers(0, 3)), min_size=2, max_size=7),
    version=st.sampled_from([7, 9, 11, 12, 13, 17]),
)
def test_sessions_go_on_as_by_the_handler(both: Both, steps: list[tuple[Asked, int, int]], version: int) -> None:
    """`steps`: what is asked, by how much its epoch is wrong, and how many records come before it."""
    clients = [RawClient(server.addresses[0]) for server in (both.fast, both.slow)]
    session_id, epoch = 0, 0
    for one, wrong, records in steps:
        for _ in range(records):
            partition = cast(Partition, both.broker.partition("empty", next(both.numbers) % PARTITIONS))
            partition.append(bytes(batch(b"news")))
            partition.sync()
        frame = frame_of(one.request(both, session_id, epoch + wrong if epoch else 0), version)
        answers = []
        for client in clients:
            client.socket.sendall(frame)
            answers.append(client.receive_frame())
        assert answers[0] == answers[1]
        answer = decode_response(FetchResponse, version, answers[0])[1]
        session_id = answer.session_id or session_id
        if not answer.error_code:
            epoch += 1
        elif answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            session_id = epoch = 0
    for client in clients:
        client.close()


@settings(max_examples=EXAMPLES * 2, deadline=None)
@given(
    one=ANY,
    version=st.sampled_from(VERSIONS),
    at=st.integers(4, 140),
    changed=st.integers(1, 255),
    cut=st.integers(0, 2),
)
def test_a_broken_frame_is_answered_or_refused_as_by_the_handler(
    both: Both, one: Asked, version: int, at: int, changed: int, cut: int
) -> None:
    frame = bytearray(frame_of(one.request(both), version))
    frame[6 + at % (len(frame) - 6)] ^= changed  # behind the API's key: answers of others name the server's port
    frame = frame[: len(frame) - cut]
    struct.pack_into(">i", frame, 0, len(frame) - 4)
    found = []
    for server in (both.fast, both.slow):
        client = RawClient(server.addresses[0])
        client.socket.sendall(frame)
        try:
            found.append(client.receive_frame())
        except ConnectionError:
            found.append(b"closed")
        client.close()
    assert found[0] == found[1]


def test_the_log_has_two_epochs(both: Both) -> None:
    assert cast(Partition, both.broker.partition("plain", 0)).leader_epoch == 1


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
@pytest.mark.parametrize("committed", [False, True])
def test_usual_fetches_take_the_fast_path(both: Both, version: int, committed: bool) -> None:
    places = [(name, number, 40, 1 << 20, -1) for name in ("plain", "compacted") for number in range(PARTITIONS)]
    before = both.taken, both.again
    for server in (both.fast, both.slow):
        client = RawClient(server.addresses[0])
        answer = client.ask(Asked(places, 1 << 20, committed, -1).request(both), version)
        client.close()
        assert [len(part.records) > 100 for topic in answer.responses for part in topic.partitions] == [True] * 4
    assert (both.taken, both.again) == (before[0] + 1, before[1])


def test_what_fails_in_one_partition_is_an_error_there(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> tuple[int, int]:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(Partition, "epoch_end_offset", fails)
    request = Asked([("plain", 0, 0, 1000, -1)], 1000, False, 0).request(both)
    found = []
    for server in (both.fast, both.slow):
        client = RawClient(server.addresses[0])
        found.append([part.error_code for part in client.ask(request, 12).responses[0].partitions])
        client.close()
    assert found == [[ErrorCode.KAFKA_STORAGE_ERROR]] * 2


# --- files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Broker.open(str(tmp_path / "log")) as broker:
        broker.create_topic("orders", 1)
        partition = cast(Partition, broker.partition("orders", 0))
        for at in range(40):
            partition.append(bytes(batch(b"%d" % at * 700)))
        partition.sync()
    return tmp_path / "log"


def fetched(server: Server, offset: int) -> tuple[int, bytes]:
    client = RawClient(server.addresses[0])
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=8000)
    topics = [FetchTopic(topic="orders", partitions=[wanted])]
    answer = client.ask(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=topics), 12)
    client.close()
    only = answer.responses[0].partitions[0]
    return only.error_code, bytes(only.records)


@pytest.mark.parametrize("harm", ["flipped", "cut", "cold"])
def test_damage_is_never_served_and_what_is_sound_is(path: Path, harm: str) -> None:
    """A file that is changed under a broker that has read it, and knows where each of its readers goes on."""
    with Broker.open(str(path)) as broker, serve(broker) as server:
        sound = [fetched(server, offset) for offset in range(0, 40, 2)]
        assert all(not code and records for code, records in sound)
        (log,) = path.glob("**/orders-0/*.log")
        middle = log.stat().st_size // 2
        if harm == "flipped":
            with log.open("r+b") as opened:
                opened.seek(middle)
                byte = opened.read(1)[0]
                opened.seek(middle)
                opened.write(bytes([byte ^ 1]))
        elif harm == "cut":
            os.truncate(log, middle)
        else:
            with log.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        found = [fetched(server, offset) for offset in range(0, 40, 2)]
    codes = {code for code, _ in found} - {0}
    assert bool(codes) is (harm != "cold")
    for (code, records), (_, before) in zip(found, sound, strict=True):
        assert before.startswith(records)
        assert records or code


def test_records_that_wait_for_earlier_answers_are_not_overwritten() -> None:
    """A fetch is read while two produces before it wait for their syncs. The first is answered: what it was read into
    is still needed, whatever other connections read meanwhile."""
    files = FaultyFiles(MemoryFiles())
    gates = {name: threading.Event() for name in ("first", "second")}
    reached = {name: threading.Event() for name in gates}

    def wait(doing: Operation) -> int:
        for name, gate in gates.items():
            if doing.kind is Kind.SYNC and f"{name}-0" in doing.path:
                reached[name].set()
                assert gate.wait(30)
        return 0

    with Broker.open("log", files=files) as broker:
        written = {name: bytes(batch(letter * (1 << 19))) for name, letter in (("orders", b"o"), ("others", b"x"))}
        for name in (*gates, *written):
            broker.create_topic(name, 1)
            partition = cast(Partition, broker.partition(name, 0))
            partition.append(written.get(name) or bytes(batch(b"old")))
            partition.sync()
        with serve(broker) as server:
            one, other = (RawClient(server.addresses[0]) for _ in range(2))
            files.fault = Fault(wait)
            for name in gates:  # one by one: what comes together is answered together
                one.send(produce(bytes(batch(b"new")), topic=name), 9)
                assert reached[name].wait(30)
            one.send(fetch(0, topic="orders", partition_max_bytes=1 << 20), 12)
            other.ask(fetch(0, topic="others", partition_max_bytes=1 << 20), 12)
            gates["first"].set()
            one.receive(ProduceResponse, 9)
            for _ in range(3):
                other.ask(fetch(0, topic="others", partition_max_bytes=1 << 20), 12)
            gates["second"].set()
            one.receive(ProduceResponse, 9)
            found = bytes(one.receive(FetchResponse, 12)[1].responses[0].partitions[0].records or b"")
            files.fault = NO_FAULT
            one.close()
            other.close()
    assert found[61:] == written["orders"][61:]


def test_clients_that_read_slowly_get_their_own_records() -> None:
    """Large answers that do not go at once, several on each connection, in memory that all connections use in turn."""
    with Broker.open(":memory:") as broker:
        broker.create_topic("orders", 1)
        partition = cast(Partition, broker.partition("orders", 0))
        for number in range(12):
            partition.append(bytes(batch(b"%03d" % number * 100_000)))
        partition.sync()
        expected = [bytes(partition.read(offset, 1 << 20).data) for offset in range(10)]
        with serve(broker) as server:
            clients = [RawClient(server.addresses[0], receive_buffer_bytes=4096) for _ in range(4)]
            for at, client in enumerate(clients):
                client.socket.sendall(b"".join(client.frame(fetch((at + turn) % 10), 12) for turn in range(3)))
            for turn in range(3):
                for at, client in enumerate(clients):
                    answer = client.receive(FetchResponse, 12)[1]
                    assert bytes(answer.responses[0].partitions[0].records or b"") == expected[(at + turn) % 10]
            for client in clients:
                client.close()
