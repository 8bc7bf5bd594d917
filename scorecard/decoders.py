"""What reads bytes that a peer or a disk decides about, each with sound inputs to start from.

A decoder reads, or raises an error of ours; anything else that it raises is a finding. Where there are two of one kind,
compiled and in Python, both read the same input and have to agree.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from crc32c import crc32c

from broker.small_broker import at, writable
from broker.transactions.transactional_broker import Producer
from foldlog.broker.broker import Broker
from foldlog.broker.groups import consumer_protocol, offsets_format
from foldlog.broker.topics import catalog
from foldlog.broker.topics.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from foldlog.broker.transactions import state_format
from foldlog.errors import FoldlogError
from foldlog.files.base import read_file
from foldlog.files.memory import MemoryFiles
from foldlog.log import epochs, producers, transactions
from foldlog.records import kernels_py, loops
from foldlog.records.json_lines import parse_line
from foldlog.wire import frames
from foldlog.wire.codec import decode, encode
from foldlog.wire.messages import APIS
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.filled import filled

LIMIT_BYTES = 1 << 20
CRC_AT, CRC_FROM = 17, 21
HOSTILE = [struct.pack(">i", number) for number in ((1 << 31) - 1, -1, -(1 << 31), 0)]
HOSTILE += [b"\xff\xff\xff\xff\x0f", b"\xff" * 6, b"\x80" * 4, b"\0" * 8]


class Differs(AssertionError):
    """Two decoders of one format do not agree."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """A decoder. `corpus`: sound inputs. `mend`: makes a mutated input pass the checksum before it, if there is one."""

    name: str
    read: Callable[[bytes], object]
    corpus: tuple[bytes, ...]
    mend: Callable[[bytearray], None] | None = None
    is_compiled: bool = False


def mend_crc(data: bytearray) -> None:
    if len(data) > CRC_FROM:
        struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[CRC_FROM:])))


def outcome_of(read: Callable[[], Any]) -> object:
    try:
        return read()
    except FoldlogError as error:
        return type(error).__name__


def agree(name: str, *arguments: Any, **options: Any) -> object:
    """What the loops in use say of it; they are the compiled ones where they were built, and the others agree."""
    found = outcome_of(lambda: getattr(loops, name)(*arguments, **options))
    other = outcome_of(lambda: getattr(kernels_py, name)(*arguments, **options))
    if str(found) != str(other):
        raise Differs(f"{name}: compiled says {str(found)[:200]}, Python says {str(other)[:200]}")
    return found


def sound_batches() -> tuple[bytes, ...]:
    rows = [(1000 + number, b"key %d" % number, b"value " * number, (("h", b"1"),)) for number in range(5)]
    made = [loops.pack(rows, codec) for codec in range(5)]
    made.append(loops.pack(rows, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True))
    made.append(loops.control_batch(0, 3, 17, 2, 1000))
    made.append(loops.pack([(5, None, None, ())]))
    return tuple(map(bytes, made))


def batch_decoders() -> Iterator[Fuzzed]:
    batches = sound_batches()

    def one(name: str, *arguments: Any, **options: Any) -> Fuzzed:
        return Fuzzed(
            f"batches, {name}", lambda data: agree(name, data, *arguments, **options), batches, mend_crc, True
        )

    yield one("walk")
    yield one("decode", "events", 0, decompressed_limit=LIMIT_BYTES)
    yield one("validate", max_batch_bytes=LIMIT_BYTES, decompressed_limit=LIMIT_BYTES)
    yield one("offset_at_time", 1002, decompressed_limit=LIMIT_BYTES)
    yield one("recompress", 4, decompressed_limit=LIMIT_BYTES)


def frame_decoders() -> Iterator[Fuzzed]:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="orders",
                topic_id=bytes(range(16)),
                partition_data=[PartitionProduceData(index=0, records=batch) for batch in sound_batches()[:2]],
            )
        ],
    )
    corpus = tuple(b"".join(frames.encode_request(request, version, 7, "me")) for version in range(3, 14))
    try:
        from foldlog.wire.produce_frames import ProduceFrames
    except ImportError:
        return

    def read(data: bytes) -> object:
        found = ProduceFrames()
        found.read(memoryview(bytearray(data)), 0, len(data), 1 << 30, 100, 1 << 30)
        return [found.batches.span(number) for number in range(found.batches.count)]

    yield Fuzzed("frames of Produce", read, corpus, is_compiled=True)


def message_decoders(only: str) -> Iterator[Fuzzed]:
    for api in APIS.values():
        for version in range(api.first, api.last + 1):
            name = f"messages, {api.module} v{version}"
            if only not in ("", name):
                continue
            for cls in (frames.request_class(api.key), frames.response_class(api.key)):
                corpus = (encode(filled(cls, version), version), encode(cls(), version))
                yield Fuzzed(name, partial(decode, cls, version), corpus)


def kept_records() -> dict[str, list[tuple[bytes, bytes]]]:
    """(key, value) of what a broker keeps of groups and transactions in topics of its own."""
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    with Broker.open(":memory:") as broker:
        broker.create_topic("orders", 2)
        broker.commit_offsets("billing", {("orders", 0): at(3, "noted"), ("orders", 1): at(5)})
        producer = Producer(broker, "t")
        producer.send("orders", 0, b"one")
        producer.commit_offsets("billing", 7)
        producer.commit()
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            found[topic] = []
            for number in range(broker.topic(topic).partition_count):
                partition = writable(broker, topic, number)
                records = loops.decode(partition.read(0).data, topic, number)[0]
                found[topic] += [(one.key or b"", one.value) for one in records if one.value and one.key]
    return found


def keeping_decoders() -> Iterator[Fuzzed]:
    kept = kept_records()
    yield Fuzzed("keys of offsets", offsets_format.decode_key, tuple(key for key, _ in kept[OFFSETS_TOPIC]))
    key, value = kept[OFFSETS_TOPIC][0]
    yield Fuzzed("committed offsets", partial(offsets_format.decode_offset_value, key), (value,))
    yield Fuzzed("stored groups", partial(offsets_format.decode_group_value, key), (b"\0\3" + value, value))
    states = kept[TRANSACTIONS_TOPIC]
    yield Fuzzed("keys of transactions", state_format.decode_key, tuple(key for key, _ in states))
    yield Fuzzed(
        "states of transactions",
        partial(state_format.decode_value, states[0][0]),
        tuple(value for _, value in states),
    )
    subscription = consumer_protocol.encode_subscription(
        consumer_protocol.Subscription(("orders", "refunds"), (("orders", 2),), 7)
    )
    assignment = consumer_protocol.encode_assignment(consumer_protocol.Assignment((("orders", 0), ("orders", 2))))
    yield Fuzzed("subscriptions", consumer_protocol.decode_subscription, (subscription,))
    yield Fuzzed("assignments", consumer_protocol.decode_assignment, (assignment,))


def read_epochs(data: bytes) -> object:
    """Who reads the file takes a ValueError, which is what this one promises, for damage."""
    try:
        return epochs.parse_epochs(data)
    except ValueError:
        return None


def file_decoders() -> Iterator[Fuzzed]:
    files = MemoryFiles()
    with Broker.open("data", files=files, background=False) as broker:
        broker.create_topic("orders", 3, {"retention.ms": 1000})
        partition = writable(broker, "orders")
        partition.append(loops.pack([(5, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0))
        partition.roll()
    stored = read_file(files, "data/catalog.json")
    yield Fuzzed("the catalog", lambda data: catalog.decode(data, "catalog.json"), (stored,))
    snapshots = [entry.name for entry in files.entries("data/orders-0") if entry.name.endswith(".snapshot")]
    snapshot = read_file(files, f"data/orders-0/{snapshots[0]}")

    def mend(data: bytearray) -> None:
        struct.pack_into(">I", data, 2, crc32c(bytes(data[6:]))) if len(data) > 6 else None

    yield Fuzzed("snapshots of producers", producers.ProducerState.from_snapshot, (snapshot,), mend)
    index = struct.pack(">hqqqq", 0, 7, 10, 20, 8) + struct.pack(">hqqqq", 0, 8, 30, 40, 8)
    yield Fuzzed("indexes of transactions", transactions.read_transaction_index, (index,))
    yield Fuzzed("leader epochs", read_epochs, (b"0\n2\n0 0\n1 17\n",))
    line = b'{"partition": 1, "offset": 7, "key": "k", "value": {"a": 1}, "headers": [["h", "1"]], "timestamp": 5}'
    yield Fuzzed("lines of JSON", parse_line, (line,))


def all_decoders(only: str = "") -> list[Fuzzed]:
    """`only`: of the messages, those of that name; there are hundreds."""
    return [*batch_decoders(), *frame_decoders(), *keeping_decoders(), *file_decoders(), *message_decoders(only)]


# --- inputs -----------------------------------------------------------------------------------------------------------


def mutated(fuzzed: Fuzzed, rng: random.Random) -> bytes:
    """Noise now and then; mostly a sound input with bytes changed, cut, doubled, or with hostile numbers written in."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(120))
    data = bytearray(rng.choice(fuzzed.corpus))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(data) + 1)
        way = rng.random()
        if way < 0.5 and place < len(data):
            data[place] = rng.choice((data[place] ^ (1 << rng.randrange(8)), rng.randrange(256), 0, 0xFF))
        elif way < 0.75:
            number = rng.choice(HOSTILE)
            data[place : place + len(number)] = number
        elif way < 0.85:
            del data[place:]
        else:
            end = min(len(data), place + rng.randrange(1, 20))
            data[place:place] = data[place:end]
    if fuzzed.mend is not None and rng.random() < 0.8:
        fuzzed.mend(data)
    return bytes(data)
