"""franz-go, the client of Go, at our broker: the consumer protocol (KIP-848), transactions and share groups.

The program is `clusters/franz/main.go`; it is killed with -9 here, as is the broker.
"""

from __future__ import annotations

import random
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from clusters.franz_go import GoUnavailable, franz_program
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import foldlog
from faults.copying_worker import Job
from faults.exactly_once import ARGUMENTS, TOPICS, pipeline_on
from faults.served import ServedDirectory
from faults.test_exactly_once import disturb, finish_and_judge
from foldlog.testing import KafkaBroker

TIMEOUT_S = 120
PARTITIONS = 6
RECORDS = 2000
QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.session.timeout.ms": 3000,
}


@pytest.fixture(scope="module")
def program() -> str:
    try:
        return str(franz_program())
    except GoUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker.launch(QUICK, path=tmp_path / "data") as started:
        with foldlog.open(tmp_path / "data") as log:
            log.create_topic("orders", partitions=PARTITIONS)
        yield started


def run(program: str, *words: object) -> list[str]:
    command = [program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


class Member:
    """A process of a group, and what it has said so far."""

    def __init__(self, program: str, broker: KafkaBroker, protocol: str) -> None:
        command = [program, "consume", str(broker), "orders", "readers", protocol]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._changed = threading.Condition()
        self.has: list[int] = []
        self.read: list[str] = []
        self.ended = ""
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            with self._changed:
                if word == "have":
                    self.has = [int(number) for number in rest.strip("[]").split()]
                elif word == "read":
                    self.read.append(rest.split()[-1])
                else:
                    self.ended = line
                self._changed.notify_all()

    def wait(self, is_so: Callable[[Self], bool]) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: is_so(self) or bool(self.ended), TIMEOUT_S)
            assert done, f"has {self.has}, {len(self.read)} read"
            assert not self.ended, self.ended

    def leave(self) -> None:
        """As a client that is closed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(TIMEOUT_S) == 0
        self._thread.join(TIMEOUT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join(TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()


def type_of_group(broker: KafkaBroker) -> str:
    admin = AdminClient({"bootstrap.servers": str(broker), "log_level": 0})
    return str(admin.describe_consumer_groups(["readers"])["readers"].result(TIMEOUT_S).type.name)


def test_members_of_the_consumer_protocol_share_partitions_and_take_over_what_a_killed_one_had(
    program: str, broker: KafkaBroker
) -> None:
    with Member(program, broker, "consumer") as first, Member(program, broker, "consumer") as second:
        first.wait(lambda member: len(member.has) == PARTITIONS // 2)
        second.wait(lambda member: len(member.has) == PARTITIONS // 2)
        assert type_of_group(broker) == "CONSUMER"
        assert run(program, "produce", str(broker), "orders", RECORDS) == [f"produced {RECORDS}"]
        second.wait(lambda member: len(member.read) > 0)
        second.kill()
        first.wait(lambda member: len(member.has) == PARTITIONS)
        first.wait(lambda member: len({*member.read, *second.read}) == RECORDS)
        with Member(program, broker, "consumer") as third:
            third.wait(lambda member: len(member.has) == PARTITIONS // 2)
            first.leave()
            third.wait(lambda member: len(member.has) == PARTITIONS)
            third.leave()
    assert len(set(first.read)) == len(first.read), "only what the killed one had read may come again"
    assert third.read == []


def test_a_group_becomes_one_of_the_consumer_protocol_and_classic_again(program: str, broker: KafkaBroker) -> None:
    with Member(program, broker, "classic") as old:
        old.wait(lambda member: len(member.has) == PARTITIONS)
        assert type_of_group(broker) == "CLASSIC"
        with Member(program, broker, "consumer") as new:
            new.wait(lambda member: len(member.has) == PARTITIONS // 2)
            old.wait(lambda member: len(member.has) == PARTITIONS // 2)
            assert type_of_group(broker) == "CONSUMER"
            run(program, "produce", str(broker), "orders", RECORDS)
            new.wait(lambda member: len(member.read) > 0)
            new.leave()
        old.wait(lambda member: len(member.has) == PARTITIONS)
        old.wait(lambda member: len(member.read) + len(new.read) >= RECORDS)
        assert type_of_group(broker) == "CLASSIC"
    assert Counter(old.read) + Counter(new.read) == Counter(map(str, range(RECORDS)))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_franz_go_copies_everything_once_under_kills(tmp_path: Path, program: str, protocol: str) -> None:
    @contextmanager
    def process_of(job: Job) -> Iterator[subprocess.Popen[str]]:
        words = [program, "work", job.bootstrap, job.source, job.target, job.group, job.name, protocol]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    quick = [word for name, value in QUICK.items() for word in ("-X", f"{name}={value}")]
    with ServedDirectory(tmp_path, *ARGUMENTS, *quick) as served:
        jobs = [Job("franz", served.bootstrap, TOPICS[0], TOPICS[-1], name) for name in ("one", "two")]
        with pipeline_on(served, 6000, jobs, process_of) as pipeline:
            pipeline.start()
            disturb(served, pipeline, random.Random(3), 8)
            finish_and_judge(served, pipeline)


def test_a_member_of_a_share_group_accepts_releases_rejects_and_renews(program: str, broker: KafkaBroker) -> None:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": str(broker), "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.GROUP, "workers", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)
    with foldlog.connect(f"kafka://{broker}") as log:
        for value in ("plain", "release", "reject", "renew"):
            log.append("orders", value)
        said = sorted(run(program, "share", str(broker), "orders", "workers", 4))
        assert said == ["plain 1", "reject 1", "release 1", "release 2", "renew 1"]
        assert sum(log.lag("workers").values()) == 0
        log.append("orders", "later")
        assert run(program, "share", str(broker), "orders", "workers", 1) == ["later 1"], "what is done came again"
