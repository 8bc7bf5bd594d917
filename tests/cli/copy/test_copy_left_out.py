"""What `foldlog copy` cannot bring, and says so: what lies behind an open transaction, and what is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import foldlog
from foldlog.cli.main import main
from foldlog.client.copy.copying import Copying, Pair
from foldlog.errors import CorruptLog
from kafka_truth import STORED

KAFKAS = str(STORED / "data")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def copy(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["copy", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.mark.parametrize("more", [["--dry-run"], ["--format", "wide"], []])
def test_what_lies_behind_an_open_transaction_is_said_to_be_left(copy: Command, more: list[str]) -> None:
    """Kafka was killed in the middle of a transaction at offset 19; the topic ends at 22. Those are offsets of the
    source, so its partition is named, whatever the copy is called."""
    code, out, err = copy("payments=paid", "prices", "--from", KAFKAS, "--to", "copy", *more)
    assert (code, err) == (0, "")
    assert "payments-0: 3 offsets from 19 on are behind an open transaction, and left for a later copy\n" in out
    assert "--from-property isolation.level=read_uncommitted" in out
    assert "prices-0: " not in out


def test_programs_are_told_of_it_too(copy: Command) -> None:
    for more in (["--dry-run"], []):
        _, out, _ = copy("payments", "--from", KAFKAS, "--to", "copy", "--format", "json", *more)
        (partition,) = json.loads(out)["partitions"]
        assert (partition["undecided_from"], partition["undecided"]) == (19, 3)


def test_a_dead_clusters_open_transactions_are_copied_if_somebody_wants_them(copy: Command) -> None:
    level = "isolation.level=read_uncommitted"
    code, out, err = copy("payments", "--from", KAFKAS, "--to", "copy", "--from-property", level)
    assert (code, err) == (0, "")
    assert "open transaction" not in out
    with (
        foldlog.open("copy", mode="r") as log,
        foldlog.open(KAFKAS, mode="r", isolation_level="read_uncommitted") as kafkas,
    ):
        assert log.offsets("payments") == {0: (0, 22)}
        copied = [(record.offset, record.value) for record in log.read("payments")]
        assert copied == [(record.offset, record.value) for record in kafkas.read("payments")]


def damaged_log() -> str:
    """A log of three topics; in the middle one a byte of a partition is wrong. The file that has it."""
    with foldlog.open("data") as log:
        for topic in ("first", "orders", "third"):
            log.create_topic(topic, partitions=2)
            for number in range(10):
                log.append(topic, {"number": number}, partition=number % 2)
        log.reset_group("readers", {("first", 0): 2, ("orders", 1): 1})
    path = Path("data/orders-0/00000000000000000000.log").absolute()
    content = bytearray(path.read_bytes())
    content[-3] ^= 0xFF
    path.write_bytes(content)
    return str(path)


def test_damage_in_one_partition_keeps_no_other_from_being_copied(copy: Command) -> None:
    path = damaged_log()
    code, out, err = copy("--all", "--from", "data", "--to", "copy")
    assert code == 1
    assert err.startswith(f"foldlog: orders-0 is damaged ({path}, byte ")
    assert err.count("\n") == 1
    assert "groups and folds left where they are" in err
    rows = [line.split() for line in out.splitlines()[1:]]
    assert [(row[0], row[2], row[-1]) for row in rows] == [
        ("first", "0", "same"), ("first", "1", "same"), ("orders", "1", "same"),
        ("third", "0", "same"), ("third", "1", "same"),
    ]  # fmt: skip
    with foldlog.open("copy", mode="r") as log:
        assert log.offsets("third") == {0: (0, 5), 1: (0, 5)}
        assert log.committed("readers") == {}
    code, out, _ = copy("--all", "--from", "data", "--to", "copy", "--format", "json")
    assert code == 1
    assert [(one["name"], one["file"]) for one in json.loads(out)["damages"]] == [("orders-0", path)]


def test_a_copy_goes_on_once_the_damage_is_set_aside(copy: Command) -> None:
    damaged_log()
    assert copy("--all", "--from", "data", "--to", "copy")[0] == 1
    assert main(["check", "data", "--cut-out"]) == 0
    code, out, err = copy("--all", "--from", "data", "--to", "copy")
    assert (code, err) == (0, "")
    assert out.count(" same") == 6
    with foldlog.open("copy", mode="r") as log:
        assert len(log.committed("readers")) == 2


def test_a_program_that_does_not_ask_to_go_on_is_told_at_once(copy: Command) -> None:
    damaged_log()
    with (
        foldlog.open("data", mode="r") as source,
        foldlog.open("copy") as target,
        Copying(source, target, [Pair("orders", "orders")]) as copying,
    ):
        copying.prepare()
        with pytest.raises(CorruptLog):
            copying.copy_all(lambda offsets, size_bytes: None)
