"""A broker under load is killed with SIGKILL and started again: what clients were told is true.

Three loads: millions of numbered records of idempotent producers, judged by `scorecard.histories.bulk`; four kinds of
clients with a group that reads and commits; and a pipeline that consumes, transforms and produces in transactions,
whose own processes are killed and revived as zombies, too.
"""

from __future__ import annotations

import random
import signal
import struct
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from faults import exactly_once, test_exactly_once, test_served_kill
from faults.served import ServedDirectory
from faults.served_load import Story
from scorecard.histories import bulk
from scorecard.histories.clients import BOUND_S, QUICK
from scorecard.outcome import FaultClass, Outcome, Plant

TOPIC, PARTITIONS, SENDERS = "bulk", 6, 2
VALUE = struct.Struct(">IQ")
PADDING = b"." * 20
UNANSWERED_MAX = 20_000
PIECE_S = 90.0
"""Of one directory: it is removed then, and the next load begins with an empty one."""
SILENCE_S = 15.0
"""A reader that is given nothing for so long has come to what cannot be read."""
BYTES_MAX = 3 << 30
"""Of one directory, about."""


class Sender(threading.Thread):
    """An idempotent producer that sends as fast as it is answered."""

    def __init__(self, number: int, bootstrap: str, most: int) -> None:
        super().__init__(daemon=True)
        self.number, self.sent, self.most = number, 0, most
        self.told = [array("q") for _ in range(PARTITIONS)]
        self.problems: list[str] = []
        self.stopping = threading.Event()
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * UNANSWERED_MAX,
            "message.timeout.ms": int(BOUND_S * 1000),
            **QUICK,
        }
        self._producer = Producer({**settings, "on_delivery": self._delivered})

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.told[message.partition()].append(message.offset())
        else:
            self.problems.append(f"sender {self.number}: {error}")

    def run(self) -> None:
        producer, pack, number = self._producer, VALUE.pack, self.number
        while not self.stopping.is_set() and self.sent < self.most:
            while len(producer) < UNANSWERED_MAX:
                for _ in range(1000):
                    producer.produce(TOPIC, pack(number, self.sent) + PADDING, partition=self.sent % PARTITIONS)
                    self.sent += 1
                producer.poll(0)
            producer.poll(0.01)
        if producer.flush(BOUND_S):
            self.problems.append(f"sender {self.number}: records were never answered")

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.told))


def read_partition(bootstrap: str, partition: int) -> bulk.PartitionRead:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            **QUICK,
        }
    )
    place = TopicPartition(TOPIC, partition, 0)
    consumer.assign([place])
    end = consumer.get_watermark_offsets(place, BOUND_S, cached=False)[1]
    offsets, values = array("q"), bytearray()
    deadline = time.monotonic() + SILENCE_S
    while (not offsets or offsets[-1] < end - 1) and end and time.monotonic() < deadline:
        messages = consumer.consume(10_000, 0.2)
        if messages:
            deadline = time.monotonic() + SILENCE_S
        for message in messages:
            offset, value = message.offset(), message.value()
            if message.error() is None and offset is not None and isinstance(value, bytes):
                offsets.append(offset)
                values += value[: VALUE.size]
    consumer.close()
    rows = np.frombuffer(bytes(values), dtype=np.dtype([("sender", ">u4"), ("number", ">u8")]))
    return bulk.PartitionRead(
        np.array(offsets, np.int64), rows["sender"].astype(np.int64), rows["number"].astype(np.int64)
    )


def many_records(seed: int, seconds: float, outcome: Outcome, planted: str = "", most: int = 1 << 40) -> None:
    rng = random.Random(seed)
    end = time.monotonic() + seconds * 0.6  # the rest is for reading
    arguments = ("--create", f"{TOPIC}:{PARTITIONS}", "-X", "log.segment.bytes=67108864")
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedDirectory(Path(directory), *arguments, planted=planted, journaled=seed % 2 == 0) as served,
    ):
        limit = min(most, BYTES_MAX // (SENDERS * 48))
        senders = [Sender(number, served.bootstrap, limit) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        while time.monotonic() < end and any(sender.is_alive() for sender in senders):
            pause_until(senders, rng.choice((1_000, 30_000, 300_000)), end)
            served.end(signal.SIGKILL)
            served.start()
            outcome.done["kills/under millions of records"] += 1
        for sender in senders:
            sender.stopping.set()
        for sender in senders:
            sender.join(2 * BOUND_S)
        found = {number: read_partition(served.bootstrap, number) for number in range(PARTITIONS)}
    outcome.done["records/acknowledged to millions of sends"] += sum(sender.acknowledged for sender in senders)
    outcome.done["records/read back by another client"] += sum(len(read.offsets) for read in found.values())
    told = {
        (sender.number, partition): np.array(offsets, np.int64)
        for sender in senders
        for partition, offsets in enumerate(sender.told)
    }
    for sender in senders:
        for problem in sender.problems[:3]:
            outcome.found("not finished", problem, f"millions of records, seed {seed}")
    for kind, what in bulk.judge(found, {one.number: one.sent for one in senders}, told, PARTITIONS):
        outcome.found(kind, what, f"millions of records, seed {seed}")


def pause_until(senders: list[Sender], more: int, end: float) -> None:
    wanted = sum(sender.acknowledged for sender in senders) + more
    while sum(sender.acknowledged for sender in senders) < wanted and time.monotonic() < end:
        time.sleep(0.005)


def groups(seed: int, seconds: float, outcome: Outcome) -> None:
    rng, story, end = random.Random(seed), Story(), time.monotonic() + seconds
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedDirectory(Path(directory), *test_served_kill.ARGUMENTS, journaled=seed % 2 == 0) as served,
    ):
        with test_served_kill.load_on(served.bootstrap, story):
            while time.monotonic() < end:
                story.wait_progress(rng.choice((1, 50, 300, 1000)), commits=rng.choice((0, 1, 5, 20)))
                served.end(signal.SIGKILL)
                served.start()
                outcome.done["kills/under groups of four kinds of clients"] += 1
        served.end(signal.SIGTERM)
        outcome.done["records/acknowledged beside groups"] += len(story.acknowledged)
        outcome.done["commits/of groups"] += story.commit_count
        test_served_kill.judge(served.path, story)


def pipeline(seed: int, seconds: float, outcome: Outcome) -> None:
    times = max(2, int(seconds / 4))
    records = 300 * times
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedDirectory(Path(directory), *exactly_once.ARGUMENTS) as served,
        exactly_once.pipeline_on(served, records) as running,
    ):
        running.start()
        test_exactly_once.disturb(served, running, random.Random(seed), times)
        test_exactly_once.finish_and_judge(served, running)
    outcome.done["kills/of brokers, clients and zombies of a pipeline"] += times
    outcome.done["records/consumed, transformed and produced once"] += records


def run(seed: int, seconds: float) -> Outcome:
    outcome = Outcome()
    pieces = max(1, round(seconds / PIECE_S))
    for number in range(pieces):
        own_seed, own_seconds = seed * 100 + number, seconds / pieces
        many_records(own_seed, own_seconds * 0.7, outcome)
        others: tuple[Callable[[int, float, Outcome], None], ...] = (groups, pipeline)
        other = others[own_seed % 2]
        try:
            other(own_seed, own_seconds * 0.3, outcome)
        except AssertionError as broken:
            outcome.found("promise broken", broken, f"{other.__name__}, seed {own_seed}")
    return outcome


ANSWERS_BEFORE_WRITING = """
from foldlog.files import posix
written = posix.PosixFile.write
count = 0
def write(self, position, pieces):
    global count
    count += 1
    if count % 40 == 0 and self.path.endswith(".log"):
        return sum(map(len, pieces))
    return written(self, position, pieces)
posix.PosixFile.write = write
"""


def planted_is_found(planted: str) -> bool:
    outcome = Outcome()
    try:
        many_records(1, 8.0, outcome, planted, most=200_000)
    except AssertionError:
        return True  # it does not even start again
    return bool(outcome.findings)


CLASS = FaultClass(
    name="kills",
    title="kill -9 under load",
    what="""`foldlog serve` is killed with SIGKILL at moments that a seed chooses, and started again at once, with a
journal and without. Nobody tells the clients. Millions of numbered records of idempotent producers are read back by
another client, and judged by code that knows numbers only; four kinds of clients write beside a group that reads and
commits; a pipeline consumes, transforms and produces in transactions, and its processes are killed and revived,
too.""",
    finds=("lost", "doubled", "reordered", "invented", "promise broken", "not finished"),
    share=0.13,
    run=run,
    plants=(Plant("one write of a segment in forty is left out", lambda: planted_is_found(ANSWERS_BEFORE_WRITING)),),
)
