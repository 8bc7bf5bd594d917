"""The JSON-lines node: request and answer lines, byte for byte, through a real process's stdin and stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from behaviours.steps import run_python

NODE = "import sys; from foldlog.cli.main import main; sys.exit(main(['node', *sys.argv[1:]]))"
INIT = {"type": "init", "msg_id": 1, "node_id": "n1", "node_ids": ["n1"]}


def request(body: dict[str, Any], source: str = "c1") -> str:
    return json.dumps({"src": source, "dest": "n1", "body": body})


def append(msg_id: int, message: Any, topic: str = "orders", **extra: Any) -> str:
    body = {"type": "partition_append", "msg_id": msg_id, "topic": topic, "partition": 0, "message": message}
    return request(body | extra)


def read(msg_id: int, offset: int, topic: str = "orders", **extra: Any) -> str:
    return request(
        {"type": "partition_read", "msg_id": msg_id, "topic": topic, "partition": 0, "offset": offset} | extra
    )


def run_node(lines: list[str], *arguments: str) -> list[str]:
    """The answer lines, the one to `init` first."""
    out = run_python(NODE, *arguments, stdin="\n".join([request(INIT, "c0"), *lines]) + "\n")
    return out.splitlines()


def bodies(lines: list[str], *arguments: str) -> list[dict[str, Any]]:
    """The bodies of the answers after init_ok."""
    return [json.loads(line)["body"] for line in run_node(lines, *arguments)[1:]]


APPEND_SAMPLE = """\
{"src": "n1", "dest": "c0", "body": {"type": "init_ok", "in_reply_to": 1, "msg_id": 0}}
{"src": "n1", "dest": "c1", "body": {"type": "partition_append_ok", "in_reply_to": 2, "offset": 0, "msg_id": 1}}
{"src": "n1", "dest": "c1", "body": {"type": "partition_append_ok", "in_reply_to": 3, "offset": 1, "msg_id": 2}}
"""

READ_SAMPLE = """\
{"src": "n1", "dest": "c0", "body": {"type": "init_ok", "in_reply_to": 1, "msg_id": 0}}
{"src": "n1", "dest": "c1", "body": {"type": "partition_append_ok", "in_reply_to": 2, "offset": 0, "msg_id": 1}}
{"src": "n1", "dest": "c1", "body": {"type": "partition_read_ok", "in_reply_to": 3, "message": "hello", "offset": 0, "msg_id": 2}}
"""  # noqa: E501


def test_append_answers_with_increasing_offsets_exactly_as_the_sample_shows() -> None:
    assert run_node([append(2, "msg-1"), append(3, "msg-2")]) == APPEND_SAMPLE.splitlines()


def test_read_answers_with_the_message_exactly_as_the_sample_shows() -> None:
    assert run_node([append(2, "hello", "t"), read(3, 0, "t")]) == READ_SAMPLE.splitlines()


def test_verbose_answers_carry_segment_timestamp_and_next_offset() -> None:
    appended, found = bodies([append(2, "order-1234", verbose=True), read(3, 0, verbose=True)])
    assert list(appended) == ["type", "in_reply_to", "offset", "segment", "timestamp", "msg_id"]
    assert appended["segment"] == "00000000000000000000.log"
    assert isinstance(appended["timestamp"], int)
    assert 1_600_000_000 < appended["timestamp"] < 10_000_000_000, "seconds, not milliseconds"
    assert list(found) == ["type", "in_reply_to", "message", "offset", "next_offset", "msg_id"]
    assert (found["offset"], found["next_offset"]) == (0, 1)


def test_segment_names_can_be_short_and_roll_at_the_count_the_text_shows() -> None:
    lines = [append(number + 2, f"m{number}") for number in range(1001)]
    answers = bodies(lines, "--verbose", "--short-names", "--segment-records", "1000")
    assert {answer["segment"] for answer in answers[:1000]} == {"00000000.log"}
    assert answers[1000]["segment"] == "00001000.log"


def test_info_tells_start_end_segments_and_bytes(tmp_path: Path) -> None:
    info = request({"type": "partition_info", "msg_id": 50, "topic": "orders", "partition": 0})
    lines = [append(number + 2, f"m{number}") for number in range(42)]
    answer = bodies([*lines, info], "--dir", str(tmp_path), "--segment-records", "30")[-1]
    assert list(answer) == [
        "type", "in_reply_to", "start_offset", "end_offset", "segments", "total_bytes", "msg_id",
    ]  # fmt: skip
    assert (answer["start_offset"], answer["end_offset"], answer["segments"]) == (0, 42, 2)
    assert answer["total_bytes"] == sum(file.stat().st_size for file in (tmp_path / "orders-0").glob("*.log"))


def test_a_message_comes_back_as_it_was_sent() -> None:
    messages = ["text", {"nested": ["json", 1, None, True]}, 7, None, "ünï\ncode"]
    lines = [line for at, message in enumerate(messages) for line in (append(2, message), read(3, at))]
    assert [body["message"] for body in bodies(lines)[1::2]] == messages


def test_a_group_commits_its_offset_and_fetches_it_back() -> None:
    place = {"group": "fraud", "topic": "orders", "partition": 0}
    commit, fetch, stranger = bodies(
        [
            append(2, "a"),
            request({"type": "commit_offset", "msg_id": 3, **place, "offset": 1}),
            request({"type": "fetch_offset", "msg_id": 4, **place}),
            request({"type": "fetch_offset", "msg_id": 5, **place, "group": "never-committed"}),
        ]
    )[1:]
    assert commit == {"type": "commit_offset_ok", "in_reply_to": 3, "msg_id": 2}
    assert fetch == {"type": "fetch_offset_ok", "in_reply_to": 4, "offset": 1, "msg_id": 3}
    assert stranger == {"type": "fetch_offset_ok", "in_reply_to": 5, "offset": 0, "msg_id": 4}


def test_a_node_with_a_directory_remembers(tmp_path: Path) -> None:
    place = {"group": "fraud", "topic": "orders", "partition": 0}
    bodies(
        [append(2, "a"), request({"type": "commit_offset", "msg_id": 3, **place, "offset": 1})], "--dir", str(tmp_path)
    )
    found, appended, fetched = bodies(
        [read(2, 0), append(3, "b"), request({"type": "fetch_offset", "msg_id": 4, **place})], "--dir", str(tmp_path)
    )
    assert (found["message"], appended["offset"], fetched["offset"]) == ("a", 1, 1)


def test_what_cannot_be_done_is_an_error_reply_and_the_node_goes_on() -> None:
    broken = [
        read(9, 1),
        read(9, 10**12),
        read(9, -1),
        read(9, 0, topic="never-written"),
        request({"type": "partition_read", "msg_id": 9, "topic": "orders", "partition": 7, "offset": 0}),
        request({"type": "partition_append", "msg_id": 9, "topic": "orders", "partition": -1, "message": "x"}),
        request({"type": "partition_append", "msg_id": 9}),
        request({"type": "dance", "msg_id": 9}),
    ]
    _, *answers = bodies([append(2, "a"), *(line for one in broken for line in (one, append(10, "b")))])
    assert len(answers) == 2 * len(broken)
    for at, (error, after) in enumerate(zip(answers[::2], answers[1::2], strict=True)):
        assert (error["type"], error["in_reply_to"]) == ("error", 9), broken[at]
        assert isinstance(error["code"], int)
        assert error["text"]
        assert (after["type"], after["offset"]) == ("partition_append_ok", at + 1), broken[at]


def test_a_line_that_is_no_message_does_not_stop_the_node() -> None:
    rubbish = ["{", "", "[]", '"text"', '{"src": "c1"}', "nonsense \x00"]
    answers = bodies([append(2, "a"), *(line for one in rubbish for line in (one, append(3, "b")))])
    appended = [body["offset"] for body in answers if body["type"] == "partition_append_ok"]
    assert appended == list(range(len(rubbish) + 1))


def test_the_kafka_workload_of_maelstrom_is_served() -> None:
    sent_1, sent_2, polled, committed, listed = bodies(
        [
            request({"type": "send", "msg_id": 2, "key": "k1", "msg": 9}),
            request({"type": "send", "msg_id": 3, "key": "k1", "msg": 5}),
            request({"type": "poll", "msg_id": 4, "offsets": {"k1": 0}}),
            request({"type": "commit_offsets", "msg_id": 5, "offsets": {"k1": 1}}),
            request({"type": "list_committed_offsets", "msg_id": 6, "keys": ["k1", "unknown"]}),
        ]
    )
    assert (sent_1["type"], sent_1["offset"], sent_2["offset"]) == ("send_ok", 0, 1)
    assert (polled["type"], polled["msgs"]) == ("poll_ok", {"k1": [[0, 9], [1, 5]]})
    assert committed["type"] == "commit_offsets_ok"
    assert (listed["type"], listed["offsets"]) == ("list_committed_offsets_ok", {"k1": 1})
