"""Records of `__folds`: what is written reads back; what is older, newer or not ours costs nothing. Pure."""

from __future__ import annotations

import json

import pytest

from foldlog.client.fold_bulletin import Claim, Command, Status, decode, dropped_fold, encode

STATUS = Status(
    "mirror",
    "payments",
    "table x",
    "table",
    "running",
    {"0": 7},
    {"0": 9},
    2,
    7,
    7,
    1.5,
    0,
    0,
    "0=0:7",
    None,
    "h:1",
    50,
)


@pytest.mark.parametrize(
    "item",
    [STATUS, Command.ask("mirror", "rewind", 5, to="@-6h"), Claim("mirror", "4f2c", "7d1e", 5)],
    ids=["status", "command", "claim"],
)
def test_a_record_reads_back_as_what_was_written(item: Status | Command | Claim) -> None:
    assert decode(*encode(item)) == item


def test_a_status_of_an_older_foldlog_is_understood_and_one_of_a_newer_one_as_well() -> None:
    key, value = encode(STATUS)
    fields = json.loads(value)
    for name in ("engine", "view_description", "doing", "adds", "file", "stopped"):
        del fields[name]
    assert decode(key, json.dumps(fields).encode()) == STATUS
    assert decode(key, json.dumps({**fields, "mood": "good"}).encode()) == STATUS


def test_records_that_are_not_ours_are_passed_over() -> None:
    command = Command.ask("mirror", "rewind", 5, to="@-6h")
    key, value = encode(command)
    fields = json.loads(encode(STATUS)[1])
    for odd_key, odd_value in (
        (b"status/mirror", b"{}"),
        (b"status/mirror", b"\xff"),
        (b"status/mirror", json.dumps({**fields, "lag": "2"}).encode()),
        (b"status/mirror", json.dumps({**fields, "bookmark": {"0": "x"}}).encode()),
        (b"status/mirror", json.dumps({**fields, "updated_ms": True}).encode()),
        (b"status/other", json.dumps(fields).encode()),
        (b"command/mirror", b"[]"),
        (b"command/mirror", b"[" * 100_000),
        (b"command/mirror", json.dumps({**json.loads(value), "verb": "explode"}).encode()),
        (b"other/mirror", value),
        (b"\xff/mirror", value),
        (None, b"x"),
        (key, None),
    ):
        assert decode(odd_key, odd_value) is None


def test_only_the_tombstone_of_a_status_says_that_a_fold_is_gone() -> None:
    assert dropped_fold(b"status/mirror", None) == "mirror"
    for key, value in ((b"status/mirror", b"{}"), (b"command/mirror", None), (b"claim/mirror/x", None), (None, None)):
        assert dropped_fold(key, value) is None


def test_a_fold_can_be_asked_only_what_there_is() -> None:
    with pytest.raises(ValueError, match="there are pause, resume"):
        Command.ask("mirror", "explode", 5)


def test_a_runner_is_live_while_it_publishes_also_when_the_fold_has_failed() -> None:
    fields = json.loads(encode(STATUS)[1])
    failed = Status(**{**fields, "state": "failed"})
    assert (failed.is_live(14_000), failed.is_live(15_050)) == (True, False)
    assert not Status(**{**fields, "state": "failed", "stopped": True}).is_live(60)
    assert not Status(**{**fields, "state": "stopped"}).is_live(60)
