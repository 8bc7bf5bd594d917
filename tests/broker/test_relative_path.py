"""A log that was opened by a relative path stays the same one when the process goes to another directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import foldlog
from foldlog.client.fold_proof import FoldsKey
from foldlog.errors import FoldlogError


def test_a_log_opened_by_a_relative_path_rolls_and_makes_topics_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with foldlog.open("data") as log:
        log.create_topic("orders", config={"segment.bytes": 1024})
        os.chdir("elsewhere")
        for number in range(5):
            log.append("orders", b"%d" % number * 900)
        log.create_topic("more")
        log.append("more", b"one")
        assert [record.offset for record in log.read("orders", 0)] == list(range(5))
        assert log.warnings() == []
        FoldsKey.of_directory(log.path)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert (tmp_path / "data" / "folds.key").exists()
    with foldlog.open("../data", "r") as log:
        os.chdir(tmp_path)
        assert sorted(log.topics()) == ["more", "orders"]
        assert len(list(log.read("orders", 0))) == 5


def test_a_path_through_a_link_leads_where_the_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "inner")
    monkeypatch.chdir(tmp_path)
    foldlog.open("link/../data").close()
    assert (tmp_path / "deep" / "data" / "catalog.json").exists()


def test_a_relative_path_where_the_current_directory_is_gone_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for mode in ("w", "r"):
        with pytest.raises(FoldlogError, match="data"):
            foldlog.open("data", mode)
