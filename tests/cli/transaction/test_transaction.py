"""`foldlog transaction list|describe|abort`, and what other commands say of open transactions: at a directory, at a
broker, and at a directory that a broker serves.

The transactions are left open as a program leaves them that is killed.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import foldlog
from cli.places import Terminal
from foldlog.cli import exit_codes
from foldlog.cli.main import main
from foldlog.client.backends.backend import backend_of
from foldlog.client.producer import ProducerSettings
from foldlog.clock import SystemClock

_numbers = itertools.count()


@pytest.fixture
def topic(at: Terminal) -> str:
    name = f"orders-{next(_numbers)}"
    at.done("topic", "create", name)
    return name


def leave_open(log: foldlog.Log, name: str, topic: str, *values: str) -> None:
    """Begin a transaction as its holder would, and be gone."""
    opened = backend_of(log).transactions(name).begin(600_000, ProducerSettings(linger_ms=0))
    for value in values:
        opened.sender.enqueue(topic, SystemClock().now_ms(), None, value.encode(), (), 0).result(60)


def left_open(at: Terminal, topic: str) -> str:
    """A record before, two in an open transaction, and one behind it; the transactional id."""
    name = f"etl-of-{topic}"
    with at.place.open() as log:
        log.append(topic, "before")
        leave_open(log, name, topic, "one", "two")
        log.append(topic, "behind")
    return name


def test_open_transactions_are_listed_and_described(at: Terminal, topic: str) -> None:
    name = left_open(at, topic)
    with at.place.open() as log, log.transaction(f"done-{topic}") as tx:
        tx.send(topic, "x")
    found = {row["transactional_id"]: row for row in at.json("transaction", "list", f"*{topic}")}
    assert found[name]["state"] == "Ongoing"
    assert (found[name]["partitions"], found[name]["timeout_ms"]) == (1, 600_000)
    assert found[name]["open_ms"] >= 0
    assert (found[f"done-{topic}"]["state"], found[f"done-{topic}"]["open_ms"]) == ("CompleteCommit", None)
    assert at.done("transaction", "list", "--open", "-q", f"*{topic}") == f"{name}\n"
    (described,) = at.json("transaction", "describe", name)
    assert described["partitions"] == [{"topic": topic, "partition": 0, "stable": 1, "end": 6}]
    text = at.done("transaction", "describe", name)
    assert text.startswith(f"{name}: Ongoing, open for ")
    assert text.splitlines()[-1].split() == [topic, "0", "1", "6"]


def test_a_topic_says_what_holds_its_committed_records_back(at: Terminal, topic: str) -> None:
    assert "COMMITTED UP TO" not in at.done("topic", "describe", topic)
    name = left_open(at, topic)
    text = at.done("topic", "describe", topic)
    assert "COMMITTED UP TO" in text
    assert f"committed records are read up to offset 1: {name} has a transaction open\n" in text
    (row,) = at.json("topic", "describe", topic)
    (partition,) = row["partitions"]
    assert (partition["end"], partition["stable"], partition["held_by"]) == (4, 1, [name])


def test_an_abort_lets_readers_go_on_and_fences_the_producer(at: Terminal, topic: str) -> None:
    name = left_open(at, topic)
    assert at.done("transaction", "abort", name, "--dry-run") == f"{name}: would be aborted, in 1 partition\n"
    assert at.done("topic", "consume", topic, "--isolation", "read_committed") == "before\n"
    assert at.done("transaction", "abort", name) == f"{name}: aborted, in 1 partition\n"
    assert at.done("topic", "consume", topic, "--isolation", "read_committed") == "before\nbehind\n"
    assert at.done("topic", "consume", topic) == "before\none\ntwo\nbehind\n"
    assert at.json("transaction", "list", "--open", name) == []
    assert "has no transaction open" in at.refused(exit_codes.FAILED, "transaction", "abort", name)


def test_a_transaction_is_aborted_where_it_hangs(at: Terminal, topic: str) -> None:
    left_open(at, topic)
    where = ("--partition", f"{topic}:0")
    told = at.refused(exit_codes.FAILED, "transaction", "abort", *where, "--start-offset", "3")
    assert "those that are open there begin at 1" in told
    done = at.done("transaction", "abort", *where, "--start-offset", "1")
    assert done == f"{topic}-0: aborted, from offset 1 on\n"
    assert at.done("topic", "consume", topic, "--isolation", "read_committed") == "before\nbehind\n"
    assert "none is open there" in at.refused(exit_codes.FAILED, "transaction", "abort", *where, "--start-offset", "1")


def test_what_is_wrong_is_one_sentence(at: Terminal) -> None:
    assert "no transactional id 'nobody'" in at.refused(exit_codes.FAILED, "transaction", "describe", "nobody")
    for words in ((), ("etl", "--partition", "orders:0"), ("--partition", "orders", "--start-offset", "1")):
        at.refused(exit_codes.USAGE, "transaction", "abort", *words)


def test_a_copy_takes_committed_records_and_says_what_it_left(
    at: Terminal, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with at.place.open() as log:
        with log.transaction(f"done-{topic}") as tx:
            tx.send(topic, "committed")
        with log.transaction(f"done-{topic}") as tx:
            tx.send(topic, "aborted").result(60)
            tx.abort()
    name = left_open(at, topic)
    source = at.place.options[1]
    capsys.readouterr()
    assert main(["copy", "--from", source, "--to", str(tmp_path / "copy"), topic]) == 0
    printed = capsys.readouterr().out
    assert f"{topic}-0: 3 offsets from 5 on are behind an open transaction, and left for a later copy" in printed
    with foldlog.open(tmp_path / "copy") as copied:
        assert [record.value for record in copied.read(topic)] == [b"committed", b"before"]
    at.done("transaction", "abort", name)
    assert main(["copy", "--from", source, "--to", str(tmp_path / "copy"), topic]) == 0
    with foldlog.open(tmp_path / "copy") as copied:
        assert [record.value for record in copied.read(topic)] == [b"committed", b"before", b"behind"]
        assert copied.offsets(topic) == copied.offsets(topic, isolation="read_committed")
