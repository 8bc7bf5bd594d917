"""The path sink without Spark: what the driver checks first, and what a task stages, in real directories."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import foldlog
from foldlog.errors import (
    DirectoryElsewhere,
    DirectoryLocked,
    InvalidTopicName,
    LogNotFound,
    RecordTooLarge,
    SerializationError,
    UnknownTopic,
)
from foldlog.spark.origins.origin import OriginSpec
from foldlog.spark.sink.by_path import PathPlan, plan, stage
from foldlog.spark.sink.committing import PathCommitter
from foldlog.spark.sink.options import SinkOptions
from foldlog.testing.plugin import KafkaBrokerFactory

TOPIC = "orders"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "log") as log:
        log.create_topic(TOPIC, partitions=2)
    return tmp_path / "log"


def options(path: Path, topic: str | None = TOPIC, partitions: int | None = None) -> SinkOptions:
    return SinkOptions(OriginSpec(path=str(path)), topic=topic, partitions_of_new_topics=partitions)


def rows(*values: str | None, topic: str = TOPIC) -> list[pa.RecordBatch]:
    return [pa.record_batch({"topic": pa.array([topic] * len(values)), "value": pa.array(values, pa.string())})]


def test_what_is_staged_is_committed_and_nothing_is_in_the_log_before(path: Path) -> None:
    told = plan(options(path))
    staged = [stage(told, "job", number, rows(f"{number}a", None, f"{number}b")) for number in range(3)]
    with foldlog.open(path, "r") as log:
        assert log.read_arrow(TOPIC).num_rows == 0
    PathCommitter(str(path)).commit("job", staged)
    with foldlog.open(path, "r") as log:
        found = log.read_arrow(TOPIC, columns=["value"]).column("value").to_pylist()
    assert sorted(value for value in found if value) == [b"0a", b"0b", b"1a", b"1b", b"2a", b"2b"]
    assert found.count(None) == 3


def test_a_task_without_rows_stages_nothing(path: Path) -> None:
    assert stage(plan(options(path)), "job", 0, rows()).file is None
    assert not (path / ".staged").exists()


def test_a_task_that_fails_leaves_nothing(path: Path) -> None:
    def broken() -> list[pa.RecordBatch]:
        return [*rows("fine"), pa.record_batch({"topic": pa.array([None], pa.string()), "value": pa.array(["x"])})]

    told = plan(options(path, topic=None))
    with pytest.raises(SerializationError):
        stage(told, "job", 0, broken())
    assert not (path / ".staged").exists() or list((path / ".staged").rglob("*.batches")) == []


def test_a_new_path_becomes_a_log_where_topics_may_be_made(tmp_path: Path) -> None:
    told = plan(options(tmp_path / "new", partitions=3))
    PathCommitter(str(tmp_path / "new")).commit("job", [stage(told, "job", 0, rows("a"))])
    with foldlog.open(tmp_path / "new", "r") as log:
        assert log.read_arrow(TOPIC, columns=["value"]).column("value").to_pylist() == [b"a"]
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    with pytest.raises(LogNotFound, match=r"there is no log in \S+ to write to, and what is there is some"):
        plan(options(tmp_path / "taken", partitions=3))
    with pytest.raises(LogNotFound, match=r"there is no log in \S+: \S+notes.txt is a file"):
        plan(options(tmp_path / "taken" / "notes.txt", partitions=3))
    assert [file.name for file in (tmp_path / "taken").iterdir()] == ["notes.txt"]


def test_no_log_no_topic_and_a_writer_that_does_not_listen_are_told_before_a_row_is_packed(path: Path) -> None:
    with pytest.raises(LogNotFound, match=r'there is no log in \S+ to write to; .* option\("createTopic", <number'):
        plan(options(path / "elsewhere"))
    assert not (path / "elsewhere").exists()
    with pytest.raises(UnknownTopic, match=r"no topic 'nothing'; there are orders; .* option createTopic=<number"):
        plan(options(path, "nothing"))
    with pytest.raises(InvalidTopicName):
        plan(options(path, "../up", partitions=1))
    with foldlog.open(path), pytest.raises(DirectoryLocked, match="does not listen; open it there with listen=True"):
        plan(options(path))


@pytest.mark.parametrize("is_served", [True, False])
def test_a_topic_is_made_where_that_was_asked_for_by_the_driver_or_by_the_first_task(
    path: Path, is_served: bool
) -> None:
    served = foldlog.open(path, listen=True) if is_served else None
    plan(options(path, "by_option", partitions=3))
    told = plan(options(path, None, partitions=4))
    staged = [stage(told, "job", number, rows("x", topic="by_column")) for number in range(2)]
    PathCommitter(str(path)).commit("job", staged)
    if served is not None:
        served.close()
    with foldlog.open(path, "r") as log:
        assert log.topic("by_option").partition_count == 3
        assert log.topic("by_column").partition_count == 4
        assert log.read_arrow("by_column").num_rows == 2


def elsewhere(told: PathPlan, path: Path | None = None, directory_id: str | None = None) -> PathPlan:
    origin = told.options.origin
    changed = OriginSpec(str(path or origin.path), directory_id=directory_id or origin.directory_id)
    return replace(told, options=replace(told.options, origin=changed))


def test_a_task_on_a_host_that_does_not_see_the_directory_names_host_and_way_out(path: Path, tmp_path: Path) -> None:
    told = plan(options(path))
    with foldlog.open(tmp_path / "other") as log:
        log.create_topic(TOPIC)
    for changed in (
        elsewhere(told, path=tmp_path / "nothing"),
        elsewhere(told, path=tmp_path / "other"),
        elsewhere(told, directory_id="another"),
    ):
        with pytest.raises(DirectoryElsewhere) as caught:
            stage(changed, "job", 0, rows("x"))
        assert f"host {socket.gethostname()} does not see the log in" in str(caught.value)
        assert "serve the log and use kafka.bootstrap.servers" in str(caught.value)
    assert not (tmp_path / "other" / ".staged").exists()


def test_what_the_writer_sets_for_all_topics_holds_for_rows_too(
    path: Path, kafka_broker_factory: KafkaBrokerFactory
) -> None:
    broker = kafka_broker_factory({"message.max.bytes": 2000}, path=path)
    told = plan(options(path))
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes=2000"):
        stage(told, "job", 0, rows("x" * 3000))
    staged = [stage(told, "job", 0, rows(*["y" * 500] * 20))]
    PathCommitter(str(path)).commit("job", staged)
    assert broker.log.read_arrow(TOPIC).num_rows == 20


def test_a_log_with_a_staging_area_is_a_log_without_warnings(path: Path) -> None:
    PathCommitter(str(path)).commit("job", [stage(plan(options(path)), "job", 0, rows("x"))])
    stage(plan(options(path)), "left over", 0, rows("x"))
    with foldlog.open(path) as log:
        assert log.warnings() == []
        assert log.topics() == [TOPIC]
