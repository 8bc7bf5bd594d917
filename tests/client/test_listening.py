"""`foldlog.open(..., listen=...)`: a library user's log, reached by Kafka clients and other processes while it is open.

A real client speaks to it; where it may listen and what is refused is told in one sentence each.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import foldlog
from foldlog.client.backends.backend import backend_of
from foldlog.client.backends.local import LocalBackend
from foldlog.demo.crew import free_port
from foldlog.errors import AddressUnavailable, DirectoryLocked, FoldlogError, InvalidArgument, InvalidConfig, ReadOnly
from foldlog.server.embedded import EmbeddedServer


def address_of(log: foldlog.Log) -> tuple[str, int]:
    host, _, port = (log.bootstrap or "").rpartition(":")
    return host, int(port)


@pytest.mark.parametrize("where", ["memory", "files"])
def test_a_kafka_client_writes_and_reads_the_log_of_a_program(tmp_path: Path, where: str) -> None:
    with foldlog.open(":memory:" if where == "memory" else tmp_path / "data", listen=True) as log:
        log.create_topic("orders")
        log.append("orders", "from the program")
        producer = Producer({"bootstrap.servers": log.bootstrap, "linger.ms": 0})
        producer.produce("orders", b"from the client")
        assert producer.flush(30) == 0
        assert [record.value for record in log.read("orders")] == [b"from the program", b"from the client"]
        consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "fraud", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        assert [message.value() for message in consumer.consume(2, 30)] == [b"from the program", b"from the client"]
        consumer.commit(asynchronous=False)
        consumer.close()
        assert log.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == 2


def test_without_listening_there_is_no_address_and_no_thread() -> None:
    before = set(threading.enumerate())  # of which some may be about to end
    with foldlog.open(":memory:", background=False) as log:
        assert log.bootstrap is None
        assert set(threading.enumerate()) <= before


def test_closing_ends_the_listening(tmp_path: Path) -> None:
    address = ("127.0.0.1", free_port())
    log = foldlog.open(tmp_path / "data", listen=f"127.0.0.1:{address[1]}")
    assert address_of(log) == address
    socket.create_connection(address).close()
    log.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    foldlog.open(tmp_path / "data", listen=f"127.0.0.1:{address[1]}").close()


def test_several_addresses_are_listened_on() -> None:
    with foldlog.open(":memory:", listen=["127.0.0.1:0", "127.0.0.1:0"]) as log:
        backend = backend_of(log)
        assert isinstance(backend, LocalBackend)
        listener = backend._listener
        assert isinstance(listener, EmbeddedServer)
        for address in listener._server.addresses:
            socket.create_connection(address).close()


def test_who_listens_second_reaches_the_first(tmp_path: Path) -> None:
    """So that every process of a program can say the same."""
    with foldlog.open(tmp_path / "data", listen=True) as first, foldlog.open(tmp_path / "data", listen=True) as second:
        assert (first.is_remote, second.is_remote) == (False, True)
        assert second.bootstrap == first.bootstrap
        with pytest.raises(DirectoryLocked, match="listens on"):
            foldlog.open(tmp_path / "data", listen="127.0.0.1:0")


def test_a_taken_address_is_told_and_the_log_is_closed(tmp_path: Path) -> None:
    with foldlog.open(":memory:", listen=True) as other:
        with pytest.raises(AddressUnavailable, match=other.bootstrap):
            foldlog.open(tmp_path / "data", listen=other.bootstrap or "")
        foldlog.open(tmp_path / "data").close()


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0"])
def test_other_machines_reach_it_only_if_that_is_asked_for(address: str) -> None:
    with pytest.raises(InvalidConfig, match=r"no authentication.* or say insecure=True if"):
        foldlog.open(":memory:", listen=address)


def test_every_interface_is_no_address_to_tell_clients_even_where_it_is_asked_for() -> None:
    with pytest.raises(InvalidConfig, match="name the address at which they reach this machine"):
        foldlog.open(":memory:", listen="0.0.0.0:0", insecure=True)


@pytest.mark.parametrize(
    ("listen", "insecure", "error"),
    [
        (1.5, False, InvalidArgument),
        ([9092], False, InvalidArgument),
        (b"127.0.0.1:0", False, InvalidArgument),
        ("127.0.0.1", False, InvalidConfig),
        ("127.0.0.1:99999", False, InvalidConfig),
        ("SSL://127.0.0.1:0", False, InvalidConfig),
        ([], False, InvalidConfig),
        (True, "yes", InvalidArgument),
    ],
)
def test_what_cannot_be_listened_on_is_refused(listen: object, insecure: object, error: type[FoldlogError]) -> None:
    with pytest.raises(error):
        foldlog.open(":memory:", listen=listen, insecure=insecure)  # type: ignore[arg-type]


def test_a_log_opened_to_read_cannot_listen(tmp_path: Path) -> None:
    foldlog.open(tmp_path / "data").close()
    with pytest.raises(ReadOnly, match="only the directory's writer"):
        foldlog.open(tmp_path / "data", mode="r", listen=True)
