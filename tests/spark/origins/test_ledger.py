"""What a runner writes into a directory that nobody serves: it is the writer for a moment, once for several writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import foldlog
from foldlog.broker.broker import Broker
from foldlog.client.backends.served import search
from foldlog.spark.origins.ledger import LedgerEntry, open_ledger
from foldlog.spark.origins.origin import origin_spec
from foldlog.testing import KafkaBroker


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments")
        log.append("payments", b"1")
    return tmp_path / "data"


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every time that this process became the writer."""
    found: list[str] = []

    class Counted(Broker):
        @classmethod
        def open(cls, path: Any, **settings: Any) -> Broker:
            found.append(path)
            return Broker.open(path, **settings)

    monkeypatch.setattr(search, "Broker", Counted)
    return found


def _write(directory: Path, *, together: bool) -> None:
    ledger = open_ledger(origin_spec(str(directory)))
    try:
        if together:
            with ledger.together():
                _write_all(ledger)
        else:
            _write_all(ledger)
    finally:
        ledger.close()


def _write_all(ledger: Any) -> None:
    ledger.ensure_topic("notes")
    ledger.commit("fold.one", "payments", {0: 1})
    ledger.append("notes", [LedgerEntry(b"a", b"1"), LedgerEntry(b"b", b"2")])


def _assert_written(directory: Path) -> None:
    with foldlog.open(directory, mode="r") as log:
        assert [record.value for record in log.read("notes", 0)] == [b"1", b"2"]
        assert {place.partition: at.offset for place, at in log.committed("fold.one").items()} == {0: 1}


@pytest.mark.parametrize("together", [True, False])
def test_writes_together_open_the_directory_once(directory: Path, openings: list[str], together: bool) -> None:
    _write(directory, together=together)
    assert (len(openings) == 1) is together
    _assert_written(directory)
    with foldlog.open(directory) as log:  # it is free again
        log.append("payments", b"2")


def test_writes_together_go_to_the_writer_if_there_is_one(directory: Path, openings: list[str]) -> None:
    with KafkaBroker(path=directory):
        _write(directory, together=True)
        assert openings == []
    _assert_written(directory)


def test_an_error_inside_lets_the_directory_go(directory: Path) -> None:
    ledger = open_ledger(origin_spec(str(directory)))
    with pytest.raises(foldlog.errors.UnknownTopic), ledger.together():
        ledger.commit("fold.one", "nowhere", {0: 1})
    with foldlog.open(directory) as log:
        log.append("payments", b"2")
    ledger.commit("fold.one", "payments", {0: 2})  # as before, without a block
    ledger.close()
    with foldlog.open(directory, mode="r") as log:
        assert [at.offset for at in log.committed("fold.one").values()] == [2]
