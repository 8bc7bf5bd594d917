"""TLS and ACLs: produce and fetch over each, beside the same without, at both brokers.

An authorizer is chosen at a start, so there are two: without one the listeners in plaintext and with TLS are measured,
with one the listener with TLS again.
"""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.broker import batch_of
from bench.broker_load import fetch_load, produce_load, run_flat_out
from bench.broker_tls import make_certificate
from bench.kafka.clients import Clients, elapsed_s
from bench.kafka.recorder import Figures, Recorder, watched
from bench.kafka.results import Case
from bench.kafka.sides import FOLDLOG, KAFKA, FoldlogSide, KafkaSide
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

SecureSide = KafkaSide | FoldlogSide
"""A side that may have a listener with TLS."""

PLAIN, TLS, TLS_AND_ACLS = "plaintext", "TLS", "TLS and ACLs"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PREFIX: Final = "secure-"
_BATCH: Final = "64 KB"
_WINDOW: Final = 16
_FETCH_BYTES: Final = 1 << 20
_SECONDS: Final = 60.0
_VALUE_BYTES: Final = 100
_ADMIN_S: Final = 60


@dataclass(frozen=True)
class Way:
    """How a client comes in."""

    name: str
    context: ssl.SSLContext | None
    authority: Path

    def address(self, side: SecureSide) -> tuple[str, int]:
        return side.address if self.context is None else side.tls_address

    def librdkafka(self, side: SecureSide) -> dict[str, Any]:
        bootstrap = {"bootstrap.servers": "{}:{}".format(*self.address(side)), "acks": "all"}
        if self.context is None:
            return bootstrap
        return {**bootstrap, "security.protocol": "ssl", "ssl.ca.location": str(self.authority)}


Measure = Callable[[Recorder, SecureSide, Way, str], Figures]


def run(recorder: Recorder, directory: Path) -> None:
    pem = directory / "broker.pem"
    context = make_certificate(pem)
    with _both(directory / "bare", pem, {}) as sides:
        _measure(recorder, sides, [Way(PLAIN, None, pem), Way(TLS, context, pem)])
    guarded = {"allow.everyone.if.no.acl.found": "true"}
    with _both(directory / "guarded", pem, guarded) as sides:
        for side in sides.values():
            _make_acls(side, recorder.effort.acls)
        _measure(recorder, sides, [Way(TLS_AND_ACLS, context, pem)])
    shutil.rmtree(directory)


@contextmanager
def _both(directory: Path, pem: Path, guarded: Mapping[str, object]) -> Iterator[dict[str, SecureSide]]:
    tls = {"ssl.keystore.location": pem}
    ours = {"authorizer.class.name": "foldlog", **guarded} if guarded else {}
    theirs = {"authorizer.class.name": STANDARD_AUTHORIZER, **guarded} if guarded else {}
    running: dict[str, SecureSide] = {}
    try:
        kafkas = {**tls, "ssl.keystore.type": "PEM", **theirs}
        running[KAFKA] = KafkaSide(directory / KAFKA, kafkas, listeners=("SSL",))
        running[FOLDLOG] = FoldlogSide(directory / FOLDLOG, {**tls, **ours})
        yield running
    finally:
        for side in running.values():
            side.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _make_acls(side: SecureSide, count: int) -> None:
    """Of other teams and users; one lets everybody do everything to the topics of this section."""
    topic, prefixed = ResourceType.TOPIC, ResourcePatternType.PREFIXED
    wanted = [AclBinding(topic, _PREFIX, prefixed, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)]
    for number in range(count):
        pattern = prefixed if number % 3 == 0 else ResourcePatternType.LITERAL
        permission = AclPermissionType.DENY if number % 10 == 7 else AclPermissionType.ALLOW
        operation = AclOperation.READ if number % 2 else AclOperation.WRITE
        name, user = f"team-{number % 400}-{number}", f"User:worker-{number % 700}"
        wanted.append(AclBinding(topic, name, pattern, user, "*", operation, permission))
    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
    for made in admin.create_acls(wanted, request_timeout=_ADMIN_S).values():
        made.result(_ADMIN_S)


def _measure(recorder: Recorder, sides: Mapping[str, SecureSide], ways: list[Way]) -> None:
    work: dict[str, Measure] = {
        "raw, produce acks=1": partial(_produce, acks=1),
        "raw, produce acks=all": partial(_produce, acks=-1),
        "raw, fetch": partial(_fetch, connections=1),
        "raw, fetch with 8 connections": partial(_fetch, connections=8),
        "librdkafka, produce acks=all": _librdkafka,
    }
    for name, side in sides.items():  # Kafka's compiler has to have seen the work; nothing of this counts
        for way in ways:
            for number, one in enumerate(work.values()):
                _of_new_topic(recorder, side, way, f"{_PREFIX}warm-{number}-{name}", one)
    for what, one in work.items():
        for way in ways:
            case: Case = {"what": what, "way": way.name}
            topic = f"{_PREFIX}{what.replace(', ', '-').replace(' ', '-').replace('=', '-')}"
            runs = {name: partial(_of_new_topic, recorder, side, way, topic, one) for name, side in sides.items()}
            recorder.in_turns(case, runs)


def _of_new_topic(recorder: Recorder, side: SecureSide, way: Way, topic: str, measure: Measure) -> Figures:
    side.create_topic(topic, 1)
    recorder.settle()
    figures = measure(recorder, side, way, topic)
    side.delete_topic(topic)
    return figures


def _produce(recorder: Recorder, side: SecureSide, way: Way, topic: str, *, acks: int) -> Figures:
    batch, records = batch_of(_BATCH, "none")
    load = produce_load(topic, 1, batch, records, acks, _WINDOW)
    first = run_flat_out(side.address, load, 1, _SECONDS, 0)
    ready = replace(load, offsets=list(first.ends))

    def work() -> Figures:
        found = run_flat_out(way.address(side), ready, 1, _SECONDS, recorder.effort.secure_bytes, way.context)
        return {"value_bytes_per_s": found.payload_bytes / found.seconds}

    return watched(side.pid, work)


def _fetch(recorder: Recorder, side: SecureSide, way: Way, topic: str, *, connections: int) -> Figures:
    """What was produced right before, in plaintext; each connection reads as much as one alone."""
    batch, records = batch_of(_BATCH, "none")
    load = replace(produce_load(topic, 1, batch, records, 1, _WINDOW), is_shared=True)
    run_flat_out(side.address, load, 1, _SECONDS, 0)
    written = run_flat_out(side.address, load, 1, _SECONDS, recorder.effort.secure_bytes)
    batches = [end // records for end in written.ends]
    reading = fetch_load(topic, batches, batch, records, 4, max(1, _FETCH_BYTES // len(batch)))
    size = len(reading.frames) * reading.payload_bytes

    def work() -> Figures:
        found = run_flat_out(way.address(side), reading, connections, _SECONDS, connections * size, way.context)
        return {"value_bytes_per_s": found.payload_bytes / found.seconds}

    return watched(side.pid, work)


def _librdkafka(recorder: Recorder, side: SecureSide, way: Way, topic: str) -> Figures:
    spec = {
        "do": "produce",
        "topic": topic,
        "records": recorder.effort.secure_bytes // _VALUE_BYTES,
        "value_bytes": _VALUE_BYTES,
        "settings": way.librdkafka(side),
    }

    def work() -> Figures:
        answers = clients.go()
        sent = sum(one["records"] for one in answers)
        return {"value_bytes_per_s": sent * _VALUE_BYTES / elapsed_s(answers)}

    with Clients([spec]) as clients:
        return watched(side.pid, work)
