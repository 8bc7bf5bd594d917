"""`foldlog group list|describe|seek|delete`, at a directory, at a broker, and at a directory that a broker serves.

Members are real ones. A group with members is moved only on request, and its members then read on from the new place.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import foldlog
from cli.places import Place, Terminal
from foldlog import TopicPartition
from foldlog.cli import exit_codes
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Status, encode
from foldlog.client.fold_proof import FoldsKey
from foldlog.clock import SystemClock

POLL_MS = 20_000


@pytest.fixture
def orders(at: Terminal) -> Terminal:
    """A topic `orders` with ten records in its partition 1, and nothing in 0."""
    at.done("topic", "create", "orders", "-p", "2", "--if-not-exists")
    with at.place.open() as log:
        for number in range(log.offsets("orders")[1][1], 10):
            log.append("orders", str(number), partition=1, timestamp_ms=1_700_000_000_000 + number * 1000)
    return at


def test_a_group_is_listed_with_its_lag_and_described_by_partition(orders: Terminal) -> None:
    orders.done("group", "seek", "slow", "--to", "+4", "--topic", "orders")
    (row,) = orders.json("group", "list", "slow")
    assert row == {
        "group": "slow", "type": "classic", "state": "Empty", "protocol": None, "members": 0, "lag": 6,
        "uncommitted": None, "topics": ["orders"], "epoch": None, "assignment_epoch": None,
    }  # fmt: skip
    assert orders.done("group", "list", "slow").splitlines()[1].split() == [
        "slow",
        "Empty",
        "classic",
        "0",
        "6",
        "orders",
    ]
    assert orders.done("group", "list", "-q", "sl*") == "slow\n"
    text = orders.done("group", "describe", "slow")
    assert text.startswith("slow: Empty, 0 members, lag 6\n")
    assert text.splitlines()[-1].split() == ["orders", "1", "4", "10", "6", "-"]
    (found,) = orders.json("group", "describe", "slow")
    assert [(one["partition"], one["committed"], one["lag"]) for one in found["cursors"]] == [(0, 0, 0), (1, 4, 6)]
    assert found["members"] == []


def test_a_group_goes_where_it_is_told(orders: Terminal) -> None:
    for to, expected in (
        ("start", 0), ("end", 10), ("+3", 3), ("-3", 7), ("5", 5), ("@2023-11-14T22:13:24Z", 4), ("@1700000009000", 9),
    ):  # fmt: skip
        (row,) = orders.json("group", "seek", "mover", "--to", to, "--topic", "orders:1")
        assert (row["topic"], row["partition"], row["to"]) == ("orders", 1, expected)
        with orders.place.open() as log:
            assert {where: place.offset for where, place in log.committed("mover").items()} == {("orders", 1): expected}


def test_a_dry_run_tells_from_where_to_where_and_how_much_is_read_again(orders: Terminal) -> None:
    orders.done("group", "seek", "tried", "--to", "8", "--topic", "orders:1")
    code, out, err = orders("group", "seek", "tried", "--to", "-9", "--dry-run")
    assert (code, out.splitlines()[1].split()) == (0, ["orders", "1", "8", "1", "7", "0"])
    assert err == "7 offsets would be read again; nothing was moved (--dry-run)\n"
    skipping = orders("group", "seek", "tried", "--to", "end", "--dry-run")[2]
    assert skipping == "0 offsets would be read again, 2 would be skipped; nothing was moved (--dry-run)\n"
    with orders.place.open() as log:
        assert log.committed("tried")[TopicPartition("orders", 1)].offset == 8
    (row,) = orders.json("group", "seek", "tried", "--to", "end")
    assert (row["from"], row["to"], row["again"], row["skipped"]) == (8, 10, 0, 2)


def test_where_a_place_is_not_what_was_written_a_note_says_so(orders: Terminal) -> None:
    _, _, err = orders("group", "seek", "noted", "--to", "99", "--topic", "orders:1", "--dry-run")
    assert err.splitlines()[0] == "note: orders-1 does not reach offset 99 yet; it ends at 10"
    _, _, err = orders("group", "seek", "noted", "--to", "@2026-01-15", "--topic", "orders:1", "--dry-run")
    assert err.startswith("note: 2026-01-15 is taken as local time")


def test_what_cannot_be_moved_is_one_sentence(orders: Terminal) -> None:
    for code, words, told in (
        (exit_codes.NOT_FOUND, ("nobody", "--to", "start"), "there is no group 'nobody'"),
        (exit_codes.NOT_FOUND, ("g", "--to", "start", "--topic", "none"), "no topic 'none'"),
        (exit_codes.NOT_FOUND, ("g", "--to", "start", "--topic", "orders:9"), "has no partition 9"),
        (exit_codes.NOT_FOUND, ("g", "--to", "0=0,7=end", "--topic", "orders"), "has no partition 7; it has 0 to 1"),
        (exit_codes.USAGE, ("g", "--to", "1=end", "--topic", "orders:0"), "names partition 1 of orders; give one of 0"),
        (exit_codes.USAGE, ("g", "--to", "start", "--topic", "orders:x"), "is not a topic"),
        (exit_codes.USAGE, ("g", "--to", "2:5", "--topic", "orders"), "is a range"),
        (exit_codes.USAGE, ("g", "--to", "soon", "--topic", "orders"), "'soon' is not a place"),
        (exit_codes.USAGE, ("g", "--to", "@yesterday", "--topic", "orders"), "is not a time"),
    ):
        assert told in orders.refused(code, "group", "seek", *words)


def test_groups_are_forgotten_whole_or_in_one_topic(orders: Terminal) -> None:
    orders.done("group", "seek", "old", "--to", "start", "--topic", "orders")
    assert orders.done("group", "delete", "old", "--dry-run") == "old: would be deleted, 2 committed offsets\n"
    assert orders.json("group", "delete", "old", "--topic", "orders:0") == [
        {"group": "old", "status": "deleted", "offsets": 1}
    ]
    with orders.place.open() as log:
        assert list(log.committed("old")) == [("orders", 1)]
    orders.done("group", "delete", "old")
    assert "old" not in orders.done("group", "list", "-q").split()
    assert "there is no group 'old'" in orders.refused(exit_codes.NOT_FOUND, "group", "delete", "old")
    assert "does not exist" in orders.done("group", "delete", "old", "--if-exists")


@pytest.fixture(params=["broker", "served directory"])
def live(
    request: pytest.FixtureRequest, places: dict[str, Place], capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[Terminal, foldlog.Consumer]]:
    """A place whose group `live` has a member that has read and committed everything of a topic of its own."""
    terminal = Terminal(places[request.param], capsys)
    terminal.done("topic", "create", "ticks", "--if-not-exists")
    with terminal.place.open() as log:
        if log.offsets("ticks")[0][1] == 0:
            for number in range(5):
                log.append("ticks", str(number))
        log.reset_group("live", {("ticks", 0): "start"})
        with log.consumer(["ticks"], group="live", auto_offset_reset="earliest", auto_commit=False) as member:
            assert [record.offset for record in member.poll(timeout_ms=POLL_MS)] == list(range(5))
            member.commit()
            yield terminal, member


def test_a_group_with_members_stays_where_it_is_and_they_are_named(live: tuple[Terminal, foldlog.Consumer]) -> None:
    terminal, _ = live
    (described,) = terminal.json("group", "describe", "live")
    (member,) = described["members"]
    assert described["state"] == "Stable"
    assert described["cursors"][0]["member_id"] == member["member_id"]
    told = terminal.refused(exit_codes.IN_THE_WAY, "group", "seek", "live", "--to", "start")
    name = f"{member['client_id']}/{member['member_id']}"
    assert f"group 'live' has 1 member: {name} (127.0.0.1); stop them, or say --evict to make" in told
    assert "1 member" in terminal("group", "seek", "live", "--to", "start", "--dry-run")[2]
    with terminal.place.open() as log:
        assert log.committed("live")[TopicPartition("ticks", 0)].offset == 5
    assert terminal("group", "delete", "live")[0] == exit_codes.IN_THE_WAY


def test_what_a_member_has_and_nobody_committed_counts_from_the_logs_start(
    places: dict[str, Place], capsys: pytest.CaptureFixture[str]
) -> None:
    """One number for the command line and the library, of a member that has committed in one of its partitions."""
    terminal = Terminal(places["broker"], capsys)
    with terminal.place.open() as log:
        log.create_topic("wide", 4)
        for number in range(4):
            for _ in range(10 * (number + 1)):
                log.append("wide", "x", partition=number)
        log.delete_records("wide", {3: 5})
        with log.consumer(["wide"], group="partly", auto_commit=False, auto_offset_reset="earliest") as member:
            member.poll(timeout_ms=POLL_MS)
            member.commit({TopicPartition("wide", 1): 15})
            assert log.lag("partly") == {("wide", 0): 10, ("wide", 1): 5, ("wide", 2): 30, ("wide", 3): 35}
            for place in ("broker", "served directory"):
                at = Terminal(places[place], capsys)
                (row,) = at.json("group", "list", "partly")
                assert (row["lag"], row["uncommitted"]) == (80, 3)
                (found,) = at.json("group", "describe", "partly")
                assert [(one["committed"], one["lag"], one["counted_from"]) for one in found["cursors"]] == [
                    (None, 10, "log start"),
                    (15, 5, None),
                    (None, 30, "log start"),
                    (None, 35, "log start"),
                ]
                told = at.done("group", "describe", "partly")
                assert "lag 80\nnothing is committed in 3 partitions: the lag there counts from the log's start" in told
        assert log.lag("partly") == {("wide", 1): 5}


def test_a_fold_that_runs_is_no_empty_group(orders: Terminal) -> None:
    """It reads without joining: what its runner publishes says how it is."""
    with orders.place.open() as log:
        log.reset_group("fold.mirror", {("orders", 1): 4})
        if FOLDS_TOPIC not in log.topics(include_internal=True):
            log.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
        key = FoldsKey.of_directory(str(orders.place.directory))
        for updated_ms, state, members in (
            (SystemClock().now_ms() + 60_000, "fold caught up", 1),
            (SystemClock().now_ms() - 60_000, "fold not running", 0),
        ):
            told = Status(
                "mirror", "orders", "v", "table", "caught up", {}, {}, 0, 0, 0, 0.0, 0, 0, "", None, "h:1", updated_ms
            )
            name, value = encode(told)
            log.append(FOLDS_TOPIC, value, key=name, headers=[key.proof(name, value, SystemClock().now_ms())])
            (row,) = orders.json("group", "list", "fold.mirror")
            assert (row["state"], row["members"], row["lag"]) == (state, members, 6)


def test_evicted_members_come_back_and_read_on_from_the_new_place(live: tuple[Terminal, foldlog.Consumer]) -> None:
    terminal, member = live
    code, out, err = terminal("group", "seek", "live", "--to", "2", "--evict")
    assert (code, err) == (0, "3 offsets will be read again\n")
    assert out.splitlines()[1].split() == ["ticks", "0", "5", "2", "3", "0"]
    assert [record.offset for record in member.poll(timeout_ms=POLL_MS)] == [2, 3, 4]


def test_groups_in_which_copies_note_how_far_they_are_are_not_listed_among_readers(orders: Terminal) -> None:
    with orders.place.open() as log:
        for group in ("foldlog-copy", "foldlog-copy-check", "readers"):
            log.reset_group(group, {TopicPartition("orders", 1): 1})
    listed = orders.done("group", "list", "-q").split()
    assert "readers" in listed
    assert not {"foldlog-copy", "foldlog-copy-check"} & set(listed)
    assert {"foldlog-copy", "foldlog-copy-check"} < set(orders.done("group", "list", "-q", "--internal").split())
    assert orders.done("group", "list", "-q", "foldlog-copy") == "foldlog-copy\n", "who names it sees it"


def test_a_share_group_is_moved_from_where_it_is_and_never_by_sending_its_members_away(orders: Terminal) -> None:
    with orders.place.open() as log, log.queue("orders", group="packers", auto_offset_reset="earliest") as queue:
        taken: list[foldlog.Record] = []
        while len(taken) < 6:
            taken += queue.take(max_records=6 - len(taken), timeout_ms=POLL_MS)
        queue.ack(*taken)
        with pytest.raises(foldlog.errors.GroupNotEmpty, match=r"cannot be evicted.*share\.session\.timeout\.ms"):
            log.reset_group("packers", {("orders", 1): 0}, evict=True)
        if orders.place.name != "directory":
            told = orders.refused(exit_codes.IN_THE_WAY, "group", "seek", "packers", "--to", "start", "--evict")
            assert "cannot be evicted" in told
    assert "6 offsets would be read again" in orders("group", "seek", "packers", "--to", "start", "--dry-run")[2]
    rows = orders.json("group", "seek", "packers", "--to", "+2")
    assert [(one["partition"], one["from"], one["to"], one["again"]) for one in rows] == [(0, 0, 0, 0), (1, 6, 2, 4)]
    told = orders.refused(exit_codes.USAGE, "group", "delete", "packers", "--topic", "orders", "--yes")
    assert "group 'packers' belongs to a queue" in told
    assert orders.done("group", "delete", "packers", "--yes") == "packers: deleted, its place in 2 partitions\n"
