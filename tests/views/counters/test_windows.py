"""Windows and their widths as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from foldlog.errors import InvalidArgument
from foldlog.views.counters.windows import (
    Sessions,
    Window,
    parse_width_ms,
    parse_window,
    sessions,
    window,
    window_from_json,
    window_to_json,
)


@pytest.mark.parametrize(
    ("text", "width_ms"),
    [
        ("1 minute", 60_000),
        ("15 seconds", 15_000),
        ("1 hour", 3_600_000),
        ("1 day", 86_400_000),
        ("2 weeks", 1_209_600_000),
        ("250 milliseconds", 250),
        ("  5  Minutes ", 300_000),
        ("90second", 90_000),
        ("1.5 hours", 5_400_000),
        ("7d12h", 648_000_000),
    ],
)
def test_a_width_is_numbers_and_units(text: str, width_ms: int) -> None:
    assert parse_width_ms(text) == width_ms


@pytest.mark.parametrize("text", ["", "minute", "1", "1 month", "-1 day", "1 minute 5", 60, None, "\u0661 day"])
def test_what_is_no_width_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(InvalidArgument, match="'1 minute'"):
        parse_width_ms(text)


@pytest.mark.parametrize("text", ["0 seconds", "367 days", "999999999999 weeks"])
def test_a_width_of_nothing_or_of_more_than_a_year_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="between 1 millisecond and 366 days"):
        parse_width_ms(text)


def test_a_window_is_a_column_and_a_width() -> None:
    assert parse_window(("at", "1 minute")) == Window("at", 60_000)
    assert parse_window(["at", "1 minute"]) == Window("at", 60_000)
    assert parse_window(Window("at", 5)) == Window("at", 5)
    assert parse_window(None) is None


@pytest.mark.parametrize("window", ["1 minute", ("at",), ("at", "1 minute", 3), (3, "1 minute"), ("", "1 minute")])
def test_a_window_of_another_form_is_refused(window: object) -> None:
    with pytest.raises(InvalidArgument, match=r"\('at', '1 minute'\)"):
        parse_window(window)


WINDOWS: dict[str, Window | Sessions] = {
    "1m of at": window("at", "1 minute"),
    "1h every 15m of at": window("at", "1 hour", every="15 minutes"),
    "1d of at in Asia/Kolkata": window("at", "1 day", zone="Asia/Kolkata"),
    "3 months of at in UTC": window("at", "1 quarter"),
    "12 months of at in Europe/Berlin": window("at", "1 Year", zone="Europe/Berlin"),
    "sessions of at with a gap of 30m": sessions("at", "30 minutes"),
}


@pytest.mark.parametrize("text", WINDOWS)
def test_a_window_is_told_and_stored(text: str) -> None:
    made = WINDOWS[text]
    assert str(made) == text
    assert window_from_json(window_to_json(made)) == made
    assert parse_window(made) is made


def test_a_plain_window_is_stored_as_it_always_was() -> None:
    assert window_to_json(Window("at", 60_000)) == ["at", 60_000]
    assert window_from_json(["at", 60_000]) == Window("at", 60_000)
    assert window("at", "1 hour", every="1 hour") == Window("at", 3_600_000)
    assert window_from_json({"column": "at", "gap_ms": 5}) == Sessions("at", 5)
    with pytest.raises(TypeError):
        window_from_json(5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"width": "1 hour", "every": "2 hours"}, "would leave out what is between them"),
        ({"width": "1 day", "every": "1 second"}, "in more than 1000 windows"),
        ({"width": "5 hours", "zone": "Europe/Berlin"}, "a part of a day, such as '6 hours', or days"),
        ({"width": "36 hours", "zone": "Europe/Berlin"}, "a part of a day"),
        ({"width": "1 day", "zone": "CET"}, "is no time zone; name one"),
        ({"width": "1 day", "zone": "Europe/Atlantis"}, "is no time zone"),
        ({"width": "1 day", "zone": "../etc/passwd"}, "is no time zone"),
        ({"width": "1 day", "zone": 5}, "is no time zone"),
        ({"width": "5 months"}, "is no part of a year"),
        ({"width": "1 month", "every": "1 day"}, "follow the calendar"),
        ({"width": "1 day", "column": ""}, "a window is of a timestamp column"),
    ],
)
def test_a_window_that_cannot_be_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        window(**{"column": "at", **arguments})
