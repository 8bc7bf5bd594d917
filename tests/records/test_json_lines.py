"""Records as JSON lines: whatever bytes a record has, the line is JSON, one line, and gives the same bytes back; a line
that is no record is refused in one sentence. Pure.
"""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foldlog.records.json_lines import ParsedRecord, UnreadableLine, parse_line, record_line, record_lines_for_terminal
from foldlog.records.loops import Record

jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
json_bytes = st.builds(
    lambda document, indent, spaces: (spaces + json.dumps(document, indent=indent) + spaces).encode(),
    jsons,
    st.sampled_from([None, 0, 2]),
    st.sampled_from(["", " ", "\n", "\t"]),
)
payloads = st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=20).map(str.encode), json_bytes)
headers = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple)


@given(payloads, payloads, headers)
@example(b'{"base64": "aGk="}', b'{"base64": "!"}', ())
@example(b"null", b"null", (("null", b"null"),))
@example(b'"quoted"', b'"quoted"', ())
@example(b"", b"", (("", b""),))
@example(b"NaN", b"-Infinity", (("number", b"1.50"),))
@example(b"1" * 5000, b"1" * 5000, ())
@example(b"[" * 100_000, b"[" * 100_000, ())
@example(b'{"a": "\\ud800"}', b'{"a": 1, "a": 2}', (("a", b"1"), ("a", b"2")))
@example("\u2028\x85".encode(), b"1e999", ())
def test_whatever_a_record_holds_comes_back_from_its_line(
    key: bytes | None, value: bytes | None, given_headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    line = record_line(Record("orders", 3, 7, 1_700_000_000_123, 0, key, value, given_headers))
    assert line.endswith("}\n")
    assert line.count("\n") == 1
    assert isinstance(json.loads(line), dict)
    expected = ParsedRecord(key, value, given_headers, 3, 1_700_000_000_123)
    assert parse_line(line.encode()[:-1]) == expected
    # Written otherwise, it is read another way, to the same.
    assert parse_line(b" " + line.encode()) == expected


def test_a_line_that_only_begins_as_it_is_printed_is_refused_as_any_other() -> None:
    begun = b'{"topic":"orders","partition":0,"offset":0,"timestamp":5,"key":'
    for rest, said in (
        (b'"u1"}', 'has no "value"'),
        (b'"u1","value":1', "a comma or } is expected"),
        (b'"u1","value":1,"headers":[]} x', "something follows"),
        (b'"u1","value":1,"headers":[["a"]]}', "are not pairs"),
        (b'"u1","value":1,"value":2,"headers":[]}', "has the field 'value' twice"),
        (b'"u1","value":1,"headers":[],"headers":[]}', "has the field 'headers' twice"),
        (b'"u1","value":1,"extra":[],"headers":[]}', "has a field 'extra'"),
        (b'"u1","value":', "expecting value"),
    ):
        with pytest.raises(UnreadableLine, match=re.escape(said)):
            parse_line(begun + rest)
    assert parse_line(begun + b'"u1","value":1}') == ParsedRecord(b"u1", b"1", (), 0, 5)


@given(jsons, st.sampled_from(["", "\r", "\x7f", "\x9b"]))
def test_on_a_terminal_it_is_the_same_json(document: object, acting: str) -> None:
    value = json.dumps([document, f"a{acting}b"], ensure_ascii=False).replace(
        ", ", f",{acting.strip(chr(127) + chr(155))}"
    )
    record = Record("orders", 0, 0, 0, 0, None, value.encode())
    shown = record_lines_for_terminal([record])
    assert json.loads(shown) == json.loads(record_line(record))


@given(jsons)
def test_json_is_embedded_so_that_a_program_reads_it_as_what_it_is(document: object) -> None:
    """Unless it is text, or looks like the wrapping of bytes: those are strings."""
    is_embedded = not isinstance(document, str | None) and not (
        isinstance(document, dict) and set(document) == {"base64"}
    )
    text = json.dumps(document)
    shown = json.loads(record_line(Record("orders", 0, 0, 0, 0, None, text.encode())))["value"]
    assert shown == (document if is_embedded else text)


def test_the_fields_of_a_line_are_these_and_in_this_order() -> None:
    record = Record("orders", 1, 42, 1_700_000_000_000, 0, b"u1", b'{"n": 1}', (("source", b"web"), ("none", None)))
    assert record_line(record) == (
        '{"topic":"orders","partition":1,"offset":42,"timestamp":1700000000000,'
        '"key":"u1","value":{"n": 1},"headers":[["source","web"],["none",null]]}\n'
    )


def test_what_people_write_by_hand_is_taken() -> None:
    plain = parse_line(b' { "value" : "paid" , "headers" : {"source": "web", "n": 1, "none": null} } ')
    assert plain == ParsedRecord(None, b"paid", (("source", b"web"), ("n", b"1"), ("none", None)), None, None)
    assert parse_line(b'{"value":null,"key":"u1"}') == ParsedRecord(b"u1", None, (), None, None)
    assert parse_line(b'{"value":true,"timestamp":-1,"partition":null,"headers":null}').value == b"true"
    binary = base64.b64encode(b"\xff\x00").decode()
    assert parse_line(json.dumps({"key": {"base64": binary}, "value": [1]}).encode()).key == b"\xff\x00"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"paid", "is not a JSON object"),
        (b"[1]", "is not a JSON object"),
        (b"", "is not a JSON object"),
        (b"{", "a field's name in quotes is expected at character 2"),
        (b'{"value"', "a colon is expected at character 9"),
        (b'{"value":', "expecting value at character 10"),
        (b'{"value":1', "a comma or } is expected at character 11"),
        (b'{"value":1,}', "a field's name in quotes is expected at character 12"),
        (b'{"value":1} x', "something follows the object at character 12"),
        (b'{"value":"a', "unterminated string"),
        (b'{"value":NaN}', "NaN is not JSON"),
        (b'{"value":"\xff"}', "is not UTF-8 (byte 11 of the line)"),
        (b'{"value":' + b"[" * 100_000, "nested too deeply"),
        (b'{"key":"u1"}', 'has no "value"'),
        (b'{"value":1,"vaule":2}', "has a field 'vaule'"),
        (b'{"value":1,"value":2}', "has the field 'value' twice"),
        (b'{"value":"\\ud800"}', "half a surrogate pair"),
        (b'{"value":{"base64":"!"}}', "whose base64 is not base64"),
        (b'{"value":{"base64":7}}', "whose base64 is not base64"),
        (b'{"value":1,"partition":-1}', 'has a "partition" of -1'),
        (b'{"value":1,"partition":true}', 'has a "partition" of True'),
        (b'{"value":1,"timestamp":"now"}', "has a \"timestamp\" of 'now'"),
        (b'{"value":1,"headers":["a"]}', "are not pairs"),
        (b'{"value":1,"headers":"a"}', "are not pairs"),
    ],
)
def test_a_line_that_is_no_record_is_refused_in_one_sentence(line: bytes, said: str) -> None:
    with pytest.raises(UnreadableLine) as refused:
        parse_line(line)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.one_of(st.binary(max_size=60), st.text('{}[]":,valuekey1 \\', max_size=40).map(str.encode)))
def test_no_line_does_anything_but_parse_or_be_refused(line: bytes) -> None:
    try:
        parsed = parse_line(line)
    except UnreadableLine:
        return
    assert isinstance(parsed, ParsedRecord)
