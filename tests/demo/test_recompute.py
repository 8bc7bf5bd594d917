"""The replay in plain Python gives what a person would write down by hand, for every kind of view."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

import foldlog
from foldlog import Record
from foldlog.demo.proof import counted, decoded, is_same, kept, mirrored, poison_in

AT = "2026-01-15T10:30:12.500+00:00"
MINUTE = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)


def payment(amount_paise: int, merchant: str = "tea", at: str = AT) -> bytes:
    return json.dumps({"merchant": merchant, "amount_paise": amount_paise, "note": "order", "at": at}).encode()


@pytest.fixture
def records() -> Iterator[list[Record]]:
    """a is corrected, b is refunded, c is poison, d comes late."""
    with foldlog.open(":memory:") as log:
        log.create_topic("payments")
        for key, value in (
            ("a", payment(100)),
            ("b", payment(200)),
            ("a", payment(150)),
            ("c", b"<payment/>"),
            ("b", None),
            ("d", payment(7, at="2026-01-15T10:29:59+00:00")),
        ):
            log.append("payments", value, key=key, timestamp_ms=1000)
        yield list(log.read("payments"))


def test_a_mirror_has_the_newest_of_each_key_and_no_refunded_one(records: list[Record]) -> None:
    assert {row["tx_id"]: row["amount_paise"] for row in mirrored(records)} == {"a": 150, "d": 7}


def test_counters_count_every_payment_in_the_minute_of_its_own_time(records: list[Record]) -> None:
    assert counted(records) == [
        {"merchant": "tea", "window_start": MINUTE, "payments": 3, "paise": 450, "highest": 200},
        {
            "merchant": "tea",
            "window_start": MINUTE - timedelta(minutes=1),
            "payments": 1,
            "paise": 7,
            "highest": 7,
        },
    ]


def test_a_history_has_every_record_but_poison_and_where_it_stands(records: list[Record]) -> None:
    assert [(row["tx_id"], row["_offset"], row["_deleted"]) for row in kept(records)] == [
        ("a", 0, False),
        ("b", 1, False),
        ("a", 2, False),
        ("b", 4, True),
        ("d", 5, False),
    ]
    assert poison_in(records) == 1


@pytest.mark.parametrize("poison", [b"", b"[]", b"nine", b'{"amount_paise": "nine"}', b'{"amount_paise": 1.5}'])
def test_what_is_no_payment_is_poison(poison: bytes) -> None:
    assert decoded(poison) is None


def test_rows_are_compared_whatever_their_order_and_the_zone_their_times_are_told_in() -> None:
    elsewhere = MINUTE.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert is_same([{"a": 1, "at": MINUTE}, {"a": 2, "at": None}], [{"at": None, "a": 2}, {"at": elsewhere, "a": 1}])
    assert not is_same([{"a": 1}], [{"a": 1}, {"a": 1}])
    assert not is_same([{"a": 1}], [{"a": "1"}])
    assert not is_same([{"a": 1}], [{"a": 1, "b": None}])
