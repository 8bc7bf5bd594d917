"""What the records of `__folds` come to: an entry for each fold, whoever runs it, bounded whatever is written. Pure."""

from __future__ import annotations

from dataclasses import replace

from foldlog.client.fold_bulletin import Claim, Command, Status, encode
from foldlog.server.console.fold_board import FOLDS_MAX, HISTORY_MS, RUNNERS_MAX, FoldBoard, LogAddress

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
    "",
    None,
    "host:1",
    1000,
)


def bounds_of(topic: str) -> dict[int, tuple[int, int]]:
    return {"payments": {0: (5, 20), 1: (0, 4)}, "mirror.dead": {0: (1, 4)}}.get(topic, {})


def heard(item: Status | Command | Claim) -> tuple[bytes | None, bytes | None, bool]:
    return (*encode(item), True)


def board_of(*items: Status | Command | Claim) -> FoldBoard:
    board = FoldBoard()
    board.hear(map(heard, items))
    return board


def test_an_entry_has_the_ends_of_now_and_the_dead_letters_of_the_topic() -> None:
    entry = board_of(STATUS).entry("mirror", 2000, bounds_of)
    assert (entry["end"], entry["lag"], entry["dead_letters"]) == ({"0": 20, "1": 4}, 17, 3)
    assert (entry["is_live"], entry["rows_per_s"], entry["can_peek"], entry["doing"]) == (True, 1.5, False, None)
    assert entry["command_lines"]["verify"] == "foldlog fold verify mirror -f folds.py -d data"


def test_a_fold_whose_bookmark_lies_before_what_retention_left_does_not_lag_for_it() -> None:
    entry = board_of(replace(STATUS, bookmark={"0": 2})).entry("mirror", 2000, bounds_of)
    assert entry["lag"] == 15 + 4


def test_a_runner_that_looks_its_bookmark_up_again_has_not_forgotten_what_it_read() -> None:
    board = board_of(STATUS, replace(STATUS, bookmark={}, lag=0, updated_ms=1500))
    assert board.entry("mirror", 2000, bounds_of)["bookmark"] == {"0": 7}
    board.hear([heard(replace(STATUS, bookmark={"0": 6}, updated_ms=1600))])
    assert board.entry("mirror", 2000, bounds_of)["bookmark"] == {"0": 6}
    assert board_of(replace(STATUS, bookmark={})).entry("mirror", 2000, bounds_of)["bookmark"] == {}


def test_of_a_topic_that_is_gone_the_runners_own_word_is_shown() -> None:
    entry = board_of(replace(STATUS, topic="other")).entry("mirror", 2000, bounds_of)
    assert (entry["end"], entry["lag"]) == ({"0": 9}, 2)


def test_of_two_runners_the_one_with_something_under_way_is_shown_and_the_answer_of_whoever_gave_it() -> None:
    command = Command.ask("mirror", "rebuild", 900)
    doing = {"verb": "rebuild", "done": 1, "total": 9}
    busy = replace(STATUS, runner="host:2", doing=doing, last_command=command.id, result="rebuilding")
    board = board_of(command, busy, replace(STATUS, updated_ms=1500))
    entry = board.entry("mirror", 2000, bounds_of)
    assert (entry["runner"], entry["doing"], entry["result"]) == ("host:2", doing, "rebuilding")
    assert entry["command"]["is_taken"]
    board.hear([heard(replace(busy, updated_ms=2000, doing=None, result="rebuilt"))])
    board.hear([heard(replace(STATUS, updated_ms=2500))])
    entry = board.entry("mirror", 2600, bounds_of)
    assert (entry["runner"], entry["doing"], entry["result"]) == ("host:1", None, "rebuilt")


def test_a_runner_that_fell_silent_does_nothing_any_more() -> None:
    board = board_of(replace(STATUS, doing={"verb": "verify", "done": 1, "total": 2}))
    assert board.changes(2000) == ["mirror"]
    assert (board.is_quiet(15_999), board.is_quiet(16_000)) == (True, False)
    assert board.changes(16_000) == ["mirror"]
    entry = board.entry("mirror", 16_000, bounds_of)
    assert (entry["is_live"], entry["rows_per_s"], entry["doing"]) == (False, 0.0, None)
    assert board.is_quiet(16_001)


def test_the_history_is_of_the_last_five_minutes_a_point_a_second() -> None:
    statuses = [replace(STATUS, updated_ms=n * 500, end={"0": 7 + n}, lag=0) for n in range(1300)]
    board = board_of(*statuses)
    history = board.entry("mirror", 650_000, bounds_of)["history"]
    assert history[-1][1] >= 1298
    assert history[0][0] < history[1][0]
    assert history[1][0] >= history[-1][0] - HISTORY_MS
    assert 295 <= len(history) <= 302


def test_nobody_speaks_for_a_killed_fold_and_its_lag_grows_with_the_log() -> None:
    """Its runner's last word was that nothing is left to read."""
    ends = {"payments": {0: (5, 7)}}
    board = board_of(replace(STATUS, end={"0": 7}, lag=0))
    board.changes(2000)

    def bounds_now(topic: str) -> dict[int, tuple[int, int]]:
        return ends.get(topic, {})

    for at_ms, end in ((16_000, 7), (18_000, 40), (20_000, 90)):
        ends["payments"][0] = (5, end)
        assert not board.is_quiet(at_ms)
        board.sample(at_ms, bounds_now)
        assert board.changes(at_ms) == ["mirror"]
        assert board.is_quiet(at_ms + 1)
    entry = board.entry("mirror", 20_000, bounds_now)
    assert (entry["lag"], entry["is_live"], entry["is_stopped"]) == (83, False, False)
    assert [point[:2] for point in entry["history"]] == [[1000, 0], [16_000, 0], [18_000, 33], [20_000, 83]]
    late_ms = 20_001 + HISTORY_MS
    board.sample(late_ms, bounds_now)
    history = board.entry("mirror", late_ms, bounds_now)["history"]
    assert [point[:2] for point in history] == [[20_000, 83], [late_ms, 83]]


def test_who_only_takes_a_runners_name_replaces_nothing_that_it_said() -> None:
    board = board_of(replace(STATUS, file="/srv/folds.py"))
    forged = [replace(STATUS, runner=f"h:{n}", file="/tmp/x.py", updated_ms=1500) for n in range(RUNNERS_MAX + 5)]
    board.hear((*encode(one), False) for one in [*forged, replace(STATUS, file="/tmp/x.py", updated_ms=1600)])
    status, is_proven = board.described("mirror", 2000)
    assert status is not None
    assert (is_proven, status.file, status.updated_ms) == (True, "/srv/folds.py", 1000)
    board = FoldBoard()
    board.hear([(*encode(forged[0]), False)])
    entry = board.entry("mirror", 2000, bounds_of)
    assert (entry["is_proven"], "/tmp/x.py" in str(entry)) == (False, False)


def test_a_fold_that_was_dropped_is_told_as_gone_and_no_more() -> None:
    board = board_of(STATUS)
    board.changes(1000)
    board.hear([(b"status/mirror", None, True)])
    assert (board.changes(1100), board.names, board.status("mirror", 1100)) == (["mirror"], [], None)
    assert board.entry("mirror", 1100, bounds_of) == {"fold": "mirror", "is_gone": True}


def test_who_writes_anything_into_the_topic_fills_no_memory() -> None:
    board = board_of(*(replace(STATUS, runner=f"host:{n}") for n in range(100)))
    assert len(board._folds["mirror"].statuses) == RUNNERS_MAX
    board.hear(heard(replace(STATUS, fold=f"fold{n}")) for n in range(FOLDS_MAX + 100))
    board.hear(heard(Command.ask(f"fold{n}", "pause", 1)) for n in range(FOLDS_MAX + 100))
    assert len(board.names) == FOLDS_MAX
    assert len(board._commands) == FOLDS_MAX


def test_a_command_line_can_be_pasted_whatever_the_names() -> None:
    board = board_of()
    board.source = LogAddress("-d", "/srv/my data")
    status = replace(STATUS, file="/srv/it's/folds.py")
    line = board.command_line(status, "rebuild", accept_loss=True)
    assert line == "foldlog fold rebuild mirror --accept-loss -f '/srv/it'\"'\"'s/folds.py' -d '/srv/my data'"
