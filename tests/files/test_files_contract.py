"""Both file systems keep one contract: each test runs on real files in a temporary directory and in memory.

The log is tested mostly in memory, so what the memory does must be what a disk does, down to the type of each error.
The last test lets hypothesis drive both at once with random operations and compares every answer.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from foldlog.errors import DirectoryLocked
from foldlog.files.base import Allocated, File, Files, read_file, replace_file
from foldlog.files.holder import WriterInfo, format_holder
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFiles


@pytest.fixture(params=["posix", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A file system and an empty directory in it."""
    root = str(tmp_path)
    if request.param == "posix":
        return PosixFiles(), root
    files = MemoryFiles()
    files.make_directory(root)
    return files, root


@pytest.mark.parametrize("name", ["file", "link", "directory", "nothing", "file/beneath", "loop"])
def test_the_compiled_look_at_a_path_answers_as_stat_does(tmp_path: Path, name: str) -> None:
    compiled = pytest.importorskip("foldlog.files.status", reason="the compiled parts were not built")
    (tmp_path / "file").write_bytes(b"seven..")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "directory").mkdir()

    def answer(look: Callable[[bytes], object]) -> object:
        try:
            return look(os.fsencode(tmp_path / name))
        except OSError as error:
            return type(error), error.errno, error.filename

    def stat(path: bytes) -> object:
        found = os.stat(path)
        return found.st_dev, found.st_ino, found.st_size

    assert answer(compiled.inode_and_size) == answer(stat)


def write(files: Files, path: str, data: bytes) -> None:
    file = files.open(path, write=True, create=True)
    file.truncate(0)
    file.write(0, [data])
    file.close()


def test_what_was_written_reads_back_at_any_position(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/a", write=True, create=True)
    assert file.write(0, [b"hello", bytearray(b", "), memoryview(b"world")]) == 12
    assert file.size() == 12
    assert file.read(7, 5) == b"world"
    assert file.read(7, 500) == b"world"
    assert file.read(12, 5) == b""
    assert file.read(99, 5) == b""
    assert file.write(0, [b"J"]) == 1
    assert file.read(0, 12) == b"Jello, world"


def test_read_into_fills_what_there_is_and_says_how_much(place: tuple[Files, str]) -> None:
    files, root = place
    write(files, f"{root}/a", b"0123456789")
    file = files.open(f"{root}/a")
    buffer = bytearray(b"........")
    assert file.read_into(6, buffer) == 4
    assert buffer == b"6789...."
    assert file.read_into(0, memoryview(buffer)[2:6]) == 4
    assert buffer == b"670123.."
    assert file.read_into(10, buffer) == 0


def test_a_write_beyond_the_end_leaves_zeroes_between(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/a", write=True, create=True)
    file.write(4, [b"x"])
    assert file.read(0, 9) == b"\0\0\0\0x"


def test_a_write_across_the_end_overwrites_and_grows(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/a", write=True, create=True)
    file.write(0, [b"abcd"])
    file.write(2, [b"XY", b"Z"])
    assert file.read(0, 9) == b"abXYZ"


def test_more_buffers_than_one_system_call_takes_are_all_written(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/a", write=True, create=True)
    pieces = [bytes([number % 251]) * 3 for number in range(3000)]
    assert file.write(0, pieces) == 9000
    assert file.read(0, 9000) == b"".join(pieces)


def test_a_short_write_is_taken_up_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may write less than it was given, at any byte: in the middle of a buffer or between two."""
    whole = os.pwritev
    calls = []

    def short(descriptor: int, buffers: list[bytes], position: int) -> int:
        calls.append(position)
        return whole(descriptor, [b"".join(buffers)[: 1 + len(calls) % 7]], position)

    monkeypatch.setattr(os, "pwritev", short)
    file = PosixFiles().open(f"{tmp_path}/a", write=True, create=True)
    assert file.write(3, [b"abcd", bytearray(b"e"), memoryview(b"fghijklmnopqrstuvwxyz"), b""]) == 26
    assert file.read(0, 99) == b"\0\0\0abcdefghijklmnopqrstuvwxyz"
    assert len(calls) > 5


def test_truncate_shortens_and_grows_with_zeroes(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/a", write=True, create=True)
    file.write(0, [b"abcdef"])
    file.truncate(2)
    assert file.read(0, 9) == b"ab"
    file.truncate(4)
    assert file.read(0, 9) == b"ab\0\0"


def test_a_missing_file_is_an_error_unless_it_is_to_be_created(place: tuple[Files, str]) -> None:
    files, root = place
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/a", write=True)
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/no/a", write=True, create=True)
    assert not files.exists(f"{root}/a")
    files.open(f"{root}/a", create=True).close()
    assert files.exists(f"{root}/a")


def test_opening_to_create_keeps_what_is_there(place: tuple[Files, str]) -> None:
    files, root = place
    write(files, f"{root}/a", b"kept")
    assert files.open(f"{root}/a", write=True, create=True).read(0, 9) == b"kept"


def test_a_file_opened_for_reading_cannot_be_written(place: tuple[Files, str]) -> None:
    files, root = place
    write(files, f"{root}/a", b"kept")
    file = files.open(f"{root}/a")
    with pytest.raises(OSError, match="a"):
        file.write(0, [b"x"])
    with pytest.raises(OSError, match="a"):
        file.truncate(0)
    assert file.read(0, 9) == b"kept"


def test_a_closed_file_answers_nothing(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/a", write=True, create=True)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        file.size,
        lambda: file.read(0, 1),
        lambda: file.write(0, [b"x"]),
        lambda: file.truncate(0),
        file.sync,
    ]
    for call in calls:
        with pytest.raises((OSError, ValueError), match="descriptor"):
            call()


def test_an_open_file_outlives_its_name(place: tuple[Files, str]) -> None:
    files, root = place
    write(files, f"{root}/a", b"old")
    handle = files.open(f"{root}/a")
    files.unlink(f"{root}/a")
    assert handle.read(0, 9) == b"old"
    write(files, f"{root}/a", b"new")
    assert handle.read(0, 9) == b"old"
    write(files, f"{root}/b", b"newer")
    later = files.open(f"{root}/a")
    files.rename(f"{root}/b", f"{root}/a")
    assert later.read(0, 9) == b"new"
    assert read_file(files, f"{root}/a") == b"newer"


def test_a_rename_replaces_a_file_and_moves_a_directory_with_what_is_in_it(place: tuple[Files, str]) -> None:
    files, root = place
    files.make_directory(f"{root}/d/e")
    write(files, f"{root}/d/e/a", b"1")
    files.rename(f"{root}/d", f"{root}/f")
    assert not files.exists(f"{root}/d")
    assert read_file(files, f"{root}/f/e/a") == b"1"
    files.rename(f"{root}/f/e/a", f"{root}/f/e/a")
    assert read_file(files, f"{root}/f/e/a") == b"1"
    files.rename(f"{root}/f/e/a", f"{root}/top")
    assert [entry.name for entry in files.entries(f"{root}/f/e")] == []


def test_wrong_renames_are_refused_and_change_nothing(place: tuple[Files, str]) -> None:
    files, root = place
    files.make_directory(f"{root}/d")
    files.make_directory(f"{root}/full/inner")
    write(files, f"{root}/a", b"1")
    for old, new, number in (
        ("missing", "x", errno.ENOENT),
        ("a", "no/x", errno.ENOENT),
        ("a", "d", errno.EISDIR),
        ("d", "a", errno.ENOTDIR),
        ("d", "full", errno.ENOTEMPTY),
        ("full", "full/inner/deeper", errno.EINVAL),
        ("a", "a/b", errno.ENOTDIR),
    ):
        with pytest.raises(OSError) as caught:
            files.rename(f"{root}/{old}", f"{root}/{new}")
        assert caught.value.errno == number, (old, new)
    assert sorted(entry.name for entry in files.entries(root)) == ["a", "d", "full"]
    files.rename(f"{root}/d", f"{root}/full/inner")  # an empty directory may be replaced
    assert sorted(entry.name for entry in files.entries(root)) == ["a", "full"]


def test_directories_are_made_with_their_parents_and_removed_when_empty(place: tuple[Files, str]) -> None:
    files, root = place
    files.make_directory(f"{root}/a/b/c")
    files.make_directory(f"{root}/a/b/c")
    with pytest.raises(OSError) as caught:
        files.remove_directory(f"{root}/a")
    assert caught.value.errno == errno.ENOTEMPTY
    files.remove_directory(f"{root}/a/b/c")
    assert files.exists(f"{root}/a/b")
    assert not files.exists(f"{root}/a/b/c")
    with pytest.raises(FileNotFoundError):
        files.remove_directory(f"{root}/a/b/c")


def test_a_file_is_no_directory_and_a_directory_no_file(place: tuple[Files, str]) -> None:
    files, root = place
    write(files, f"{root}/a", b"1")
    files.make_directory(f"{root}/d")
    calls: list[tuple[type[OSError], Callable[[], object]]] = [
        (NotADirectoryError, lambda: files.entries(f"{root}/a")),
        (NotADirectoryError, lambda: files.sync_directory(f"{root}/a")),
        (NotADirectoryError, lambda: files.remove_directory(f"{root}/a")),
        (NotADirectoryError, lambda: files.open(f"{root}/a/b", write=True, create=True)),
        (NotADirectoryError, lambda: files.make_directory(f"{root}/a/b")),
        (FileExistsError, lambda: files.make_directory(f"{root}/a")),
        (IsADirectoryError, lambda: files.open(f"{root}/d", write=True)),
        (IsADirectoryError, lambda: files.unlink(f"{root}/d")),
    ]
    for expected, call in calls:
        with pytest.raises(expected):
            call()


def test_missing_names_are_file_not_found(place: tuple[Files, str]) -> None:
    files, root = place
    calls: list[Callable[[], object]] = [
        lambda: files.unlink(f"{root}/a"),
        lambda: files.entries(f"{root}/a"),
        lambda: files.sync_directory(f"{root}/a"),
        lambda: read_file(files, f"{root}/a"),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()


def test_entries_tell_names_sizes_and_directories(place: tuple[Files, str]) -> None:
    files, root = place
    write(files, f"{root}/a", b"12345")
    files.make_directory(f"{root}/d")
    found = {entry.name: entry for entry in files.entries(root)}
    assert set(found) == {"a", "d"}
    assert (found["a"].size_bytes, found["a"].is_directory) == (5, False)
    assert found["d"].is_directory
    assert found["a"].modified_ms > 1_500_000_000_000


def test_a_replaced_file_has_the_new_bytes_and_leaves_no_draft(place: tuple[Files, str]) -> None:
    files, root = place
    replace_file(files, f"{root}/c.json", b"first, and longer")
    replace_file(files, f"{root}/c.json", b"second")
    assert read_file(files, f"{root}/c.json") == b"second"
    assert [entry.name for entry in files.entries(root)] == ["c.json"]


def test_an_allocated_file_is_made_with_zeroes_and_shared_with_who_reads_it(place: tuple[Files, str]) -> None:
    files, root = place
    writer = files.allocate(f"{root}/m", 1024)
    assert writer.size() == 1024
    assert writer.load(0, 1024) == bytes(1024)
    reader = files.open(f"{root}/m")
    writer.store(512, b"slot")
    assert reader.read(510, 8) == b"\0\0slot\0\0"
    writer.sync()
    grown = files.allocate(f"{root}/m", 2048, allocated_bytes=1024)
    assert grown.load(512, 4) == b"slot"
    assert grown.load(1024, 1024) == bytes(1024)
    writer.store(512, b"SLOT")
    assert grown.load(512, 4) == b"SLOT"


def test_an_allocated_file_refuses_what_is_outside_of_it(place: tuple[Files, str]) -> None:
    files, root = place
    writer = files.allocate(f"{root}/m", 64)
    with pytest.raises(IndexError):
        writer.store(62, b"four")
    assert writer.load(62, 4) == b"\0\0"
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.load(0, 1)
    with pytest.raises(ValueError, match="closed"):
        writer.store(0, b"x")


def test_a_directory_has_one_writer_and_the_second_is_told_its_pid(place: tuple[Files, str]) -> None:
    files, root = place
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(DirectoryLocked) as refused:
        files.lock(f"{root}/.lock")
    assert (refused.value.path, refused.value.pid) == (root, os.getpid())
    assert read_file(files, f"{root}/.lock") == f"{os.getpid()}\n".encode()
    lock.release()
    lock.release()
    assert read_file(files, f"{root}/.lock") == b""
    files.lock(f"{root}/.lock").release()


def test_who_asks_is_told_who_holds_the_lock_and_where_it_listens(place: tuple[Files, str]) -> None:
    files, root = place
    path = f"{root}/.lock"
    assert files.lock_holder(path) is None
    assert not files.exists(path), "asking changes nothing"
    lock = files.lock(path)
    assert files.lock_holder(path) == WriterInfo(os.getpid(), None)
    for address in ("a.host.with.a.long.name:19092", "[::1]:1"):
        lock.publish(address)
        assert files.lock_holder(path) == WriterInfo(os.getpid(), address)
        with pytest.raises(DirectoryLocked, match=f"listens on {re.escape(address)}; send to it there") as refused:
            files.lock(path)
        assert (refused.value.pid, refused.value.address) == (os.getpid(), address)
    lock.publish(None)
    assert files.lock_holder(path) == WriterInfo(os.getpid(), None)
    lock.release()
    assert files.lock_holder(path) is None
    write(files, path, format_holder(1, "127.0.0.1:9092"))
    assert files.lock_holder(path) is None, "a killed holder leaves its text, and nobody"


def test_a_lock_file_full_of_garbage_is_still_locked_or_free(place: tuple[Files, str]) -> None:
    files, root = place
    lock = files.lock(f"{root}/.lock")
    for garbage in (b"", b"\xff\xfe\n\x00", b"12x\n127.0.0.1:9092\n", b"\n" * 9000):
        write(files, f"{root}/.lock", garbage)
        assert files.lock_holder(f"{root}/.lock") == WriterInfo(None, None)
        with pytest.raises(DirectoryLocked, match="another process"):
            files.lock(f"{root}/.lock")
    lock.release()


def test_there_is_no_holder_where_there_is_no_directory(place: tuple[Files, str]) -> None:
    files, root = place
    write(files, f"{root}/file", b"")
    assert files.lock_holder(f"{root}/missing/.lock") is None
    assert files.lock_holder(f"{root}/file/.lock") is None


def test_memory_paths_have_no_current_directory() -> None:
    files = MemoryFiles()
    files.make_directory("data")
    write(files, "/data/a", b"1")
    for same in ("data/a", "./data//a", "/x/../data/a", "../data/a"):
        assert read_file(files, same) == b"1"
    files.sync_directory(".")
    assert [entry.name for entry in files.entries("/")] == ["data"]


def test_many_threads_may_share_one_file(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/a", write=True, create=True)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(200):
                position = (step * 8 + number) * 16
                file.write(position, [bytes([number + 1]) * 16])
                buffer = bytearray(16)
                assert file.read_into(position, buffer) == 16
                assert buffer == bytes([number + 1]) * 16 == file.read(position, 16)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert file.size() == 200 * 8 * 16


def test_a_file_whose_name_is_gone_is_not_synced(place: tuple[Files, str]) -> None:
    files, root = place
    unlinked = files.open(f"{root}/a", write=True, create=True)
    files.unlink(f"{root}/a")
    replaced = files.open(f"{root}/b", write=True, create=True)
    moved = files.open(f"{root}/c", write=True, create=True)
    files.rename(f"{root}/c", f"{root}/b")
    allocated = files.allocate(f"{root}/m", 4096)
    files.unlink(f"{root}/m")
    for nameless in (unlinked, replaced, allocated):
        with pytest.raises(FileNotFoundError, match="deleted under the log"):
            nameless.sync()
    moved.sync()


NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/e", "d/e/a", "missing/a"])
POSITIONS = st.integers(0, 3000)
PIECES = st.lists(st.binary(min_size=1, max_size=600), min_size=1, max_size=3)
One = TypeVar("One")


def answer(one: One, action: Callable[[One], object]) -> object:
    """What an operation returned, or the kind and number of its error."""
    try:
        return action(one)
    except OSError as error:
        return type(error), error.errno


class BothFileSystems(RuleBasedStateMachine):
    """Each rule does one thing to real files and to the memory; answer or error must be the same."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.root = self.scratch.name
        self.systems: tuple[Files, Files] = (PosixFiles(), MemoryFiles())
        self.systems[1].make_directory(self.root)
        self.handles: list[tuple[File, File]] = []
        # They have names of their own: nothing else makes them shorter.
        self.allocated: list[tuple[Allocated, Allocated]] = []

    def teardown(self) -> None:
        for handles in self.handles:
            for handle in handles:
                handle.close()
        for files in self.allocated:
            for file in files:
                file.close()
        self.scratch.cleanup()

    def same(self, action: Callable[[Files], object]) -> None:
        real, memory = (answer(files, action) for files in self.systems)
        assert real == memory

    @rule(name=NAMES, write=st.booleans(), create=st.booleans())
    def open_file(self, name: str, write: bool, create: bool) -> None:
        real, memory = (
            answer(files, lambda one: one.open(f"{self.root}/{name}", write=write, create=create))
            for files in self.systems
        )
        if isinstance(real, tuple) or isinstance(memory, tuple):
            # A directory may be opened for reading on a real system, though nothing can be read from it.
            assert real == memory or memory == (IsADirectoryError, errno.EISDIR)
        else:
            self.handles.append((real, memory))  # type: ignore[arg-type]

    @precondition(lambda self: self.handles)
    @rule(
        data=st.data(), position=POSITIONS, pieces=st.lists(st.binary(min_size=1, max_size=600), min_size=1, max_size=3)
    )
    def write_file(self, data: st.DataObject, position: int, pieces: list[bytes]) -> None:
        handles = data.draw(st.sampled_from(self.handles))
        real, memory = (answer(handle, lambda one: one.write(position, pieces)) for handle in handles)
        assert real == memory

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), size=POSITIONS)
    def truncate_file(self, data: st.DataObject, size: int) -> None:
        handles = data.draw(st.sampled_from(self.handles))
        real, memory = (answer(handle, lambda one: one.truncate(size)) for handle in handles)
        # Real systems name this one EINVAL or EBADF, as they like: both say that the file is not open for writing.
        refused = [type(one) is tuple for one in (real, memory)]
        assert refused[0] == refused[1]

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), position=POSITIONS, length=st.integers(0, 4000))
    def read_file(self, data: st.DataObject, position: int, length: int) -> None:
        real, memory = data.draw(st.sampled_from(self.handles))
        assert real.size() == memory.size()
        assert real.read(position, length) == memory.read(position, length)
        buffers = bytearray(length), bytearray(length)
        assert real.read_into(position, buffers[0]) == memory.read_into(position, buffers[1])
        assert buffers[0] == buffers[1]
        assert answer(real, lambda one: one.sync()) == answer(memory, lambda one: one.sync())

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        self.same(lambda files: files.rename(f"{self.root}/{old}", f"{self.root}/{new}"))

    @rule(name=NAMES)
    def unlink(self, name: str) -> None:
        self.same(lambda files: files.unlink(f"{self.root}/{name}"))

    @rule(name=NAMES)
    def make_directory(self, name: str) -> None:
        self.same(lambda files: files.make_directory(f"{self.root}/{name}"))

    @rule(name=NAMES)
    def remove_directory(self, name: str) -> None:
        self.same(lambda files: files.remove_directory(f"{self.root}/{name}"))

    @rule(name=NAMES)
    def sync_directory(self, name: str) -> None:
        self.same(lambda files: files.sync_directory(f"{self.root}/{name}"))

    @rule(name=st.sampled_from(["m", "n"]), size=st.integers(1, 2000))
    def allocate_file(self, name: str, size: int) -> None:
        real, memory = (files.allocate(f"{self.root}/{name}", size) for files in self.systems)
        self.allocated.append((real, memory))

    @precondition(lambda self: self.allocated)
    @rule(data=st.data(), position=st.integers(0, 2000), stored=st.binary(max_size=64))
    def store_and_load(self, data: st.DataObject, position: int, stored: bytes) -> None:
        real, memory = data.draw(st.sampled_from(self.allocated))
        fits = position + len(stored) <= real.size()
        for file in (real, memory):
            if fits:
                file.store(position, stored)
            elif position < real.size():
                with pytest.raises(IndexError):
                    file.store(position, stored)
        assert real.load(0, real.size()) == memory.load(0, memory.size())

    @invariant()
    def the_trees_are_equal(self) -> None:
        assert self.tree(self.systems[0], self.root) == self.tree(self.systems[1], self.root)

    def tree(self, files: Files, directory: str) -> dict[str, object]:
        return {
            entry.name: self.tree(files, f"{directory}/{entry.name}")
            if entry.is_directory
            else (entry.size_bytes, read_file(files, f"{directory}/{entry.name}"))
            for entry in files.entries(directory)
        }


BothFileSystems.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
test_random_operations_have_the_same_answers_on_disk_and_in_memory = BothFileSystems.TestCase
