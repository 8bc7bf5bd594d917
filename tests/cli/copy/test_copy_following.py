"""`foldlog copy --follow`, a warm standby: a second directory that stays a moment behind, with groups; and the
failover, for real: the source's broker is killed, the standby is served, and consumers go on."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

import foldlog
from cli.command import COMMAND, WAIT_S, environment
from cli.serving import ANY_PORT, serving
from foldlog.cli.main import main
from foldlog.client.positions import TopicPartition
from foldlog.errors import FoldlogError

FAST = ("--interval", "50ms")


@contextmanager
def following(source: str, target: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, once it has copied what there was."""
    process = subprocess.Popen(
        [*COMMAND, "copy", "--all", "--from", source, "--to", str(target), "--follow", *FAST, *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("following"):
                break
        yield process
    finally:
        process.kill()
        process.communicate()


def until(is_so: Callable[[], bool]) -> None:
    """Look again until it is, at most a minute."""
    pause = Event()
    for _ in range(WAIT_S * 20):
        if is_so():
            return
        pause.wait(0.05)
    raise AssertionError("it never came true")


def place(log: foldlog.Log, group: str, topic: str = "orders") -> int | None:
    found = log.committed(group).get(TopicPartition(topic, 0))
    return None if found is None else found.offset


def test_a_standby_gets_records_topics_and_groups_as_they_come(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data", listen=True) as log:
        log.create_topic("orders", partitions=2)
        log.append("orders", "first", partition=0)
        log.reset_group("billing", {("orders", 0): 1})
        with (
            following(str(tmp_path / "data"), tmp_path / "standby") as process,
            foldlog.open(tmp_path / "standby", mode="r") as standby,
        ):
            assert [record.text() for record in standby.read("orders", 0)] == ["first"]
            assert place(standby, "billing") == 1
            log.append("orders", "second", partition=0)
            log.create_topic("payments")
            log.append("payments", "of a new topic")
            until(lambda: "payments" in standby.topics() and standby.offsets("payments") == {0: (0, 1)})
            until(lambda: standby.offsets("orders") == {0: (0, 2), 1: (0, 0)})
            log.reset_group("billing", {("orders", 0): 2})  # without a new record
            until(lambda: place(standby, "billing") == 2)
            log.reset_group("billing", {("orders", 0): 0})  # rewound: the standby mirrors it
            until(lambda: place(standby, "billing") == 0)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
    assert main(["check", str(tmp_path / "standby")]) == 0


def test_a_topic_that_is_made_again_is_left_and_the_others_are_followed(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data", listen=True) as log:
        for topic in ("orders", "payments"):
            log.create_topic(topic)
            log.append(topic, "first")
        with (
            following(str(tmp_path / "data"), tmp_path / "standby") as process,
            foldlog.open(tmp_path / "standby", mode="r") as standby,
        ):
            log.delete_topic("orders")
            log.create_topic("orders")
            log.append("orders", "another first")
            log.append("orders", "another second")
            assert process.stderr is not None
            told = next(line for line in process.stderr if "not followed" in line)
            assert told.startswith("foldlog: orders is not followed any more, the others are: ")
            log.append("payments", "second")
            log.reset_group("billing", {("payments", 0): 2})
            until(lambda: standby.offsets("payments") == {0: (0, 2)})
            until(lambda: place(standby, "billing", "payments") == 2)
            assert [record.text() for record in standby.read("orders", 0)] == ["first"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 5
            assert process.stderr.read().count("not followed") == 0, "it is told once"


def test_a_standby_forgets_what_its_source_has_deleted(tmp_path: Path) -> None:
    """While it follows, and what was deleted while nobody followed. What somebody moved at the standby stays."""
    with foldlog.open(tmp_path / "data", listen=True) as log:
        log.create_topic("orders", partitions=2)
        for number in range(6):
            log.append("orders", str(number), partition=0)
        for group in ("billing", "shipping", "moved", "part"):
            log.reset_group(group, {("orders", 0): 1, ("orders", 1): 0})
        with (
            following(str(tmp_path / "data"), tmp_path / "standby") as process,
            foldlog.open(tmp_path / "standby", mode="r") as standby,
        ):
            log.delete_records("orders", {0: 2})
            until(lambda: standby.offsets("orders")[0] == (2, 6))
            log.delete_group("billing")
            until(lambda: standby.groups() == ["foldlog-copy", "foldlog-copy-check", "moved", "part", "shipping"])
            log.delete_offsets("part", [("orders", 0)])
            until(lambda: place(standby, "part") is None)
            assert TopicPartition("orders", 1) in standby.committed("part")
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        log.delete_records("orders", {0: 6})
        with foldlog.open(tmp_path / "standby") as standby:
            standby.reset_group("moved", {("orders", 0): 6})
            standby.reset_group("own", {("orders", 0): 6})
        for group in ("shipping", "moved"):
            log.delete_group(group)
        with (
            following(str(tmp_path / "data"), tmp_path / "standby"),
            foldlog.open(tmp_path / "standby", mode="r") as standby,
        ):
            until(lambda: standby.groups() == ["foldlog-copy", "foldlog-copy-check", "moved", "own", "part"])
            assert standby.committed("moved").keys() == {TopicPartition("orders", 0)}
            assert standby.offsets("orders")[0] == (6, 6)
    assert main(["check", str(tmp_path / "standby")]) == 0


@pytest.mark.faults
def test_a_failover_loses_nothing_beyond_the_lag(tmp_path: Path) -> None:
    """A producer writes to the broker until that is killed. What had reached the standby is there, in order and at the
    same offsets, and a group goes on at, or a little before, the place it had committed."""
    acknowledged: list[int] = []
    with serving(str(tmp_path / "data"), *ANY_PORT) as broker:
        address = "{}:{}".format(*broker.address)
        with foldlog.connect(f"kafka://{address}") as log:
            log.create_topic("orders")
        ended = Event()

        def write() -> None:
            with foldlog.connect(f"kafka://{address}") as log:
                try:
                    while not ended.is_set():
                        acknowledged.append(log.append("orders", str(len(acknowledged))).offset)
                except FoldlogError:
                    return

        writer = Thread(target=write)
        with following(address, tmp_path / "standby") as process:
            writer.start()
            with foldlog.connect(f"kafka://{address}") as log:
                consumer = log.consumer(["orders"], group="billing", auto_offset_reset="earliest", auto_commit=False)
                done = 0
                while done < 200:
                    done += len(consumer.poll(timeout_ms=1000, max_records=50))
                consumer.commit()
                consumer.close()
            with foldlog.open(tmp_path / "standby", mode="r") as standby:
                until(lambda: (place(standby, "billing") or 0) >= done)
                reached = standby.offsets("orders")[0][1]
            broker.process.kill()
            ended.set()
            writer.join(WAIT_S)
            assert process.poll() is None, "an outage is waited out"
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
    with serving(str(tmp_path / "standby"), *ANY_PORT) as broker:
        with foldlog.connect("kafka://{}:{}".format(*broker.address)) as log:
            start, end = log.offsets("orders")[0]
            assert (start, reached <= end <= len(acknowledged) + 1) == (0, True)
            assert [int(record.text() or -1) for record in log.read("orders", 0)] == list(range(end))
            assert place(log, "billing") == done
            with log.consumer(["orders"], group="billing", auto_commit=False) as going_on:
                assert going_on.poll(timeout_ms=WAIT_S * 1000, max_records=1)[0].offset == done
            assert log.append("orders", "goes on").offset == end
        assert broker.end() == 0


def test_following_refuses_what_it_does_not_do(tmp_path: Path) -> None:
    foldlog.open(tmp_path / "data").close()
    words = ["copy", "--all", "--from", str(tmp_path / "data"), "--to", str(tmp_path / "copy"), "--follow"]
    assert main([*words, "--dry-run"]) == 2
    assert main([*words, "--interval", "soon"]) == 2


def test_an_interval_is_checked_and_refused_where_nothing_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foldlog.open(tmp_path / "data").close()
    words = ["copy", "--all", "--from", str(tmp_path / "data"), "--to", str(tmp_path / "copy")]
    assert main([*words, "--interval", "soon"]) == 2
    assert "--interval 'soon' is not a time" in capsys.readouterr().err
    assert main([*words, "--interval", "1s"]) == 2
    assert "--interval needs --follow" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()
