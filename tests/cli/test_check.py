"""`foldlog check`: a whole log is called whole, a damaged one is named by file, byte and reason, and --cut-out works.

The command runs in this process on a real directory; what it prints and its exit code are compared, and that a look
changes no byte. How each kind of damage is repaired is shown in tests/log/test_repair.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.broker.broker import Broker
from foldlog.cli.main import main
from foldlog.log.partition import Partition
from foldlog.records.loops import decode, pack, walk

FIRST = "00000000000000000000.log"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two topics with a few segments and a committed offset, closed."""
    path = tmp_path / "data"
    with Broker.open(str(path), background=False) as broker:
        broker.create_topic("orders", 2, {"segment.bytes": 1024})
        broker.create_topic("users", 1, {"cleanup.policy": "compact", "segment.bytes": 1024})
        for number in range(24):
            write(broker, "orders", number % 2, b"order-%d" % number)
            write(broker, "users", 0, b"user-%d" % number, key=b"k%d" % (number % 3))
        broker.compact("users")
        broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(5)})
    return path


def write(broker: Broker, topic: str, number: int, value: bytes, key: bytes | None = None) -> None:
    partition = broker.partition(topic, number)
    assert isinstance(partition, Partition)
    partition.wait_acknowledged(partition.append(pack([(0, key, value.ljust(60, b"."), ())])).next_offset)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def read(broker: Broker, topic: str, number: int) -> list[int]:
    """The offsets of all records."""
    partition, found = broker.partition(topic, number), []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        piece = partition.read(offset)
        found += [record.offset for record in decode(piece.data, topic, number, start_offset=offset)[0]]
        offset = piece.next_offset
    return found


def test_a_whole_log_gets_a_line_a_partition_and_no_byte_is_changed(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(directory)
    assert main(["check", str(directory)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["__consumer_offsets-0", "orders-0", "orders-1", "users-0"]
    assert all(line.endswith(": whole") for line in lines)
    assert "offsets 0 to 12, 12 records, 2 segments" in lines[1]
    assert contents(directory) == before


def test_one_topic_alone_can_be_checked(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(directory / "orders-0" / FIRST, 100)
    assert main(["check", str(directory), "--topic", "users"]) == 0
    assert capsys.readouterr().out.startswith("users-0: ")
    assert main(["check", str(directory), "--topic", "nothing"]) == 1
    assert "no topic 'nothing'" in capsys.readouterr().err


def test_damage_is_named_by_file_byte_and_reason(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = directory / "orders-0" / FIRST
    position = walk(log.read_bytes()).headers[2].position
    flip(log, position + 70)
    before = contents(directory)
    assert main(["check", str(directory)]) == 1
    out = capsys.readouterr().out
    assert "orders-0: offsets 0 to 12, 11 records, 2 segments" in out
    assert f"{log}: byte {position}: its CRC-32C does not match its bytes; offsets 2 to 3 (exclusive) are lost" in out
    assert out.count("DAMAGED") == 1
    assert contents(directory) == before


def test_a_look_may_run_beside_the_writer_and_cutting_out_may_not(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker.open(str(directory), background=False) as broker:
        write(broker, "orders", 0, b"more")
        assert main(["check", str(directory)]) == 0
        assert main(["check", str(directory), "--cut-out"]) == 1
    assert "is being written by process" in capsys.readouterr().err


def test_cutting_out_sets_the_damage_aside_and_the_rest_goes_on(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = directory / "orders-0" / FIRST
    position = walk(log.read_bytes()).headers[2].position
    flip(log, position + 70)
    assert main(["check", str(directory), "--cut-out"]) == 0
    out = capsys.readouterr().out
    assert f"orders-0: cut out {log}: byte {position}" in out
    assert f"orders-0: kept in {log}.{position}.cut" in out
    assert Path(f"{log}.{position}.cut").stat().st_size > 60
    assert main(["check", str(directory)]) == 0
    with Broker.open(str(directory), background=False) as broker:
        assert read(broker, "orders", 0) == [0, 1, *range(3, 12)]
        write(broker, "orders", 0, b"after")
        assert read(broker, "orders", 0)[-1] == 12
        assert broker.committed("fraud")["orders", 0].offset == 5


def test_a_missing_partition_is_damage_and_can_be_given_up(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (directory / "orders-1").iterdir():
        file.unlink()
    (directory / "orders-1").rmdir()
    assert main(["check", str(directory)]) == 1
    assert "orders-1: DAMAGED" in capsys.readouterr().out
    assert main(["check", str(directory), "--cut-out"]) == 0
    with Broker.open(str(directory), background=False) as broker:
        assert broker.partition("orders", 1).log_end_offset == 12


def test_a_damaged_catalog_is_an_error_that_says_what_to_do(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(directory / "catalog.json", 20)
    for arguments in (["check", str(directory)], ["check", str(directory), "--cut-out"]):
        assert main(arguments) == 1
        assert "catalog.json is damaged" in capsys.readouterr().err


def test_a_checkpoint_that_is_something_else_is_damage_and_is_moved_aside(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(directory / "checkpoint", 3)
    assert main(["check", str(directory)]) == 1
    assert f"{directory}/checkpoint: DAMAGED: byte 0: it is not a checkpoint file" in capsys.readouterr().out
    assert main(["check", str(directory), "--cut-out"]) == 0
    assert (directory / "checkpoint.cut").exists()
    assert main(["check", str(directory)]) == 0
    with Broker.open(str(directory), background=False) as broker:
        assert read(broker, "orders", 0) == list(range(12))


def test_without_a_checkpoint_everything_is_still_looked_at(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "checkpoint").unlink()
    assert main(["check", str(directory)]) == 0
    flip(directory / "orders-0" / FIRST, 100)
    assert main(["check", str(directory)]) == 1
    assert "orders-0" in capsys.readouterr().out


def test_directories_the_catalog_does_not_know_are_mentioned(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "stranger-0").mkdir()
    assert main(["check", str(directory)]) == 0
    assert f"note: {directory}/stranger-0 is not in the catalog" in capsys.readouterr().out
