"""`foldlog check` beyond a look at a whole log: --repair makes anew what is derived and takes nothing out, partitions
and segments alone can be looked at, the work is shared, and programs get JSON."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from cli.screen import Terminal
from foldlog.broker.broker import Broker
from foldlog.cli.files.check import Stopped, WatchedFiles
from foldlog.cli.main import main
from foldlog.cli.progress_bar import ProgressBar
from foldlog.log.partition import Partition
from foldlog.log.producers import ProducerState
from foldlog.log.segment import OffsetIndex
from foldlog.records.loops import pack, walk
from foldlog.testing.sim_clock import SimClock

FIRST = f"{0:020d}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A topic of an idempotent producer with some segments and indexes of several entries, and a compacted one."""
    path = tmp_path / "data"
    with Broker.open(str(path), background=False) as broker:
        broker.create_topic("orders", 2, {"segment.bytes": 8192, "index.interval.bytes": 500})
        broker.create_topic("users", 1, {"cleanup.policy": "compact", "segment.bytes": 1024})
        for number in range(60):
            write(broker, "orders", 0, number, b"order-%d" % number)
            write(broker, "users", 0, number, b"user", key=b"k%d" % (number % 3))
        broker.compact("users")
    return path


def write(broker: Broker, topic: str, partition: int, number: int, value: bytes, key: bytes | None = None) -> None:
    log = broker.partition(topic, partition)
    assert isinstance(log, Partition)
    rows = [(1000 + number, key, value.ljust(300, b"."), ())]
    log.append(pack(rows, producer_id=7, producer_epoch=0, base_sequence=number))


def segments(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*.log"))}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def test_repair_makes_wrong_and_missing_hints_anew_and_changes_no_segment(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, orders = segments(directory), directory / "orders-0"
    sealed = sorted(path.stem for path in orders.glob("*.log"))[1]
    snapshot = max(orders.glob("*.snapshot"))
    known = ProducerState.from_snapshot(snapshot.read_bytes())
    flip(orders / f"{FIRST}.index", 3)
    flip(orders / f"{FIRST}.timeindex", 6)
    (orders / f"{sealed}.index").unlink()
    flip(snapshot, 20)
    (orders / "leader-epoch-checkpoint").write_text("nonsense")
    assert main(["check", str(directory)]) == 0
    noted = capsys.readouterr().out
    for name, fault in (
        (f"{FIRST}.index", "some entries lead elsewhere"),
        (f"{FIRST}.timeindex", "some entries lead elsewhere"),
        (f"{sealed}.index", "the file is missing"),
        (snapshot.name, "not a producer snapshot"),
        ("leader-epoch-checkpoint", "not a leader epoch checkpoint"),
    ):
        assert f"note: {orders / name}: {fault}" in noted
    assert main(["check", str(directory), "--repair"]) == 0
    repaired = capsys.readouterr().out
    for name in (f"{FIRST}.index", f"{FIRST}.timeindex", f"{sealed}.index", snapshot.name, "leader-epoch-checkpoint"):
        assert f"orders-0: rebuilt {orders / name}" in repaired
    assert segments(directory) == before
    assert main(["check", str(directory)]) == 0
    assert "note" not in capsys.readouterr().out
    made = ProducerState.from_snapshot(snapshot.read_bytes())
    assert known is not None
    assert made is not None
    assert [(info.producer_id, info.last_sequence) for info in made.infos()] == [
        (info.producer_id, info.last_sequence) for info in known.infos()
    ]


def test_an_index_that_was_emptied_is_told_and_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker.open(str(tmp_path / "data"), background=False) as broker:
        broker.create_topic("orders", 1, {"segment.bytes": 200_000})
        for number in range(1000):
            log = broker.partition("orders", 0)
            assert isinstance(log, Partition)
            log.append(pack([(number, None, b"." * 300, ())]))
    index = tmp_path / "data" / "orders-0" / f"{FIRST}.index"
    whole = index.read_bytes()
    index.write_bytes(b"")
    assert main(["check", str(tmp_path / "data")]) == 0
    assert f"note: {index}: it leads no nearer than " in capsys.readouterr().out
    assert main(["check", str(tmp_path / "data"), "--repair"]) == 0
    assert index.read_bytes() == whole


def test_repair_derives_a_lost_checkpoint(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = segments(directory)
    (directory / "checkpoint").unlink()
    assert main(["check", str(directory), "--repair"]) == 0
    out = capsys.readouterr().out
    assert f"orders-0: rebuilt the slot of {directory}/orders-0 in the checkpoint" in out
    assert segments(directory) == before
    assert main(["check", str(directory)]) == 0
    assert "no slot in the checkpoint" not in capsys.readouterr().out
    with Broker.open(str(directory), background=False) as broker:
        assert broker.partition("orders", 0).log_end_offset == 60


def test_repair_never_cuts(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage stays for --cut-out to be asked for, and a torn end for the next open."""
    first = directory / "orders-0" / f"{FIRST}.log"
    flip(first, walk(first.read_bytes()).headers[3].position + 80)
    (directory / "orders-0" / f"{FIRST}.index").unlink()
    (directory / "checkpoint").unlink()
    with (directory / "orders-1" / f"{FIRST}.log").open("ab") as torn:
        torn.write(b"torn")
    before = segments(directory)
    assert main(["check", str(directory), "--repair"]) == 1
    out = capsys.readouterr().out
    assert f"{first}: byte" in out
    assert "orders-0: rebuilt" not in out
    assert "orders-1: rebuilt" not in out
    assert segments(directory) == before
    assert list(directory.rglob("*.cut")) == []


def test_repair_and_cutting_out_are_two_requests(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(directory), "--repair", "--cut-out"]) == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_one_partition_of_a_log_is_checked_by_what_the_log_knows_of_it(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["check", f"{directory}/orders-0/"]) == 0
    assert capsys.readouterr().out.startswith("orders-0: offsets 0 to 60, 60 records, ")
    monkeypatch.chdir(directory / "users-0")
    assert main(["check", "."]) == 0
    assert capsys.readouterr().out.startswith("users-0: offsets 0 to 60, ")
    last = max((directory / "orders-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-400])
    assert main(["check", str(directory / "orders-0")]) == 1, "the checkpoint knows where it ended"


def test_a_partition_without_a_log_around_it_and_a_segment_are_looked_at_alone(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "catalog.json").unlink()
    path = directory / "users-0"
    assert main(["check", str(path)]) == 0
    assert f"{path}: offsets 0 to 60, " in capsys.readouterr().out
    log = sorted((directory / "orders-0").glob("*.log"))[1]
    assert main(["check", str(log)]) == 0
    assert f"{log}: offsets {int(log.stem)} to " in capsys.readouterr().out
    flip(log, 100)
    assert main(["check", str(log)]) == 1
    assert f"{log}: byte 0: its CRC-32C does not match its bytes" in capsys.readouterr().out
    assert main(["check", str(path), "--repair"]) == 2
    assert "stands alone and can only be looked at" in capsys.readouterr().err
    assert main(["check", str(directory / "checkpoint")]) == 2
    assert "is no log and no segment of one" in capsys.readouterr().err


def test_segments_that_end_before_the_next_begins_are_kafkas_compaction_and_no_damage(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a data directory of Kafka: meta.properties, and a segment whose last batches were cleaned away."""
    (directory / "catalog.json").unlink()
    (directory / "meta.properties").write_text("version=1\n")
    first = directory / "orders-0" / f"{FIRST}.log"
    data = first.read_bytes()
    headers = walk(data).headers
    first.write_bytes(data[: headers[-2].position])
    for index in (directory / "orders-0").glob(f"{FIRST}.*index"):
        index.unlink()
    assert main(["check", str(directory)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [line.split(":")[0] for line in lines] == ["orders-0", "orders-1", "users-0"]
    assert "offsets 0 to 60, 58 records" in lines[0]
    assert main(["check", str(directory), "--topic", "users"]) == 0
    assert capsys.readouterr().out.startswith("users-0: ")
    assert main(["check", str(directory), "--topic", "payments"]) == 3
    assert "there are orders, users" in capsys.readouterr().err


def test_indexes_as_kafkas_compaction_writes_them_are_right(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One entry for several batches: the offset of their last and the position of their first; and room for more."""
    path, moved = directory / "orders-0", directory / "kafka"
    path.rename(moved)
    first = moved / f"{FIRST}.log"
    headers = walk(first.read_bytes()).headers
    offsets = OffsetIndex.ENTRY.pack(headers[6].last_offset, headers[3].position)
    (moved / f"{FIRST}.index").write_bytes(offsets + bytes(80))
    assert main(["check", str(moved)]) == 0
    assert "note" not in capsys.readouterr().out
    beyond = OffsetIndex.ENTRY.pack(headers[6].last_offset, headers[8].position)
    (moved / f"{FIRST}.index").write_bytes(beyond + bytes(80))
    assert main(["check", str(moved)]) == 0
    assert f"note: {moved / FIRST}.index: some entries lead elsewhere" in capsys.readouterr().out


def test_programs_get_one_document(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = directory / "orders-0" / f"{FIRST}.log"
    position = walk(log.read_bytes()).headers[2].position
    flip(log, position + 80)
    assert main(["check", str(directory), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["is_whole"] is False
    orders, empty, users = document["partitions"]
    assert orders["damages"] == [
        {"path": str(log), "position": position, "reason": "its CRC-32C does not match its bytes", "lost": [2, 3]}
    ]
    assert (orders["start_offset"], orders["end_offset"], orders["records"]) == (0, 60, 59)
    assert [segment["is_whole"] for segment in orders["segments"]] == [False, True, True]
    assert (empty["is_whole"], users["is_whole"]) == (True, True)


def test_wide_has_a_line_for_each_segment(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(directory), "--topic", "orders", "--format", "wide"]) == 0
    assert f"  {FIRST}.log: offsets 0 to 22, " in capsys.readouterr().out


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_however_many_share_the_work_the_answer_is_the_same(
    directory: Path, capsys: pytest.CaptureFixture[str], jobs: str
) -> None:
    flip(directory / "orders-0" / f"{FIRST}.log", 5000)
    assert main(["check", str(directory)]) == 1
    alone = capsys.readouterr().out
    assert main(["check", str(directory), "--jobs", jobs]) == 1
    assert capsys.readouterr().out == alone


def test_a_number_of_jobs_that_is_none_is_refused(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(directory), "-j", "0"]) == 2
    told = "argument -j/--jobs: '0' is not a whole number from 1 to 256; see: foldlog check --help"
    assert capsys.readouterr().err == f"foldlog: {told}\n"


def test_the_bar_is_drawn_on_a_terminal_ten_times_a_second_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock, terminal, file = SimClock(), Terminal(), io.StringIO()
    bars = [ProgressBar(stream, "checking", 1000, clock) for stream in (terminal, file)]
    drawn: list[str] = []
    for _ in range(10):
        clock.advance(50)
        for bar in bars:
            bar.advance(100)
        drawn.append(terminal.getvalue())
    for bar in bars:
        bar.hide()
    assert file.getvalue() == ""
    assert [text.count("checking") for text in drawn] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert "100%  1000 B of 1000 B" in terminal.getvalue()
    assert terminal.lines() == [], "and it leaves nothing behind"


def test_a_look_that_is_stopped_reads_no_further(directory: Path) -> None:
    counted: list[int] = []
    files = WatchedFiles(counted.append)
    file = files.open(str(directory / "catalog.json"))
    data = file.read(0, 10)
    assert counted == [len(data)]
    files.stop()
    with pytest.raises(Stopped):
        file.read(0, 10)
    file.close()
    assert os.path.getsize(directory / "catalog.json") > 10
