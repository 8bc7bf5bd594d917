"""Topics come, grow, change and go; what was acknowledged of them is there after a reopen; nothing else is touched.

Each test runs on a real directory and in memory.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.small_broker import at, open_broker, read, writable, write
from foldlog.broker.broker import Broker
from foldlog.broker.topics.catalog import Growth
from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.directories import TopicDirectories
from foldlog.broker.topics.names import kafka_topic_id
from foldlog.errors import (
    CorruptLog,
    DirectoryInUse,
    DirectoryLocked,
    InvalidArgument,
    InvalidConfig,
    InvalidTopicName,
    LogClosed,
    LogNotFound,
    MissingCatalog,
    StorageError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from foldlog.files.base import Files, read_file
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFiles
from foldlog.testing.sim_clock import SimClock


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    return PosixFiles() if request.param == "disk" else MemoryFiles()


def names(files: Files) -> set[str]:
    return {entry.name for entry in files.entries("data")}


def put(files: Files, path: str, data: bytes = b"") -> None:
    file = files.open(path, write=True, create=True)
    file.truncate(0)
    file.write(0, [data])
    file.close()


def test_a_new_log_has_no_topics_and_an_id_of_its_own(files: Files) -> None:
    with open_broker(files) as broker:
        assert broker.topics() == []
        assert broker.warnings() == []
        directory_id = broker.directory_id
    with open_broker(files) as broker:
        assert broker.directory_id == directory_id
    assert names(files) == {".lock", "catalog.json", "checkpoint"}


def test_a_topic_survives_with_its_settings_and_its_empty_partitions(files: Files) -> None:
    with open_broker(files) as broker:
        topic = broker.create_topic("orders", 3, {"retention.ms": "1000", "cleanup.policy": "compact"})
        write(broker, "orders", 1, b"a", b"b", key=b"k")
    with open_broker(files) as broker:
        assert broker.topics() == ["orders"]
        assert broker.topic("orders") == topic
        assert topic.partition_count == 3
        assert topic.config.log.retention_ms == 1000
        assert [read(broker, "orders", number) for number in range(3)] == [[], [b"a", b"b"], []]
        assert broker.partition("orders", 0).log_end_offset == 0


def test_partition_metadata_holds_the_topic_id_as_kafka_writes_it(files: Files) -> None:
    with open_broker(files) as broker:
        topic = broker.create_topic("orders")
    text = read_file(files, "data/orders-0/partition.metadata").decode()
    assert text == f"version: 0\ntopic_id: {kafka_topic_id(topic.topic_id)}\n"
    assert len(kafka_topic_id(topic.topic_id)) == 22


def test_a_new_partition_begins_in_the_first_epoch(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders")
        write(broker, "orders", 0, b"a")
        assert broker.partition("orders", 0).leader_epoch == 0


def test_creating_a_topic_twice_changes_nothing(files: Files) -> None:
    with open_broker(files) as broker:
        topic = broker.create_topic("orders", 2)
        write(broker, "orders", 0, b"kept")
        with pytest.raises(TopicExists):
            broker.create_topic("orders", 5, {"retention.ms": 1})
        assert broker.topic("orders") == topic
        assert read(broker, "orders") == [b"kept"]


def test_what_cannot_be_created_leaves_no_trace(files: Files) -> None:
    with open_broker(files) as broker:
        before = names(files)
        for name in ("../up", "", "a b", "__consumer_offsets"):
            with pytest.raises(InvalidTopicName):
                broker.create_topic(name)
        for count in (0, -1, 10_001, True, 1.0, None):
            with pytest.raises(InvalidArgument):
                broker.create_topic("orders", count)  # type: ignore[arg-type]
        with pytest.raises(InvalidConfig):
            broker.create_topic("orders", 1, {"retention.mss": 1})
        assert (names(files), broker.topics()) == (before, [])


def test_internal_topics_are_listed_only_when_asked_for(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("b")
        broker.create_topic("a")
        broker.create_topic("__folds")
        assert broker.topics() == ["a", "b"]
        assert broker.topics(include_internal=True) == ["__folds", "a", "b"]
        broker.create_topic("__mine")
        assert broker.topics() == ["__mine", "a", "b"], "as in Kafka, two underscores make no topic internal"


def test_only_partitions_that_exist_are_given_out(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders", 2)
        broker.partition("orders", 1)
        for number in (-1, 2, True, False, 1.0, "1", None):
            with pytest.raises(UnknownPartition):
                broker.partition("orders", number)  # type: ignore[arg-type]
        with pytest.raises(UnknownTopic, match="orders"):
            broker.partition("order", 0)
        with pytest.raises(UnknownTopic):
            broker.topic("order")


def test_a_grown_topic_remembers_where_the_older_partitions_ended(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders", 2)
        write(broker, "orders", 0, b"a", b"b")
        assert broker.grow_topic("orders", 3).growths == (Growth(3, (2, 0)),)
        write(broker, "orders", 2, b"c")
        broker.grow_topic("orders", 5)
    with open_broker(files) as broker:
        assert broker.topic("orders").growths == (Growth(3, (2, 0)), Growth(5, (2, 0, 1)))
        assert [read(broker, "orders", number) for number in range(5)] == [[b"a", b"b"], [], [b"c"], [], []]
        for count in (5, 4, 1, 0, True):
            with pytest.raises(InvalidArgument):
                broker.grow_topic("orders", count)
        with pytest.raises(UnknownTopic):
            broker.grow_topic("order", 2)


def test_a_growth_counts_only_what_is_durable(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders", 1, {"flush.messages": 1000})
        write(broker, "orders", 0, b"a", b"b")
        assert writable(broker, "orders").durable_offset == 0
        assert broker.grow_topic("orders", 2).growths == (Growth(2, (2,)),)
        assert writable(broker, "orders").durable_offset == 2


def test_a_growth_counts_what_is_written_while_directories_are_made(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that a producer routes by the old count must not lie behind the remembered end: ends are asked last."""
    make = TopicDirectories.make
    with open_broker(files) as broker:
        broker.create_topic("orders", 1)
        write(broker, "orders", 0, b"a")

        def make_and_write(self: TopicDirectories, *what: Any) -> Any:
            made = make(self, *what)
            write(broker, "orders", 0, b"meanwhile")
            return made

        monkeypatch.setattr(TopicDirectories, "make", make_and_write)
        assert broker.grow_topic("orders", 2).growths == (Growth(2, (2,)),)


def test_changed_settings_are_in_force_at_once_and_after_a_reopen(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders", 2, {"retention.ms": 5, "segment.bytes": 2048})
        partition = writable(broker, "orders")
        broker.alter_topic("orders", {"retention.ms": None, "max.message.bytes": "100"})
        assert partition.config.max_message_bytes == 100
        assert writable(broker, "orders", 1).config == partition.config
        with pytest.raises(InvalidConfig):
            broker.alter_topic("orders", {"max.message.bytes": "many"})
        with pytest.raises(UnknownTopic):
            broker.alter_topic("order", {})
    with open_broker(files) as broker:
        assert broker.topic("orders").config.settings == {"segment.bytes": "2048", "max.message.bytes": "100"}


def test_a_deleted_topic_is_gone_with_its_files(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders", 2)
        broker.create_topic("orders-0", 1)
        write(broker, "orders", 0, b"a")
        write(broker, "orders-0", 0, b"other")
        held = writable(broker, "orders")
        broker.delete_topic("orders")
        assert broker.topics() == ["orders-0"]
        assert not {name for name in names(files) if name in {"orders-0", "orders-1"} or name.endswith("-delete")}
        with pytest.raises(LogClosed):
            held.read(0)
        with pytest.raises(UnknownTopic):
            broker.partition("orders", 0)
        with pytest.raises(UnknownTopic):
            broker.delete_topic("orders")
        assert read(broker, "orders-0") == [b"other"]
    with open_broker(files) as broker:
        assert broker.topics() == ["orders-0"]
        assert broker.warnings() == []


def test_a_topic_created_again_starts_empty_with_another_id(files: Files) -> None:
    with open_broker(files) as broker:
        first = broker.create_topic("orders", 2)
        write(broker, "orders", 0, b"old")
        broker.delete_topic("orders")
        second = broker.create_topic("orders", 2)
        assert second.topic_id != first.topic_id
        assert second.slots == first.slots  # their numbers are used again, what stood there is not
        assert read(broker, "orders") == []
        write(broker, "orders", 0, b"new")
    with open_broker(files) as broker:
        assert read(broker, "orders") == [b"new"]


def test_the_longest_name_can_be_created_and_deleted(files: Files) -> None:
    name = "x" * 249
    with open_broker(files) as broker:
        broker.create_topic(name, 1)
        write(broker, name, 0, b"a")
        broker.delete_topic(name)
        assert names(files) == {".lock", "catalog.json", "checkpoint"}


def test_committed_offsets_of_a_deleted_topic_are_not_inherited(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders")
        broker.create_topic("other")
        broker.commit_offsets("g", {("orders", 0): at(0), ("other", 0): at(0)})
        broker.delete_topic("orders")
        broker.create_topic("orders")
        assert set(broker.committed("g")) == {("other", 0)}
    with open_broker(files) as broker:
        assert set(broker.committed("g")) == {("other", 0)}


def test_an_empty_directory_that_a_crash_left_is_adopted(files: Files) -> None:
    with open_broker(files) as broker:
        files.make_directory("data/orders-0")
        put(files, "data/orders-0/partition.metadata.tmp", b"version: 0\n")
        put(files, f"data/orders-0/{0:020d}.log")
        files.make_directory("data/orders-1")
        broker.create_topic("orders", 2)
        write(broker, "orders", 0, b"a")
    assert not [entry.name for entry in files.entries("data/orders-0") if entry.name.endswith(".tmp")]


def test_a_strange_directory_with_bytes_in_it_is_refused_and_left_alone(files: Files) -> None:
    with open_broker(files) as broker:
        files.make_directory("data/orders-1")
        put(files, f"data/orders-1/{0:020d}.log", b"somebody's records")
        with pytest.raises(DirectoryInUse, match=r"data/orders-1 .*\(18 bytes\)"):
            broker.create_topic("orders", 3)
        assert broker.topics() == []
        assert read_file(files, f"data/orders-1/{0:020d}.log") == b"somebody's records"
        assert "orders-0" not in names(files)
    with open_broker(files) as broker:
        assert [warning for warning in broker.warnings() if "data/orders-1 is not in the catalog" in warning]


def test_directories_and_files_that_are_no_partitions_are_nobodys_business(files: Files) -> None:
    open_broker(files).close()
    files.make_directory("data/notes")
    put(files, "data/readme.txt", b"hello")
    with open_broker(files) as broker:
        assert broker.warnings() == []
    assert {"notes", "readme.txt"} <= names(files)


def test_an_interrupted_deletion_is_undone_if_the_catalog_still_knows_the_topic(files: Files) -> None:
    with open_broker(files) as broker:
        topic = broker.create_topic("orders", 2)
        write(broker, "orders", 0, b"a")
    files.rename("data/orders-0", f"data/orders-0.{topic.topic_id}-delete")
    with open_broker(files) as broker:
        assert read(broker, "orders") == [b"a"]
        assert broker.warnings() == []


def test_an_interrupted_deletion_is_finished_if_the_catalog_forgot_the_topic(files: Files) -> None:
    with open_broker(files):
        pass
    away = f"data/orders-0.{'0123456789abcdef' * 2}-delete"
    files.make_directory(away)
    put(files, f"{away}/{0:020d}.log", b"deleted")
    with open_broker(files) as broker:
        assert broker.warnings() == []
    assert names(files) == {".lock", "catalog.json", "checkpoint"}


def test_a_missing_catalog_beside_topics_is_not_an_empty_log(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders", 2)
    files.unlink("data/catalog.json")
    for mode in ("w", "r"):
        with pytest.raises(MissingCatalog, match=r"data/catalog.json is missing although .*orders-0, orders-1"):
            open_broker(files, mode=mode)
    assert "catalog.json" not in names(files)


def test_a_damaged_catalog_is_refused_by_name_and_the_lock_let_go(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders")
    good = read_file(files, "data/catalog.json")
    put(files, "data/catalog.json", good.replace(b"orders", b"ordets"))
    for mode in ("w", "r"):
        with pytest.raises(CorruptLog, match=r"data/catalog\.json"):
            open_broker(files, mode=mode)
    put(files, "data/catalog.json", good)
    with open_broker(files) as broker:
        assert broker.topics() == ["orders"]


def test_one_damaged_partition_does_not_stop_the_others(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders", 3)
        for number in range(3):
            write(broker, "orders", number, b"a")
    file = files.open(f"data/orders-1/{0:020d}.log", write=True)
    file.truncate(20)
    file.close()
    with open_broker(files) as broker:
        for _ in range(2):
            with pytest.raises(CorruptLog, match="orders-1"):
                broker.partition("orders", 1)
        assert read(broker, "orders", 0) == read(broker, "orders", 2) == [b"a"]
        write(broker, "orders", 2, b"b")
        assert [warning for warning in broker.warnings() if "orders-1" in warning]


def test_a_partition_whose_directory_is_gone_is_refused_and_can_be_deleted(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders", 2)
    files.rename("data/orders-0", "data/elsewhere")
    with open_broker(files) as broker:
        assert [warning for warning in broker.warnings() if "data/orders-0 is in the catalog, but missing" in warning]
        with pytest.raises(CorruptLog, match="orders-0"):
            broker.partition("orders", 0)
        assert read(broker, "orders", 1) == []
        broker.delete_topic("orders")
        assert broker.topics() == []


def test_a_second_writer_is_told_the_pid_of_the_first(files: Files) -> None:
    with open_broker(files):
        with pytest.raises(DirectoryLocked) as refused:
            open_broker(files if isinstance(files, MemoryFiles) else PosixFiles())
        assert refused.value.pid == os.getpid()
        assert str(os.getpid()) in str(refused.value)
    open_broker(files).close()


def test_a_closed_log_says_so_and_closing_again_is_fine(files: Files) -> None:
    broker = open_broker(files)
    broker.create_topic("orders")
    held = writable(broker, "orders")
    broker.close()
    broker.close()
    for call in (
        lambda: broker.create_topic("more"),
        lambda: broker.delete_topic("orders"),
        lambda: broker.grow_topic("orders", 2),
        lambda: broker.alter_topic("orders", {}),
        broker.topics,
        lambda: broker.topic("orders"),
        lambda: broker.partition("orders", 0),
        lambda: broker.commit_offsets("g", {("orders", 0): at(0)}),
        lambda: broker.committed("g"),
        broker.group_names,
        lambda: broker.coordinator().__enter__(),
        broker.enforce_retention,
        broker.compact,
        broker.run_due,
        lambda: held.read(0),
    ):
        with pytest.raises(LogClosed):
            call()


def test_a_path_that_is_a_file_is_refused_in_words(files: Files) -> None:
    put(files, "data")
    with pytest.raises(StorageError, match="data is a file; a log needs a directory"):
        open_broker(files)
    with pytest.raises(LogNotFound, match="data is a file"):
        open_broker(files, mode="r")


@pytest.mark.parametrize("path", ["data/sub", "data/sub/sub"])
def test_a_path_below_a_file_is_refused_and_the_file_is_named(files: Files, path: str) -> None:
    put(files, "data")
    with pytest.raises(StorageError, match="data is a file; a log needs a directory"):
        Broker.open(path, files=files)
    with pytest.raises(LogNotFound, match=r"there is no log in .*: .*data is a file$"):
        Broker.open(path, files=files, mode="r")


def test_nonsense_is_refused_before_anything_is_opened(files: Files) -> None:
    with pytest.raises(InvalidArgument, match="mode='a'"):
        open_broker(files, mode="a")
    with pytest.raises(InvalidArgument, match="empty"):
        Broker.open("", files=files)
    assert not files.exists("data")


def test_a_log_in_memory_needs_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker.open(":memory:", clock=SimClock()) as broker:
        broker.create_topic("orders")
        write(broker, "orders", 0, b"a")
        assert read(broker, "orders") == [b"a"]
    assert list(tmp_path.iterdir()) == []


def test_missing_parents_are_made(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b" / "c") + "/"
    with Broker.open(path) as broker:
        broker.create_topic("orders")
    assert (tmp_path / "a" / "b" / "c" / "orders-0").is_dir()


def test_settings_are_decided_from_those_in_force_with_no_change_in_between(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders", config={"segment.ms": 1})

        def one_more(config: TopicConfig) -> TopicConfig:
            return config.with_changes({"segment.ms": int(config.effective()["segment.ms"]) + 1})

        threads = [threading.Thread(target=broker.configure_topic, args=("orders", one_more)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert broker.topic("orders").config.settings == {"segment.ms": "9"}


def test_a_name_that_kafka_would_not_tell_from_anothers_is_refused_and_nothing_is_made(files: Files) -> None:
    with open_broker(files) as broker:
        broker.create_topic("orders.eu")
        before = names(files)
        with pytest.raises(InvalidTopicName, match=r"'orders_eu' differs from topic 'orders\.eu' only in"):
            broker.create_topic("orders_eu")
        assert names(files) == before
        broker.delete_topic("orders.eu")
        broker.create_topic("orders_eu")
