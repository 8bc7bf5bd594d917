"""`foldlog dump` shows what is in the files: every batch, record and entry, in its place, and damage where it stands.

What is shown is compared with what stands in real files, with batches of every codec in them.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from foldlog.broker.broker import Broker
from foldlog.cli.files.dump import parse_range
from foldlog.cli.main import main
from foldlog.errors import InvalidArgument
from foldlog.log.partition import Partition
from foldlog.records import batch as fmt
from foldlog.records.batch import Compression
from foldlog.records.loops import assign_offsets, control_batch, pack, walk
from records.generated import with_right_crc

FIRST = f"{0:020d}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """orders: one segment a codec and a transaction's marker; users: compacted, with a tombstone."""
    path = tmp_path / "data"
    with Broker.open(str(path), background=False) as broker:
        broker.create_topic("orders", 1, {"index.interval.bytes": 100})
        broker.create_topic("users", 2, {"cleanup.policy": "compact"})
        orders, users = broker.partition("orders", 0), broker.partition("users", 1)
        assert isinstance(orders, Partition)
        assert isinstance(users, Partition)
        for codec in Compression:
            for number in range(3):
                headers = (("source", b"web"), ("empty", None))
                rows = [
                    (1000 * codec + number, b"k%d" % number, b"value-%d" % number, headers),
                    (1000 * codec + number, None, bytes([0, 255]) * 50, ()),
                ]
                sequence = 6 * codec + 2 * number
                orders.append(pack(rows, codec, producer_id=7, producer_epoch=1, base_sequence=sequence))
            orders.roll()
        orders.append(control_batch(fmt.CONTROL_ABORT, 1, 9, 0, 9000), trusted=True)
        users.append(pack([(5, b"u1", b"Ann", ()), (6, b"u1", None, ())]))
        users.compact(force=True)
    return path


def dumped(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["dump", *arguments, "--format", "json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def text_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["dump", *arguments]) == code
    return capsys.readouterr().out


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def test_every_batch_of_every_codec_and_every_record_is_shown(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = dumped(capsys, str(directory / "orders-0"), "--records")
    batches = [item for item in items if item["kind"] == "batch"]
    records = [item for item in items if item["kind"] == "record"]
    expected = [
        header for path in sorted(directory.glob("orders-0/*.log")) for header in walk(path.read_bytes()).headers
    ]
    assert [(one["base_offset"], one["last_offset"], one["position"], one["crc"]) for one in batches] == [
        (header.base_offset, header.last_offset, header.position, header.crc) for header in expected
    ]
    assert [one["codec"] for one in batches[::3]] == ["none", "gzip", "snappy", "lz4", "zstd", "none"]
    assert (batches[4]["producer_id"], batches[4]["base_sequence"]) == (7, 8)
    assert [one["offset"] for one in records] == list(range(30))
    assert records[8] == {
        "file": str(directory / "orders-0" / f"{6:020d}.log"), "kind": "record", "offset": 8, "timestamp": 1001,
        "key": {"text": "k1", "size": 2}, "value": {"text": "value-1", "size": 7},
        "headers": [["source", {"text": "web", "size": 3}], ["empty", None]],
    }  # fmt: skip
    assert base64.b64decode(records[9]["value"]["base64"]) == bytes([0, 255]) * 50
    assert [item["type"] for item in items if item["kind"] == "control"] == ["abort"]


def test_people_get_a_line_a_batch_and_a_line_a_record(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = directory / "orders-0" / f"{24:020d}.log"
    lines = text_of(capsys, str(path), "--records").splitlines()
    assert lines[0] == f"{path}: {path.stat().st_size} bytes"
    assert lines[1].startswith("  @0  offset 24 to 25, 2 records, ")
    assert lines[1].endswith(" bytes, zstd, epoch 0, 1970-01-01T00:00:04.000Z, producer 7 epoch 1 sequence 24")
    assert lines[2] == ("    offset 24  1970-01-01T00:00:04.000Z  key 'k0'  value 'value-0'  source='web'  empty=null")
    assert lines[3].endswith(f"key null  value 0x{'00ff' * 50}")
    assert lines[-1] == "  3 batches, 6 records"


def test_long_values_are_shortened_unless_the_dump_is_wide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(pack([(0, None, "é".encode() * 100, ())]))
    assert "… (200 bytes)" in text_of(capsys, str(path), "--records")
    assert "é" * 100 in text_of(capsys, str(path), "--records", "--format", "wide")


def test_a_compacted_batch_tells_when_its_tombstones_go(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (item,) = (one for one in dumped(capsys, str(directory), "--topic", "users") if one["kind"] == "batch")
    assert item["delete_horizon_ms"] > 0
    assert item["base_timestamp"] is None
    assert "tombstones go after 20" in text_of(capsys, str(directory), "--topic", "users", "-p", "1")


def test_a_range_of_offsets_takes_only_what_is_in_it(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = dumped(capsys, str(directory / "orders-0"), "--records", "--offsets", "5:9")
    assert [item["offset"] for item in items if item["kind"] == "record"] == [5, 6, 7, 8]
    assert len({item["file"] for item in items}) == 2
    assert parse_range(None)[0] == 0
    assert parse_range("9:") > parse_range("8:")
    for wrong in ("", ":", "a:b", "1:2:3", "-1"):
        with pytest.raises(InvalidArgument):
            parse_range(wrong)


def test_damage_is_told_in_its_place_and_the_dump_goes_on(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = directory / "orders-0" / f"{0:020d}.log"
    second, third = walk(path.read_bytes()).headers[1:]
    flip(path, second.position + 70)
    items = dumped(capsys, str(path), "--records", code=1)
    shown = ["batch", "record", "record"]
    assert [item["kind"] for item in items] == [*shown, "damage", *shown, "summary"]
    assert (items[3]["position"], items[3]["end"]) == (second.position, third.position)
    assert items[3]["reason"] == "its CRC-32C does not match its bytes"
    assert items[-1]["damaged_bytes"] == second.size
    flip(path, second.position + 70)
    flip(path, second.position + fmt.MAGIC_AT)
    assert "only its header is: no record is lost by it" in text_of(capsys, str(path), code=1)
    path.write_bytes(path.read_bytes()[:-5])
    assert "bytes up to" in text_of(capsys, str(path), code=1).splitlines()[-2]


def test_damage_far_into_a_log_is_passed_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where offsets have more than 31 bits: a segment's own base counts."""
    base, path, data = 1 << 40, tmp_path / f"{1 << 40:020d}.log", bytearray()
    for number in range(4):
        batch = pack([(0, None, b"%d" % number, ())])
        assign_offsets(batch, walk(batch).headers, base + number, 0, -1)
        data += batch
    size = len(data) // 4
    data[size + 65] ^= 1
    data[2 * size + 65] ^= 1
    path.write_bytes(data)
    items = dumped(capsys, str(path), code=1)
    assert [item.get("base_offset") for item in items if item["kind"] == "batch"] == [base, base + 3]
    assert [item["position"] for item in items if item["kind"] == "damage"] == [size]


def test_a_batch_whose_crc_is_right_and_whose_records_are_not_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = bytearray(pack([(0, None, b"." * 300, ())], Compression.ZSTD))
    batch[fmt.RECORDS_AT : fmt.RECORDS_AT + 4] = b"none"
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(with_right_crc(batch))
    kinds = [(item["kind"], item.get("reason", "")) for item in dumped(capsys, str(path), "--records", code=1)]
    assert kinds[1][0] == "damage"
    assert "not valid zstd data" in kinds[1][1]


def test_the_files_beside_the_segments_are_shown_with_all(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = dumped(capsys, str(directory), "--all")
    kinds = {item["kind"] for item in items}
    assert kinds >= {"index entry", "time index entry", "producer", "leader epoch", "metadata", "slot", "topic"}
    by_kind = {kind: [item for item in items if item["kind"] == kind] for kind in kinds}
    batches = {(item["file"], item["position"]): item for item in by_kind["batch"]}
    for entry in by_kind["index entry"]:
        log = entry["file"].replace(".index", ".log")
        assert batches[log, entry["position"]]["last_offset"] == entry["offset"]
    assert any(item["timestamp"] == 4002 and item["offset"] == 29 for item in by_kind["time index entry"])
    assert {item["producer_id"] for item in by_kind["producer"]} == {7, 9}
    slots = {item["partition"]: item for item in by_kind["slot"]}
    assert (slots["orders-0"]["durable_offset"], slots["orders-0"]["clean"]) == (31, True)
    assert [item["topic"] for item in by_kind["topic"]] == ["orders", "users"]
    text = text_of(capsys, str(directory), "--all")
    for line in (
        "  offset 3 is in the batch at byte ",
        "  1970-01-01T00:00:04.002Z is the latest up to offset 29",
        "  producer 7 epoch 1: sequence 29 is offset 29, ",
        "  epoch 0 from offset 0 on",
        "  version 0, topic_id ",
        "(orders-0): offsets 0 to 31, durable up to 31, active segment 30 up to byte ",
        "  topic users: id ",
    ):
        assert line in text


def test_damaged_hints_are_told_too(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orders = directory / "orders-0"
    index = orders / f"{0:020d}.index"
    index.write_bytes(index.read_bytes() * 2 + bytes(16) + b"odd")
    snapshot = max(orders.glob("*.snapshot"))
    flip(snapshot, 12)
    (orders / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    (orders / "partition.metadata").write_text("nonsense")
    for name, expected in (
        (index.name, ["does not ascend", "of room for more", "not a whole entry of 8 bytes"]),
        (snapshot.name, ["not a producer snapshot"]),
        ("leader-epoch-checkpoint", ["version or count is off"]),
        ("partition.metadata", ["is not NAME: VALUE"]),
    ):
        text = text_of(capsys, str(orders / name), code=1)
        assert all(part in text for part in expected), text
    checkpoint = directory / "checkpoint"
    for sector in (512, 1024):
        flip(checkpoint, sector + 30)
    assert "slot 0 (orders-0) is not whole" in text_of(capsys, str(checkpoint), code=1)
    checkpoint.write_bytes(b"something else")
    assert "it is not a checkpoint file" in text_of(capsys, str(checkpoint), code=1)
    flip(directory / "catalog.json", 30)
    assert "its CRC-32C does not match" in text_of(capsys, str(directory / "catalog.json"), code=1)


def test_what_cannot_be_shown_is_a_sentence(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "empty").mkdir()
    for arguments, code, sentence in (
        ([str(directory / "nothing")], 3, "there is no "),
        ([str(directory / ".lock")], 2, "is no file of a log that can be shown"),
        ([str(directory / "empty")], 3, "neither a segment nor a partition"),
        ([str(directory), "--topic", "payments"], 3, "no topic 'payments'; there are orders, users"),
        ([str(directory), "--topic", "users", "-p", "9"], 3, "topic 'users' has no partition 9; it has 0 to 1"),
        ([str(directory), "-p", "9"], 3, "has a partition 9"),
        ([str(directory / "users-0"), "--topic", "orders"], 2, "is one partition; name the directory of its log"),
        ([str(directory / "catalog.json"), "-p", "1"], 2, "is one file; name the directory of its log"),
        ([str(directory), "--offsets", "x"], 2, "is not a range such as"),
    ):
        assert main(["dump", *arguments]) == code
        assert sentence in capsys.readouterr().err
