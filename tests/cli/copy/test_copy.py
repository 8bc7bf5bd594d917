"""`foldlog copy` from directories and brokers to directories and brokers: what it prints, what it refuses, what it
leaves behind; and the bookmarks of folds, which go on in the copy."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foldlog
from cli.command import COMMAND, WAIT_S, environment
from cli.serving import ANY_PORT, serving
from foldlog.cli.main import main
from foldlog.client.backends.backend import backend_of
from foldlog.client.copy.batches import as_stored
from foldlog.client.positions import TopicPartition
from foldlog.spark.folds.declaration import load_folds
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Shape

Command = Callable[..., tuple[int, str, str]]

FOLDS = """
import foldlog.spark as fl
payments = fl.topic("payments", key="tx_id", schema="amount_paise BIGINT")

@fl.fold(payments, into=fl.table("shop.db", "payments"))
def mirror(rows): return rows

@fl.fold(payments, into=fl.table("shop.db", "other"))
def elsewhere(rows): return rows

@fl.fold(payments, into=fl.table("shop.db", "ahead"))
def ahead(rows): return rows

@fl.fold(payments, into=fl.table("shop.db", "behind"))
def behind(rows): return rows

@fl.fold(payments, into=fl.table("shop.db", "unborn"))
def unborn(rows): return rows
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that several tests share; each has topics of its own names."""
    with serving(str(tmp_path_factory.mktemp("served")), *ANY_PORT) as broker:
        host, port = broker.address
        yield f"{host}:{port}"
        assert broker.end() == 0


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a topic that begins at 3, a compacted one, and a group; the current one, too."""
    monkeypatch.chdir(tmp_path)
    with foldlog.open("data") as log:
        log.create_topic("payments", partitions=2, config={"retention.ms": -1})
        for number in range(20):
            log.append("payments", {"amount_paise": number}, key=f"tx{number}", partition=number % 2)
        log.delete_records("payments", {0: 3})
        log.create_topic("prices", config={"cleanup.policy": "compact"})
        log.append("prices", "12", key="tea")
        log.reset_group("fraud", {("payments", 0): 5, ("payments", 1): 2})
    return tmp_path


@pytest.fixture
def copy(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["copy", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def done(copy: Command, *words: str, code: int = 0) -> Any:
    ended, out, err = copy(*words, "--format", "json")
    assert ended == code, err
    return json.loads(out)


def test_a_directory_to_a_directory(copy: Command, shop: Path) -> None:
    code, out, err = copy("payments", "prices=prices.old", "--from", "data", "--to", "copy")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == [
        *(
            "TOPIC",
            "TO",
            "PARTITION",
            "COPIED",
            "BYTES",
            "SOURCE",
            "END",
            "COPY",
            "END",
            "OFFSETS",
            "CHECKED",
            "DIGEST",
        ),
        "RESULT",
    ]
    assert lines[1].startswith("payments  payments            0       7 ")
    assert all(line.endswith("same") for line in lines[1:4])
    assert lines[5].split() == ["fraud", "payments", "0", "5", "5", "moved"]
    with foldlog.open("copy", mode="r") as log:
        assert log.offsets("payments") == {0: (3, 10), 1: (0, 10)}
        assert log.topic_config("prices.old")["cleanup.policy"].value == "compact"
        assert log.committed("fraud")[TopicPartition("payments", 0)].offset == 5


def test_a_directory_to_a_broker_and_back(copy: Command, shop: Path, served: str) -> None:
    there = done(copy, "payments=there", "--from", "data", "--to", served)
    assert [(one["records"], one["offsets"], one["result"]) for one in there["partitions"]] == [
        (7, "mapped", "same"),
        (10, "kept", "same"),
    ]
    assert there["topics"][0]["settings"] == {"retention.ms": "-1"}
    assert [(one["source_offset"], one["target_offset"]) for one in there["groups"]] == [(5, 2), (2, 2)]
    again = done(copy, "payments=there", "--from", "data", "--to", f"kafka://{served}")
    assert [(one["records"], one["checked"]) for one in again["partitions"]] == [(0, 0), (0, 0)], "it was checked"
    again = done(copy, "payments=there", "--from", "data", "--to", served, "--check-all")
    assert [(one["records"], one["checked"]) for one in again["partitions"]] == [(0, 7), (0, 10)]
    back = done(copy, "there=payments", "--from", served, "--to", "back", "--no-groups", "--no-check")
    assert [one["result"] for one in back["partitions"]] == ["not checked", "not checked"]
    with foldlog.open("data", mode="r") as one, foldlog.open("back", mode="r") as other:
        assert [record.value for record in one.read("payments", 0)] == [
            record.value for record in other.read("payments", 0)
        ]
        assert "fraud" not in other.groups()


def test_a_served_directory_is_reached_through_its_broker(copy: Command, shop: Path) -> None:
    with serving("served", *ANY_PORT) as broker:
        told = done(copy, "--all", "--from", "data", "--to", "served")
        assert [one["offsets"] for one in told["partitions"]] == ["mapped", "kept", "kept"]
        inside = done(copy, "prices=prices-2", "--from", "served", "--to", "served")
        assert inside["partitions"][0]["result"] == "same"
        assert broker.end() == 0


def test_what_is_kept_for_ever_by_default_is_kept_by_a_broker_that_keeps_less(copy: Command, shop: Path) -> None:
    with foldlog.open("data") as log:
        log.create_topic("old")
        log.append("old", "1", timestamp_ms=1_000_000_000_000)
    with serving("served", *ANY_PORT, "-X", "log.retention.hours=1") as broker:
        address = "{}:{}".format(*broker.address)
        code, _, err = copy("old", "--from", "data", "--to", address)
        assert (code, err) == (0, "")
        with foldlog.connect(f"kafka://{address}") as there:
            assert there.topic_config("old")["retention.ms"].value == "-1"
        with foldlog.open("data") as log:
            log.alter_topic("old", {"retention.ms": 1000})
        code, _, err = copy("old=older", "--from", "data", "--to", address)
        assert code == 0
        assert "topic 'older' gets records that are older than its retention.ms (1000)" in err
        assert broker.end() == 0


@pytest.mark.parametrize("target", ["directory", "broker"])
def test_a_dry_run_only_tells(copy: Command, shop: Path, served: str, target: str) -> None:
    place = "nowhere" if target == "directory" else served
    code, out, err = copy("payments=dry", "--from", "data", "--to", place, "--dry-run")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == ["payments", "dry", "0", "3", "10", "3", "7"]
    assert "would make dry" in out
    assert out.splitlines()[-1].split()[:4] == ["fraud", "dry", "1", "2"]
    assert not Path("nowhere").exists()
    told = done(copy, "payments=dry", "--from", "data", "--to", place, "--dry-run")
    assert told["partitions"][0]["makes_topic"] is True


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--from", "data", "--to", "copy"], 2, "say which topics to copy, or --all; not both"),
        (["payments", "--all", "--from", "data", "--to", "copy"], 2, "say which topics to copy, or --all; not both"),
        (["payments=", "--from", "data", "--to", "copy"], 2, "'payments=' has no new name"),
        (["payments", "--from", "data", "--to", "data"], 2, "cannot be copied to itself; say payments=NAME"),
        (["nothing", "--from", "data", "--to", "copy"], 3, "no topic 'nothing'; there are payments, prices"),
        (["payments", "--from", "gone", "--to", "copy"], 3, "there is no log in gone"),
        (
            ["payments", "--from", "data", "--to", "data/catalog.json"],
            1,
            "is a file; a log needs a directory of its own",
        ),
        (["payments", "--from", "data", "--to", "/proc/copy"], 1, "the log in /proc/copy cannot be opened"),
        (["payments", "--from", "data", "--to", "127.0.0.1:1"], 4, "no answer from the Kafka cluster"),
        (["payments=prices", "--from", "data", "--to", "data"], 5, "has records, of which the source has none"),
    ],
)
def test_what_cannot_be_is_one_sentence(copy: Command, shop: Path, words: list[str], code: int, sentence: str) -> None:
    with foldlog.open("data") as log:
        before = {topic: log.offsets(topic) for topic in log.topics()}
    got, out, err = copy(*words)
    assert (got, out) == (code, "")
    assert sentence in err
    assert err.startswith("foldlog: ")
    assert err.count("\n") == 1
    assert not Path("copy").exists(), "nothing is made for what cannot be"
    with foldlog.open("data") as log:
        assert {topic: log.offsets(topic) for topic in log.topics()} == before


def test_a_disk_that_is_full_is_one_sentence_and_the_copy_goes_on_when_there_is_room(copy: Command, shop: Path) -> None:
    with foldlog.open("data") as log, log.producer() as producer:
        for number in range(300):
            producer.send("prices", bytes(1000), key=f"{number}")
    words = ["copy", "prices", "--from", "data", "--to", "copy"]
    limited = subprocess.run(
        ["prlimit", "--fsize=200000:", *COMMAND, *words], env=environment(), capture_output=True, text=True, check=False
    )
    assert (limited.returncode, limited.stdout) == (1, "")
    assert limited.stderr.startswith(f"foldlog: no space to write {Path.cwd()}/copy/prices-0/")
    assert limited.stderr.count("\n") == 1
    told = done(copy, *words[1:])
    assert told["partitions"][0]["result"] == "same"
    assert told["partitions"][0]["checked"] == 301


def test_a_difference_is_told_and_nobody_is_moved(copy: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(data: memoryview, header: Any, from_offset: int) -> Any:
        return [] if header.base_offset == 4 else as_stored(data, header, from_offset)

    monkeypatch.setattr("foldlog.client.copy.directory.as_stored", forgetful)
    code, out, err = copy("payments", "--from", "data", "--to", "copy")
    assert code == 1
    assert err.startswith("foldlog: the copy is not the same as its source in payments-0, payments-1; groups and folds")
    assert err.count("\n") == 1
    assert "DIFFERENT: 1 of the records at offsets 0 to 10 of the source are missing" in out
    with foldlog.open("copy", mode="r") as log:
        assert log.committed("fraud") == {}


def test_ctrl_c_says_how_to_go_on(shop: Path) -> None:
    """The terminal's signal reaches it while it waits for a broker that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ["copy", "payments", "--from", "data", "--to", f"127.0.0.1:{silent.getsockname()[1]}"]
        with subprocess.Popen(
            [*COMMAND, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            silent.accept()[0].close()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (130, "")
    assert "stopped; run the same command again to continue" in err


def test_ctrl_c_says_how_to_go_on_at_whatever_moment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while the command's module is still being loaded; other commands have nothing to say."""

    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert main(["copy", "orders", "--from", "data", "--to", "copy"]) == 130
    assert capsys.readouterr() == ("", "stopped; run the same command again to continue\n")
    assert main(["topic", "list"]) == 130
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_inside_an_extension_module_is_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The interpreter complains of such a module with an error of its own, whose cause is the interrupt."""

    def complaint(arguments: object) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr("foldlog.cli.copy.copy.opened", complaint)
    assert main(["copy", "orders", "--from", "data", "--to", "copy"]) == 130
    assert capsys.readouterr() == ("", "stopped; run the same command again to continue\n")


def bookmark_of(name: str) -> Bookmark | None:
    (view,) = [one.view for one in load_folds("folds.py") if one.name == name]
    try:
        return view.bookmark()
    finally:
        view.close()


def test_the_views_of_a_pipeline_go_on_in_the_copy(copy: Command, shop: Path, served: str) -> None:
    Path("folds.py").write_text(FOLDS)
    with foldlog.open("data", mode="r") as log:
        topic_id = log.topic("payments").topic_id
    shape = Shape(pa.schema([("tx_id", pa.string()), ("amount_paise", pa.int64())]), "tx_id", ("tx_id",))
    for fold in load_folds("folds.py")[:4]:
        known = "elsewhere" if fold.name == "elsewhere" else topic_id
        at = {"ahead": 11, "behind": 2}.get(fold.name, 8)
        fold.view.prepare(shape, Bookmark("payments", known, {0: Position(at, 0), 1: Position(4, 0)}, {0: 0, 1: 0}))
        fold.view.close()
    words = ("payments=folded", "--from", "data", "--to", served, "--folds", "folds.py")
    before = {fold.name: bookmark_of(fold.name) for fold in load_folds("folds.py")}
    planned = {one["fold"]: one["outcome"] for one in done(copy, *words, "--dry-run", code=5)["folds"]}
    _, out, _ = copy(*words, "--dry-run")
    assert re.search(r"^fold mirror: .* would go on in the copy, after 12 offsets of the source$", out, re.MULTILINE)
    assert re.search(r"^fold elsewhere: .* would be left as it is: it reads another topic", out, re.MULTILINE)
    assert {fold.name: bookmark_of(fold.name) for fold in load_folds("folds.py")} == before
    told = done(copy, *words, code=5)
    outcomes = {one["fold"]: one["outcome"] for one in told["folds"]}
    assert planned == {**outcomes, "mirror": "would be moved"}
    assert outcomes == {
        "mirror": "moved",
        "elsewhere": "it reads another topic of this name",
        "ahead": "it has read further than the copy goes in partition 0: copy again once it has stopped",
        "behind": "what it reads next in partition 0 was gone before it could be copied: rebuild it there",
        "unborn": "it has not begun: it begins with the copy",
    }
    with foldlog.connect(f"kafka://{served}") as log:
        moved = Bookmark(
            "folded",
            log.topic("folded").topic_id,
            {0: Position(5), 1: Position(4)},
            {0: -3, 1: 0},  # the view holds three that are not in the copy
            epoch=1,
        )
    assert bookmark_of("mirror") == moved
    code, out, err = copy("payments=folded", "--from", "data", "--to", served, "--folds", "folds.py")
    assert code == 5
    assert "elsewhere, ahead, behind did not go on in the copy" in err
    assert "fold mirror: table payments in sqlite:///" in out
    assert "is left as it is: it reads the copy already" in out
    _, out, _ = copy(*words, "--dry-run")
    assert "would be left as it is: it reads the copy already" in out


def test_of_an_engine_that_goes_by_offsets_a_dry_run_says_what_it_depends_on(
    copy: Command, shop: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory offsets are always kept; at a broker only the copy itself shows it."""
    Path("folds.py").write_text(FOLDS)
    with foldlog.open("whole") as log:
        log.create_topic("payments", partitions=1)
        log.append("payments", "paid")
        topic_id = log.topic("payments").topic_id
    fold = load_folds("folds.py")[0]
    shape = Shape(pa.schema([("tx_id", pa.string()), ("amount_paise", pa.int64())]), "tx_id", ("tx_id",))
    fold.view.prepare(shape, Bookmark("payments", topic_id, {0: Position(1, 0)}, {0: 0}))
    fold.view.close()
    monkeypatch.setattr(type(fold.view), "is_transactional", False)
    outcomes = {}
    for place in (served, "elsewhere"):
        words = ("payments=by-offset", "--from", "whole", "--to", place, "--folds", "folds.py", "--dry-run")
        outcomes[place] = {one["fold"]: one["outcome"] for one in done(copy, *words)["folds"]}["mirror"]
    assert outcomes["elsewhere"] == "would be moved"
    assert outcomes[served].startswith(
        "its engine goes by offsets: it would be moved if those of the copy are the same"
    )


def test_a_pipelines_views_are_found_from_wherever_the_copy_is_called(
    copy: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shop / "pipeline"
    home.mkdir()
    (home / "folds.py").write_text(FOLDS.replace("elsewhere", "other"))
    with foldlog.open("data", mode="r") as log:
        topic_id = log.topic("payments").topic_id
    shape = Shape(pa.schema([("tx_id", pa.string()), ("amount_paise", pa.int64())]), "tx_id", ("tx_id",))
    mirror = load_folds(home / "folds.py")[0].view
    mirror.prepare(shape, Bookmark("payments", topic_id, {0: Position(8, 0), 1: Position(4, 0)}, {0: 0, 1: 0}))
    mirror.close()
    assert (home / "shop.db").exists(), "relative to the pipeline's file"
    told = done(copy, "payments", "--from", "data", "--to", "copy", "--folds", "pipeline/folds.py")
    assert told["folds"][0]["outcome"] == "moved"
    assert {one["outcome"] for one in told["folds"][1:]} == {"it has not begun: it begins with the copy"}


def test_only_what_is_new_is_checked_and_what_a_stopped_copy_left_unchecked(
    copy: Command, shop: Path, target_place: str
) -> None:
    def checked(*words: str) -> list[tuple[int, int | None]]:
        told = done(copy, "payments=checked", "--from", "data", "--to", target_place, *words)
        assert {one["result"] for one in told["partitions"]} <= {"same", "not checked"}
        return [(one["records"], one["checked"]) for one in told["partitions"]]

    def write(count: int) -> None:
        with foldlog.open("data") as log:
            for _ in range(count):
                log.append("payments", "more", partition=1)

    assert checked() == [(7, 7), (10, 10)]
    write(3)
    assert checked() == [(0, 0), (3, 3)]
    write(2)
    assert checked("--no-check") == [(0, None), (2, None)]
    write(1)
    assert checked() == [(0, 0), (1, 3)], "the two of before were not compared yet"
    assert checked("--check-all") == [(0, 7), (0, 16)]


@pytest.fixture(params=["directory", "broker"])
def target_place(request: pytest.FixtureRequest, served: str) -> str:
    return "copy" if request.param == "directory" else served


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (None, 2, "there is no file folds.py"),
        ("import nothing_of_this_name", 1, "folds.py, line 1 cannot be run: "),
        ("", 2, "folds.py declares no folds"),
    ],
)
def test_a_pipeline_that_cannot_be_read_is_told_before_anything_is_copied(
    shop: Path, copy: Command, text: str | None, code: int, told: str
) -> None:
    if text is not None:
        Path("folds.py").write_text(text)
    found, out, err = copy("--all", "--from", "data", "--to", "copy", "--folds", "folds.py")
    assert (found, out) == (code, "")
    assert told in err
    assert not Path("copy").exists()


def test_the_groups_of_queues_are_left_and_named(shop: Path, copy: Command) -> None:
    with foldlog.open("data") as log, log.queue("prices", group="packers", auto_offset_reset="earliest") as queue:
        queue.ack(*queue.take(max_records=1))
        at = backend_of(log).share_offsets("packers")[TopicPartition("prices", 0)][0]
    assert at > 0
    for words, outcome in ((("--dry-run",), "would be left"), ((), "left")):
        code, told, _ = copy("--all", "--from", "data", "--to", "copy", *words)
        rows = [line for line in told.splitlines() if line.startswith("packers")]
        assert (code, len(rows)) == (0, 1), told
        assert rows[0].split()[1:4] == ["prices", "0", str(at)]
        assert f"{outcome}: a queue's place is not copied; open it there once, then use foldlog group seek" in rows[0]
    assert "packers" not in copy("--all", "--from", "data", "--to", "copy", "--no-groups")[1]
