"""`foldlog topic list|create|describe|alter|delete|trim|compact`, at a directory, at a broker, and at a directory that
a broker serves: the same words do the same, and the log behind them has changed as it was said.

What a test makes is gone after it: the places are shared.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import foldlog
from cli.places import Place, Terminal
from foldlog.cli import exit_codes
from foldlog.cli.main import main
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC
from foldlog.client.fold_proof import FoldsKey
from foldlog.clock import SystemClock
from foldlog.spark.origins.ledger import open_ledger
from foldlog.spark.origins.origin import origin_spec


def appended(place: Place, topic: str, count: int, partition: int | None = None) -> None:
    with place.open() as log:
        for number in range(count):
            log.append(topic, f"value {number}", key=f"key {number % 2}", partition=partition)


def test_a_topic_is_made_with_its_settings_and_shown(at: Terminal) -> None:
    made = at.done("topic", "create", "made", "-p", "3", "-c", "retention.ms=7d", "-c", "segment.bytes=64MiB")
    assert made == "made: created with 3 partitions\n"
    (row,) = at.json("topic", "list", "made")
    assert (row["topic"], row["partitions"], row["offsets"], row["retention_ms"]) == ("made", 3, 0, 604_800_000)
    table = at.done("topic", "list", "ma*").splitlines()
    assert table[0].split()[:3] == ["TOPIC", "PARTITIONS", "OFFSETS"]
    assert table[1].split()[:3] == ["made", "3", "0"]
    assert "RETENTION" in at.done("topic", "list", "made", "--format", "wide")
    assert at.done("topic", "list", "--quiet", "made") == "made\n"


def test_one_that_exists_is_left_alone_and_may_be_no_error(at: Terminal) -> None:
    at.done("topic", "create", "twice", "-p", "2")
    assert "topic 'twice' exists" in at.refused(exit_codes.IN_THE_WAY, "topic", "create", "twice", "-p", "5")
    assert at.json("topic", "create", "twice", "-p", "5", "--if-not-exists") == [
        {"topic": "twice", "status": "exists", "partitions": 2}
    ]


def test_where_one_of_several_exists_none_is_made(at: Terminal) -> None:
    at.done("topic", "create", "there")
    at.refused(exit_codes.IN_THE_WAY, "topic", "create", "new.1", "there", "new.2")
    assert at.done("topic", "list", "--quiet", "new.*") == ""
    assert at.done("topic", "create", "new.1", "new.1", "there", "--if-not-exists").splitlines() == [
        "new.1: created with 1 partition",
        "there: exists with 1 partition",
    ]


def test_partitions_and_settings_are_described(at: Terminal) -> None:
    at.done("topic", "create", "seen", "-p", "2", "-c", "cleanup.policy=compact")
    appended(at.place, "seen", 5, partition=1)
    text = at.done("topic", "describe", "seen")
    assert text.startswith("seen: 2 partitions, 5 offsets")
    assert "cleanup.policy  compact" in text
    assert "retention.ms" not in text, "it has its default"
    for more in (("--all",), ("--format", "wide")):
        assert "retention.ms" in at.done("topic", "describe", "seen", *more)
    (found,) = at.json("topic", "describe", "seen")
    assert [(one["start"], one["end"], one["offsets"]) for one in found["partitions"]] == [(0, 0, 0), (0, 5, 5)]
    settings = {one["name"]: (one["value"], one["is_default"]) for one in found["configs"]}
    assert settings["cleanup.policy"] == ("compact", False)
    assert settings["retention.ms"] == ("-1", True)
    is_size_known = at.place.name != "broker"
    assert (found["partitions"][1]["size_bytes"] is not None) == is_size_known
    assert ("SIZE" in text) == is_size_known


def test_settings_change_and_go_back_and_partitions_become_more(at: Terminal) -> None:
    at.done("topic", "create", "changed", "-c", "retention.ms=1d")
    words = ("topic", "alter", "changed", "-c", "retention.ms=", "-c", "segment.bytes=1MiB", "-p", "3")
    planned = at.done(*words, "--dry-run")
    assert "changed: retention.ms 86400000 (1d) -> its default" in planned
    with at.place.open() as log:
        assert log.topic("changed").partition_count == 1
        assert log.topic_config("changed")["retention.ms"].value == "86400000"
    assert at.done(*words).splitlines() == [
        "changed: retention.ms 86400000 (1d) -> -1 (no limit)",
        "changed: segment.bytes 1073741824 (1.0 GiB) -> 1048576 (1.0 MiB)",
        "changed: 1 -> 3 partitions",
    ]
    with at.place.open() as log:
        assert log.topic("changed").partition_count == 3
        assert log.topic_config("changed")["segment.bytes"].value == "1048576"


def test_what_cannot_be_altered_changes_nothing_at_all(at: Terminal) -> None:
    at.done("topic", "create", "kept", "-p", "2")
    for words, told in (
        (("-c", "retention.ms=1d", "-c", "segment.bites=1"), "did you mean 'segment.bytes'?"),
        (("-c", "retention.ms=1d", "-c", "cleanup.policy=burn"), "cleanup.policy is delete, compact"),
        (("-c", "retention.ms=1d", "-p", "1"), "has 2 partitions, and they cannot become 1"),
        (("-c", "retention.ms=soon"), "is not a time, such as"),
        ((), "say what to change"),
    ):
        assert told in at.refused(exit_codes.USAGE, "topic", "alter", "kept", *words)
    with at.place.open() as log:
        assert log.topic_config("kept")["retention.ms"].is_default
        assert log.topic("kept").partition_count == 2


def test_a_topic_is_deleted_and_a_dry_run_deletes_nothing(at: Terminal) -> None:
    at.done("topic", "create", "gone", "going")
    assert "gone: would be deleted, 1 partition, 0 offsets" in at.done("topic", "delete", "gone", "--dry-run")
    assert at.done("topic", "list", "-q", "go*") == "going\ngone\n"
    assert "no topic 'never'" in at.refused(exit_codes.NOT_FOUND, "topic", "delete", "gone", "never")
    assert at.done("topic", "list", "-q", "go*") == "going\ngone\n", "all or nothing"
    out = at.json("topic", "delete", "gone", "never", "--if-exists")
    assert out == [{"topic": "gone", "status": "deleted"}, {"topic": "never", "status": "does not exist"}]
    assert at.done("topic", "list", "-q", "go*") == "going\n"


def test_records_before_a_place_are_trimmed(at: Terminal) -> None:
    at.done("topic", "create", "trimmed", "-p", "2")
    appended(at.place, "trimmed", 10, partition=0)
    (first, second) = at.json("topic", "trim", "trimmed", "--before", "-4", "--dry-run")
    assert (first["start"], first["new_start"], first["removed"]) == (0, 6, 6)
    assert second["removed"] == 0
    with at.place.open() as log:
        assert log.offsets("trimmed")[0] == (0, 10)
    at.done("topic", "trim", "trimmed", "--before", "6", "-p", "0")
    with at.place.open() as log:
        assert log.offsets("trimmed")[0] == (6, 10)
    code, _, err = at("topic", "trim", "trimmed", "--before", "start")
    assert (code, err) == (0, "there is nothing before that place\n")


def test_a_trim_beyond_the_end_or_of_a_range_deletes_nothing(at: Terminal) -> None:
    at.done("topic", "create", "whole", "-p", "2")
    appended(at.place, "whole", 3, partition=0)
    told = at.refused(exit_codes.USAGE, "topic", "trim", "whole", "--before", "4")
    assert "whole-0 ends at 3, before offset 4; nothing was deleted" in told
    assert "is a range" in at.refused(exit_codes.USAGE, "topic", "trim", "whole", "--before", "0:2")
    told = at.refused(exit_codes.NOT_FOUND, "topic", "trim", "whole", "--before", "1", "-p", "7")
    assert "has no partition 7; it has 0 to 1" in told
    with at.place.open() as log:
        assert log.offsets("whole")[0] == (0, 3)


def test_a_directory_is_compacted_on_request(at_directory: Terminal) -> None:
    at_directory.done("topic", "create", "newest", "-c", "cleanup.policy=compact", "-c", "foldlog.segment.records=2")
    appended(at_directory.place, "newest", 9)
    code, out, err = at_directory("topic", "compact", "newest", "--dry-run")
    assert (code, out.splitlines()[1].split()[:3]) == (0, ["newest", "0", "9"])
    assert "nothing was changed" in err
    (row,) = at_directory.json("topic", "compact", "newest")
    assert (row["topic"], row["records_before"], row["records_after"]) == ("newest", 9, 2)
    with at_directory.place.open() as log:
        assert [record.value for record in log.read("newest")] == [b"value 7", b"value 8"]


def test_a_topic_whose_records_are_all_wanted_is_compacted_only_with_force(at_directory: Terminal) -> None:
    at_directory.done("topic", "create", "wanted", "-c", "foldlog.segment.records=2")
    appended(at_directory.place, "wanted", 5)
    told = at_directory.refused(exit_codes.USAGE, "topic", "compact", "wanted")
    assert "wanted has cleanup.policy=delete, so all its records are wanted" in told
    assert at_directory.json("topic", "compact", "wanted", "--force")[0]["records_after"] == 2


def test_sealed_segments_are_compressed_anew_and_no_record_is_lost(at_directory: Terminal) -> None:
    at_directory.done("topic", "create", "large")
    with at_directory.place.open() as log:
        log.append("large", "again and " * 500)
    (row,) = at_directory.json("topic", "compact", "large", "--recompress", "zstd")
    assert row["batches_rewritten"] == 1
    assert row["bytes_after"] < row["bytes_before"] / 10
    with at_directory.place.open() as log:
        assert [record.value for record in log.read("large")] == [b"again and " * 500]


@pytest.mark.parametrize(
    ("verb", "is_for_brokers", "takes_ranges"),
    [("compact", False, False), ("trim", True, False), ("consume", True, True)],
)
def test_help_does_not_offer_what_is_always_refused(
    capsys: pytest.CaptureFixture[str], verb: str, *, is_for_brokers: bool, takes_ranges: bool
) -> None:
    assert main(["topic", verb, "--help"]) == 0
    told = capsys.readouterr().out
    assert "--dir" in told
    assert ("--bootstrap-server" in told) is is_for_brokers
    assert ("--command-config" in told) is is_for_brokers
    assert ("or a range" in " ".join(told.split())) is takes_ranges


def test_what_a_broker_writes_is_not_compacted_from_outside(places: dict[str, Place], at: Terminal) -> None:
    at.done("topic", "create", "served", "--if-not-exists", "-c", "cleanup.policy=compact")
    if at.place.name != "directory":
        code, out, err = at("topic", "compact", "served")
        # Who names the broker asks the wrong one; who names the directory may ask again when the broker is gone.
        expected = exit_codes.USAGE if at.place.name == "broker" else exit_codes.UNREACHABLE
        assert (code, out, err.count("\n")) == (expected, "", 1)
        assert "when it is due" in err
        assert "stop it" in at.refused(expected, "topic", "compact", "served", "--recompress", "zstd")


def test_a_damaged_partition_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with foldlog.open(tmp_path) as log:
        log.create_topic("orders", partitions=2)
        for number in range(4):
            log.append("orders", "x" * 100, partition=number % 2)
    shutil.rmtree(tmp_path / "orders-1")
    place = Place("directory", ("-d", str(tmp_path)), tmp_path)
    code, out, err = Terminal(place, capsys)("topic", "describe", "orders")
    assert code == exit_codes.FAILED
    assert out.splitlines()[3].split()[:4] == ["0", "0", "2", "2"]
    assert out.splitlines()[4].split()[:2] == ["1", "-"]
    assert "orders-1" in err


def test_no_log_and_no_place_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, told in (
        (["topic", "list"], exit_codes.USAGE, "say where the log is: -d DIR or -b HOST:PORT"),
        (["topic", "list", "-d", str(tmp_path)], exit_codes.NOT_FOUND, "there is no log in"),
        (["topic", "list", "-d", str(tmp_path), "-X", "a=b"], exit_codes.USAGE, "-X a is for clients of a broker"),
        (["topic", "list", "-b", "127.0.0.1:1"], exit_codes.UNREACHABLE, "127.0.0.1:1"),
        (["topic", "list", "-b", "127.0.0.1:1", "-X", "nonsense"], exit_codes.USAGE, "-X is not NAME=VALUE"),
        (["topic", "create", "../up", "-d", str(tmp_path / "new")], exit_codes.USAGE, "../up"),
        (["topic", "create", "a", "-p", "0", "-d", str(tmp_path)], exit_codes.USAGE, "'0' is not a number of 1"),
    ):
        assert main(words) == code, words
        err = capsys.readouterr().err
        assert told in err
        assert err.count("\n") == 1
    assert not (tmp_path / "new").exists(), "no directory is made for a topic that cannot be"


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_directory_without_a_log_is_told_with_the_command_that_makes_one(
    is_empty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if not is_empty:
        (tmp_path / "notes.txt").write_text("mine")
    assert main(["topic", "list", "-d", "."]) == exit_codes.NOT_FOUND
    advised = re.search(r"'foldlog (topic create[^']*)'", capsys.readouterr().err)
    assert advised is not None
    assert main([*advised[1].split(), "orders", "-d", "."]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", [".lock", "checkpoint", "orders-0"])
def test_a_directory_where_no_log_can_be_made_is_told_so_and_nothing_else_is_advised(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "orders-0":
        with foldlog.open(tmp_path) as log:
            log.create_topic("orders")
            log.append("orders", "one")
        (tmp_path / "catalog.json").unlink()
    else:
        (tmp_path / name).write_text("somebody's own")
    for words in (["topic", "list"], ["topic", "create", "more"], ["topic", "create", "--init", "more"]):
        assert main([*words, "-d", str(tmp_path)]) == exit_codes.IN_THE_WAY
        told = capsys.readouterr().err
        assert "topic create" not in told
        assert ("move those directories away" if name == "orders-0" else "name another directory") in told
    (tmp_path / "source").mkdir()
    foldlog.open(tmp_path / "source").close()
    words = ["copy", "--all", "--from", str(tmp_path / "source"), "--to", str(tmp_path)]
    assert main(words) == exit_codes.IN_THE_WAY


def test_a_source_that_is_not_there_is_not_to_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["copy", "--all", "--from", str(tmp_path / "none"), "--to", str(tmp_path / "copy")]
    assert main(words) == exit_codes.NOT_FOUND
    told = capsys.readouterr().err
    assert "there is no log in" in told
    assert "topic create" not in told


def test_a_pattern_without_topics_tells_which_there_are(at: Terminal) -> None:
    at.done("topic", "create", "orders")
    assert "; there are orders" in at.refused(exit_codes.NOT_FOUND, "topic", "describe", "nope*")


def test_what_the_folds_keep_is_written_and_changed_by_nobody_else_and_the_reason_is_told(
    places: dict[str, Place], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Terminal(places["broker"], capsys)
    for place in places.values():
        said = Terminal(place, capsys).refused(exit_codes.USAGE, "topic", "create", "__folds", "--if-not-exists")
        assert "topic '__folds' is made by the folds themselves" in said
    open_ledger(origin_spec(broker.place.directory)).ensure_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
    with broker.place.open() as log:
        proof = FoldsKey.of_directory(str(broker.place.directory)).proof(b"mirror", b"{}", SystemClock().now_ms())
        log.append("__folds", b"{}", b"mirror", headers=[proof])
    (tmp_path / "line").write_text("x\n")
    said = broker("topic", "produce", "__folds", "-k", "mirror", str(tmp_path / "line"))[2]
    assert "topic '__folds' takes records of the directory's own runners" in said
    for terminal in (broker, Terminal(places["served directory"], capsys)):
        for words in (
            ("topic", "delete", "__folds", "--yes"),
            ("topic", "trim", "__folds", "--before", "end", "--yes"),
            ("topic", "alter", "__folds", "-c", "retention.ms=1"),
            ("topic", "alter", "__folds", "-p", "2"),
        ):
            said = terminal(*words)[2]
            assert "foldlog: topic '__folds' is kept for the folds of this directory; to change it" in said


def test_looking_takes_no_lock_and_works_beside_a_writer_that_does_not_listen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with foldlog.open(tmp_path) as log:
        log.create_topic("orders")
        terminal = Terminal(Place("directory", ("-d", str(tmp_path)), tmp_path), capsys)
        assert terminal.done("topic", "list", "-q") == "orders\n"
        told = terminal.refused(exit_codes.UNREACHABLE, "topic", "create", "more")
        assert "is being written by process" in told
