"""Batches with decided numbers: sent once or twice, by this process or a later one, through a server or without one,
they are in the log once; and one that is refused lets none that follow it into the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import foldlog
from foldlog.client.backends.directory import broker_of
from foldlog.client.backends.served.resumable import Numbers, ResumableLog, TopicLimits
from foldlog.clock import SystemClock
from foldlog.errors import (
    DirectoryLocked,
    FoldlogError,
    InvalidTopicName,
    LogNotFound,
    OutOfOrderSequence,
    RecordTooLarge,
    UnknownTopic,
)
from foldlog.files.memory import MemoryFiles
from foldlog.log.producers import EXPIRATION_MS
from foldlog.records.loops import pack
from foldlog.testing.sim_clock import SimClock

TOPIC = "orders"
PATH = "data"


def batches(count: int, first: int = 0, records: int = 3) -> list[bytearray]:
    """Batches of `records` records each, whose values are numbers that go on."""
    return [
        bytearray(pack([(0, None, str(number * records + i).encode(), ()) for i in range(records)]))
        for number in range(first, first + count)
    ]


def values(log: foldlog.Log, partition: int = 0) -> list[int]:
    return [int(record.value or b"") for record in log.read(TOPIC, partition)]


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles()
    with foldlog.open(PATH, files=made, background=False) as log:
        log.create_topic(TOPIC, partitions=2)
    return made


@pytest.fixture(params=["served", "alone"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory that another log serves, or that nobody writes."""
    with foldlog.open(tmp_path) as log:
        log.create_topic(TOPIC, partitions=2)
    if request.param == "alone":
        yield tmp_path
        return
    with foldlog.open(tmp_path, listen=True):
        yield tmp_path


def send(log: ResumableLog, numbers: Numbers, given: list[bytearray], done_count: int = 0, partition: int = 0) -> None:
    appender = log.appender(TOPIC, log.limits(TOPIC).topic_id, partition, numbers, done_count)
    for batch in given:
        appender.append(batch)
    log.flush()


def test_what_was_begun_is_finished_by_another_and_is_in_the_log_once(directory: Path) -> None:
    with closing(ResumableLog.open(str(directory))) as log:
        numbers = Numbers(log.new_producer_id(), 0)
        ends = {(TOPIC, number): log.end_offset(TOPIC, number) for number in range(2)}
        send(log, numbers, batches(20))
    with closing(ResumableLog.open(str(directory))) as log:
        found = log.progress(ends, numbers, age_ms=0)
        assert found == {(TOPIC, 0): (60, True), (TOPIC, 1): (0, True)}
        send(log, numbers, batches(10, first=20), done_count=60)
    with foldlog.open(directory, "r") as reader:
        assert values(reader) == list(range(90))


def test_the_same_batches_sent_again_are_known_or_refused_and_never_doubled(directory: Path) -> None:
    with closing(ResumableLog.open(str(directory))) as log:
        numbers = Numbers(log.new_producer_id(), 0)
        send(log, numbers, batches(8))
    with closing(ResumableLog.open(str(directory))) as log, pytest.raises(OutOfOrderSequence):
        send(log, numbers, batches(8))
    with foldlog.open(directory, "r") as reader:
        assert values(reader) == list(range(24))


def test_a_later_epoch_begins_anew_with_the_same_producer(directory: Path) -> None:
    with closing(ResumableLog.open(str(directory))) as log:
        producer_id = log.new_producer_id()
        for epoch in range(3):
            send(log, Numbers(producer_id, epoch), batches(2, first=2 * epoch))
            assert log.progress({(TOPIC, 0): 0}, Numbers(producer_id, epoch), 0)[TOPIC, 0].record_count == 6
    with foldlog.open(directory, "r") as reader:
        assert values(reader) == list(range(18))


@pytest.mark.parametrize("refused", [0, 1, 4])
def test_nothing_follows_a_batch_that_was_refused(directory: Path, refused: int) -> None:
    """Also where it is the first: a log that does not know the producer yet would take any number for its first."""
    given = batches(10)
    given[refused] = bytearray(pack([(0, None, b"x" * (2 << 20), ())]))
    with closing(ResumableLog.open(str(directory))) as log, pytest.raises(FoldlogError) as caught:
        send(log, Numbers(log.new_producer_id(), 0), given)
    assert isinstance(caught.value, RecordTooLarge | OutOfOrderSequence)
    with foldlog.open(directory, "r") as reader:
        assert values(reader) == list(range(3 * refused))


def test_partitions_do_not_wait_for_each_other_and_keep_their_own_order(directory: Path) -> None:
    with closing(ResumableLog.open(str(directory))) as log:
        numbers = Numbers(log.new_producer_id(), 0)
        topic_id = log.limits(TOPIC).topic_id
        appenders = [log.appender(TOPIC, topic_id, number, numbers, 0) for number in range(2)]
        for left, right in zip(batches(30), batches(30, first=100), strict=True):
            appenders[0].append(left)
            appenders[1].append(right)
        log.flush()
    with foldlog.open(directory, "r") as reader:
        assert values(reader, 0) == list(range(90))
        assert values(reader, 1) == list(range(300, 390))


def test_a_topic_of_the_same_name_is_not_the_same_topic(tmp_path: Path) -> None:
    with foldlog.open(tmp_path) as owner:
        old_id = owner.create_topic(TOPIC).topic_id
        owner.delete_topic(TOPIC)
        owner.create_topic(TOPIC)
    with closing(ResumableLog.open(str(tmp_path))) as log, pytest.raises(UnknownTopic):
        log.appender(TOPIC, old_id, 0, Numbers(1, 0), 0)


def test_a_writer_that_does_not_listen_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with foldlog.open(tmp_path) as owner:
        owner.create_topic(TOPIC)
        with pytest.raises(DirectoryLocked, match="does not listen"):
            ResumableLog.open(str(tmp_path))
        assert values(owner) == []


def test_no_log_is_made_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(LogNotFound):
        ResumableLog.open(str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()


def test_the_logs_own_topic_is_not_written() -> None:
    with foldlog.open(":memory:") as log:
        log.create_topic(TOPIC)
        topic = log.topic(TOPIC)
        assert TopicLimits.of(topic, {"max.message.bytes": "5000"}).max_message_bytes == 5000
        log.reset_group("g", {(TOPIC, 0): 0})
        with pytest.raises(InvalidTopicName):
            TopicLimits.of(log.topic("__consumer_offsets"))


def write_beside(files: MemoryFiles, clock: SimClock, count: int) -> None:
    with foldlog.open(PATH, files=files, clock=clock, background=False) as log:
        for number in range(count):
            log.append(TOPIC, str(number), key=str(number), partition=0)


def test_a_producer_that_is_forgotten_is_found_in_the_log(files: MemoryFiles) -> None:
    clock = SimClock(SystemClock().now_ms())
    with closing(ResumableLog.open(PATH, files)) as log:
        numbers = Numbers(log.new_producer_id(), 0)
        send(log, numbers, batches(2))
    with foldlog.open(PATH, files=files, clock=clock, background=False) as owner:
        partition = broker_of(owner).writable_partition(TOPIC, 0)
        assert len(partition.producers_info()) == 1
        for _ in range(3):  # what producers there were is looked at when a segment is sealed
            owner.append(TOPIC, "7", partition=0)
            partition.roll()
            clock.advance(2 * EXPIRATION_MS)
        assert partition.producers_info() == []
    with closing(ResumableLog.open(PATH, files)) as log:
        assert log.progress({(TOPIC, 0): 0}, numbers, 3 * EXPIRATION_MS)[TOPIC, 0] == (6, True)


def test_what_is_not_in_a_log_that_is_whole_was_never_written_however_long_ago(files: MemoryFiles) -> None:
    write_beside(files, SimClock(), 5)
    with closing(ResumableLog.open(PATH, files)) as log:
        assert log.progress({(TOPIC, 0): 2}, Numbers(7, 0), 9 * EXPIRATION_MS)[TOPIC, 0] == (0, True)


@pytest.mark.parametrize(("age_ms", "is_provable"), [(0, True), (EXPIRATION_MS + 1, False)])
def test_what_may_have_been_deleted_is_not_provable_once_the_producer_may_be_forgotten(
    files: MemoryFiles, age_ms: int, is_provable: bool
) -> None:
    with foldlog.open(PATH, files=files, background=False) as log:
        for number in range(5):
            log.append(TOPIC, str(number), partition=0)
        log.delete_records(TOPIC, {0: 4})
    with closing(ResumableLog.open(PATH, files)) as numbered:
        assert numbered.progress({(TOPIC, 0): 2}, Numbers(7, 0), age_ms)[TOPIC, 0] == (0, is_provable)


def test_a_compacted_gap_is_not_provable_either(files: MemoryFiles) -> None:
    with foldlog.open(PATH, files=files, background=False) as log:
        log.alter_topic(TOPIC, {"cleanup.policy": "compact"})
        for number in range(5):
            log.append(TOPIC, str(number), key="same", partition=0)
        broker_of(log).writable_partition(TOPIC, 0).roll()
        log.compact(TOPIC)
    with closing(ResumableLog.open(PATH, files)) as numbered:
        assert numbered.progress({(TOPIC, 0): 0}, Numbers(7, 0), EXPIRATION_MS + 1)[TOPIC, 0] == (0, False)


def test_a_gap_behind_what_was_found_is_not_provable_either() -> None:
    """The last of the batches may be what compaction has removed: to append them again would bring old values back."""
    files, clock = MemoryFiles(), SimClock(SystemClock().now_ms())
    with foldlog.open(PATH, files=files, background=False) as log:
        log.create_topic(TOPIC, config={"cleanup.policy": "compact"})
    with closing(ResumableLog.open(PATH, files)) as numbered:
        numbers = Numbers(numbered.new_producer_id(), 0)
        send(numbered, numbers, [bytearray(pack([(0, key, b"1", ())])) for key in (b"a", b"b")])
    with foldlog.open(PATH, files=files, clock=clock, background=False) as log:
        partition = broker_of(log).writable_partition(TOPIC, 0)
        assert len(partition.producers_info()) == 1
        for _ in range(4):  # what producers there were is looked at when a segment is sealed
            log.append(TOPIC, "2", key="b", partition=0)
            partition.roll()
            clock.advance(2 * EXPIRATION_MS)
        assert partition.producers_info() == []
        log.compact(TOPIC)
        assert [record.offset for record in log.read(TOPIC, 0)] == [0, 5]
    with closing(ResumableLog.open(PATH, files)) as numbered:
        assert numbered.progress({(TOPIC, 0): 0}, numbers, 6 * EXPIRATION_MS)[TOPIC, 0] == (1, False)
        assert numbered.progress({(TOPIC, 0): 0}, numbers, 0)[TOPIC, 0] == (1, True)
