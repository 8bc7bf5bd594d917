"""Copies keep what they say they keep, in every direction: records, order, times, partitions, settings, and offsets
where the target allows it; a target that is something else is not touched; the last check finds what is different."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import foldlog
from client.copy.copies import contents, copy, ignored
from foldlog.cli.main import main
from foldlog.client.copy.check import compare
from foldlog.client.copy.copying import Copying, Pair
from foldlog.client.copy.offsets import CopyPoint, OffsetMap
from foldlog.client.copy.sides import open_side
from foldlog.client.copy.targets import Copied, Route
from foldlog.client.groups import COPY_GROUP
from foldlog.client.positions import TopicPartition
from foldlog.errors import CopyConflict, InvalidArgument, UnknownTopic
from foldlog.testing import KafkaBroker


@pytest.fixture
def source() -> Iterator[foldlog.Log]:
    with foldlog.open(":memory:", background=False) as log:
        yield log


@pytest.fixture
def target() -> Iterator[foldlog.Log]:
    with foldlog.open(":memory:", background=False) as log:
        yield log


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.launch() as running:
        yield running


@pytest.fixture
def cluster(broker: KafkaBroker) -> Iterator[foldlog.Log]:
    with foldlog.connect(f"kafka://{broker}") as log:
        yield log
        for group in log.groups():
            log.delete_group(group)
        for topic in log.topics():
            log.delete_topic(topic)


def fill_orders(log: foldlog.Log) -> None:
    """Two partitions with everything a record may have, several codecs and batch sizes, and a beginning at 7."""
    log.create_topic("orders", partitions=2, config={"retention.ms": -1})
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with log.producer(linger_ms=1000, batch_records=13, compression=codec) as producer:
            for number in range(40):
                producer.send(
                    "orders",
                    None if number % 11 == 0 else f"{codec} {number}".encode(),
                    f"k{number % 5}".encode() if number % 3 else None,
                    [("h", b"1"), ("h", None)] if number % 4 == 0 else None,
                    partition=number % 2,
                    timestamp_ms=1_700_000_000_000 - number,
                )
    log.delete_records("orders", {0: 7})


def fill_prices(log: foldlog.Log) -> None:
    """A compacted topic with holes: between batches, in them, and at the end of the compacted part."""
    log.create_topic("prices", config={"cleanup.policy": "compact", "foldlog.segment.records": 20})
    for number in range(100):
        log.append("prices", None if number % 17 == 0 else str(number), key=f"k{number % 5 if number < 60 else 7}")
    log.compact("prices")


def test_a_directory_gets_the_same_records_at_the_same_offsets(
    source: foldlog.Log, target: foldlog.Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_orders(source)
    fill_prices(source)
    with foldlog.open(tmp_path / "copy") as directory:
        done = copy(source, directory, "orders", "prices")
        assert all(one.offsets.is_kept for one in done.copied.values())
        assert directory.offsets("orders") == source.offsets("orders")
        assert directory.offsets("prices") == source.offsets("prices")
        assert directory.topic_config("prices")["cleanup.policy"].value == "compact"
        assert not directory.topic_config("orders")["retention.ms"].is_default
    with foldlog.open(tmp_path / "copy") as directory:
        for topic, partition in (("orders", 0), ("orders", 1), ("prices", 0)):
            assert contents(directory, topic, partition) == contents(source, topic, partition)
        directory.append("prices", "more", key="k1")
        assert max(contents(directory, "prices")) == source.offsets("prices")[0][1]
    assert main(["check", str(tmp_path / "copy")]) == 0
    assert "prices-0: offsets 0 to 101" in capsys.readouterr().out


def test_a_broker_gets_the_same_records_without_holes(source: foldlog.Log, cluster: foldlog.Log) -> None:
    fill_orders(source)
    fill_prices(source)
    done = copy(source, cluster, "orders", "prices=prices.copy")
    assert cluster.topic_config("prices.copy")["cleanup.policy"].value == "compact"
    kept = {str(route): one.offsets.is_kept for route, one in done.copied.items()}
    assert kept == {"orders-0": False, "orders-1": True, "prices.copy-0": False}
    assert contents(cluster, "orders", 1) == contents(source, "orders", 1)
    for topic, to_topic in (("orders", "orders"), ("prices", "prices.copy")):
        theirs = contents(cluster, to_topic, 0)
        assert list(theirs.values()) == list(contents(source, topic, 0).values())
        assert list(theirs) == list(range(len(theirs)))


def test_a_broker_s_topics_come_back_into_a_directory(
    source: foldlog.Log, target: foldlog.Log, cluster: foldlog.Log
) -> None:
    fill_orders(source)
    copy(source, cluster, "orders")
    copy(cluster, target, "orders")
    for partition in (0, 1):
        assert contents(target, "orders", partition) == contents(cluster, "orders", partition)


def test_a_topic_is_copied_within_one_log_but_not_onto_itself(source: foldlog.Log) -> None:
    fill_orders(source)
    copy(source, source, "orders=orders-2")
    assert contents(source, "orders-2", 0) == contents(source, "orders", 0)
    with pytest.raises(InvalidArgument, match="cannot be copied to itself"):
        Copying(source, source, [Pair("orders", "orders")])
    with pytest.raises(InvalidArgument, match="two topics would be copied to 'x'"):
        Copying(source, source, [Pair("orders", "x"), Pair("orders-2", "x")])
    with pytest.raises(UnknownTopic):
        Copying(source, source, [Pair("nothing", "x")])


def test_what_is_written_later_is_brought_by_the_next_copy(
    source: foldlog.Log, target: foldlog.Log, cluster: foldlog.Log
) -> None:
    fill_orders(source)
    for place in (target, cluster):
        copy(source, place, "orders")
    source.append("orders", "later", key="k", partition=0)
    source.grow_topic("orders", 3)
    source.append("orders", "there", partition=2)
    for place in (target, cluster):
        assert copy(source, place, "orders").records == 2
        assert copy(source, place, "orders").records == 0
        for partition in range(3):
            assert list(contents(place, "orders", partition).values()) == list(
                contents(source, "orders", partition).values()
            )


def test_the_log_s_own_times_are_kept(source: foldlog.Log, target: foldlog.Log, cluster: foldlog.Log) -> None:
    source.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    for number in range(3):
        source.append("stamped", str(number), timestamp_ms=5)
    for place in (target, cluster):
        copy(source, place, "stamped")
        assert contents(place, "stamped") == contents(source, "stamped")
        assert place.topic_config("stamped")["message.timestamp.type"].value == "CreateTime"
        place.create_topic("other", config={"message.timestamp.type": "LogAppendTime"})
        with pytest.raises(CopyConflict, match="would put its own time into every record"):
            copy(source, place, "stamped=other")
        assert contents(place, "other") == {}
    assert [record.timestamp_type for record in target.read("stamped")] == [1, 1, 1]


def test_batches_that_the_target_finds_too_large_are_cut(source: foldlog.Log, cluster: foldlog.Log) -> None:
    source.create_topic("big")
    with source.producer(linger_ms=1000, compression="lz4") as producer:
        for number in range(200):
            producer.send("big", f"{number:0100}".encode(), timestamp_ms=number)
    cluster.create_topic("big", config={"max.message.bytes": 2000})
    copy(source, cluster, "big")
    assert contents(cluster, "big") == contents(source, "big")


def test_groups_go_on_where_they_stand(source: foldlog.Log, target: foldlog.Log, cluster: foldlog.Log) -> None:
    fill_orders(source)
    fill_prices(source)
    (first, last), all_prices = source.offsets("orders")[0], list(contents(source, "prices"))
    source.reset_group("fraud", {("orders", 0): first + 5, ("orders", 1): 3, ("prices", 0): all_prices[-2]})
    source.reset_group("done", {("orders", 0): last})
    copy(source, target, "orders", "prices")
    assert {at: one.offset for at, one in target.committed("fraud").items()} == {
        at: one.offset for at, one in source.committed("fraud").items()
    }
    copy(source, cluster, "orders", "prices")
    there = {at: one.offset for at, one in cluster.committed("fraud").items()}
    assert there == {("orders", 0): 5, ("orders", 1): 3, ("prices", 0): len(all_prices) - 2}
    assert cluster.committed("done")[TopicPartition("orders", 0)].offset == last - first
    follows = next(iter(cluster.read("prices", start=there[TopicPartition("prices", 0)])))
    assert follows.value == contents(source, "prices")[all_prices[-2]][2]


def test_a_group_that_reads_the_copy_is_not_sent_back(source: foldlog.Log, target: foldlog.Log) -> None:
    fill_orders(source)
    source.reset_group("fraud", {("orders", 1): 3})
    source.reset_group("busy", {("orders", 1): 3})
    copy(source, target, "orders")
    target.reset_group("fraud", {("orders", 1): 9})
    with target.consumer(["orders"], group="busy"):
        source.reset_group("busy", {("orders", 1): 4})
        moves = {move.group: move.outcome for move in copy(source, target, "orders").groups}
    assert moves == {"fraud": "ahead", "busy": "has members"}
    assert target.committed("fraud")[TopicPartition("orders", 1)].offset == 9


@pytest.mark.parametrize("where", ["directory", "broker"])
def test_a_topic_that_is_something_else_is_left_alone(
    where: str, source: foldlog.Log, target: foldlog.Log, cluster: foldlog.Log
) -> None:
    place: foldlog.Log = target if where == "directory" else cluster
    fill_orders(source)
    for name, partitions, values in (("other", 2, 3), ("longer", 2, 120), ("wider", 3, 0)):
        place.create_topic(name, partitions=partitions)
        for number in range(values):
            place.append(name, str(number), partition=0, timestamp_ms=number + 1)
        before = place.offsets(name)
        with pytest.raises(CopyConflict):
            copy(source, place, f"orders={name}")
        assert place.offsets(name) == before
        assert place.committed(COPY_GROUP) == {}


def test_the_copy_of_another_log_is_not_gone_on_with(
    source: foldlog.Log, target: foldlog.Log, cluster: foldlog.Log
) -> None:
    fill_orders(source)
    copy(source, cluster, "orders")
    copy(source, target, "orders")
    for one, other in ((target, cluster), (cluster, target)):
        with pytest.raises(CopyConflict, match="is the copy of another topic"):
            copy(one, other, "orders")


def test_a_setting_that_the_target_does_not_know_is_told(source: foldlog.Log, cluster: foldlog.Log) -> None:
    fill_orders(source)
    with Copying(source, cluster, [Pair("orders", "orders")]) as copying:
        known = cluster.topic_config

        def without_retention(name: str) -> object:
            return {setting: entry for setting, entry in known(name).items() if setting != "retention.ms"}

        cluster.topic_config = without_retention  # type: ignore[method-assign,assignment]
        (prepared,) = copying.prepare()
    assert (prepared.is_made, prepared.settings) == (True, {})
    assert prepared.left == {"retention.ms": "the target does not know it"}


def compared(source: foldlog.Log, target: foldlog.Log, start: int, stop: int, *, is_kept: bool = True) -> str | None:
    points = CopyPoint(start, start), CopyPoint(stop, stop)
    copied = Copied(OffsetMap(points, is_kept=is_kept), points[0])
    verdict = compare(open_side(source), open_side(target), Route("t", "t", 0), copied, ignored)
    assert verdict.is_same == (verdict.difference is None)
    return verdict.difference


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_check_finds_a_record_that_is_missing_or_different(
    source: foldlog.Log, target: foldlog.Log, is_kept: bool
) -> None:
    for log in (source, target):
        log.create_topic("t")
    for number in range(10):
        source.append("t", str(number), key="k", timestamp_ms=number)
        target.append("t", "x" if number == 6 else str(number), key="k", timestamp_ms=9 if number == 8 else number)
    assert compared(source, target, 0, 6, is_kept=is_kept) is None
    assert compared(source, target, 0, 8, is_kept=is_kept) is not None
    assert compared(source, target, 8, 10, is_kept=is_kept) is not None
    source.append("t", "more")
    assert "are missing" in (compared(source, target, 9, 11, is_kept=is_kept) or "")
    target.alter_topic("t", {"cleanup.policy": "compact"})
    assert compared(source, target, 9, 11, is_kept=is_kept) is None


def test_the_check_lets_each_side_compact_and_expire_by_itself(source: foldlog.Log, target: foldlog.Log) -> None:
    fill_prices(source)
    source.append("prices", "again", key="k1")
    copy(source, target, "prices")
    for number in range(25):
        target.append("prices", str(number), key="k1")
    target.compact("prices")
    end = source.offsets("prices")[0][1]
    points = CopyPoint(0, 0), CopyPoint(end, end)
    copied = Copied(OffsetMap(points, is_kept=True), points[0])
    verdict = compare(open_side(source), open_side(target), Route("prices", "prices", 0), copied, ignored)
    assert verdict.is_same
    assert verdict.removed > 0


def test_the_digest_is_of_the_records_and_of_nothing_else(
    source: foldlog.Log, target: foldlog.Log, cluster: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal for every codec, batch size, window, target and offset, when it is asked for again as well; and another
    if a null becomes an empty value."""

    def digests(log: foldlog.Log, place: foldlog.Log, name: str) -> set[str]:
        (verdict,) = copy(log, place, name).verdicts.values()
        assert verdict.records == 60
        return {verdict.source_digest, verdict.target_digest}

    def fill(name: str, codec: str, batch_records: int, first: int = 0, nothing: bytes | None = None) -> None:
        source.create_topic(name)
        with source.producer(linger_ms=1000, batch_records=batch_records, compression=codec) as producer:
            for number in range(-first, 60):
                value = nothing if number % 7 == 0 else f"value {number}".encode()
                headers = [("é", b"1"), ("h", None)] if number % 4 == 0 else None
                producer.send(name, value, f"k{number % 5}".encode(), headers, timestamp_ms=number + 100)
        source.delete_records(name, {0: first})

    fill("plain", "none", 60)
    fill("packed", "zstd", 7)
    fill("trimmed", "gzip", 13, first=9)  # at a broker its offsets are mapped
    found = digests(source, target, "plain")
    for name in ("plain", "packed", "trimmed"):
        for place in (target, cluster):
            assert digests(source, place, name) == found
    monkeypatch.setattr("foldlog.client.copy.check.COPY_COMPARE_BYTES", 100)
    for name in ("plain", "packed", "trimmed"):
        for place in (target, cluster):
            assert digests(source, place, name) == found
    fill("other", "none", 60, nothing=b"")
    assert digests(source, target, "other") != found
