"""Whatever is asked of the console, it answers in JSON: what cannot be with 400 or 404 and one sentence, never 500."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.limits import HTTP_BODY_BYTES_MAX, HTTP_HEADER_BYTES_MAX
from server.console.console_site import Answer, ConsoleSite, console

REFUSALS = {400, 403, 404, 405, 409, 415}


@pytest.fixture(scope="module")
def site() -> Iterator[ConsoleSite]:
    with console() as opened:
        opened.broker.create_topic("orders")
        opened.append("orders", 0, (b"k", b"v"), (b"k", None))
        opened.broker.commit_offsets("fraud", {("orders", 0): OffsetAndMetadata(1)})
        yield opened


def is_one_sentence(answer: Answer) -> bool:
    sentence = answer.json["error"]
    return isinstance(sentence, str) and bool(sentence) and "\n" not in sentence and "Traceback" not in sentence


NUMBERS = ["", "-2", "x", "1.5", "1e3", "0x1", " 1", "+1", "٣", "9" * 20, "9" * 5000, "NaN", "null", "%00", "-", "--1"]
STRIP = "/api/topics/orders/0/strip"


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "path",
    [
        f"{STRIP}?from=@", f"{STRIP}?cells=@", f"{STRIP}?at=@", "/api/topics/orders/0/records/@",
        "/api/topics/orders/0/at?offset=@", "/api/topics/orders/@/strip", "/api/topics/orders/@/records/0",
    ],
)  # fmt: skip
def test_what_is_no_number_is_one_sentence(site: ConsoleSite, path: str, number: str) -> None:
    answer = site.ask("GET", path.replace("@", quote(number)))
    assert answer.status in (400, 404)
    assert is_one_sentence(answer)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{STRIP}?cells=0", 400), ("GET", f"{STRIP}?cells=401", 400), ("GET", f"{STRIP}?from=0&at=0", 400),
        ("GET", f"{STRIP}?at=-1", 400), ("GET", "/api/topics/orders/0/at", 400), ("GET", "/api", 404),
        ("GET", "/api/", 404), ("GET", "/api/topics", 405), ("GET", "/api/topics/", 404),
        ("GET", "/api/topics/none", 404), ("GET", "/api/topics/none/0/strip", 404),
        ("GET", "/api/topics/orders/1/strip", 404), ("GET", "/api/groups/none", 404), ("GET", "/api/groups/", 404),
        ("GET", "/api/groups/%ED%A0%80", 404), ("GET", "/api/topics/%00", 404), ("GET", "/api/topics/..%2F..", 404),
        ("GET", "/console/..%2F__init__.py", 404), ("GET", "/console/../site.py", 404), ("GET", "//", 404),
        ("GET", "/api/topics/orders/records", 405), ("DELETE", "/api/overview", 405), ("POST", "/api/overview", 405),
        ("POST", "/api/nothing", 404),
    ],
)  # fmt: skip
def test_what_is_not_there_is_one_sentence(site: ConsoleSite, method: str, path: str, status: int) -> None:
    answer = site.ask(method, path, headers={"Content-Type": "application/json", "X-Foldlog": "1"})
    assert answer.status == status
    assert is_one_sentence(answer)


def test_what_is_too_long_to_be_read_is_one_sentence_too(site: ConsoleSite) -> None:
    """Such requests end with their connection, before any handler is asked."""
    long = site.ask("POST", "/api/topics/orders/records", b"x" * (HTTP_BODY_BYTES_MAX + 1))
    assert long.status == 413
    assert is_one_sentence(long)
    wide = site.ask("GET", "/api/overview?" + "x" * 10 * HTTP_HEADER_BYTES_MAX)
    assert wide.status in (400, 431)
    assert is_one_sentence(wide)


BODIES = [
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff", b'{"key": 1}', b'{"key": []}', b'{"value": {"base64": "!"}}',
    b'{"value": {"base64": 1}}', b'{"value": {}}', b'{"key": "\\ud800"}', b'{"headers": 1}', b'{"headers": [1]}',
    b'{"headers": [["a"]]}', b'{"headers": [[1, "x"]]}', b'{"headers": [["\\ud800", "x"]]}', b'{"partition": "0"}',
    b'{"partition": -1}', b'{"partition": true}', b'{"partition": 1.0}', b'{"partition": 1e999}', b'{"vlaue": "x"}',
    b'{"partition": NaN}', b'{"partition": 99999999999999999999}', b"[" * 100_000, b'{"a":' * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:24]))
def test_a_record_that_is_none_is_one_sentence_and_nothing_is_appended(site: ConsoleSite, body: bytes) -> None:
    answer = site.ask(
        "POST", "/api/topics/orders/records", body, {"Content-Type": "application/json", "X-Foldlog": "1"}
    )
    assert answer.status == 400
    assert is_one_sentence(answer)
    assert site.broker.partition("orders", 0).high_watermark == 2


@pytest.mark.parametrize(
    "change",
    [
        {"topic": None}, {"topic": 1}, {"partition": None}, {"partition": "0"}, {"offset": None}, {"offset": -1},
        {"offset": "1"}, {"offset": 3}, {"evict": 1}, {"evict": "yes"}, {"extra": 1},
    ],
)  # fmt: skip
def test_a_rewind_to_nowhere_is_one_sentence_and_moves_nothing(site: ConsoleSite, change: dict[str, Any]) -> None:
    answer = site.post("/api/groups/fraud/rewind", {"topic": "orders", "partition": 0, "offset": 0} | change)
    assert answer.status == 400
    assert is_one_sentence(answer)
    assert site.broker.committed("fraud")["orders", 0].offset == 1


ANYTHING = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
PIECES = st.one_of(
    st.sampled_from(
        ["api", "topics", "orders", "0", "strip", "records", "at", "groups", "fraud", "overview", "console"]
    ),
    st.text(alphabet=string.printable, max_size=6),
    ANYTHING,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANYTHING,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANYTHING, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(PIECES, max_size=6),
    query=st.dictionaries(st.sampled_from(["from", "cells", "at", "offset", "token"]) | ANYTHING, ANYTHING, max_size=3),
)
def test_any_path_is_answered(site: ConsoleSite, pieces: list[str], query: dict[str, str]) -> None:
    path = "/" + "/".join(quote(piece, safe="") for piece in pieces)
    path += "?" + "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())
    answer = site.ask("GET", path.replace("/api/events", "/api/event"))
    assert answer.status == 200 or (answer.status in REFUSALS and is_one_sentence(answer))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/api/topics/none/records", "/api/groups/nobody/rewind", "/api/groups/fraud/rewind"]),
    body=st.dictionaries(
        st.sampled_from(["key", "value", "headers", "partition", "topic", "offset", "evict"]), VALUES, max_size=4
    ),
)
def test_any_body_is_answered(site: ConsoleSite, path: str, body: dict[str, Any]) -> None:
    body = {**body, "evict": False} if path.startswith("/api/groups") else body
    answer = site.ask("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json", "X-Foldlog": "1"})
    assert answer.status == 200 or (answer.status in REFUSALS and is_one_sentence(answer))
