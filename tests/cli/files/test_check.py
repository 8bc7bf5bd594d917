"""`foldlog check`: a whole log is called whole, a damaged one is named by file, byte and reason, and --cut-out works.

The command runs in this process on a real directory; what it prints and its exit code are compared, and that a look
changes no byte. How each kind of damage is repaired is shown in tests/log/test_repair.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
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
    assert main(["check", str(directory), "--topic", "nothing"]) == 3
    assert capsys.readouterr().err == "foldlog: no topic 'nothing'; there are __consumer_offsets, orders, users\n"


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
        assert main(["check", str(directory), "--cut-out"]) == 4
    err = capsys.readouterr().err
    assert "is being written by process" in err
    assert err.endswith("; stop it, then run this again\n")


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
        err = capsys.readouterr().err
        assert "catalog.json is damaged" in err
        assert "restore it from a backup; the topic directories beside it are untouched" in err
        assert "--cut-out" not in err, "which could not help"


def test_a_checkpoint_that_is_something_else_is_damage_and_is_moved_aside(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(directory / "checkpoint", 3)
    assert main(["check", str(directory)]) == 1
    assert f"{directory}/checkpoint: DAMAGED: byte 0: it is not a checkpoint file" in capsys.readouterr().out
    assert main(["check", str(directory), "--cut-out"]) == 0
    assert (directory / "checkpoint.cut").exists()
    assert "orders-0: offsets 0 to 12, 12 records" in capsys.readouterr().out
    assert main(["check", str(directory)]) == 0
    assert "orders-0: offsets 0 to 12, 12 records" in capsys.readouterr().out
    with Broker.open(str(directory), background=False) as broker:
        assert read(broker, "orders", 0) == list(range(12))


def test_without_a_checkpoint_everything_is_still_looked_at(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "checkpoint").unlink()
    assert main(["check", str(directory)]) == 0
    out = capsys.readouterr().out
    assert "orders-0: offsets 0 to 12, 12 records, 2 segments" in out
    assert "__consumer_offsets-0: offsets 0 to 1, 1 record, 1 segment" in out
    flip(directory / "orders-0" / FIRST, 100)
    assert main(["check", str(directory)]) == 1
    assert "orders-0" in capsys.readouterr().out


def test_directories_the_catalog_does_not_know_are_mentioned(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "stranger-0").mkdir()
    assert main(["check", str(directory)]) == 0
    assert f"note: {directory}/stranger-0 is not in the catalog" in capsys.readouterr().out


def test_a_second_checkpoint_that_is_moved_aside_leaves_the_first_where_it_is(directory: Path) -> None:
    for name in ("checkpoint.cut", "checkpoint-2.cut"):
        flip(directory / "checkpoint", 3)
        damaged = (directory / "checkpoint").read_bytes()
        assert main(["check", str(directory), "--cut-out"]) == 0
        assert (directory / name).read_bytes() == damaged
    assert (directory / "checkpoint.cut").stat().st_size > 0


def test_a_link_that_leads_nowhere_is_named(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = directory / "orders-0" / FIRST
    log.unlink()
    log.symlink_to(directory / "gone")
    assert main(["check", str(directory)]) == 1
    assert f"orders-0: DAMAGED: {log}: byte 0: the name is there, but no file behind it" in capsys.readouterr().out


def test_a_file_where_a_partition_should_be_is_told_without_error_numbers(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "orders-1").rename(directory / "elsewhere")
    (directory / "orders-1").write_bytes(b"")
    assert main(["check", str(directory)]) == 1
    assert f"orders-1: DAMAGED: {directory}/orders-1: not a directory\n" in capsys.readouterr().out


def test_where_nothing_is_left_of_a_partition_the_loss_is_called_unknown(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "checkpoint").unlink()
    for file in (directory / "orders-1").iterdir():
        file.unlink()
    assert main(["check", str(directory)]) == 1
    log = directory / "orders-1" / FIRST
    assert f"{log}: byte 0: the file is missing; which offsets are lost is not known" in capsys.readouterr().out
    assert main(["check", str(directory), "--cut-out"]) == 0
    with Broker.open(str(directory), background=False) as broker:
        assert broker.partition("orders", 1).log_end_offset == 0
        assert read(broker, "orders", 0) == list(range(12))


def test_no_log_is_said_without_telling_how_to_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path)]) == 3
    expected = f"foldlog: there is no log in {tmp_path}; name the directory that holds its catalog.json\n"
    assert capsys.readouterr().err == expected
