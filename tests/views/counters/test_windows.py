"""Windows and their widths as people write them."""

from __future__ import annotations

import pytest

from foldlog.errors import InvalidArgument
from foldlog.views.counters.windows import Window, parse_width_ms, parse_window


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
