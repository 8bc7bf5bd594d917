"""A directory that is neither empty nor a log is refused before anything in it is touched: not a byte, not a time.

What a first open left that was cut short is a log's and opens; so does what people call empty.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import foldlog
from cli import command
from foldlog.client.fold_proof import FoldsKey
from foldlog.errors import CorruptLog, DirectoryNotEmpty, ForeignDirectory, LogNotFound, NewerVersion, StorageError
from foldlog.files.holder import format_holder


def picture(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every name below `path` with its mode, the time of its last change, and its bytes."""
    found = {}
    for place in [path, *sorted(path.rglob("*"))]:
        status = place.lstat()
        content = place.read_bytes() if place.is_file() else b""
        found[str(place)] = (status.st_mode, status.st_mtime_ns, content)
    return found


def fill(path: Path, names: dict[str, bytes | None]) -> Path:
    path.mkdir()
    for name, content in names.items():
        if content is None:
            (path / name).mkdir(parents=True)
        else:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
    return path


FOREIGN: list[dict[str, bytes | None]] = [
    {"passwd": b"root:x:0:0", "hosts": b""},
    {"notes.txt": b""},
    {".bashrc": b"alias ll='ls -l'"},
    {"photos": None},
    {"main.py": b"", ".git/HEAD": b"ref"},
    {"events-0/readme.log": b"somebody's own"},
    {"package.json": b"{}", ".lock": b"", "checkpoint": b""},
]


@pytest.mark.parametrize("names", FOREIGN)
def test_a_directory_with_other_files_is_refused_untouched_and_taken_if_asked(
    tmp_path: Path, names: dict[str, bytes | None]
) -> None:
    path = fill(tmp_path / "theirs", names)
    before = picture(path)
    with pytest.raises(DirectoryNotEmpty, match=r"nothing was changed; name an empty directory.*init=True") as refused:
        foldlog.open(path)
    assert picture(path) == before
    assert refused.value.names
    with foldlog.open(path, init=True) as log:
        log.create_topic("orders")
    with foldlog.open(path) as log:
        assert log.topics() == ["orders"], "it is a log from here on"
    for name, content in names.items():
        assert content is None or name in (".lock", "checkpoint") or (path / name).read_bytes() == content


OWN_NAMES_OF_OTHERS: list[dict[str, bytes | None]] = [
    {".lock": b"held by somebody's own program"},
    {"checkpoint": b"epoch 7 of a model"},
    {"checkpoint": None},
    {".lock": None},
]


@pytest.mark.parametrize("names", OWN_NAMES_OF_OTHERS)
@pytest.mark.parametrize("init", [False, True])
def test_a_file_of_others_with_a_name_of_ours_is_never_taken(
    tmp_path: Path, names: dict[str, bytes | None], init: bool
) -> None:
    path = fill(tmp_path / "theirs", names)
    before = picture(path)
    with pytest.raises(StorageError, match="is not foldlog's; nothing was changed"):
        foldlog.open(path, init=init)
    assert picture(path) == before


def test_a_catalog_of_others_is_refused_untouched(tmp_path: Path) -> None:
    path = fill(tmp_path / "theirs", {"catalog.json": b'{"shoes": 12}', "shoes.csv": b""})
    before = picture(path)
    with pytest.raises(CorruptLog, match="nothing was changed"):
        foldlog.open(path, init=True)
    assert picture(path) == before


def test_a_log_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with foldlog.open(path) as log:
        log.create_topic("orders")
        log.append("orders", b"kept")
    checkpoint = bytearray((path / "checkpoint").read_bytes())
    checkpoint[:21] = b"foldlog checkpoint 3\n"
    (path / "checkpoint").write_bytes(checkpoint)
    before = picture(path)
    for mode in ("w", "r"):
        with pytest.raises(NewerVersion, match="upgrade foldlog"):
            foldlog.open(path, mode=mode)
    for options in ([], ["--repair"], ["--cut-out"]):
        checked = command.foldlog("check", str(path), *options)
        assert checked.returncode == 1
        assert b"newer foldlog" in checked.stderr
        assert b"cut-out" not in checked.stderr + checked.stdout
        assert b"DAMAGED" not in checked.stderr + checked.stdout
    assert picture(path) == before


EMPTY: list[dict[str, bytes | None]] = [
    {},
    {"lost+found": None},
    {".gitkeep": b""},
    {".gitignore": b"*\n", ".DS_Store": b"\0\0"},
]


@pytest.mark.parametrize("names", EMPTY)
def test_what_people_call_empty_is(tmp_path: Path, names: dict[str, bytes | None]) -> None:
    with foldlog.open(fill(tmp_path / "data", names)) as log:
        log.create_topic("orders")


CUT_SHORT: list[dict[str, bytes | None]] = [
    {".lock": b""},
    {".lock": format_holder(4711, None)},
    {".lock": format_holder(4711, "127.0.0.1:9092")},
    {".lock": bytes(5), "checkpoint.tmp": b""},
    {"checkpoint.tmp": b"foldlog chec"},
    {".lock": b"", "checkpoint": b"foldlog checkpoint 1\n" + bytes(491), "catalog.json.tmp": b'{"vers'},
]


@pytest.mark.parametrize("names", CUT_SHORT)
def test_a_first_open_that_was_cut_short_is_finished_by_the_next(
    tmp_path: Path, names: dict[str, bytes | None]
) -> None:
    with foldlog.open(fill(tmp_path / "data", names)) as log:
        log.create_topic("orders")
        assert log.append("orders", b"1").offset == 0


def test_reading_makes_nothing_of_any_directory(tmp_path: Path) -> None:
    path = fill(tmp_path / "theirs", {"passwd": b"root"})
    before = picture(path)
    for init in (False, True):
        with pytest.raises(LogNotFound):
            foldlog.open(path, mode="r", init=init)
    with pytest.raises(LogNotFound):
        foldlog.open(tmp_path / "missing", mode="r")
    assert picture(path) == before
    assert not (tmp_path / "missing").exists()


def test_a_directory_of_kafkas_is_read_only_whatever_is_asked(tmp_path: Path) -> None:
    path = fill(tmp_path / "kafka", {"meta.properties": b"version=1\ncluster.id=x\n"})
    before = picture(path)
    with pytest.raises(ForeignDirectory):
        foldlog.open(path, init=True)
    assert picture(path) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "PATH", "--listen", "127.0.0.1:0"],
        ["topic", "create", "orders", "-d", "PATH"],
        ["node", "--dir", "PATH"],
    ],
)
def test_the_commands_that_make_a_log_name_their_way_out(tmp_path: Path, arguments: list[str]) -> None:
    path = fill(tmp_path / "theirs", {"passwd": b"root"})
    before = picture(path)
    words = [str(path) if word == "PATH" else word for word in arguments]
    refused = command.foldlog(*words)
    assert refused.returncode == 5
    assert b"passwd" in refused.stderr
    assert b"--init" in refused.stderr
    assert b"foldlog.open" not in refused.stderr
    assert picture(path) == before
    if words[0] != "serve":
        again = command.foldlog(*words, "--init")
        assert again.returncode == 0, again.stderr
        assert (path / "catalog.json").exists()
        assert (path / "passwd").read_bytes() == b"root"


def test_a_directory_that_may_not_be_listed_is_an_error_of_ours(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may list every directory; enable with: run the tests as another user")
    path = fill(tmp_path / "theirs", {"secret": b""})
    path.chmod(0)
    try:
        with pytest.raises(StorageError, match="permissions"):
            foldlog.open(path)
    finally:
        path.chmod(0o700)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with segments, indexes, epochs, a snapshot of producers and the key of its folds."""
    path = tmp_path_factory.mktemp("written")
    with foldlog.open(path) as log:
        log.create_topic("orders", partitions=1, config={"segment.bytes": 1024})
        with log.producer() as producer:
            for _ in range(3):
                producer.send("orders", value=b"x" * 900).result()
    FoldsKey.of_directory(str(path))
    return path


OPENING = """
import sys, foldlog
from foldlog.client.fold_proof import FoldsKey
try:
    with foldlog.open(sys.argv[1]) as log:
        list(log.read("orders", 0))
        log.append("orders", b"one more")
    FoldsKey.of_directory(sys.argv[1])
except foldlog.errors.FoldlogError as error:
    print(error)
else:
    print("opened")
"""


def names_of(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.rglob("*"))


def test_a_pipe_in_the_place_of_any_file_is_refused_by_its_name_and_not_waited_for(
    written: Path, tmp_path: Path
) -> None:
    """An open of a pipe waits for its other end: SIGTERM did not end it."""
    newest_of_kind = {Path(name).suffix or name: name for name in names_of(written) if (written / name).is_file()}
    names = list(newest_of_kind.values())
    assert {".lock", ".json", "checkpoint", ".key", ".log", ".index"} < set(newest_of_kind)
    refused = 0
    for number, name in enumerate(names):
        path = tmp_path / str(number)
        shutil.copytree(written, path)
        (path / name).unlink()
        os.mkfifo(path / name)
        ended = subprocess.run(
            [sys.executable, "-c", OPENING, str(path)], capture_output=True, text=True, timeout=60, check=True
        )
        if ended.stdout != "opened\n":  # what can be made anew may be
            refused += 1
            assert "is a pipe" in ended.stdout or name.startswith(("orders", "folds")), (name, ended.stdout)
            assert str(path / name) in ended.stdout, (name, ended.stdout)
    assert refused >= 6


@pytest.mark.parametrize("name", [".lock", "checkpoint", "catalog.json"])
def test_a_pipe_in_a_directory_that_is_no_log_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    ended = subprocess.run(
        [sys.executable, "-c", OPENING, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"{name} is a pipe" in ended.stdout
    assert [one.name for one in tmp_path.iterdir()] == [name]
