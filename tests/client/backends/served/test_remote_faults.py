"""The process that serves goes away, comes back, is replaced, is killed, or cannot be heard.

Acknowledged means there, once and in order, whatever became of the connection: a proxy throws answers away after the
requests were carried out, and a serving process is killed under load. Where nobody serves, one call makes this process
the writer for its moment, and a server that starts meanwhile is not kept out. What cannot be done is told in one
sentence, and the next call looks again.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldlog
from client.serving import SERVE, WAIT_S, wait_until
from client.test_forks import in_child
from clients.cutting_proxy import CuttingProxy
from faults.processes import child, finish, next_line, tell
from foldlog.broker.data_directory import writer_of
from foldlog.client.backends.directory import broker_of
from foldlog.client.backends.served import produce as remote_produce
from foldlog.client.backends.served import search as remote_search
from foldlog.errors import DirectoryLocked, WriterUnreachable, WrongProcess
from foldlog.files.posix import PosixFiles


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_search, "WRITER_SEARCH_MS", 50)


@pytest.fixture
def proxied(path: str) -> Iterator[tuple[foldlog.Log, CuttingProxy]]:
    """A writer whose address in the lock file is that of a proxy."""
    with foldlog.open(path, listen=True) as writer:
        host, _, port = (writer.bootstrap or "").rpartition(":")
        proxy = CuttingProxy()
        proxy.towards((host, int(port)))
        proxy_host, _, proxy_port = proxy.address.rpartition(":")
        broker_of(writer).publish_address(proxy_host, int(proxy_port))
        yield writer, proxy
        proxy.close()


def read_all(log: foldlog.Log, topic: str = "orders") -> list[bytes]:
    return [record.value for record in log.read(topic)]


# --- connections that are lost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut_after_bytes", [500, 2_000, 5_000, 20_000])
def test_batches_whose_answers_were_lost_are_in_the_log_once(
    path: str, proxied: tuple[foldlog.Log, CuttingProxy], cut_after_bytes: int
) -> None:
    writer, proxy = proxied
    writer.create_topic("orders", partitions=2)
    with foldlog.open(path) as remote, remote.producer(batch_records=10, linger_ms=60_000) as producer:
        sent = []
        for number in range(2000):
            if number % 400 == 0:
                producer.flush()  # so that no three connections are lost in a row, after which it gives up
                proxy.cut_after_bytes, proxy.cuts_left = cut_after_bytes, 2
            sent.append(producer.send("orders", str(number), partition=number % 2))
        producer.flush()
        assert [future.result(0).offset for future in sent] == [number // 2 for number in range(2000)]
        for partition in (0, 1):
            values = [int(record.value) for record in remote.read("orders", partition)]
            assert values == list(range(partition, 2000, 2)), "each once, in order"
    assert proxy.cuts_left < 2, "a connection was cut"


def test_single_appends_whose_answers_were_lost_are_in_the_log_once(
    path: str, proxied: tuple[foldlog.Log, CuttingProxy]
) -> None:
    writer, proxy = proxied
    writer.create_topic("orders")
    with foldlog.open(path) as remote:
        for number in range(30):
            proxy.cut_after_bytes, proxy.cuts_left = 600, 1
            assert remote.append("orders", str(number)).offset == number
    assert read_all(writer) == [b"%d" % number for number in range(30)]


def test_a_commit_whose_answer_was_lost_is_sent_again(path: str, proxied: tuple[foldlog.Log, CuttingProxy]) -> None:
    writer, proxy = proxied
    writer.create_topic("orders")
    with foldlog.open(path) as remote:
        for number in range(20):
            writer.append("orders", "x")
            proxy.cut_after_bytes, proxy.cuts_left = 100, 1
            remote.reset_group("fraud", {("orders", 0): number})
            assert remote.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == number


def test_a_change_of_topics_whose_answer_was_lost_is_not_repeated(
    path: str, proxied: tuple[foldlog.Log, CuttingProxy]
) -> None:
    """Twice would be an error about the first time; so whoever asked is told that nobody knows."""
    _, proxy = proxied
    with foldlog.open(path) as remote:
        remote.create_topic("orders")
        proxy.cut_after_bytes, proxy.cuts_left = 1, 1
        with pytest.raises(WriterUnreachable, match="its outcome is unknown"):
            remote.create_topic("refunds")
        assert remote.topics() == ["orders", "refunds"]
        remote.create_topic("returns")


@pytest.mark.usefixtures("impatient")
def test_who_never_answers_is_given_up(path: str, proxied: tuple[foldlog.Log, CuttingProxy]) -> None:
    writer, proxy = proxied
    writer.create_topic("orders")
    with foldlog.open(path) as remote:
        remote.append("orders", "0")
        proxy.cut_after_bytes, proxy.cuts_left = 1, 1_000_000
        producer = remote.producer(batch_records=1)
        sent = [producer.send("orders", str(number)) for number in (1, 2, 3)]
        with pytest.raises(WriterUnreachable, match=r"process \d+, which serves .* cannot be reached"):
            producer.flush()
        assert all(isinstance(future.exception(), WriterUnreachable) for future in sent)
        assert read_all(remote)[0] == b"0", "reading goes on"
        proxy.cuts_left = 0
        again = producer.send("orders", "4").result()
        assert [record.value for record in remote.read("orders", start=again.offset)] == [b"4"]


def test_who_is_silent_is_given_up(
    path: str, proxied: tuple[foldlog.Log, CuttingProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, proxy = proxied
    writer.create_topic("orders")
    with foldlog.open(path) as remote:
        with monkeypatch.context() as impatient:
            impatient.setattr(remote_produce, "_ANSWER_S", 2.0)  # longer than any sync of a few bytes takes
            remote.append("orders", "0")
            proxy.is_mute = True
            with pytest.raises(WriterUnreachable, match="no answer in"):
                remote.append("orders", "1")
        proxy.is_mute = False
        placed = remote.append("orders", "2")
        assert [record.value for record in remote.read("orders", start=placed.offset)] == [b"2"]


# --- a writer that ends -----------------------------------------------------------------------------------------------


def test_without_a_server_a_call_makes_this_process_the_writer_for_its_moment(path: str) -> None:
    writer = foldlog.open(path, listen=True)
    with foldlog.open(path) as remote:
        writer.create_topic("orders")
        producer = remote.producer(linger_ms=60_000, batch_records=2)
        producer.send("orders", "0")
        producer.flush()
        writer.close()
        sent = [producer.send("orders", str(number)) for number in range(1, 6)]
        producer.flush()
        assert [future.result(0).offset for future in sent] == [1, 2, 3, 4, 5]
        assert remote.append("orders", "6").offset == 6
        remote.reset_group("fraud", {("orders", 0): "end"})
        remote.create_topic("refunds")
        assert remote.grow_topic("refunds", 2).partition_count == 2
        assert remote.enforce_retention() == 0
        assert remote.groups() == ["fraud"]
        remote.delete_group("fraud")
        remote.delete_topic("refunds")
        assert writer_of(PosixFiles(), path) is None, "and lets go of it again"
        assert read_all(remote) == [b"%d" % number for number in range(7)]


def test_answers_that_came_before_the_connection_ended_are_heard(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending fails once the server has closed, and what it had answered lies unread: sent again it would be unknown,
    as a log that was closed remembers the last batch of a producer alone."""
    came, may_hear = threading.Event(), threading.Event()
    really = remote_produce.ProduceLink._answered

    def held(link: remote_produce.ProduceLink, frame: Any) -> None:
        came.set()
        assert may_hear.wait(WAIT_S)
        really(link, frame)

    writer = foldlog.open(path, listen=True)
    writer.create_topic("orders")
    with foldlog.open(path) as remote, remote.producer(batch_records=1, linger_ms=0) as producer:
        monkeypatch.setattr(remote_produce.ProduceLink, "_answered", held)
        sent = [producer.send("orders", "0")]
        assert came.wait(WAIT_S)
        sent += [producer.send("orders", str(number)) for number in (1, 2)]
        wait_until(lambda: writer.offsets("orders")[0][1] == 3, lambda: None)
        writer.close()
        sent += [producer.send("orders", str(number)) for number in (3, 4)]  # the first is answered with a reset
        may_hear.set()
        producer.flush()
        assert [future.result(0).offset for future in sent] == [0, 1, 2, 3, 4]
        assert read_all(remote) == [b"%d" % number for number in range(5)]


def test_the_next_server_is_found_by_itself(path: str) -> None:
    first = foldlog.open(path, listen=True)
    with foldlog.open(path) as remote:
        remote.create_topic("orders")
        remote.append("orders", "0")
        first.close()
        with foldlog.open(path, listen=True) as second:
            assert second.bootstrap != first.bootstrap
            assert remote.append("orders", "1").offset == 1
            assert remote.bootstrap == second.bootstrap


@pytest.mark.usefixtures("impatient")
def test_a_next_writer_that_does_not_listen_is_named_and_reading_goes_on(path: str) -> None:
    first = foldlog.open(path, listen=True)
    with foldlog.open(path) as remote:
        remote.create_topic("orders")
        remote.append("orders", "0")
        first.close()
        with foldlog.open(path) as second:
            for act in (lambda: remote.append("orders", "x"), lambda: remote.create_topic("other")):
                with pytest.raises(DirectoryLocked, match="which does not listen; open it there with listen=True"):
                    act()
            second.append("orders", "1")
            assert read_all(remote) == [b"0", b"1"]
        assert remote.append("orders", "2").offset == 2, "as soon as it is gone"


@pytest.mark.usefixtures("impatient")
def test_another_directory_behind_the_address_is_not_written_to(path: str, tmp_path: Path) -> None:
    """The lock file of a killed server may name a port that another one has now."""
    with foldlog.open(path, listen=True) as writer, foldlog.open(tmp_path / "other", listen=True) as other:
        writer.create_topic("orders")
        other.create_topic("orders")
        with foldlog.open(path) as remote:
            host, _, port = (other.bootstrap or "").rpartition(":")
            broker_of(writer).publish_address(host, int(port))
            with pytest.raises(WriterUnreachable, match="serves another directory"):
                remote.append("orders", "x")
        assert read_all(other) == []


@pytest.mark.usefixtures("impatient")
def test_an_address_nobody_listens_on_is_told_in_one_sentence(path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with foldlog.open(path, listen=True) as writer:
        writer.create_topic("orders")
        with foldlog.open(path) as remote:
            broker_of(writer).publish_address("127.0.0.1", port)
            with pytest.raises(WriterUnreachable, match=f"serves .* on 127.0.0.1:{port}, cannot be reached: .*refused"):
                remote.append("orders", "x")


# --- real processes ---------------------------------------------------------------------------------------------------


def test_a_served_directory_is_reached_from_another_process(path: str) -> None:
    with child(SERVE, path) as server:
        bootstrap = next_line(server)
        with foldlog.open(path) as remote:
            assert remote.bootstrap == bootstrap
            remote.create_topic("orders")
            assert remote.append("orders", "from here").offset == 0
            assert read_all(remote) == [b"from here"]
        tell(server, "close")
        assert finish(server) == ["closed"]


def test_the_serve_command_is_reached_and_ends_while_others_write(path: str) -> None:
    program = "from foldlog.cli.main import main; sys.exit(main(['serve', sys.argv[1], '--listen', '127.0.0.1:0']))"
    with child(program, path) as server:
        assert "is serving" in next_line(server)
        with foldlog.open(path) as remote:
            remote.create_topic("orders")
            producer = remote.producer(batch_records=10, linger_ms=0)
            sent = [producer.send("orders", str(number)) for number in range(200)]
            sent[0].result()
            server.send_signal(signal.SIGTERM)
            sent += [producer.send("orders", str(number)) for number in range(200, 1000)]
            producer.flush()
            assert server.wait() == 0
            assert [future.result(0).offset for future in sent] == list(range(1000))
            assert read_all(remote) == [b"%d" % number for number in range(1000)]


@pytest.mark.faults
def test_everything_acknowledged_survives_the_killing_of_servers_under_load(path: str) -> None:
    """Killed three times while a producer sends: every acknowledged record is there, once, in order."""
    with child(SERVE, path) as server:
        next_line(server)
        with foldlog.open(path) as remote:
            remote.create_topic("orders")
            producer = remote.producer(batch_records=20, linger_ms=0)
            sent = [producer.send("orders", str(number)) for number in range(500)]
            for _ in range(3):
                sent[-1].result()
                server.send_signal(signal.SIGKILL)
                sent += [producer.send("orders", str(len(sent) + more)) for more in range(300)]
                server.wait()
                with child(SERVE, path) as server:
                    next_line(server)
                    sent += [producer.send("orders", str(len(sent) + more)) for more in range(300)]
                    sent[-1].result()
                    server.kill()
                    server.wait()
            producer.flush()
            values = [int(record.value) for record in remote.read("orders")]
            assert [future.result(0).offset for future in sent] == list(range(len(sent)))
            assert values == list(range(len(sent)))


def test_a_server_can_start_while_others_write_for_moments(path: str) -> None:
    with foldlog.open(path, listen=True) as writer:
        writer.create_topic("orders")
        logs = [foldlog.open(path) for _ in range(2)]
    stop = threading.Event()
    written = [0, 0]

    def write(index: int) -> None:
        while not stop.is_set():
            logs[index].append("orders", str(index))
            written[index] += 1

    threads = [threading.Thread(target=write, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        with foldlog.open(path, listen=True) as server:
            assert not server.is_remote, "it is the writer"
    stop.set()
    for thread in threads:
        thread.join()
    values = read_all(logs[0])
    assert [values.count(b"0"), values.count(b"1")] == written
    for log in logs:
        log.close()


def test_a_forked_child_is_refused_and_the_parent_goes_on(path: str) -> None:
    with foldlog.open(path, listen=True) as writer, foldlog.open(path) as remote:
        writer.create_topic("orders")
        remote.append("orders", "0")
        producer = remote.producer(linger_ms=60_000)
        waiting = producer.send("orders", "1")
        consumer = remote.consumer(["orders"], group="fraud", auto_offset_reset="earliest")
        refused = (
            lambda: producer.send("orders", "child"),
            lambda: remote.append("orders", "child"),
            lambda: remote.create_topic("child"),
            lambda: remote.reset_group("fraud", {("orders", 0): 0}),
            consumer.poll,
            lambda: remote.consumer(["orders"], group="fraud"),
        )
        for call in refused:
            assert in_child(call) == WrongProcess.__name__
        for harmless in (producer.close, consumer.close, remote.close):
            assert in_child(harmless) == "fine"
        producer.flush()
        assert waiting.result(0).offset == 1
        assert [record.value for record in consumer.poll(timeout_ms=60_000)] == [b"0", b"1"]
        consumer.close()
