"""Commands about records that go on until somebody ends them: what arrives is printed as it does, Ctrl-C and a closed
pipe end them with the exit codes of the docs and without a word, and nothing that was sent is lost.

These are about processes, so they are processes, against a directory, a broker, and a directory that a broker serves.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from cli.command import COMMAND, WAIT_S, environment
from cli.records.record_places import RecordPlace, all_places
from cli.serving import ANY_PORT, serving


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RecordPlace]]:
    with all_places(tmp_path_factory.mktemp("follow")) as found:
        yield found


@pytest.fixture(params=["directory", "broker", "served"])
def place(request: pytest.FixtureRequest, places: dict[str, RecordPlace]) -> RecordPlace:
    return places[request.param]


@pytest.fixture(params=["directory", "broker"])
def either(request: pytest.FixtureRequest, places: dict[str, RecordPlace]) -> RecordPlace:
    """For what is the same whether the directory is served or not."""
    return places[request.param]


@contextmanager
def running(place: RecordPlace, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command, with pipes to it; killed at the end if it is still there."""
    process = subprocess.Popen(
        [*COMMAND, "topic", *arguments, *place.options],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_lines(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(count)]
    assert all(lines), process.communicate(timeout=WAIT_S)
    return lines


def interrupted(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
    return out, err


def test_tail_prints_the_youngest_of_all_partitions_and_then_what_arrives(place: RecordPlace) -> None:
    topic = place.topic(2)
    with place.log() as log, log.producer() as producer:
        for number in range(20):
            producer.send(topic, str(number), partition=number % 2, timestamp_ms=1_700_000_000_000 + number)
    with running(place, "tail", topic, "-n", "3") as tail:
        assert read_lines(tail, 3) == [b"17\n", b"18\n", b"19\n"]
        place.did("produce", topic, "-p", "1", stdin=b"arrived\n")
        assert read_lines(tail, 1) == [b"arrived\n"]
        assert interrupted(tail) == (b"", b"")


def test_following_reads_what_there_is_and_what_arrives_also_in_partitions_that_come_later(either: RecordPlace) -> None:
    topic = either.topic(1)
    either.did("produce", topic, stdin=b"before\n")
    with running(either, "consume", topic, "-F", "-f", "%p@%o %v\\n") as consume:
        assert read_lines(consume, 1) == [b"0@0 before\n"]
        either.did("produce", topic, stdin=b"after\n")
        assert read_lines(consume, 1) == [b"0@1 after\n"]
        if either.kind != "broker":  # clients of a cluster look for new partitions every few minutes
            with either.log() as log:
                log.grow_topic(topic, 2)
            either.did("produce", topic, "-p", "1", stdin=b"grown\n")
            assert read_lines(consume, 1) == [b"1@0 grown\n"]
        assert interrupted(consume) == (b"", b"")


@pytest.mark.faults
@pytest.mark.parametrize(
    "more",
    [pytest.param((), id="alone", marks=pytest.mark.faults), pytest.param(("--group", "readers"), id="group")],
)
def test_a_broker_that_goes_away_is_told_of_once_and_reading_goes_on_when_it_is_back(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    data = str(tmp_path / "data")
    with serving(data, *ANY_PORT, "--create", "orders") as first:
        host, port = first.address
        place = RecordPlace("broker", ("-b", f"{host}:{port}"))
        place.did("produce", "orders", stdin=b"before\n")
        with running(place, "consume", "orders", "-F", *more) as consume:
            assert read_lines(consume, 1) == [b"before\n"]
            assert first.end() == 0
            assert consume.stderr is not None
            gone = consume.stderr.readline().decode()
            assert gone.startswith(f"note: nobody answers at {host}:{port} any more; "), gone
            with serving(data, "--listen", f"{host}:{port}"):
                assert consume.stderr.readline().decode() == f"note: {host}:{port} answers again\n"
                place.did("produce", "orders", stdin=b"after\n")
                assert read_lines(consume, 1) == [b"after\n"]
                assert interrupted(consume) == (b"", b"")


def test_an_interrupted_member_has_committed_what_it_printed(place: RecordPlace) -> None:
    topic = place.topic(1)
    group = f"readers-{topic}"
    place.did("produce", topic, stdin=b"0\n1\n")
    with running(place, "consume", topic, "-F", "--group", group) as consume:
        assert read_lines(consume, 2) == [b"0\n", b"1\n"]
        interrupted(consume)
    with place.log() as log:
        assert [kept.offset for kept in log.committed(group).values()] == [2]


def test_a_closed_pipe_ends_it_without_a_word(either: RecordPlace) -> None:
    topic = either.topic(1)
    either.did("produce", topic, stdin=b"x" * 99 + b"\n" + b"y" * 99 + b"\n" + (b"z" * 99 + b"\n") * 5000)
    with running(either, "consume", topic) as consume:
        assert consume.stdout is not None
        assert consume.stdout.read(100) == b"x" * 99 + b"\n"
        consume.stdout.close()
        assert consume.stderr is not None
        assert consume.stderr.read() == b""
        assert consume.wait(timeout=WAIT_S) == 141


def test_lines_are_written_as_they_come_and_an_interrupt_loses_none(either: RecordPlace) -> None:
    topic = either.topic(1)
    with running(either, "produce", topic) as produce, running(either, "consume", topic, "-F", "-n", "2") as consume:
        # In a directory that nobody serves, the reader reads beside the writer.
        assert produce.stdin is not None
        produce.stdin.write(b"one\n")
        produce.stdin.flush()
        assert read_lines(consume, 1) == [b"one\n"]
        produce.stdin.write(b"two\nhalf a line")
        produce.stdin.flush()
        assert read_lines(consume, 1) == [b"two\n"]
        assert consume.wait(timeout=WAIT_S) == 0
        _, err = interrupted(produce)
    assert err == f"2 records written to {topic}\n".encode()
    assert either.did("consume", topic).lines == ["one", "two"]


def test_closed_from_the_start_input_is_a_sentence_and_output_nothing(places: dict[str, RecordPlace]) -> None:
    place = places["directory"]
    topic = place.topic(1)
    place.did("produce", topic, stdin=b"one\n")
    for descriptor, verb, code, said in (
        (0, "produce", 2, b"foldlog: standard input is closed, so there is nothing to read; name a file\n"),
        (1, "consume", 0, b""),
    ):
        done = subprocess.run(
            [*COMMAND, "topic", verb, topic, *place.options],
            env=environment(), stderr=subprocess.PIPE, timeout=WAIT_S, check=False,
            preexec_fn=partial(os.close, descriptor),
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (code, said)


def test_a_full_disk_below_the_output_is_one_sentence(places: dict[str, RecordPlace]) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here; enable with: run this on Linux")
    place = places["directory"]
    topic = place.topic(1)
    place.did("produce", topic, stdin=b"one\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "topic", "consume", topic, *place.options],
            env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=WAIT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(b"foldlog: standard output cannot be written")
    assert done.stderr.count(b"\n") == 1
