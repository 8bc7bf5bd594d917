"""Where the writer of a directory listens is told to other processes, and is never told wrongly.

Real processes: a writer that publishes, withdraws, closes or is killed, and this one that asks.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from broker.small_broker import DIRECTORY, open_broker
from faults.processes import child, next_line, tell
from foldlog.broker.broker import Broker
from foldlog.broker.data_directory import writer_of
from foldlog.errors import DirectoryLocked, InvalidArgument, LogClosed, ReadOnly
from foldlog.files.holder import WriterInfo
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFiles

SERVE = """
from foldlog.broker.broker import Broker
broker = Broker.open(sys.argv[1])
broker.publish_address("127.0.0.1", 9092)
say("listening")
sys.stdin.readline()
broker.withdraw_address()
say("silent")
sys.stdin.readline()
broker.close()
say("closed")
sys.stdin.readline()
"""


def test_another_process_is_told_where_the_writer_listens(tmp_path: Path) -> None:
    path, files = str(tmp_path / "data"), PosixFiles()
    assert writer_of(files, path) is None
    with child(SERVE, path) as server:
        assert next_line(server) == "listening"
        assert writer_of(files, path) == WriterInfo(server.pid, "127.0.0.1:9092")
        with pytest.raises(DirectoryLocked, match=rf"process {server.pid}, which listens on 127\.0\.0\.1:9092") as told:
            Broker.open(path)
        assert (told.value.pid, told.value.address) == (server.pid, "127.0.0.1:9092")
        tell(server, "withdraw")
        assert next_line(server) == "silent"
        assert writer_of(files, path) == WriterInfo(server.pid, None)
        tell(server, "close")
        assert next_line(server) == "closed"
        assert writer_of(files, path) is None


def test_a_killed_writer_is_nobody_though_its_address_still_stands_there(tmp_path: Path) -> None:
    path, files = str(tmp_path / "data"), PosixFiles()
    with child(SERVE, path) as server:
        next_line(server)
        server.kill()
        server.wait()
        assert b"127.0.0.1:9092" in (tmp_path / "data" / ".lock").read_bytes()
        assert writer_of(files, path) is None
        with Broker.open(path) as broker:
            assert writer_of(files, broker.path) == WriterInfo(os.getpid(), None)


def test_who_just_looks_does_not_keep_a_writer_from_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "data")
    Broker.open(path).close()
    looking = os.open(f"{path}/.lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)  # where `writer_of` is for an instant
    pauses: list[float] = []

    def look_away(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(looking)

    monkeypatch.setattr(time, "sleep", look_away)
    Broker.open(path, background=False).close()
    assert len(pauses) == 3


def test_an_address_is_a_host_and_a_port() -> None:
    files = MemoryFiles()
    with open_broker(files) as broker:
        for host in ("", "two words", "line\nbreak", "[::1]", "höst", None):
            with pytest.raises(InvalidArgument, match="host="):
                broker.publish_address(host, 9092)  # type: ignore[arg-type]
        for port in (0, -1, 65_536, "9092", True):
            with pytest.raises(InvalidArgument, match="port="):
                broker.publish_address("localhost", port)  # type: ignore[arg-type]
        broker.publish_address("::1", 9092)
        assert writer_of(files, DIRECTORY) == WriterInfo(os.getpid(), "[::1]:9092")


def test_only_an_open_writer_has_an_address() -> None:
    files = MemoryFiles()
    writer = open_broker(files)
    with open_broker(files, mode="r") as reader, pytest.raises(ReadOnly):
        reader.publish_address("127.0.0.1", 9092)
    writer.publish_address("127.0.0.1", 9092)
    writer.close()
    assert writer_of(files, DIRECTORY) is None
    with pytest.raises(LogClosed):
        writer.publish_address("127.0.0.1", 9092)
