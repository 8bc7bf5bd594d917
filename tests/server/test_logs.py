"""What the process logs: one line an event, whatever is in it, for people or as JSON.

Records go through real loggers into a stream of the test's.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.server import process_log as logs


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _the_loggers_of_others_are_put_back() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("foldlog")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before
    ours.setLevel(before[2])


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def fail(depth: int) -> None:
    if depth == 0:
        raise KeyError("gone")
    fail(depth - 1)


def test_a_line_has_its_time_its_level_its_logger_and_its_message() -> None:
    stream = io.StringIO()
    logs.configure("text", "info", stream)
    logging.getLogger("foldlog.server").warning("%s: connection closed: %s", "127.0.0.1:1", "too long")
    (line,) = lines(stream)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING server: 127\.0\.0\.1:1: connection closed: too long", line
    )


def test_the_time_is_in_utc_whatever_the_machines_zone_is() -> None:
    record = logging.makeLogRecord({"msg": "x", "created": 0.25, "msecs": 250.0, "name": "foldlog.log"})
    assert logs.TextLines(colours=False).format(record).startswith("1970-01-01T00:00:00.250Z")
    assert json.loads(logs.JsonLines().format(record))["ts"] == "1970-01-01T00:00:00.250Z"


def test_json_has_the_fields_that_a_call_adds() -> None:
    stream = io.StringIO()
    logs.configure("json", "debug", stream)
    extra = {"client": "127.0.0.1:1", "api": "Fetch", "connection": 7, "peer": object}
    logging.getLogger("foldlog.server").debug("closed: %s", "é", extra=extra)
    event = json.loads(stream.getvalue())
    assert event["level"] == "debug"
    assert event["logger"] == "foldlog.server"
    assert event["message"] == "closed: é"
    assert (event["client"], event["api"], event["connection"]) == ("127.0.0.1:1", "Fetch", 7)
    assert event["peer"] == str(object)
    assert set(event) == {"ts", "level", "logger", "message", "client", "api", "connection", "peer"}


def test_an_unexpected_error_is_one_line_with_the_way_to_it() -> None:
    for log_format in ("text", "json"):
        stream = io.StringIO()
        logs.configure(log_format, "info", stream)
        try:
            fail(20)
        except KeyError:
            logging.getLogger("foldlog.server").exception("a handler failed")
        (line,) = lines(stream)
        if log_format == "json":
            event = json.loads(line)
            assert event["error"] == "KeyError: 'gone'"
            assert event["traceback"].startswith("Traceback (most recent call last)")
        else:
            assert "a handler failed: KeyError: 'gone' (test_logs.py:" in line
            assert line.count(" < ") == 7, "the innermost calls, not all"


def test_an_error_without_words_is_its_name() -> None:
    stream = io.StringIO()
    logs.configure("text", "info", stream)
    logging.getLogger("foldlog").error("failed", exc_info=ValueError())
    assert lines(stream)[0].endswith("failed: ValueError")


@given(st.text(max_size=30))
def test_no_text_of_a_client_begins_a_line_of_its_own_or_reaches_the_terminal(text: str) -> None:
    record = logging.makeLogRecord({"msg": "client %s", "args": (text,), "name": "foldlog.server"})
    for formatter in (logs.TextLines(colours=False), logs.JsonLines()):
        assert formatter.format(record).isprintable()
    assert json.loads(logs.JsonLines().format(record))["message"] == f"client {text}"


def test_libraries_are_heard_from_a_warning_on_and_we_from_the_level_on() -> None:
    stream = io.StringIO()
    logs.configure("text", "debug", stream)
    logging.getLogger("asyncio").info("slow callback")
    logging.getLogger("asyncio").error("an exception was never retrieved")
    logging.getLogger("foldlog.log").debug("rolled")
    assert [line.split(" ", 1)[1] for line in lines(stream)] == [
        "ERROR   asyncio: an exception was never retrieved",
        "DEBUG   log: rolled",
    ]
    logs.configure("text", "error", stream)
    logging.getLogger("foldlog.log").warning("quiet now")
    assert len(lines(stream)) == 2


def test_configuring_again_does_not_log_twice() -> None:
    stream = io.StringIO()
    logs.configure("text", "info", stream)
    logs.configure("text", "info", stream)
    logging.getLogger("foldlog").info("once")
    assert len(lines(stream)) == 1


def test_colours_are_for_terminals_whose_owner_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        logs.configure("text", "info", stream)
        logging.getLogger("foldlog").error("red")
    assert "\x1b[31mERROR  \x1b[0m" in terminal.getvalue()
    assert "\x1b" not in file.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    logs.configure("text", "info", plain)
    logging.getLogger("foldlog").error("not red")
    assert "\x1b" not in plain.getvalue()
