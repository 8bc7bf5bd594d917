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
        "group": "slow", "state": "Empty", "protocol": None, "members": 0, "lag": 6, "topics": ["orders"],
    }  # fmt: skip
    assert orders.done("group", "list", "slow").splitlines()[1].split() == ["slow", "Empty", "0", "6", "orders"]
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
        (exit_codes.USAGE, ("g", "--to", "start", "--topic", "orders:x"), "is not a topic"),
        (exit_codes.USAGE, ("g", "--to", "2:5", "--topic", "orders"), "is a range"),
        (exit_codes.USAGE, ("g", "--to", "soon", "--topic", "orders"), "'soon' is not a place"),
        (exit_codes.USAGE, ("g", "--to", "@yesterday", "--topic", "orders"), "is not a time"),
    ):
        assert told in orders.refused(code, "group", "seek", *words)


def test_groups_are_forgotten_whole_or_in_one_topic(orders: Terminal) -> None:
    orders.done("group", "seek", "old", "--to", "start", "--topic", "orders")
    assert orders.done("group", "delete", "old", "--dry-run") == "old: would be forgotten, 2 committed offsets\n"
    assert orders.json("group", "delete", "old", "--topic", "orders:0") == [
        {"group": "old", "status": "forgotten", "offsets": 1}
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
    assert f"group 'live' has 1 member: {member['member_id']} (127.0.0.1); stop them, or say --evict" in told
    assert "1 member" in terminal("group", "seek", "live", "--to", "start", "--dry-run")[2]
    with terminal.place.open() as log:
        assert log.committed("live")[TopicPartition("ticks", 0)].offset == 5
    assert terminal("group", "delete", "live")[0] == exit_codes.IN_THE_WAY


def test_evicted_members_come_back_and_read_on_from_the_new_place(live: tuple[Terminal, foldlog.Consumer]) -> None:
    terminal, member = live
    code, out, err = terminal("group", "seek", "live", "--to", "2", "--evict")
    assert (code, err) == (0, "3 offsets will be read again\n")
    assert out.splitlines()[1].split() == ["ticks", "0", "5", "2", "3", "0"]
    assert [record.offset for record in member.poll(timeout_ms=POLL_MS)] == [2, 3, 4]
