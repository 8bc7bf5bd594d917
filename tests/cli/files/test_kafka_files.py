"""The command line on files that Apache Kafka wrote: check, dump, topic, group and copy.

Sound ones are called whole, planted damage is named by file, byte and reason, every kind of file is shown for what it
is, and nothing of Kafka's is ever changed. The files are those of tests/broker/kafka_files/test_kafka_directory.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.command import foldlog
from foldlog import open as foldlog_open
from foldlog.cli.main import main
from foldlog.errors import CorruptLog
from kafka_truth import STORED, TOPICS, copied_to, flip, last_segment, read_all, state_of, stored_facts

DATA = STORED / "data"
FACTS = stored_facts()
BATCH_BYTES = 131
"""Of each of the two batches of a segment of orders.eu-west."""


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def dumped(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    code, out, err = run(capsys, "dump", "--format", "json", *arguments)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


# check


def test_sound_files_are_called_whole(capsys: pytest.CaptureFixture[str]) -> None:
    before = state_of(DATA)
    code, out, _ = run(capsys, "check", DATA)
    lines = out.splitlines()
    assert code == 0
    assert all(line.endswith(": whole") or "room that was made ahead" in line for line in lines), out
    named = {line.split(":")[0].rpartition("-")[0] for line in lines if line.endswith("whole")}
    assert named == {*TOPICS, "__cluster_metadata", "__consumer_offsets", "__transaction_state"}
    assert any(line.startswith("expired-0: offsets 7 to 16,") for line in lines)
    assert state_of(DATA) == before


def test_any_byte_that_a_crc_covers_is_missed_when_it_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = copied_to(tmp_path) / "orders.eu-west-0"
    segment = partition / f"{4:020d}.log"
    for position in range(16, 2 * BATCH_BYTES, 7):
        begins_at = position - position % BATCH_BYTES
        if position - begins_at < 16:
            continue
        flip(segment, position)
        code, out, _ = run(capsys, "check", partition)
        assert code == 1
        assert f"{segment}: byte {begins_at}: " in out, (position, out)
        flip(segment, position)


UPWARD_IN_THE_LAST = "the last batch of all, further up: nothing behind it tells"


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("base_offset", [4, 16], ids=["sealed", "last"])
def test_a_wrong_base_offset_is_the_same_damage_to_check_and_to_readers(
    base_offset: int, batch: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not covered by the CRC: only the batches around it tell, and they tell which one it is. Its records are
    neither called lost nor given out, by no reader and under no other offset.
    """
    data = copied_to(tmp_path)
    segment = data / "orders.eu-west-0" / f"{base_offset:020d}.log"
    whole = segment.read_bytes()
    right, at = base_offset + 2 * batch, batch * BATCH_BYTES
    flips = [right ^ (0xFF << bits) for bits in range(0, 64, 8)]
    for wrong in [right - 1, right + 1, right + 2, right + 3, *flips]:
        segment.write_bytes(whole[:at] + (wrong & (1 << 64) - 1).to_bytes(8, "big") + whole[at + 8 :])
        code, out, _ = run(capsys, "check", segment.parent)
        if base_offset == 16 and batch == 1 and right < wrong < 1 << 31:
            assert code == 0, UPWARD_IN_THE_LAST
            continue
        [line] = [line.strip() for line in out.splitlines() if line.startswith("  ") and "note:" not in line]
        assert (code, line.startswith(f"{segment}: byte {at}: its ")) == (1, True), (wrong, out)
        assert f"; offsets {right} to {right + 2} (exclusive) are there, but not read until it is mended" in line
        assert "offsets 0 to 20, 18 records, 5 segments" in out
        found: list[int] = []
        with foldlog_open(data, mode="r") as log, pytest.raises(CorruptLog) as told:
            found.extend(record.offset for record in log.read("orders.eu-west", 0))
        assert line.startswith(f"{segment}: byte {told.value.position}: {told.value.reason}; "), wrong
        assert told.value.path == str(segment)


def test_what_expired_is_not_counted_with_what_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log starts in the middle of a batch; markers of transactions are no records either."""
    _, out, _ = run(capsys, "check", DATA, "--format", "json")
    counts = {row["partition"]: row["records"] for row in json.loads(out)["partitions"]}
    with foldlog_open(DATA, mode="r") as log:
        truth = {
            f"{topic}-{number}": sum(1 for _ in log.read(topic, number))
            for topic in TOPICS
            for number in log.offsets(topic)
        }
    assert {name: counts[name] for name in truth} == truth
    assert truth["expired-0"] == 9


def test_a_leader_epoch_that_is_wrong_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = copied_to(tmp_path) / "orders.eu-west-0" / f"{4:020d}.log"
    flip(segment, 15)
    code, out, _ = run(capsys, "check", segment.parent)
    assert code == 1
    assert f"{segment}: byte 0: the batch at offset 4 has leader epoch 255, not 0; no record is lost by it" in out


def test_a_segment_that_was_cut_is_damaged_and_the_last_one_only_torn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = copied_to(tmp_path) / "orders.eu-west-0"
    sealed, last = partition / f"{4:020d}.log", last_segment(partition)
    last.write_bytes(last.read_bytes()[:200])
    code, out, _ = run(capsys, "check", partition)
    assert code == 0
    assert f"note: {last}: the batch is cut off at byte {BATCH_BYTES}; nothing is read from there on" in out
    sealed.write_bytes(sealed.read_bytes()[:200])
    code, out, _ = run(capsys, "check", partition)
    assert code == 1
    assert f"{sealed}: byte {BATCH_BYTES}: the batch is cut off; offsets 6 to 8 (exclusive) are lost" in out


@pytest.mark.parametrize("garbage", [b"garbage!", b"garb", bytes(range(200, 256)) * 5])
def test_an_end_that_is_no_part_of_a_batch_is_damage(
    garbage: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A write that was cut off begins as a batch of that segment does; neither this segment's name, nor what is before
    it, goes with an offset such as these bytes have."""
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (segment := partition / f"{0:020d}.log").write_bytes(garbage)
    code, out, _ = run(capsys, "check", partition)
    assert (code, out.splitlines()[0].endswith(": DAMAGED")) == (1, True)
    assert f"{segment}: byte 0: " in out
    assert "which offsets are lost is not known" in out
    last = last_segment(copied_to(tmp_path / "kafka") / "orders.eu-west-0")
    sound = last.read_bytes()
    last.write_bytes(sound[: 2 * BATCH_BYTES] + garbage)
    code, out, _ = run(capsys, "check", last.parent)
    assert code == 1
    assert f"{last}: byte {2 * BATCH_BYTES}: " in out


@pytest.mark.parametrize("torn_bytes", [1, 8, 20, 100])
def test_a_first_batch_that_was_cut_off_is_only_torn(
    torn_bytes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = last_segment(copied_to(tmp_path) / "orders.eu-west-0")
    last.write_bytes(last.read_bytes()[:torn_bytes])
    code, out, _ = run(capsys, "check", last.parent)
    assert code == 0
    assert f"note: {last}: " in out


@pytest.mark.parametrize(
    ("name", "position", "reason"),
    [
        ("00000000000000000000.index", 5, "its entries do not ascend after number 1"),
        ("00000000000000000000.timeindex", 5, "some entries lead elsewhere"),
        ("00000000000000000020.snapshot", 4, "not a producer snapshot"),
        ("leader-epoch-checkpoint", 0, "not a leader epoch checkpoint"),
    ],
)
def test_what_is_beside_a_segment_is_compared_with_it(
    name: str, position: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied_to(tmp_path) / "codecs-0" / name
    flip(path, position)
    code, out, _ = run(capsys, "check", path.parent)
    assert code == 0
    assert any(line.startswith(f"  note: {path}: {reason}") for line in out.splitlines()), out


@pytest.mark.parametrize(("position", "reason"), [(1, "version 255"), (9, "there is no abort"), (33, "")])
def test_an_index_of_aborted_transactions_is_compared_with_the_markers(
    position: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last stable offset nobody can tell from the batches, and nobody goes by it."""
    [path] = (copied_to(tmp_path) / "payments-0").glob("*.txnindex")
    flip(path, position)
    code, out, _ = run(capsys, "check", path.parent)
    assert code == 0
    assert (f"note: {path}: " in out) == bool(reason)
    assert reason in out


@pytest.mark.parametrize("change", ["--repair", "--cut-out"])
def test_nothing_of_kafkas_is_repaired(change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = copied_to(tmp_path)
    flip(data / "codecs-0" / f"{0:020d}.index", 5)
    before = state_of(data)
    for path in (data, data / "codecs-0"):
        code, _, err = run(capsys, "check", change, path)
        assert code not in (0, 1)
        assert "can only be looked at" in err
    assert state_of(data) == before


# dump


def test_every_file_is_shown_for_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    items = dumped(capsys, "--all", "--records", DATA)
    assert {item["kind"] for item in items} == {
        "aborted transaction", "batch", "committed offset", "control", "index entry", "leader epoch", "metadata",
        "partition offset", "producer", "properties", "quorum", "record", "room", "summary", "time index entry",
    }  # fmt: skip
    [roomy] = [item for item in items if item["kind"] == "room" and item["file"].endswith(".log")]
    assert "roomy-0" in roomy["file"]
    shown = {item["file"] for item in items if item["kind"] == "summary"}
    assert shown == {str(path) for path in DATA.glob("*-?/*.log")}


def test_records_and_markers_are_shown_where_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    items = dumped(capsys, "--records", DATA / "payments-0")
    values = [item["value"]["text"] for item in items if item["kind"] == "record"]
    assert values == [row["value"] for row in FACTS.records["payments"]]
    markers = [item for item in items if item["kind"] == "control"]
    assert [marker["type"] for marker in markers] == ["commit", "abort", "commit", "abort", "commit", "commit"]
    assert {marker["coordinator_epoch"] for marker in markers} == {0}
    [path] = (DATA / "payments-0").glob("*.txnindex")
    aborted = [(item["first_offset"], item["last_offset"]) for item in dumped(capsys, path)]
    assert [last for _, last in aborted] == [marker["offset"] for marker in markers if marker["type"] == "abort"]


def test_committed_offsets_are_shown_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "dump", "--records", "--topic", "__consumer_offsets", DATA)
    assert code == 0
    assert "group billing: orders.eu-west-0 at 7," in out
    assert "group dropped: orders.eu-west-1 at 9," in out  # it is there, and so is the abort behind it
    assert "abort of producer " in out


def test_the_metadata_log_and_its_snapshot_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "dump", "--records", DATA / "__cluster_metadata-0", DATA / "bootstrap.checkpoint")
    assert code == 0
    assert "leader change" in out
    assert "snapshot header" in out


def test_damage_is_shown_in_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = copied_to(tmp_path)
    [index] = (data / "payments-0").glob("*.txnindex")
    index.write_bytes(index.read_bytes()[:-1])
    starts = data / "log-start-offset-checkpoint"
    starts.write_text("0\n2\nexpired 0 7\n", encoding="ascii")
    (data / "meta.properties").write_text("cluster\n", encoding="ascii")
    quorum = data / "__cluster_metadata-0" / "quorum-state"
    quorum.write_text("{", encoding="ascii")
    for path in (index, starts, data / "meta.properties", quorum):
        code, out, _ = run(capsys, "dump", path)
        assert (code, "DAMAGED" in out) == (1, True), out


# topic, group, copy


def test_topics_and_groups_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "topic", "list", "-d", DATA, "--format", "json")
    assert {row["topic"] for row in json.loads(out)} == set(TOPICS)
    _, out, _ = run(capsys, "topic", "consume", "-d", DATA, "payments", "-X", "isolation.level=read_committed")
    assert out.splitlines() == [row["value"] for row in FACTS.committed_records("payments")]
    _, out, _ = run(capsys, "group", "describe", "-d", DATA, "billing")
    assert out.startswith("billing: Empty, 0 members, lag 30")


def test_other_properties_are_for_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "topic", "list", "-d", DATA, "-X", "client.id=me")
    assert (code, "for clients of a broker" in err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "create", "new", "-d"),
        ("topic", "delete", "codecs", "--yes", "-d"),
        ("topic", "consume", "codecs", "--group", "g", "-d"),
        ("serve", "--listen", "127.0.0.1:0"),  # the usual port may be taken
    ],
)
def test_what_writes_is_refused_in_one_sentence(command: tuple[str, ...], tmp_path: Path) -> None:
    data = copied_to(tmp_path)
    before = state_of(data)
    done = foldlog(*command, str(data))  # a process of its own: a server keeps signals from the one that it is in
    assert done.returncode != 0
    assert (done.stdout.decode(), done.stderr.decode()) == (
        "",
        f"foldlog: {data} is Apache Kafka's, and only read here; make a log of your own from it with 'foldlog copy'\n",
    )
    assert state_of(data) == before


def test_a_copy_has_what_was_committed_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records, offsets, groups, settings; not what was aborted, nor what is undecided."""
    data, copy = copied_to(tmp_path), tmp_path / "copy"
    before = state_of(data)
    code, _, _ = run(capsys, "copy", "--all", "--from", data, "--to", copy)
    assert code == 0
    assert read_all(copy) == {topic: FACTS.committed_records(topic) for topic in TOPICS}
    _, out, _ = run(capsys, "group", "list", "-d", copy, "--format", "json")
    assert {"billing", "settled"} <= {row["group"] for row in json.loads(out)}
    _, out, _ = run(capsys, "topic", "describe", "-d", copy, "prices")
    assert "cleanup.policy  " in out
    assert run(capsys, "check", copy)[0] == 0
    assert state_of(data) == before


def test_a_topic_of_which_others_hold_a_part_is_not_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = copied_to(tmp_path)
    (data / "orders.eu-west-0").rename(tmp_path / "elsewhere")
    code, _, err = run(capsys, "copy", "orders.eu-west", "--from", data, "--to", tmp_path / "copy")
    assert code != 0
    assert "orders.eu-west-0 is not in" in err
