"""Kafka's dump-log tool over our files: every record of every codec, indexes, producers, aborts, the groups' offsets.

The files are those of a broker that ran and stopped: several segments, some of them compacted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters.kafka_tools import ToolDesk
from confluent_kafka import Consumer

import foldlog
from foldlog.client.backends.backend import backend_of
from foldlog.testing import KafkaBroker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORD = re.compile(
    r"^\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+)"
    r" headerKeys: \[(.*?)\](?: key: (\S+))?(?: payload: (.*))?$",
    re.MULTILINE,
)
HOLE = re.compile(r"Non-consecutive offsets in \S+|  -?\d+ is followed by \d+")
NO_RECORD = re.compile(r"^Found timestamp mismatch in :(\S+)\.timeindex\n.*log timestamp: -1$", re.MULTILINE)
SMALL = {"segment.bytes": 4096, "index.interval.bytes": 128, "retention.ms": -1}

Row = tuple[int, int, str | None, str | None, str]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Row]]]:
    """The directory of a broker that has stopped, and what was in its topics."""
    directory = tmp_path_factory.mktemp("dumped")
    with KafkaBroker.launch(path=directory) as broker:
        broker.create_topic("orders", config=SMALL)
        broker.create_topic(
            "states", config={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        )
        for codec in CODECS:
            # Idempotent, as it is unless told.
            with foldlog.connect(f"kafka://{broker}") as log, log.producer(compression=codec) as producer:
                for number in range(60):
                    value = None if number % 11 == 5 else f"{codec}-{number}".encode() * 3
                    headers = [("trace", b"t1"), ("trace", None)] if number % 3 else []
                    producer.send("orders", value, key=None if number % 7 == 3 else b"k%d" % number, headers=headers)
                    once = f"{codec}-{number}".encode()  # compaction keeps some of each batch
                    producer.send("states", value or b"x", key=once if number % 4 == 0 else b"k%d" % (number % 9))
                    if number % 10 == 9:
                        producer.flush()
        broker.create_topic(
            "cursors", config={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        )
        with foldlog.connect(f"kafka://{broker}") as log, log.producer() as producer:
            for number in range(400):
                producer.send("cursors", b"at %d of many" % number, key=b"the only one")
                if number % 10 == 9:
                    producer.flush()
        broker.log.compact("states")
        broker.log.compact("cursors")
        broker.log.reset_group("fraud", {("orders", 0): 42})
        with subscribed(broker) as member:
            assert member.poll(30) is not None
        rows = {
            topic: [
                (
                    record.offset,
                    record.timestamp_ms,
                    None if record.key is None else record.key.decode(),
                    None if record.value is None else record.value.decode(),
                    ",".join(name for name, _ in record.headers),
                )
                for record in broker.log.read(topic, 0)
            ]
            for topic in ("orders", "states")
        }
    return directory, rows


@contextmanager
def subscribed(broker: KafkaBroker) -> Iterator[Consumer]:
    """A member of the consumer protocol that has subscribed to a regular expression."""
    member = Consumer(
        {
            "bootstrap.servers": str(broker),
            "group.id": "readers",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe(["^ord.*"])
    try:
        yield member
    finally:
        member.close()


def files_of(directory: Path, topic: str, suffix: str) -> list[Path]:
    found = sorted((directory / f"{topic}-0").glob(f"*.{suffix}"))
    assert found, f"{topic} has no .{suffix}"
    return found


def dump(desk: ToolDesk, files: Iterable[Path], *arguments: str) -> str:
    """What the tool says of them; it may complain of nothing but the holes of compaction.

    Before a segment's first record it counts from -1, in Kafka's own files too.
    """
    done = desk.run("kafka-dump-log", *arguments, "--files", ",".join(map(str, files)))
    complaints = [line for line in done.stderr.splitlines() if not HOLE.fullmatch(line)]
    assert (done.returncode, complaints) == (0, []), done
    return done.stdout


def records_in(text: str) -> list[Row]:
    return [
        (
            int(offset),
            int(timestamp_ms),
            None if key_size == "-1" else key,
            None if value_size == "-1" else value,
            headers,
        )
        for offset, timestamp_ms, key_size, value_size, _, headers, key, value in RECORD.findall(text)
    ]


@pytest.mark.parametrize("topic", ["orders", "states"])
def test_every_record_is_dumped_as_it_was_written(
    tool_desk: ToolDesk, written: tuple[Path, dict[str, list[Row]]], topic: str
) -> None:
    directory, rows = written
    logs = files_of(directory, topic, "log")
    assert len(logs) > 2
    text = dump(tool_desk, logs, "--deep-iteration", "--print-data-log")
    assert "isvalid: false" not in text
    assert records_in(text) == rows[topic]
    assert set(re.findall(r"compresscodec: (\w+)", text)) == set(CODECS)
    assert (len(rows[topic]) < 300) == (topic == "states")  # compaction left holes
    bases = [int(path.stem) for path in logs]
    assert [int(base) for base in re.findall(r"^Log starting offset: (\d+)$", text, re.MULTILINE)] == bases


@pytest.mark.parametrize("topic", ["orders", "states", "__consumer_offsets"])
def test_the_indexes_agree_with_the_log(
    tool_desk: ToolDesk, written: tuple[Path, dict[str, list[Row]]], topic: str
) -> None:
    directory, _ = written
    offset_indexes = files_of(directory, topic, "index")
    dump(tool_desk, offset_indexes, "--verify-index-only")
    for suffix in ("index", "timeindex"):
        told = dump(tool_desk, files_of(directory, topic, suffix), "--index-sanity-check")
        verdicts = [line for line in told.splitlines() if not line.startswith("Dumping")]
        assert len(verdicts) == len(offset_indexes)
        assert all(line.endswith(("passed sanity check.", "is empty.")) for line in verdicts)
    dump(tool_desk, files_of(directory, topic, "timeindex"), "--verify-index-only")
    if topic == "orders":
        entries = dump(tool_desk, offset_indexes)
        assert len(re.findall(r"^offset: \d+ position: \d+$", entries, re.MULTILINE)) > len(offset_indexes)


def test_a_segment_that_compaction_emptied_has_a_time_and_no_record(
    tool_desk: ToolDesk, written: tuple[Path, dict[str, list[Row]]]
) -> None:
    """An empty batch keeps the place, the producer and the time of what was compacted away. Where a segment holds
    nothing else, the tool looks for a record with that time and complains that there is none, as the docs say; of the
    segment with the one record that is left, and of the offset indexes, it does not.
    """
    directory, _ = written
    text = dump(tool_desk, files_of(directory, "cursors", "log"), "--deep-iteration")
    emptied = {
        str(path)
        for path, part in zip(files_of(directory, "cursors", "log"), text.split("Dumping ")[1:], strict=True)
        if "count: 0" in part and "| offset:" not in part
    }
    assert len(emptied) > 2
    dump(tool_desk, files_of(directory, "cursors", "index"), "--verify-index-only")
    times = files_of(directory, "cursors", "timeindex")
    done = tool_desk.run("kafka-dump-log", "--verify-index-only", "--files", ",".join(map(str, times)))
    complaints = NO_RECORD.findall(done.stderr)
    assert (done.returncode, {f"{stem}.log" for stem in complaints}) == (0, emptied)
    assert len(done.stderr.splitlines()) == 2 * len(emptied)
    assert len(emptied) < len(times)


def test_the_producers_of_a_snapshot_are_dumped(
    tool_desk: ToolDesk, written: tuple[Path, dict[str, list[Row]]]
) -> None:
    directory, rows = written
    newest = files_of(directory, "orders", "snapshot")[-1]
    text = dump(tool_desk, [newest])
    found = re.findall(r"producerId: (\d+) producerEpoch: 0 .*?lastSequence: (\d+) lastOffset: (\d+)", text)
    assert len(found) == len(CODECS)
    assert {int(last_sequence) for _, last_sequence, _ in found} == {59}
    assert max(int(last_offset) for *_, last_offset in found) == rows["orders"][-1][0]


def test_the_offsets_of_groups_are_decoded(tool_desk: ToolDesk, written: tuple[Path, dict[str, list[Row]]]) -> None:
    directory, _ = written
    text = dump(tool_desk, files_of(directory, "__consumer_offsets", "log"), "--offsets-decoder")
    assert '"data":{"group":"fraud","topic":"orders","partition":0}' in text
    assert '"data":{"offset":42,' in text


def test_the_records_of_a_consumer_group_are_decoded(
    tool_desk: ToolDesk, written: tuple[Path, dict[str, list[Row]]]
) -> None:
    """Kafka's own classes read what we write of a group of the consumer protocol, tagged fields included."""
    directory, _ = written
    text = dump(tool_desk, files_of(directory, "__consumer_offsets", "log"), "--offsets-decoder")
    kinds = set(re.findall(r'key: \{"type":"(\d+)","data":\{"groupId":"readers"', text))
    assert kinds == {"3", "5", "6", "7", "8", "16"}
    assert '"subscribedTopicRegex":' in text
    assert re.search(r'"assignedPartitions":\[\{"topicId":"[^"]+","partitions":\[0\],"assignmentEpochs":\[1\]', text)


def test_the_aborted_transactions_of_an_index_are_dumped(tool_desk: ToolDesk, tmp_path: Path) -> None:
    """Of two producers, in segment after segment. The slow one begins first and is open while the others end, so
    the last stable offset is where it began."""
    expected: list[tuple[int, ...]] = []
    with KafkaBroker.launch(path=tmp_path / "data") as broker:
        broker.create_topic("transfers", config=SMALL)
        log = broker.log

        def send(tx: foldlog.Transaction) -> int:
            return tx.send("transfers", b"x" * 500).result(60).offset

        for turn in range(6):
            slow, quick, good = (log.transaction(name) for name in ("slow", "quick", "good"))
            slow_first, quick_first, good_first = send(slow), send(quick), send(good)
            assert [quick_first, good_first] == [slow_first + 1, slow_first + 2]
            ids = {one.transactional_id: one.producer_id for one in backend_of(log).list_transactions()}
            quick.abort()
            expected.append((ids["quick"], quick_first, slow_first + 3, slow_first))
            good.commit()
            if turn % 2:
                slow.abort()
                expected.append((ids["slow"], slow_first, slow_first + 5, slow_first + 6))
            else:
                slow.commit()
    indexes = files_of(tmp_path / "data", "transfers", "txnindex")
    assert len(indexes) > 2
    found = re.findall(
        r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)$",
        dump(tool_desk, indexes),
        re.MULTILINE,
    )
    assert [tuple(map(int, entry)) for entry in found] == expected
