"""`foldlog check`, `foldlog restore` and `foldlog topic consume` on a log with a store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foldlog.broker.broker import Broker
from foldlog.cli.main import main
from foldlog.log.partition import Partition
from foldlog.records.loops import pack

VALUES = [f"value {number}" for number in range(12)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log whose topic has all but its last segment in the store beside it."""
    path = tmp_path / "data"
    settings = {"remote.storage.enable": "true", "local.retention.ms": "0", "foldlog.segment.records": "2"}
    with Broker.open(str(path), background=False, tier=f"file://{tmp_path}/store") as broker:
        broker.create_topic("orders", 1, settings)
        partition = broker.partition("orders", 0)
        assert isinstance(partition, Partition)
        for value in VALUES:
            partition.append(pack([(1000, None, value.encode(), ())]))
        partition.sync()
        broker.enforce_retention()
        assert partition.local_start_offset == 10
    return path


def store_of(log: Path) -> str:
    return f"file://{log.parent}/store"


def test_check_reads_the_store_too(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(log)]) == 0
    assert f"orders-0: offsets 0 to 10 in {store_of(log)}, 5 segments" in capsys.readouterr().out
    assert main(["check", str(log), "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["stores"]
    assert (found["end_offset"], found["segments"], found["is_whole"]) == (10, 5, True)


@pytest.mark.parametrize("fault", ["flipped", "cut", "gone", "manifest"])
def test_check_names_what_is_wrong_in_the_store(log: Path, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = "*.manifest" if fault == "manifest" else "*.segment"
    path = max((log.parent / "store").rglob(kind))
    data = path.read_bytes()
    if fault == "gone":
        path.unlink()
    elif fault == "cut":
        path.write_bytes(data[:-10])
    else:
        path.write_bytes(data[:70] + bytes([data[70] ^ 1]) + data[71:])
    assert main(["check", str(log)]) == 1
    shown = capsys.readouterr().out
    assert "DAMAGED" in shown
    assert path.name in shown


def test_restore_makes_a_directory_of_the_store_alone(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = log.parent / "restored"
    assert main(["restore", store_of(log), str(place)]) == 0
    shown = capsys.readouterr().out
    assert "orders-0: offsets 0 to 10, 5 segments" in shown
    assert main(["check", str(place)]) == 0
    capsys.readouterr()
    assert main(["topic", "consume", "orders", "-d", str(place)]) == 0
    assert capsys.readouterr().out.splitlines() == VALUES[:10]
    assert main(["restore", store_of(log), str(place)]) != 0
    assert "is not empty" in capsys.readouterr().err
    assert main(["restore", f"file://{log.parent}/nothing", str(log.parent / "other")]) != 0
    assert "there is no log in" in capsys.readouterr().err


def test_a_store_is_consumed_without_a_directory(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "consume", "orders", "-d", store_of(log)]) == 0
    assert capsys.readouterr().out.splitlines() == VALUES[:10]
    assert main(["topic", "list", "-d", store_of(log)]) == 0
    assert "orders" in capsys.readouterr().out
    assert main(["topic", "delete", "orders", "-d", store_of(log), "--yes"]) != 0
    assert "is only read" in capsys.readouterr().err


def test_a_store_is_checked_without_a_directory(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", store_of(log)]) == 0
    assert f"orders-0: offsets 0 to 10 in {store_of(log)}, 5 segments" in capsys.readouterr().out
    path = max((log.parent / "store").rglob("*.segment"))
    path.unlink()
    assert main(["check", store_of(log), "--topic", "orders"]) == 1
    assert path.name in capsys.readouterr().out
    assert main(["check", store_of(log), "--topic", "others"]) != 0
    assert "others" in capsys.readouterr().err
    assert main(["check", store_of(log), "--repair"]) != 0
    assert "in which nothing is repaired" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["s3://", "gs://", "az:///", "file://", "S3://"])
@pytest.mark.parametrize("words", [["topic", "consume", "orders", "-d"], ["topic", "list", "-d"], ["check"]])
def test_a_store_without_a_bucket_is_one_sentence(
    url: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, url]) != 0
    told = capsys.readouterr().err
    assert "is no store for segments; give a bucket" in told or "names no directory" in told
    assert repr(url) in told
