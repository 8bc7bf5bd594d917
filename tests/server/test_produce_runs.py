"""The fast path of Produce does what the handler does: the same answers byte for byte, the same bytes in the log.

Two brokers get the same requests, several in one piece of memory: one takes the fast path where it can, the other has
none. Requests are made up of sound batches, batches with one thing wrong, producers with numbers in and out of order,
transactions, topics and partitions that are not there; others are broken at random. A clock that stands still makes
times equal.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import cast

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets import times
from foldlog.broker.broker import Broker
from foldlog.broker.topics.names import SCHEMAS_TOPIC
from foldlog.files.memory import MemoryFiles
from foldlog.log.partition import Partition
from foldlog.records.loops import COMPILED, pack
from foldlog.server import produce_fast_path
from foldlog.server.config.settings import ServerSettings
from foldlog.server.produce_fast_path import ProducedRun, ProduceFastPath
from foldlog.server.server import Server
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind
from foldlog.testing.sim_clock import SimClock
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import encode_request
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from server.raw_client import RawClient

pytestmark = pytest.mark.skipif(not COMPILED, reason="without compiled modules there is no fast path")

EXAMPLES = times(40, int(os.environ.get("FOLDLOG_FUZZ_EXAMPLES", "200")))
NOW_MS = 1_700_000_000_000
VERSIONS = (3, 4, 5, 7, 8, 9, 11, 12, 13)
TIMEOUT_MS = 30_000

TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "checked": {"foldlog.value.schema.validation": "true", "foldlog.value.subject.name.strategy": "any"},
}
KNOWN = b"\0" + (7).to_bytes(4, "big")
"""How a value of the schema begins that is registered, and of one that is not."""
UNKNOWN = b"\0" + (8).to_bytes(4, "big")
ABSENT = "absent"
PARTITIONS = 3


@dataclass
class Side:
    """One of the two brokers."""

    broker: Broker
    server: Server
    runs: int = 0

    def exchange(self, frames: bytes) -> bytes:
        """Send it all, and take all that comes back."""
        client = RawClient(self.server.addresses[0])
        client.socket.sendall(frames)
        client.socket.shutdown(socket.SHUT_WR)
        received = bytearray()
        try:
            while part := client.socket.recv(1 << 16):
                received += part
        except ConnectionError:
            pass  # a reset is an end like another
        client.close()
        return bytes(received)

    def topic_id(self, name: str) -> bytes:
        topic = self.broker.find_topic(name)
        return bytes(16) if topic is None else bytes.fromhex(topic.topic_id)

    def written(self, name: str) -> list[tuple[object, ...]]:
        """The bytes of each partition, its producers, and what its time index knows."""
        found: list[tuple[object, ...]] = []
        for number in range(PARTITIONS):
            partition = cast(Partition, self.broker.partition(name, number))
            partition.sync()  # with acks=1 that comes later
            infos = [tuple(info) for info in partition.producers_info()]
            latest = partition.look(lambda view: [(one.latest(), one.latest_looked_to()) for one in view.segments])
            found.append((bytes(partition.read(0, 1 << 24).data), infos, [partition.offset_at_time(NOW_MS), *latest]))
        return found


@dataclass
class Both:
    fast: Side
    slow: Side
    numbers: Iterator[int]

    def topics(self) -> dict[str, str]:
        """Fresh ones, by their kind."""
        number = next(self.numbers)
        names = {kind: f"{kind}-{number}" for kind in TOPICS}
        for side in (self.fast, self.slow):
            for kind, name in names.items():
                side.broker.create_topic(name, partitions=PARTITIONS, config=TOPICS[kind])
                for at in range(PARTITIONS):
                    # Open, with a batch of a producer: so nothing has to wait for the disk.
                    partition = cast(Partition, side.broker.partition(name, at))
                    partition.append(bytes(stamped(plain(b"first"), 1, 0, 0)), foreign=True)
                    partition.sync()
        return {**names, ABSENT: f"{ABSENT}-{number}"}


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    def side() -> Side:
        broker = Broker.open(":memory:", clock=SimClock(NOW_MS))
        broker.create_topic(SCHEMAS_TOPIC, 1, {"cleanup.policy": "compact"})
        register(broker)
        return Side(broker, Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})))

    patch = pytest.MonkeyPatch()
    with patch.context() as slowly:
        slowly.setattr(produce_fast_path, "_new_frames", lambda: None)
        slow = side()
    fast = side()
    append = ProduceFastPath.append

    def counted(path: ProduceFastPath, *arguments: object) -> object:
        found = append(path, *arguments)  # type: ignore[arg-type]
        fast.runs += isinstance(found, ProducedRun)
        return found

    patch.setattr(ProduceFastPath, "append", counted)
    yield Both(fast, slow, count())
    patch.undo()
    for one in (fast, slow):
        one.server.stop()
        one.broker.close()


# --- batches


def plain(*values: bytes, codec: int = 0, key: bytes | None = b"k", at_ms: int = NOW_MS) -> bytearray:
    return bytearray(pack([(at_ms, key, value, ()) for value in values], compression=codec))


def register(broker: Broker, *, is_gone: bool = False) -> None:
    """Write what the registry writes; `is_gone`: what it writes when a schema is deleted for good."""
    key = {"keytype": "SCHEMA", "subject": "any", "version": 1, "magic": 1}
    value = {"subject": "any", "version": 1, "id": 7, "schema": '"string"', "deleted": False}
    partition = cast(Partition, broker.partition(SCHEMAS_TOPIC, 0))
    row = (NOW_MS, json.dumps(key).encode(), None if is_gone else json.dumps(value).encode(), ())
    partition.wait_acknowledged(partition.append(pack([row])).next_offset)


def signed(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def stamped(batch: bytearray, producer_id: int, epoch: int, sequence: int, flags: int = 0) -> bytearray:
    struct.pack_into(">qhi", batch, 43, producer_id, epoch, sequence)
    batch[22] |= flags
    return signed(batch)


def flagged(batch: bytearray, flags: int) -> bytearray:
    batch[22] |= flags
    return signed(batch)


def damaged(data: bytearray, at: int, change: int) -> bytearray:
    data[at % len(data)] ^= change
    return data


VALUES = st.lists(st.binary(max_size=40), min_size=1, max_size=4)
SOUND = st.builds(
    lambda values, codec, key: plain(*values, codec=codec, key=key),
    VALUES,
    st.integers(0, 4),
    st.sampled_from([b"k", None]),
)
NUMBERED = st.builds(
    lambda values, producer, epoch, sequence: stamped(plain(*values), producer, epoch, sequence),
    st.lists(st.just(b"v"), min_size=1, max_size=2),
    st.sampled_from([1, 5]),
    st.sampled_from([0, 0, 0, 1]),
    st.integers(0, 4),
)
WRONG = st.one_of(
    st.just(bytearray()),
    st.binary(max_size=80).map(bytearray),
    SOUND.map(lambda batch: batch[:-1]),
    st.builds(lambda one, other: one + other, SOUND, SOUND),
    SOUND.map(lambda batch: batch + b"\0"),
    st.builds(flagged, SOUND, st.sampled_from([0x08, 0x10, 0x20, 0x40, 0x05, 0x07])),
    st.just(plain(b"late", at_ms=NOW_MS + (1 << 40))),
    st.just(plain(b"timeless", at_ms=-1)),
    st.builds(lambda batch: stamped(batch, 5, -1, 0), SOUND),
    st.builds(lambda batch: stamped(batch, 5, 0, -1), SOUND),
)  # fmt: skip
DAMAGED = st.builds(lambda batch, at, bit: damaged(batch, at, 1 << bit), SOUND, st.integers(0, 200), st.integers(0, 7))
BATCHES = st.one_of(SOUND, SOUND, NUMBERED, NUMBERED, WRONG, DAMAGED)


# --- requests


Topics = Sequence[tuple[str, Sequence[tuple[int, bytearray | None]]]]


@dataclass(frozen=True)
class Asked:
    """A request, with its topics by their kinds."""

    version: int
    acks: int
    topics: Topics
    transactional_id: str | None
    client_id: str | None

    def frame(self, side: Side, names: dict[str, str], correlation_id: int) -> bytes:
        data = [
            TopicProduceData(
                name=names[kind],
                topic_id=side.topic_id(names[kind]),
                partition_data=[
                    PartitionProduceData(index=number, records=None if batch is None else bytes(batch))
                    for number, batch in partitions
                ],
            )
            for kind, partitions in self.topics
        ]
        request = ProduceRequest(
            acks=self.acks, timeout_ms=TIMEOUT_MS, topic_data=data, transactional_id=self.transactional_id
        )
        return b"".join(encode_request(request, self.version, correlation_id, self.client_id))


def asked(batches: st.SearchStrategy[bytearray], ids: st.SearchStrategy[str | None]) -> st.SearchStrategy[Asked]:
    numbers = st.sampled_from([0, 0, 1, 2])
    of_partition = st.tuples(numbers, batches)
    of_topic = st.tuples(st.sampled_from([*TOPICS]), st.lists(of_partition, min_size=1, max_size=3))
    return st.builds(
        Asked,
        st.sampled_from(VERSIONS),
        st.sampled_from([-1, -1, 1]),
        st.lists(of_topic, min_size=1, max_size=2),
        ids,
        st.sampled_from([None, "me"]),
    )


def odd(one: Asked, which: int) -> Asked:
    """A request of a shape that is not the usual one."""
    nowhere: Topics = [("plain", [(9, plain(b"v"))]), *one.topics]
    shapes: list[Topics] = [[(ABSENT, one.topics[0][1])], nowhere, [("plain", [(0, None)])], [], one.topics]
    return replace(one, topics=shapes[which], acks=one.acks if which < 4 else 2)


USUAL = asked(SOUND, st.none())
ANY = st.one_of(USUAL, asked(BATCHES, st.none()), st.builds(odd, USUAL, st.integers(0, 4)))


def named(side: Side, names: dict[str, str], received: bytes) -> bytes:
    """An answer with the names of topics in place of their ids, which differ."""
    for name in names.values():
        identity = side.topic_id(name)
        if any(identity):
            received = received.replace(identity, name.encode().ljust(16)[:16])
    return received


def compare(both: Both, names: dict[str, str], requests: list[Asked]) -> None:
    answers = []
    for side in (both.fast, both.slow):
        frames = b"".join(one.frame(side, names, number) for number, one in enumerate(requests))
        answers.append(named(side, names, side.exchange(frames)))
    assert answers[0] == answers[1]
    for kind in TOPICS:
        for number, (one, other) in enumerate(
            zip(both.fast.written(names[kind]), both.slow.written(names[kind]), strict=True)
        ):
            assert one == other, (kind, number)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_answers_and_logs_are_those_of_the_handler(both: Both, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(requests=st.lists(ANY, min_size=1, max_size=6))
    def check(requests: list[Asked]) -> None:
        compare(both, both.topics(), requests)

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_sound_requests_take_the_fast_path_together(both: Both, version: int) -> None:
    names = both.topics()
    several = [(number, plain(b"%d" % number)) for number in range(PARTITIONS)]
    numbered = [(0, stamped(plain(b"b", b"c"), 5, 0, 1)), (0, stamped(plain(b"d"), 5, 0, 3))]
    requests = [
        Asked(version, -1, [("plain", several), ("stamped", several[:1])], None, "me"),
        Asked(version, -1, [("plain", [(0, stamped(plain(b"a"), 5, 0, 0))])], None, None),
        Asked(version, -1, [("plain", numbered)], None, None),
        Asked(version, -1, [("compacted", [(2, plain(b"e", codec=3))])], None, "me"),
    ]
    before = both.fast.runs
    compare(both, names, requests)
    assert both.fast.runs > before, "none took it"


def test_values_of_schemas_that_were_looked_up_take_the_fast_path_until_the_registry_changes(both: Both) -> None:
    names = both.topics()

    def ask(value: bytes, codec: int = 0) -> int:
        """Alone, and between others; how many runs that makes."""
        before = both.fast.runs
        compare(both, names, [Asked(9, -1, [("checked", [(0, plain(value, codec=codec))])], None, None)])
        alone = both.fast.runs - before
        several: Topics = [("plain", [(0, plain(b"v"))]), ("checked", [(0, plain(KNOWN)), (1, plain(value))])]
        compare(both, names, [Asked(9, -1, [("plain", [(1, plain(b"v"))])], None, None)] * 2)
        compare(both, names, [Asked(9, -1, several, None, None), Asked(9, -1, several, None, None)])
        return alone

    assert ask(KNOWN + b"first") == 0, "it was not looked up yet"
    assert ask(KNOWN + b"second") == 1
    assert ask(KNOWN + b"third", codec=4) == 1
    assert ask(UNKNOWN) == ask(b"plain") == ask(b"") == 0
    for is_gone in (True, False):
        for side in (both.fast, both.slow):
            register(side.broker, is_gone=is_gone)
        assert ask(KNOWN) == 0, "the registry has changed"
    assert ask(KNOWN) == 1


def test_a_producer_that_repeats_within_one_piece_is_answered_as_by_the_handler(both: Both) -> None:
    batches = [stamped(plain(b"a"), 5, 0, sequence) for sequence in (0, 1, 1, 2, 7, 3)]
    requests = [Asked(9, -1, [("plain", [(0, batch)])], None, None) for batch in batches]
    compare(both, both.topics(), requests)


TRANSACTIONAL = st.tuples(
    st.sampled_from([3, 9, 11, 12]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5),
    st.booleans(),
)


@settings(max_examples=30, deadline=None)
@given(asked_for=TRANSACTIONAL)
def test_batches_of_transactions_are_answered_as_by_the_handler(
    both: Both, asked_for: tuple[int, list[tuple[int, int]], bool]
) -> None:
    version, numbers, outside = asked_for
    names, name = both.topics(), f"tx-{next(both.numbers)}"
    found = []
    for side in (both.fast, both.slow):
        client = RawClient(side.server.addresses[0])
        answer = client.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        found.append((answer.producer_id, answer.producer_epoch))
        client.close()
    assert found[0] == found[1]
    next_of = dict.fromkeys(range(PARTITIONS), 0)
    requests = []
    for at, (number, skipped) in enumerate(numbers):
        sequence = next_of[number] + (skipped == 2)
        next_of[number] += 1
        batch = stamped(plain(b"%d" % at), *found[0], sequence, 0 if outside and at % 3 == 2 else 0x10)
        requests.append(
            Asked(version, -1, [("plain", [(number, batch)])], name if skipped != 1 or not outside else None, None)
        )
    compare(both, names, requests)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_broken_frame_is_answered_or_refused_as_by_the_handler(both: Both, examples: int) -> None:
    @settings(max_examples=2 * examples, deadline=None)
    @given(one=USUAL, at=st.integers(4, 120), changed=st.integers(1, 255), cut=st.integers(0, 12))
    def check(one: Asked, at: int, changed: int, cut: int) -> None:
        names = both.topics()
        at = 4 + at % 19 if one.version >= 13 else at  # before the ids, which differ
        outcomes = [exchange_broken(side, one, names, at, changed, cut % 3) for side in (both.fast, both.slow)]
        assert outcomes[0] == outcomes[1]
        for kind in TOPICS:
            assert both.fast.written(names[kind]) == both.slow.written(names[kind])

    check()


def exchange_broken(side: Side, one: Asked, names: dict[str, str], at: int, changed: int, cut: int) -> bytes:
    """What a broker answers to a request with one byte changed and some cut off, with names in place of ids."""
    frame = bytearray(one.frame(side, names, 7))
    place = at % (len(frame) - 4) + 4 if at >= len(frame) else at
    timeout = frame.index(struct.pack(">i", TIMEOUT_MS))
    if timeout <= place < timeout + 4:
        place = timeout + 4  # whether a sync is over before a timeout of next to nothing is a matter of luck
    frame[place] ^= changed
    frame = frame[: len(frame) - cut]
    struct.pack_into(">i", frame, 0, len(frame) - 4)
    return named(side, names, side.exchange(bytes(frame)))


@pytest.mark.parametrize("kind", [Kind.WRITE, Kind.SYNC])
def test_a_disk_that_fails_one_partition_fails_it_in_every_request_of_the_run_and_no_other(kind: Kind) -> None:
    files = FaultyFiles(MemoryFiles())
    with Broker.open("log", files=files) as broker:
        broker.create_topic("orders", 2)
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            client = RawClient(server.addresses[0])
            data = [PartitionProduceData(index=number, records=bytes(plain(b"v"))) for number in range(2)]
            request = ProduceRequest(
                acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=data)]
            )
            client.ask(request, 9)
            files.fault = Fault(lambda doing: errno.EIO if doing.kind is kind and "orders-1/" in doing.path else 0)
            only_first = ProduceRequest(
                acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=data[:1])]
            )
            client.socket.sendall(client.frame(request, 9) + client.frame(only_first, 9) + client.frame(request, 9))
            answers = [client.receive(ProduceResponse, 9)[1] for _ in range(3)]
            files.fault = NO_FAULT
            client.close()
    found = [
        [(one.error_code, one.base_offset) for one in answer.responses[0].partition_responses] for answer in answers
    ]
    failed = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert found == [[(0, 1), failed], [(0, 2)], [(0, 3), failed]]
