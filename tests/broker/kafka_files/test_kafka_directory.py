"""A directory of Apache Kafka's is a log to read: every record, group and transaction as Kafka's own consumers have it.

The files were written by a real Kafka, killed at the end; what confluent-kafka read from it is the truth. Whatever is
missing or broken beside the segments changes nothing in what is read; what is broken inside them is named, and never
passed over; and not a byte of Kafka's directory is ever changed.
"""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import foldlog
from foldlog.broker.kafka_files import storage as kafka_storage
from foldlog.broker.topics.catalog import Catalog, CatalogTopic
from foldlog.broker.transactions.state_format import decode_value, encode_key, encode_value
from foldlog.client.backends.directory import broker_of
from foldlog.errors import (
    CorruptLog,
    ForeignDirectory,
    InvalidArgument,
    LogNotFound,
    OffsetOutOfRange,
    PartitionElsewhere,
    ReadOnly,
    StorageError,
    UnknownTopic,
)
from foldlog.log import foreign
from foldlog.records.loops import decode
from kafka_truth import (
    STORED,
    TOPICS,
    committed_by_groups,
    copied_to,
    flip,
    last_segment,
    read_all,
    row_of,
    rows_of,
    state_of,
    stored_facts,
)

FACTS = stored_facts()
DATA = STORED / "data"


@pytest.fixture
def log() -> Iterator[foldlog.Log]:
    with foldlog.open(DATA, mode="r") as log:
        yield log


# What is read


@pytest.mark.parametrize("topic", TOPICS)
def test_records_are_what_kafkas_consumers_read(topic: str, log: foldlog.Log) -> None:
    assert rows_of(log, topic) == FACTS.records[topic]


def test_committed_transactions_are_what_kafkas_consumers_read() -> None:
    """Aborted ones are left out, and reading ends where the oldest open one begins."""
    found = read_all(DATA, "read_committed")
    assert found == {topic: FACTS.committed_records(topic) for topic in TOPICS}
    assert len(found["payments"]) < len(FACTS.records["payments"])


def test_an_isolation_level_is_one_of_kafkas() -> None:
    with pytest.raises(InvalidArgument, match="'read_uncommitted' or 'read_committed'"):
        foldlog.open(DATA, mode="r", isolation_level="serializable")


def test_groups_stand_where_kafka_has_them() -> None:
    """What was committed in a transaction counts if that was committed."""
    truth = {group: places for group, places in FACTS.groups.items() if places}
    assert committed_by_groups(DATA) == truth
    assert "dropped" not in truth


def test_transactional_ids_stand_where_kafka_has_them(log: foldlog.Log) -> None:
    """One has a transaction that was open when Kafka was killed."""
    found = {one.transactional_id: one for one in broker_of(log).transactions.list()}
    assert {name: one.state.title for name, one in found.items()} == {"payer-1": "CompleteCommit", "payer-2": "Ongoing"}
    assert found["payer-2"].partitions == {("payments", 0)}
    with pytest.raises(ReadOnly):
        broker_of(log).transactions.abort("payer-2")


def test_our_records_of_transactions_are_kafkas_byte_for_byte(log: foldlog.Log) -> None:
    """Kafka writes several topics in no order: those records are compared as values."""
    partition = broker_of(log).partition("__transaction_state", 0)
    data = partition.read(0).data
    records = decode(data, "__transaction_state", 0)[0]
    assert len(records) > 20
    for record in records:
        metadata = decode_value(record.key, record.value)
        assert encode_key(metadata.transactional_id) == record.key
        written = encode_value(metadata)
        if len({topic for topic, _ in metadata.partitions}) > 1:
            assert (len(written), decode_value(record.key, written)) == (len(record.value), metadata)
        else:
            assert written == record.value


def test_topics_are_listed_with_their_ids_and_settings(log: foldlog.Log) -> None:
    """Not Kafka's metadata, which is no topic, nor a topic that is on its way out."""
    assert log.topics() == sorted(TOPICS)
    assert set(log.topics(include_internal=True)) - set(TOPICS) == {"__consumer_offsets", "__transaction_state"}
    prices = log.topic("prices")
    assert (prices.config.settings["cleanup.policy"], prices.config.settings["segment.ms"]) == ("compact", "1800000")
    metadata = (DATA / "prices-0" / "partition.metadata").read_text(encoding="ascii")
    assert foldlog_id(metadata) == prices.topic_id
    with pytest.raises(UnknownTopic):
        log.topic("gone")


def foldlog_id(metadata: str) -> str:
    return base64.urlsafe_b64decode(metadata.rsplit(maxsplit=1)[-1] + "==").hex()


def test_a_log_starts_where_records_were_deleted(log: foldlog.Log) -> None:
    """Its first segments are still there."""
    assert log.offsets("expired") == {0: (7, 16)}
    with pytest.raises(OffsetOutOfRange, match="which holds 7 to 16"):
        list(log.read("expired", 0, start=6))
    with pytest.raises(OffsetOutOfRange, match="it was expired by retention, or deleted"):
        broker_of(log).partition("expired", 0).read(6)


@pytest.mark.parametrize("topic", ["prices", "payments", "codecs"])
def test_reading_begins_at_any_offset(topic: str) -> None:
    """Also where compaction left none, and in the middle of a batch or of a transaction."""
    for level in ("read_uncommitted", "read_committed"):
        with foldlog.open(DATA, mode="r", isolation_level=level) as log:
            everything = rows_of(log, topic)
            start, end = log.offsets(topic)[0]
            for offset in range(start, end + 1):
                rest = [row for row in everything if row["offset"] >= offset]
                assert [row_of(record) for record in log.read(topic, 0, start=offset)] == rest


@pytest.mark.parametrize("topic", ["orders.eu-west", "prices", "payments", "stamped"])
def test_times_are_found(topic: str) -> None:
    for level in ("read_uncommitted", "read_committed"):
        with foldlog.open(DATA, mode="r", isolation_level=level) as log:
            rows = [row for row in rows_of(log, topic) if row["partition"] == 0]
            times = {row["timestamp_ms"] + change for row in rows for change in (-1, 0, 1)}
            for time_ms in sorted(times):
                first = next((row["offset"] for row in rows if row["timestamp_ms"] >= time_ms), None)
                assert log.offsets_at(topic, time_ms)[0] == first


def test_consumers_and_arrow_read_it_too(log: foldlog.Log) -> None:
    table = log.read_arrow("orders.eu-west", columns=["partition", "offset", "value"])
    truth = [(row["partition"], row["offset"], row["value"]) for row in FACTS.records["orders.eu-west"]]
    assert [(row["partition"], row["offset"], row["value"].decode()) for row in table.to_pylist()] == truth
    with log.consumer(["orders.eu-west"], auto_offset_reset="earliest", max_records=1000) as consumer:
        polled = sorted((record.partition, record.offset, record.text()) for record in consumer.poll(timeout_ms=0))
    assert polled == truth


@pytest.mark.parametrize("name", ["payments-0", "orders.eu-west-1", "expired-0", "prices-0"])
def test_a_partitions_directory_is_read_alone(name: str) -> None:
    topic, _, number = name.rpartition("-")
    with foldlog.open(DATA / name, mode="r", isolation_level="read_committed") as log:
        assert log.topics() == [topic]
        found = [row_of(record) for record in log.read(topic, int(number))]
    assert found == [row for row in FACTS.committed_records(topic) if row["partition"] == int(number)]


def test_a_partitions_directory_needs_its_name(tmp_path: Path) -> None:
    shutil.copytree(DATA / "codecs-0", tmp_path / "backup")
    with pytest.raises(LogNotFound, match="not TOPIC-NUMBER; rename it"):
        foldlog.open(tmp_path / "backup", mode="r")


def test_a_partitions_directory_is_read_from_inside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the log start that the file beside the directory has; and a partition of ours is not taken for Kafka's."""
    monkeypatch.chdir(DATA / "expired-0")
    with foldlog.open(".", mode="r") as log:
        assert log.offsets("expired") == {0: (7, 16)}
    with foldlog.open(tmp_path / "ours") as log:
        log.create_topic("orders")
        log.append("orders", b"one")
    monkeypatch.chdir(tmp_path / "ours" / "orders-0")
    with pytest.raises(LogNotFound, match="there is no log in"):
        foldlog.open(".", mode="r")


@pytest.mark.parametrize("name", ["orders-20240101", "x-99999999999", "codecs-7"])
def test_a_directory_that_only_has_the_name_of_a_partition_is_none(name: str, tmp_path: Path) -> None:
    """A number in a name takes no memory, and makes no partition."""
    data = copied_to(tmp_path)
    (data / name).mkdir()
    (data / name / "notes.txt").write_text("ours", encoding="utf-8")
    assert read_all(data) == FACTS.records
    with foldlog.open(data, mode="r") as log:
        assert log.topics() == sorted(TOPICS)
        assert log.topic("codecs").partition_count == 1


def test_a_copy_with_a_date_for_a_number_is_no_partition(tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    shutil.copytree(data / "codecs-0", data / "codecs-20240101")
    with foldlog.open(data, mode="r") as log:
        assert log.topic("codecs").partition_count == 1
    with pytest.raises(LogNotFound, match="not TOPIC-NUMBER; rename it"):
        foldlog.open(data / "codecs-20240101", mode="r")


# What is not written


def test_not_a_byte_is_changed(tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    before = state_of(data)
    read_all(data)
    committed_by_groups(data)
    with foldlog.open(data, mode="r", isolation_level="read_committed") as log:
        log.offsets_at("prices", 0)
        for change in (
            lambda: log.append("codecs", b"no"),
            lambda: log.create_topic("new"),
            lambda: log.delete_records("codecs", {0: 1}),
            lambda: log.reset_group("billing", {("codecs", 0): 0}),
            lambda: log.compact("prices"),
        ):
            with pytest.raises(ReadOnly):
                change()
    assert state_of(data) == before


@pytest.mark.parametrize("name", ["", "codecs-0"])
def test_a_writer_is_refused_before_it_writes(name: str, tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    before = state_of(data)
    with pytest.raises(ForeignDirectory, match=r"Apache Kafka's, which alone may write there; .*foldlog copy"):
        foldlog.open(data / name)
    assert state_of(data) == before


def test_what_cannot_be_changed_says_whose_it_is(log: foldlog.Log) -> None:
    with pytest.raises(ReadOnly, match="Apache Kafka's, and only read here: copy it"):
        log.create_topic("new")


# What may be missing or wrong beside the segments


@pytest.mark.parametrize("suffixes", [(".txnindex",), (".snapshot", ".txnindex"), (".snapshot",)])
def test_transactions_are_told_by_their_markers_too(suffixes: tuple[str, ...], tmp_path: Path) -> None:
    """A power cut can take the end of what is beside a segment."""
    data = copied_to(tmp_path)
    for path in (data / "payments-0").iterdir():
        if path.suffix in suffixes:
            path.unlink()
    assert read_all(data, "read_committed")["payments"] == FACTS.committed_records("payments")


def test_aborted_transactions_below_the_newest_snapshot_are_told_by_the_index(tmp_path: Path) -> None:
    """Then no batch has to be read for it: with the index gone, they look committed."""
    data = copied_to(tmp_path)
    partition = data / "payments-0"
    with foldlog.open(data, mode="r") as log:
        end = log.offsets("payments")[0][1]
    nobody = bytes.fromhex("0001 48674bc7 00000000")  # version 1, CRC-32C of the rest, no producers
    (partition / f"{end:020d}.snapshot").write_bytes(nobody)
    hidden = [row for row in FACTS.records["payments"] if row["value"].startswith("aborted")]
    shown = read_all(data, "read_committed")["payments"]
    assert shown == [row for row in FACTS.records["payments"] if row not in hidden]
    for index in partition.glob("*.txnindex"):
        index.unlink()
    assert read_all(data, "read_committed")["payments"] == FACTS.records["payments"]


@pytest.mark.parametrize("damage", ["missing", "zeroes", "noise"])
def test_indexes_are_hints(damage: str, tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    for path in [*data.glob("*-?/*.index"), *data.glob("*-?/*.timeindex")]:
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(bytes(1200) if damage == "zeroes" else bytes(range(1, 25)) * 10)
    assert read_all(data) == FACTS.records
    with foldlog.open(data, mode="r") as log:
        first = FACTS.records["prices"][0]
        assert log.offsets_at("prices", first["timestamp_ms"]) == {0: first["offset"]}


@pytest.mark.parametrize(
    "name", ["meta.properties", "log-start-offset-checkpoint", "leader-epoch-checkpoint", "partition.metadata"]
)
def test_small_files_may_be_lost(name: str, tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    if name == "meta.properties":
        data = data / "codecs-0"  # without it, a directory is only known for Kafka's by the segments in it
    for path in data.rglob(name):
        path.unlink()
    found = read_all(data)
    assert found["codecs"] == FACTS.records["codecs"]


def test_a_broken_list_of_log_starts_is_a_warning(tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    (data / "log-start-offset-checkpoint").write_text("0\n3\nexpired 0 7\n", encoding="ascii")
    with foldlog.open(data, mode="r") as log:
        first = min((data / "expired-0").glob("*.log"))
        assert log.offsets("expired")[0][0] == int(first.stem) < 7
        [warning] = log.warnings()
        assert "log-start-offset-checkpoint" in warning


def test_a_broken_metadata_log_leaves_the_defaults(tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    flip(last_segment(data / "__cluster_metadata-0"), 100)
    with foldlog.open(data, mode="r") as log:
        assert log.topic("prices").config.settings == {}
        assert rows_of(log, "prices") == FACTS.records["prices"]


# What may be missing or wrong in the segments


def test_a_batch_that_was_not_written_whole_is_not_read(tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    segment = last_segment(data / "orders.eu-west-0")
    whole = segment.read_bytes()
    for size in range(len(whole) // 2 + 1, len(whole), 5):
        segment.write_bytes(whole[:size])
        with foldlog.open(data, mode="r") as log:
            assert log.offsets("orders.eu-west")[0] == (0, 18)
            assert [record.offset for record in log.read("orders.eu-west", 0, start=16)] == [16, 17]


def test_a_damaged_batch_is_never_passed_over(tmp_path: Path) -> None:
    """In a segment that is sealed, and in the last one, where sound batches follow it."""
    data = copied_to(tmp_path)
    for segment in (data / "orders.eu-west-0" / f"{0:020d}.log", last_segment(data / "orders.eu-west-0")):
        flip(segment, 70)
        with foldlog.open(data, mode="r") as log:
            assert log.offsets("orders.eu-west")[0] == (0, 20)
            with pytest.raises(CorruptLog, match="let Kafka fetch it from another replica") as caught:
                list(log.read("orders.eu-west", 0, start=int(segment.stem)))
            assert (caught.value.path, caught.value.position) == (str(segment), 0)
            assert [record.offset for record in log.read("orders.eu-west", 0, start=4, stop=8)] == [4, 5, 6, 7]
        flip(segment, 70)


def test_a_compaction_that_was_interrupted_is_kafkas_to_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the .swap file holds is in no segment, so a read without it would leave records out."""
    monkeypatch.setattr(foreign, "_TRIES", 3)
    data = copied_to(tmp_path)
    first = data / "prices-0" / f"{0:020d}.log"
    first.rename(first.with_suffix(".log.swap"))
    with foldlog.open(data, mode="r") as log:
        with pytest.raises(StorageError, match="start Kafka on it once"):
            log.offsets("prices")
        assert rows_of(log, "codecs") == FACTS.records["codecs"]


def test_partitions_that_another_broker_holds_are_named(tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    shutil.rmtree(data / "orders.eu-west-0")
    with foldlog.open(data, mode="r") as log:
        assert log.topic("orders.eu-west").partition_count == 2
        assert rows_of(log, "orders.eu-west") == [row for row in FACTS.records["orders.eu-west"] if row["partition"]]
        with pytest.raises(PartitionElsewhere, match=r"orders\.eu-west-0 is not in .*log\.dirs, holds it"):
            log.read("orders.eu-west", 0)


# While Kafka writes


def test_a_topic_that_goes_while_it_is_opened_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread looks again between the check of the name and the opening."""
    data = copied_to(tmp_path)
    with foldlog.open(data, mode="r") as log:
        storage = broker_of(log)._storage
        check = storage.check_partition

        def check_and_lose(name: str, number: int) -> CatalogTopic:
            found = check(name, number)
            shutil.rmtree(data / f"{name}-{number}")
            storage.look_again()
            return found

        monkeypatch.setattr(storage, "check_partition", check_and_lose)
        for name, number in (("stamped", 0), ("orders.eu-west", 1)):
            with pytest.raises(UnknownTopic):
                storage.partition(name, number)


def test_a_partition_that_is_filled_within_one_tick_of_the_clock_is_found(tmp_path: Path) -> None:
    """Its directory is there first, and has the same time when the files are in it."""
    data = copied_to(tmp_path)
    made, just_now_s = data / "made-0", time.time() + 60
    made.mkdir()
    os.utime(made, (just_now_s, just_now_s))
    with foldlog.open(data, mode="r") as log:
        assert "made" not in log.topics()
        shutil.copytree(data / "codecs-0", made, dirs_exist_ok=True)
        os.utime(made, (just_now_s, just_now_s))
        broker_of(log).look_again()
        assert "made" in log.topics()


def test_topics_that_could_not_be_read_are_read_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = copied_to(tmp_path)
    with foldlog.open(data, mode="r") as log:
        shutil.copytree(data / "codecs-0", data / "made-0")

        def fail(*_: object) -> Catalog:
            raise PermissionError(13, "not now")

        with monkeypatch.context() as patched:
            patched.setattr(kafka_storage, "read_catalog", fail)
            with pytest.raises(PermissionError):
                broker_of(log).look_again()
        broker_of(log).look_again()
        assert "made" in log.topics()


def test_what_kafka_writes_is_read_as_it_comes(tmp_path: Path) -> None:
    """Batches, half of one, a new segment, a compacted one in place of another, a new topic, a deleted one."""
    data = copied_to(tmp_path)
    partition = data / "orders.eu-west-0"
    last, second, third = last_segment(partition), partition / f"{4:020d}.log", partition / f"{8:020d}.log"
    whole = last.read_bytes()
    last.unlink()
    with foldlog.open(data, mode="r") as log:

        def offsets() -> list[int]:
            return [record.offset for record in log.read("orders.eu-west", 0)]

        assert offsets() == list(range(16))
        last.write_bytes(b"")
        assert offsets() == list(range(16))
        for size, end in ((100, 16), (131, 18), (200, 18), (262, 20)):
            last.write_bytes(whole[:size])
            assert (len(whole), offsets()) == (262, list(range(end)))
        for segment, kept in ((second, slice(131, None)), (third, slice(131))):  # the third ends before the next begins
            compacted = segment.with_suffix(".log.cleaned")
            compacted.write_bytes(segment.read_bytes()[kept])
            compacted.rename(segment)
        assert offsets() == [*range(4), *range(6, 10), *range(12, 20)]
        assert [record.offset for record in log.read("orders.eu-west", 0, start=11, max_records=1)] == [12]

        shutil.copytree(data / "codecs-0", data / "made-0")
        shutil.rmtree(data / "stamped-0")
        broker_of(log).look_again()
        assert "made" in log.topics()
        with pytest.raises(UnknownTopic):
            log.read("stamped", 0)
