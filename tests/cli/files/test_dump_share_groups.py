"""`foldlog dump` says in words what is stored of a share group, and `foldlog group describe` where the group is."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from foldlog.broker.share import member_records
from foldlog.broker.share.member_records import StoredShareMember
from foldlog.cli.files.dump_kafka import group_item
from foldlog.cli.main import main


def test_the_dump_says_in_words_what_is_stored_of_a_share_group() -> None:
    member = StoredShareMember(None, "client", "/127.0.0.1", ("a", "b"))
    told = group_item(7, *member_records.member_record("g", "m", member))
    gone = group_item(8, *member_records.member_tombstones("g", "m")[2])
    assert told is not None
    assert gone is not None
    assert "share group g: member m: client 'client' at /127.0.0.1, topics a, b" in told.text
    assert "share group g: member m deleted" in gone.text


def test_a_share_group_is_listed_and_described_with_its_lag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("jobs")
        for number in range(3):
            log.append("jobs", str(number))
        with log.queue("jobs", group="workers", auto_offset_reset="earliest") as queue:
            queue.ack(*queue.take(max_records=1))
    assert main(["group", "list", "-d", str(tmp_path / "data")]) == 0
    assert "share" in capsys.readouterr().out
    assert main(["group", "describe", "workers", "-d", str(tmp_path / "data")]) == 0
    said = capsys.readouterr().out
    assert "workers: Empty, 0 members, lag 2" in said
    assert "share group at epoch" in said
