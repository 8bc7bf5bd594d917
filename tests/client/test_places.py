"""Places as people write them: every form means what the table in the docs says, whatever the log holds; nothing else
is taken, and what is refused is refused in one sentence. Pure, but for the last tests, which ask a real log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import foldlog
from foldlog.client.places import PlaceSpec, Point, Span, moved_starts, parse_place, parse_points, resolve
from foldlog.errors import InvalidArgument

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


class Shelf:
    """Two partitions whose record `n` was written at `n` seconds after 2026; what a log answers, without one."""

    ZERO_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000

    def __init__(self, bounds: dict[int, tuple[int, int]]) -> None:
        self.bounds = bounds

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        assert topic == "orders"
        return self.bounds

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        assert topic == "orders"
        wanted = -((self.ZERO_MS - timestamp_ms) // 1000)
        return {number: None if wanted >= end else max(start, wanted) for number, (start, end) in self.bounds.items()}


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("start", (10, None), (0, None)),
        ("end", (50, None), (5, None)),
        (":end", (10, 50), (0, 5)),
        ("start:end", (10, 50), (0, 5)),
        ("+10", (20, None), (5, None)),
        ("-10", (40, None), (0, None)),
        ("-10:", (40, None), (0, None)),
        ("-10:-5", (40, 45), (0, 0)),
        ("+1:+3", (11, 13), (1, 3)),
        ("20", (20, None), (5, None)),
        ("20:", (20, None), (5, None)),
        ("20:30", (20, 30), (5, 30)),
        (":20", (10, 20), (0, 20)),
        ("0:5", (10, 10), (0, 5)),
        ("@2026-01-01T00:00:20Z", (20, None), (5, None)),
        ("@2026-01-01T05:30:20+05:30", (20, None), (5, None)),
        ("@2026-01-01T00:00:20Z:", (20, None), (5, None)),
        ("@2026-01-01T00:00:20Z:10s", (20, 30), (5, 5)),
        ("@2026-01-01T00:00:20Z:2026-01-01T00:00:30Z", (20, 30), (5, 5)),
        ("@2026-01-01T00:00:02Z:end", (10, 50), (2, 5)),
        ("@:2026-01-01T00:00:03Z", (10, 10), (0, 3)),
        ("@2025-01-01T00:00Z", (10, None), (0, None)),
        ("@2027-01-01T00:00Z", (50, None), (5, None)),
    ],
)
def test_every_form_means_what_the_docs_say(
    text: str, first: tuple[int, int | None], second: tuple[int, int | None]
) -> None:
    assert resolve(parse_place(text), Shelf({0: (10, 50), 1: (0, 5)}), "orders") == {0: first, 1: second}


def test_times_ago_count_from_now_and_durations_from_the_start() -> None:
    shelf = Shelf({0: (0, 100_000)})
    now_ms = Shelf.ZERO_MS + 90_000_000
    assert resolve(parse_place("@-6h"), shelf, "orders", now_ms=now_ms) == {0: (90_000 - 6 * 3600, None)}
    assert resolve(parse_place("@-2h:-1h"), shelf, "orders", now_ms=now_ms) == {0: (90_000 - 7200, 90_000 - 3600)}
    assert resolve(parse_place("@-2h:30m"), shelf, "orders", now_ms=now_ms) == {0: (90_000 - 7200, 90_000 - 5400)}
    assert parse_place("@-1h30m").start == parse_place("@-1.5h").start == Point("ago", 5_400_000)
    assert parse_place("@-1d").start == parse_place("@-24h").start


def test_milliseconds_and_seconds_since_1970_are_told_by_their_digits() -> None:
    assert parse_place("@1700000000000").start == parse_place("@1700000000").start == Point("time", 1_700_000_000_000)
    assert parse_place("@1700000000000:1700000001000").stop == Point("time", 1_700_000_001_000)


@pytest.fixture
def in_india(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_india")
def test_a_time_without_a_zone_is_local_and_says_so() -> None:
    spec = parse_place("@2026-01-15T10:30")
    assert spec.start == parse_place("@2026-01-15T05:00Z").start
    assert spec.note == "2026-01-15T10:30 is taken as local time, 2026-01-15T10:30+05:30"
    assert parse_place("@2026-01-15").start == parse_place("@2026-01-14T18:30:00Z").start
    assert parse_place("@2026-01-15T10:30+05:30").note is None
    assert parse_place("@-6h").note is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a place"),
        (":", "is not a place"),
        ("begin", "is not a place"),
        ("1 0", "is not a place"),
        ("1:2:3", "is not a place"),
        ("--5", "is not a place"),
        ("\u0663", "is not a place"),  # an Arabic three: digits are those of ASCII
        ("@-\u0663h", "is not a time"),
        ("-6h", "a time begins with @, as in @-6h"),
        ("6h", "a time begins with @, as in @-6h"),
        ("2026-01-15T10:30", "a time begins with @, as in @2026-01-15T10:30"),
        ("9223372036854775808", "offsets are below 2**63"),
        ("9" * 5000, "offsets are below 2**63"),
        ("200:100", "stops before it starts"),
        ("-5:-10", "stops before it starts"),
        ("+5:+1", "stops before it starts"),
        ("end:5", "stops before it starts"),
        ("5:start", "stops before it starts"),
        ("@-1h:-2h", "stops before it starts"),
        ("@2026-01-02T00:00Z:2026-01-01T00:00Z", "stops before it starts"),
        ("@", "is not a time"),
        ("@25:30", "is not a time of the calendar"),
        ("0=5", "names partitions; give one place for all, such as"),
        ("@yesterday", "is not a time"),
        ("@123", "is not a time"),
        ("@-6y", "is not a time"),
        ("@2026-01-15T10:30:00+5", "is not a time"),
        ("@2026-02-30", "is not a time of the calendar"),
        ("@2026-01-15T25:00", "is not a time of the calendar"),
        ("@:1h", "has no time to count 1h from"),
        ("@-" + "9" * 300 + "w", "further away than a thousand years"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_place(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@given(st.one_of(st.text(max_size=30), st.text("0123456789:@+-TZhmsd. startend", max_size=30)))
@example("@2026-01-15T10:30:2026-01-15T11:30")
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    try:
        spec = parse_place(text)
    except InvalidArgument:
        return
    assert isinstance(spec, PlaceSpec)
    assert spec.text == text


bounds = st.tuples(st.integers(0, 100), st.integers(0, 100)).map(lambda pair: (min(pair), max(pair)))
points = st.one_of(
    st.sampled_from(["start", "end", "", "@2026-01-01T00:01Z"]),
    st.builds("{}{}".format, st.sampled_from(["", "+", "-"]), st.integers(0, 150)),
)


@given(points, st.one_of(st.none(), points), bounds, bounds)
def test_a_place_starts_in_the_log_and_never_stops_before_it_starts(
    start: str, stop: str | None, first: tuple[int, int], second: tuple[int, int]
) -> None:
    text = start if stop is None else f"{start}:{stop.removeprefix('@')}"
    try:
        spec = parse_place(text)
    except InvalidArgument:
        return
    spans = resolve(spec, Shelf({0: first, 1: second}), "orders", now_ms=NOW_MS)
    for (low, high), span in zip((first, second), spans.values(), strict=True):
        assert low <= span.start <= high
        if spec.is_range:
            assert span.stop is not None
            assert span.start <= span.stop
            assert span.stop <= high or (spec.stop is not None and spec.stop.kind == "offset")
        else:
            assert span.stop is None


seconds = st.integers(100_000_000, 4_000_000_000)


@given(seconds, seconds)
def test_a_range_of_times_is_split_where_its_second_time_begins(one: int, other: int) -> None:
    """Times have colons of their own; with seconds or without, the one between them is found."""
    for precision in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M+05:30"):
        early, late = (datetime.fromtimestamp(at, UTC).strftime(precision) for at in sorted((one, other)))
        spec = parse_place(f"@{early}:{late}")
        assert spec.start == parse_place(f"@{early}").start
        assert spec.stop == parse_place(f"@{late}").start


def test_an_offset_that_the_log_does_not_hold_is_told_of() -> None:
    held = {0: (10, 50), 1: (0, 5)}
    assert moved_starts(parse_place("7"), "orders", held) == [
        "orders-0 no longer holds offset 7; it starts at 10",
        "orders-1 does not reach offset 7 yet; it ends at 5",
    ]
    assert moved_starts(parse_place("+70"), "orders", held) == []
    assert moved_starts(parse_place("5:9"), "orders", {1: (0, 5)}) == []


def test_a_log_answers_for_its_places() -> None:
    with foldlog.open(":memory:") as log:
        log.create_topic("orders", partitions=2)
        for second in range(5):
            log.append("orders", "x", partition=0, timestamp_ms=Shelf.ZERO_MS + second * 1000)
        log.delete_records("orders", {0: 1})
        assert resolve(parse_place("@2026-01-01T00:00:03Z"), log, "orders") == {0: Span(3, None), 1: Span(0, None)}
        assert resolve(parse_place("0:2"), log, "orders") == {0: Span(1, 2), 1: Span(0, 2)}


def test_a_time_of_the_day_is_one_of_today_in_the_zone_of_whoever_wrote_it() -> None:
    now_ms = 1_768_473_000_000  # 2026-01-15T10:30Z: already the 16th in Auckland
    for text, zone, meant in (
        ("@9:30", "UTC", "@2026-01-15T09:30Z"),
        ("@10:30:15Z", "Pacific/Auckland", "@2026-01-15T10:30:15Z"),
        ("@00:10", "Pacific/Auckland", "@2026-01-14T11:10Z"),
        ("@00:10+13:00", "UTC", "@2026-01-14T11:10Z"),
        ("@2026-07-01T12:00", "Europe/Berlin", "@2026-07-01T10:00Z"),
    ):
        spec = parse_place(text, zone=zone, now_ms=now_ms)
        assert spec.start == parse_place(meant).start, text
        assert parse_place(spec.portable, zone="Asia/Tokyo", now_ms=0).start == spec.start, "and travels as such"
    hours = parse_place("@9:30:10:30", zone="UTC", now_ms=now_ms)
    assert (hours.start, hours.stop) == (Point("time", now_ms - HOUR_MS), Point("time", now_ms))


@given(st.text("0123456789:@+-=,TZhmsd. startend", max_size=30))
@example("@1700-01-01T00:00")
def test_what_travels_to_another_machine_means_the_same_there(text: str) -> None:
    for parse in (parse_place, parse_points):
        try:
            spec = parse(text, zone="Europe/Amsterdam", now_ms=NOW_MS)
        except InvalidArgument:
            continue
        there = parse(spec.portable, zone="Asia/Tokyo", now_ms=0)
        assert (there.start, there.stop, there.each, there.note) == (spec.start, spec.stop, spec.each, None)
