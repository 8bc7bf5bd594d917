"""kill -9 and SIGTERM of a broker that is under load: what clients were told is true after the next start.

`foldlog serve` runs as a process on a directory and a port. Idempotent producers of three clients write numbered
records to every partition, and two members of a group read and commit, all the time; nobody tells them that the broker
goes. It is killed at moments that a seed chooses, and started again at once. At the end the directory is read embedded:

- every acknowledged record is where the acknowledgement said, once, and each producer's records are in order;
- every record that was read is still there, and the group has read all of them;
- no member ever went on before an offset that a member was told is committed.
"""

from __future__ import annotations

import random
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import foldlog
from budgets import with_and_without_journal
from faults.served import ServedDirectory
from faults.served_load import (
    GROUP,
    PARTITIONS,
    TOPIC,
    AiokafkaProducer,
    ConfluentProducer,
    KafkaPythonProducer,
    Member,
    Place,
    RawProducer,
    Story,
    Worker,
)
from foldlog.broker.broker import Broker
from foldlog.files.posix import PosixFiles
from foldlog.log.journal.recovery import journal_files

LEAVES = 3
CONNECTIONS = 8

ARGUMENTS = ("--create", f"{TOPIC}:{PARTITIONS}", "-X", "log.segment.bytes=65536")
"""Small segments, so that several are rolled between two kills."""


@contextmanager
def load_on(bootstrap: str, story: Story) -> Iterator[None]:
    """Producers and members at work; at the end producers finish first, then the members have read everything."""
    producers: list[Worker] = [
        ConfluentProducer("confluent-1", bootstrap, story),
        ConfluentProducer("confluent-2", bootstrap, story),
        KafkaPythonProducer("kafka-python", bootstrap, story),
        AiokafkaProducer("aiokafka", bootstrap, story),
    ]
    members: list[Worker] = [Member(f"member-{number}", bootstrap, story) for number in range(2)]
    try:
        yield
        for producer in producers:
            producer.stop()
        for producer in producers:
            producer.join()
        story.wait_for("everything is read", lambda now: now.read.keys() >= now.acknowledged.keys())
    finally:
        for worker in producers + members:
            worker.stop()
    for member in members:
        member.join()


def records_in(path: Path) -> dict[Place, str]:
    """Every record of the directory."""
    found: dict[Place, str] = {}
    with foldlog.open(str(path)) as log:
        for partition, (start, end) in log.offsets(TOPIC).items():
            records = list(log.read(TOPIC, partition))
            assert (start, [record.offset for record in records]) == (0, list(range(end))), "holes"
            found.update({(partition, record.offset): record.value.decode() for record in records})
    return found


def judge(path: Path, story: Story) -> None:
    """Compare what clients were told with the directory."""
    assert not story.problems, story.problems
    found = records_in(path)
    with foldlog.open(str(path)) as log:
        committed = {place.partition: told.offset for place, told in log.committed(GROUP).items()}
    lost = {place: value for place, value in story.acknowledged.items() if found.get(place) != value}
    assert not lost, f"acknowledged, and not there: {lost}"
    vanished = {place: value for place, value in story.read.items() if found.get(place) != value}
    assert not vanished, f"read, and not there: {vanished}"
    numbers: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for (partition, _), value in sorted(found.items()):
        sender, _, number = value.rpartition("/")
        numbers[sender, partition].append(int(number))
    for (sender, partition), sequence in numbers.items():
        # Number n went to partition n % 3, and all were acknowledged before the producer ended.
        expected = list(range(partition, partition + PARTITIONS * len(sequence), PARTITIONS))
        assert sequence == expected, f"records of {sender} are missing, twice or out of order in partition {partition}"
    assert len(found) == len(story.acknowledged)
    for partition, offset in story.committed.items():
        assert committed[partition] >= offset, f"partition {partition} was committed up to {offset}"


def epochs(path: Path) -> dict[str, int]:
    """The leader epoch of every partition: it rises with each start that finds a directory that was not closed."""
    with Broker.open(str(path)) as broker:
        return {
            f"{topic}-{number}": broker.partition(topic, number).leader_epoch
            for topic in broker.topics(include_internal=True)
            for number in range(broker.topic(topic).partition_count)
        }


@pytest.mark.parametrize(("kills", "journaled"), with_and_without_journal(4, 8))
def test_kill_nine_under_load_loses_nothing_that_any_client_was_told(
    kills: int, journaled: bool, tmp_path: Path
) -> None:
    rng = random.Random(3)
    story = Story()
    with ServedDirectory(tmp_path, *ARGUMENTS, journaled=journaled) as served:
        with load_on(served.bootstrap, story):
            for _ in range(kills):
                story.wait_progress(rng.choice((1, 50, 300, 1000)), commits=rng.choice((0, 1, 5, 20)))
                assert served.end(signal.SIGKILL) == -signal.SIGKILL
                served.start()
            story.wait_progress(200)
        assert served.end(signal.SIGTERM) == 0
    assert bool(journal_files(PosixFiles(), str(served.path))) == journaled
    judge(served.path, story)
    assert max(epochs(served.path).values()) >= 1, "no start had anything to recover: nothing was tested of that"


@pytest.mark.faults
def test_sigterm_under_load_loses_nothing_and_leaves_nothing_to_recover(tmp_path: Path) -> None:
    rng = random.Random(4)
    story = Story()
    with ServedDirectory(tmp_path, *ARGUMENTS) as served:
        with load_on(served.bootstrap, story):
            for _ in range(LEAVES):
                story.wait_progress(rng.choice((50, 300, 1000)), commits=rng.choice((1, 5, 20)))
                assert served.end(signal.SIGTERM) == 0
                served.start()
            story.wait_progress(200)
        assert served.end(signal.SIGTERM) == 0
    judge(served.path, story)
    assert set(epochs(served.path).values()) == {0}
    complaints = [line for line in served.logged.splitlines() if " INFO " not in line]
    assert not complaints


def test_sigterm_answers_all_that_was_written_on_every_connection(tmp_path: Path) -> None:
    """Clients that send ahead and never again: what is in the log is what was acknowledged, not one record more."""
    story = Story()
    with ServedDirectory(tmp_path, *ARGUMENTS) as served:
        clients = [RawProducer(f"raw-{number}", served.bootstrap, story) for number in range(CONNECTIONS)]
        story.wait_progress(300)
        assert served.end(signal.SIGTERM) == 0
        for client in clients:
            client.join()
    assert not story.problems, story.problems
    assert records_in(served.path) == story.acknowledged
