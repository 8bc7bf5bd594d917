"""Connections that mean harm beside honest ones: the honest ones are served, and memory stays where it was.

Mutated requests of every API and version go to a broker in a process of its own, and what is no request at all; some
connections send a byte now and then, some never read what they asked for. Meanwhile one producer and one reader work.
"""

from __future__ import annotations

import random
import socket
import struct
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Producer

from faults.served import ServedDirectory
from foldlog.wire.frames import request_class
from foldlog.wire.messages import APIS
from scorecard.histories.clients import BOUND_S, QUICK, committed_reader, records_of
from scorecard.outcome import FaultClass, Outcome, Plant, until
from server.raw_client import RawClient, batch, fetch, produce
from wire.filled import filled

TOPIC = "lists"
IDLE, DEAF = 50, 10
MEMORY_MAX = 400 << 20
"""Far above what a broker with such clients needs, and far below what one of these inputs declares."""


class Honest:
    """A producer and a reader of one partition, who have to be served all the time."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = self.failed = 0
        self.told: dict[int, str] = {}
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, **QUICK})
        self._reader = committed_reader(bootstrap, TOPIC)
        self.read: dict[int, str] = {}

    def work(self) -> None:
        for _ in range(20):
            value = f"honest/{self.sent}"
            self.sent += 1
            self._producer.produce(TOPIC, value, partition=0, on_delivery=self._delivered)
        self._producer.flush(BOUND_S)
        for partition, offset, found in records_of(self._reader, 200, 0.05):
            if partition == 0:
                self.read[offset] = found

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed += 1
        else:
            self.told[message.offset()] = message.value().decode()  # type: ignore[attr-defined]

    def finish(self) -> None:
        for _ in range(200):
            if self.told.keys() <= self.read.keys():
                break
            self.work()
        self._reader.close()


def mutated_frame(rng: random.Random, client: RawClient) -> bytes:
    api = rng.choice(list(APIS.values()))
    version = rng.randint(api.first, api.last)
    cls = request_class(api.key)
    # Not the ones that a broker obeys: it would delete the topic of the honest, or stop serving them.
    message = filled(cls, version) if rng.random() < 0.5 else cls()
    body = bytearray(client.frame(message, version)[4:])
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(4, len(body)) if len(body) > 4 else 0
        body[place] = rng.choice((rng.randrange(256), 0xFF, 0x7F, 0x80, 0))
    if rng.random() < 0.2:
        del body[rng.randrange(8, len(body) + 1) :]
    if rng.random() < 0.2:
        body += rng.randbytes(rng.randrange(100))
    length = len(body) if rng.random() < 0.95 else rng.choice((0, -1, 2**31 - 1, len(body) * 3, 104_857_601))
    return struct.pack(">i", length) + bytes(body)


def harm(address: tuple[str, int], rng: random.Random, count: int, outcome: Outcome) -> None:
    """One connection after the other, each with some frames; answers are read now and then."""
    sent = 0
    while sent < count:
        client = RawClient(address)
        client.socket.settimeout(0.05)
        with suppress(OSError):
            for _ in range(rng.choice((1, 5, 30))):
                data = mutated_frame(rng, client) if rng.random() < 0.97 else rng.randbytes(rng.randrange(300))
                client.socket.sendall(data)
                sent += 1
                if rng.random() < 0.3:
                    client.socket.recv(65536)
        client.close()
        outcome.done["connections/with mutated requests"] += 1
    outcome.done["requests/mutated"] += sent


def run(seed: int, seconds: float, planted: str = "") -> Outcome:
    outcome, rng = Outcome(), random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedDirectory(
            Path(directory), "--create", f"{TOPIC}:4", "-X", "delete.topic.enable=false", planted=planted
        ) as served,
    ):
        honest = Honest(served.bootstrap)
        honest.work()
        held: list[socket.socket | RawClient] = []
        with suppress(OSError):
            for _ in range(IDLE):
                slow = RawClient(served.address)
                slow.socket.sendall(struct.pack(">i", 7 << 20) + struct.pack(">hhih", 0, 9, 1, -1))
                held.append(slow)
            for _ in range(DEAF):
                deaf = RawClient(served.address, receive_buffer_bytes=4096)
                deaf.ask(produce(batch(b"x" * 100_000), TOPIC, 3), 9)
                deaf.socket.sendall(b"".join(deaf.frame(fetch(0, TOPIC, 3), 11) for _ in range(30)))
                held.append(deaf)
        outcome.done["connections/slow or deaf"] += len(held)
        for _ in until(seconds):
            harming = threading.Thread(target=harm, args=(served.address, random.Random(rng.random()), 300, outcome))
            harming.start()
            honest.work()
            harming.join()
        for client in held:
            client.close()
        honest.finish()
        judge(honest, served, outcome, f"seed {seed}")
    outcome.done["records/of honest clients"] += len(honest.told)
    return outcome


def judge(honest: Honest, served: ServedDirectory, outcome: Outcome, where: str) -> None:
    if honest.failed:
        outcome.found("honest refused", f"{honest.failed} honest records were not acknowledged", where)
    wrong = {offset for offset, value in honest.told.items() if honest.read.get(offset) != value}
    if wrong:
        outcome.found("lost", f"{len(wrong)} acknowledged records are not read as they were sent", where)
    # The broker writes one line for an error that no handler expected, and none for what a peer does wrong.
    for line in served.logged.splitlines():
        if " ERROR " in line or "Traceback" in line:
            outcome.found("unexpected error", line, where)
            break
    if served.peak_bytes > MEMORY_MAX:
        outcome.found("memory", f"{served.peak_bytes >> 20} MB were resident", where)
    outcome.notes["memory"] = f"at most {served.peak_bytes >> 20} MB resident in the last slice"


FAILS_ON_ODD_NAMES = """
from foldlog.server.handlers import metadata
sound = metadata.handle
def handle(call, request):
    for topic in request.topics or ():
        assert topic.name == "lists"
    return sound(call, request)
metadata.handle = handle
"""


def a_handler_that_raises_is_found() -> bool:
    return any(finding.kind == "unexpected error" for finding in run(1, 3.0, FAILS_ON_ODD_NAMES).findings)


CLASS = FaultClass(
    name="hostile",
    title="Hostile connections beside honest ones",
    what="""Mutated requests of every API and version, frames that lie about their length, noise, connections that send
a byte and wait, and such that never read their answers, against a broker that serves an honest producer and an honest
reader meanwhile. Those are served, every record of theirs is read as it was sent, nothing in the broker's log is an
error that nobody expected, and its memory stays bounded.""",
    finds=("honest refused", "lost", "unexpected error", "memory"),
    share=0.06,
    run=run,
    plants=(Plant("a handler that raises on odd names", a_handler_that_raises_is_found),),
)
