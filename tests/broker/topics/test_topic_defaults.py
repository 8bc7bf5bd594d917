"""What a broker sets for topics that set nothing: in force for their partitions, told apart, and never stored."""

from __future__ import annotations

from typing import Any

import pytest

from broker.small_broker import DIRECTORY, at, open_broker, read, writable, write
from foldlog.broker.broker import Broker
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import GroupSettings, JoinRequest, JoinResult
from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.errors import InvalidArgument, InvalidConfig, MetadataTooLarge
from foldlog.files.base import Files, read_file
from foldlog.files.memory import MemoryFiles
from foldlog.testing.sim_clock import SimClock

DEFAULTS = {"retention.ms": 60_000, "segment.bytes": "2048", "max.message.bytes": 500}


def opened(files: Files, clock: SimClock | None = None, **settings: Any) -> Broker:
    return Broker.open(DIRECTORY, files=files, clock=clock or SimClock(), background=False, **settings)


def test_a_topic_has_what_it_sets_then_what_the_broker_sets_then_what_is_built_in() -> None:
    with opened(MemoryFiles(), topic_defaults=DEFAULTS) as broker:
        config = broker.create_topic("orders", config={"retention.ms": 5}).config
        effective = config.effective()
        assert (effective["retention.ms"], config.log.retention_ms) == ("5", 5)
        assert (effective["segment.bytes"], config.log.segment_bytes) == ("2048", 2048)
        assert (effective["flush.messages"], config.log.flush_messages) == ("1", 1)
        assert dict(config.settings) == {"retention.ms": "5"}
        assert dict(config.defaults) == {"retention.ms": "60000", "segment.bytes": "2048", "max.message.bytes": "500"}


def test_defaults_are_in_force_for_partitions_old_and_new() -> None:
    files = MemoryFiles()
    with opened(files) as broker:
        broker.create_topic("old")
        assert broker.topic("old").config.log.segment_bytes == 1 << 30
    with opened(files, topic_defaults=DEFAULTS) as broker:
        broker.create_topic("new")
        for topic in ("old", "new"):
            for _ in range(10):
                write(broker, topic, 0, b"x" * 400)
            assert writable(broker, topic).segment_count > 1


def test_retention_by_default_deletes() -> None:
    clock = SimClock()
    with opened(MemoryFiles(), clock, topic_defaults=DEFAULTS) as broker:
        broker.create_topic("a")
        write(broker, "a", 0, b"old")
        writable(broker, "a").roll()
        clock.advance(3_600_000)
        broker.run_due()
        assert read(broker, "a") == []


def test_defaults_are_not_stored() -> None:
    files = MemoryFiles()
    with opened(files, topic_defaults=DEFAULTS) as broker:
        broker.create_topic("a")
        broker.alter_topic("a", {"segment.bytes": 4096})
        broker.grow_topic("a", 2)
        assert broker.topic("a").config.effective()["retention.ms"] == "60000"
    assert b"retention" not in read_file(files, f"{DIRECTORY}/catalog.json")
    with opened(files) as broker:
        config = broker.topic("a").config
        assert dict(config.settings) == {"segment.bytes": "4096"}
        assert config.effective()["retention.ms"] == "-1"


def test_a_setting_that_is_taken_back_is_the_brokers_again() -> None:
    with opened(MemoryFiles(), topic_defaults=DEFAULTS) as broker:
        broker.create_topic("a", config={"segment.bytes": 4096})
        partition = writable(broker, "a")
        assert partition.config.segment_bytes == 4096
        broker.alter_topic("a", {"segment.bytes": None})
        assert partition.config.segment_bytes == 2048
        broker.configure_topic("a", lambda config: TopicConfig.parse({"retention.ms": 9}))
        assert (partition.config.segment_bytes, partition.config.retention_ms) == (2048, 9)


def test_the_logs_own_topic_is_what_it_has_to_be() -> None:
    files = MemoryFiles()
    for _ in range(2):
        with opened(files, topic_defaults={"cleanup.policy": "delete", "max.message.bytes": 100}) as broker:
            if "a" not in broker.topics():
                broker.create_topic("a")
            broker.commit_offsets("g", {("a", 0): at(7)})
            config = broker.topic(OFFSETS_TOPIC).config
            assert config.log.compact
            assert not config.log.delete
            assert config.log.max_message_bytes == 32 << 20
            assert config.defaults == {}


def test_defaults_are_checked_before_anything_is_opened() -> None:
    files = MemoryFiles()
    for wrong in ({"retention.ms": "soon"}, {"no.such.setting": 1}):
        with pytest.raises(InvalidConfig):
            opened(files, topic_defaults=wrong)
    for name in ("offsets_retention_ms", "offset_metadata_bytes_max"):
        for value in (-1, 1.5, True, "7"):
            with pytest.raises(InvalidArgument, match=name):
                opened(files, None, **{name: value})
    opened(files).close()  # nothing was left locked


def test_committed_offsets_expire_when_the_broker_says() -> None:
    clock = SimClock()
    with opened(MemoryFiles(), clock, offsets_retention_ms=1_000) as broker:
        broker.create_topic("a")
        broker.commit_offsets("g", {("a", 0): at(7)})
        clock.advance(3_600_000)
        broker.run_due()
        assert broker.committed("g") == {}


def test_a_note_beside_a_commit_is_as_long_as_the_broker_allows() -> None:
    with opened(MemoryFiles(), offset_metadata_bytes_max=3) as broker:
        broker.create_topic("a")
        broker.commit_offsets("g", {("a", 0): at(7, "abc")})
        with pytest.raises(MetadataTooLarge):
            broker.commit_offsets("g", {("a", 0): at(7, "abcd")})


def test_groups_follow_the_brokers_settings() -> None:
    answers: list[JoinResult] = []
    settings = GroupSettings(session_timeout_min_ms=6_000)
    with opened(MemoryFiles(), group_settings=settings) as broker, broker.coordinator() as coordinator:
        coordinator.join(JoinRequest("g", "consumer", (("range", b""),), 5_999, 60_000), answers.append)
        coordinator.join(JoinRequest("g", "consumer", (("range", b""),), 6_000, 60_000), answers.append)
    assert [answer.error for answer in answers] == [GroupErrorCode.INVALID_SESSION_TIMEOUT, GroupErrorCode.NONE]


def test_a_reading_process_knows_no_defaults_of_the_writer() -> None:
    files = MemoryFiles()
    with opened(files, topic_defaults=DEFAULTS) as broker:
        broker.create_topic("a")
        with open_broker(files, mode="r") as reader:
            assert reader.topic("a").config.defaults == {}
