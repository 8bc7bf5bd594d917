"""The lock file is removed, replaced or moved away under a writer: it stops, and no second one gets in beside it.

Two real processes. The first holds the directory; the test takes its lock file away; the second tries to open it. What
was acknowledged before is there when both have ended, and nothing was acknowledged in between.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import foldlog
from faults.processes import child, finish, next_line, tell
from foldlog.broker.broker import Broker
from foldlog.cli.wording import error_text
from foldlog.errors import DirectoryLocked, FoldlogError, LockLost, PartitionPoisoned, ReadOnly, StorageError
from foldlog.files import posix
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFile
from foldlog.log.partition import Partition
from foldlog.records.loops import pack

WRITER = """
import time
import foldlog
from foldlog.errors import FoldlogError, LockLost
path, how = sys.argv[1:]
log = foldlog.open(path, listen=(how == "listening"))
settings = {"flush.messages": 1000} if how == "relaxed" else {}
log.create_topic("events", config=settings)
say(f"acknowledged {log.append('events', b'before').offset}")
sys.stdin.readline()
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    # Until it notices: what it acknowledges in the first moments is in the log like all the rest.
    try:
        say(f"acknowledged {log.append('events', b'between').offset}")
    except LockLost as error:
        say(f"stopped {error}")
        break
for change in (
    lambda: log.append("events", b"after"),
    lambda: log.create_topic("other"),
    lambda: log.delete_topic("events"),
    lambda: log.compact("events"),
    lambda: log.delete_records("events", {0: 1}),
    lambda: log.reset_group("readers", {("events", 0): 1}),
    lambda: log.producer(linger_ms=0).send("events", value=b"after").result(20),
):
    try:
        change()
        say("done")
    except FoldlogError as error:
        say(type(error).__name__)
say(f"read {len(list(log.read('events', 0)))}")
say(f"warned {any('lock of' in text for text in log.warnings())}")
sys.stdin.readline()
try:
    log.close()
except FoldlogError:
    pass
say("closed")
"""


def remove(path: Path) -> None:
    (path / ".lock").unlink()


def replace(path: Path) -> None:
    (path / "other").write_text("")
    (path / "other").rename(path / ".lock")


def remove_both(path: Path) -> None:
    (path / ".lock").unlink()
    (path / "checkpoint").unlink()


@pytest.mark.parametrize(
    ("take_away", "how"),
    [
        (remove, "plain"),
        (replace, "listening"),
        (remove, "relaxed"),
        pytest.param(remove, "listening", marks=pytest.mark.faults),
        pytest.param(replace, "plain", marks=pytest.mark.faults),
        pytest.param(replace, "relaxed", marks=pytest.mark.faults),
    ],
)
def test_a_writer_without_its_lock_file_stops_and_keeps_the_second_out(
    tmp_path: Path, take_away: Callable[[Path], None], how: str
) -> None:
    path = tmp_path / "data"
    with child(WRITER, str(path), how) as writer:
        assert next_line(writer) == "acknowledged 0"
        take_away(path)
        with pytest.raises(DirectoryLocked, match=r"\.lock was removed; end it") as refused:
            foldlog.open(path)
        if Path("/proc/locks").exists():
            assert refused.value.pid == writer.pid
            assert f"process {writer.pid}" in error_text(refused.value)
        tell(writer, "go on")
        acknowledged, line = 1, next_line(writer)
        while line.startswith("acknowledged"):
            acknowledged, line = acknowledged + 1, next_line(writer)
        assert line.startswith(f"stopped the lock of {path} is lost")
        assert {next_line(writer) for _ in range(7)} == {"LockLost"}
        readable = int(next_line(writer).removeprefix("read "))
        assert acknowledged <= readable <= acknowledged + 1, "reading goes on"
        assert next_line(writer) == "warned True"
        with foldlog.open(path, mode="r") as reader:
            assert reader.offsets("events") == {0: (0, readable)}
        with pytest.raises(DirectoryLocked):
            foldlog.open(path)
        tell(writer, "close")
        assert finish(writer) == ["closed"]
    with foldlog.open(path) as log:
        values = [record.value for record in log.read("events", 0)]
        assert values[:acknowledged] == [b"before"] + [b"between"] * (acknowledged - 1)
        assert len(values) <= acknowledged + 1, "one may have been written, and not acknowledged, when it was noticed"
        assert log.append("events", b"next").offset == len(values)


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_writer_whose_directory_is_renamed_stops_and_the_new_name_opens_once_it_has_ended(
    tmp_path: Path, is_moved: bool
) -> None:
    path, new = tmp_path / "data", tmp_path / "renamed"
    with child(WRITER, str(path), "plain") as writer:
        assert next_line(writer) == "acknowledged 0"
        path.rename(new)
        if not is_moved:
            path.mkdir()  # another one in its place: nothing may be written there
        tell(writer, "go on")
        acknowledged, line = 1, next_line(writer)
        while line.startswith("acknowledged"):
            acknowledged, line = acknowledged + 1, next_line(writer)
        assert line.startswith("stopped ")
        with pytest.raises(DirectoryLocked, match=str(writer.pid)):
            foldlog.open(new)
        tell(writer, "close")
        assert finish(writer)[-1] == "closed"
    assert is_moved or not list(path.iterdir())
    with foldlog.open(new) as log:
        assert log.offsets("events")[0][1] in (acknowledged, acknowledged + 1), "one was written when it was noticed"


def test_a_writer_without_lock_and_checkpoint_acknowledges_nothing_that_a_second_one_could_overwrite(
    tmp_path: Path,
) -> None:
    """Nothing is left to keep the second out, so the first has to be silent before the second has opened."""
    path = tmp_path / "data"
    with child(WRITER, str(path), "plain") as writer:
        assert next_line(writer) == "acknowledged 0"
        remove_both(path)
        with foldlog.open(path) as second:
            second.append("events", b"second")
            tell(writer, "go on")
            assert next_line(writer).startswith("stopped ")
            tell(writer, "close")
            assert finish(writer)[-1] == "closed"
            second.append("events", b"third")
    with foldlog.open(path) as log:
        assert [record.value for record in log.read("events", 0)] == [b"before", b"second", b"third"]


def test_a_served_directory_without_its_lock_file_is_refused_to_who_would_write_for_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with child(WRITER, str(path), "listening") as writer:
        next_line(writer)
        with foldlog.open(path) as beside:
            assert beside.is_remote
            beside.append("events", b"beside")
            remove(path)
            with pytest.raises(ReadOnly, match=str(writer.pid)):
                beside.compact("events")
            tell(writer, "go on")
            while not next_line(writer).startswith("stopped"):
                pass
            with pytest.raises(StorageError):
                beside.append("events", b"after")
            with pytest.raises(FoldlogError):
                beside.create_topic("other")
        tell(writer, "close")
        assert finish(writer)[-1] == "closed"


def test_a_forked_child_neither_keeps_the_directory_nor_lets_another_in(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    log = foldlog.open(path)
    log.create_topic("events")
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(ready, 1)
        os._exit(0)
    try:
        remove(Path(path))
        with pytest.raises(DirectoryLocked):
            foldlog.open(path)
        log.close()
        foldlog.open(path).close()
    finally:
        os.write(told, b".")
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(told)


def test_a_process_that_changes_its_directory_is_still_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with foldlog.open("data") as log:
        log.create_topic("events")
        log.append("events", b"here")
        monkeypatch.chdir("/")
        assert log.append("events", b"there").offset == 1
        monkeypatch.chdir(tmp_path)


def test_a_copy_of_the_directory_is_another_directory(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("events")
        log.append("events", b"first")
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        with foldlog.open(tmp_path / "copy") as copy:
            assert copy.append("events", b"second").offset == 1
        assert log.append("events", b"other").offset == 1


def test_the_same_holds_in_memory() -> None:
    files = MemoryFiles()
    with Broker.open("data", files=files) as broker:
        broker.create_topic("events")
        files.unlink("data/.lock")
        with pytest.raises(DirectoryLocked):
            Broker.open("data", files=files)
        with pytest.raises(LockLost) as stopped:
            broker.create_topic("more")
        assert isinstance(stopped.value, PartitionPoisoned)


def test_a_directory_named_through_a_link_and_back_is_still_the_writers(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "sub")
    with foldlog.open(f"{tmp_path}/link/../data") as log:
        assert (tmp_path / "elsewhere" / "data" / ".lock").exists()
        log.create_topic("events")
        assert log.append("events", b"here").offset == 0


def test_a_path_that_became_a_loop_of_links_is_a_lost_lock(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    log = foldlog.open(parent / "data")
    log.create_topic("events")
    log.append("events", b"before")
    parent.rename(tmp_path / "renamed")
    parent.symlink_to(parent)
    with pytest.raises(LockLost):
        log.append("events", b"after")
    log.close()


def test_a_system_that_cannot_say_whether_the_lock_is_there_does_not_end_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: bytes) -> tuple[int, int, int]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("events")
        with monkeypatch.context() as patch:
            patch.setattr(posix, "inode_and_size", refuse)
            assert log.append("events", b"meanwhile").offset == 0
        remove(tmp_path / "data")
        with pytest.raises(LockLost):
            log.append("events", b"after")


@pytest.mark.parametrize("has_noticed", [True, False], ids=["an append has noticed", "nobody has noticed"])
def test_a_sync_under_way_acknowledges_nothing_once_the_lock_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_noticed: bool
) -> None:
    path = tmp_path / "data"
    with Broker.open(str(path)) as broker:
        broker.create_topic("events")
        partition = broker.partition("events", 0)
        assert isinstance(partition, Partition)
        end = partition.append(pack([(1, b"k", b"v", None)])).next_offset
        sync = PosixFile.sync

        def lose_it_first(file: PosixFile) -> None:
            sync(file)
            if file.path.endswith(".log") and (path / ".lock").exists():
                remove(path)
                if has_noticed:
                    with pytest.raises(LockLost):
                        partition.append(pack([(1, b"k", b"w", None)]))

        monkeypatch.setattr(PosixFile, "sync", lose_it_first)
        with pytest.raises(LockLost):
            partition.wait_acknowledged(end)
        assert partition.high_watermark == 0
