"""The JSON-lines node: every request has the answer its protocol says, whatever the line holds.

`LogNode` is driven without a process, over a log in memory; the samples of the protocol's text go through a real
process and are compared byte for byte. A hypothesis model sends random requests and compares with plain lists.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.command import COMMAND, WAIT_S, environment, foldlog
from cli.serving import ANY_PORT, serving
from foldlog import open as opened
from foldlog.broker.broker import Broker
from foldlog.cli.node.messages import LINE_BYTES_MAX, topic_of_key
from foldlog.cli.node.requests import NEW_PARTITIONS_MAX, POLL_RECORDS_MAX, WORKLOAD_GROUP, LogNode, NodeOptions
from foldlog.errors import PartitionPoisoned, StorageFull
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from foldlog.testing.sim_clock import SimClock

MALFORMED, NOT_SUPPORTED, UNAVAILABLE, CRASH, ABORT, NOT_THERE, PRECONDITION = 12, 10, 11, 13, 14, 20, 22


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open(":memory:", clock=SimClock(1_700_000_000_123), background=False) as opened:
        yield opened


@pytest.fixture
def node(broker: Broker) -> LogNode:
    return LogNode(broker, NodeOptions())


def ask(node: LogNode, kind: str, **fields: Any) -> dict[str, Any]:
    """The body of the answer to one request."""
    line = json.dumps({"src": "c1", "dest": "n1", "body": {"type": kind, "msg_id": 7, **fields}}).encode()
    body = node.handle(line)
    assert body is not None
    assert body["in_reply_to"] == 7
    return body


def append(node: LogNode, message: Any, topic: str = "orders", partition: int = 0, **fields: Any) -> dict[str, Any]:
    return ask(node, "partition_append", topic=topic, partition=partition, message=message, **fields)


def read(node: LogNode, offset: Any, topic: str = "orders", partition: int = 0, **fields: Any) -> dict[str, Any]:
    return ask(node, "partition_read", topic=topic, partition=partition, offset=offset, **fields)


APPENDS = b"""\
{"src": "n1", "dest": "c0", "body": {"type": "init_ok", "in_reply_to": 1, "msg_id": 0}}
{"src": "n1", "dest": "c1", "body": {"type": "partition_append_ok", "in_reply_to": 2, "offset": 0, "msg_id": 1}}
{"src": "n1", "dest": "c1", "body": {"type": "partition_append_ok", "in_reply_to": 3, "offset": 1, "msg_id": 2}}
{"src": "n1", "dest": "c1", "body": {"type": "partition_append_ok", "in_reply_to": 2, "offset": 0, "msg_id": 3}}
"""


def test_the_samples_of_the_text_are_answered_byte_for_byte() -> None:
    done = foldlog(
        "node",
        stdin=b"""\
{"src":"c0","dest":"n1","body":{"type":"init","msg_id":1,"node_id":"n1","node_ids":["n1"]}}
{"src":"c1","dest":"n1","body":{"type":"partition_append","msg_id":2,"topic":"orders","partition":0,"message":"msg-1"}}
{"src":"c1","dest":"n1","body":{"type":"partition_append","msg_id":3,"topic":"orders","partition":0,"message":"msg-2"}}
{"src":"c1","dest":"n1","body":{"type":"partition_append","msg_id":2,"topic":"t","partition":0,"message":"hello"}}
{"src":"c1","dest":"n1","body":{"type":"partition_read","msg_id":3,"topic":"t","partition":0,"offset":0}}
""",
    )
    assert (done.returncode, done.stderr) == (0, b"")
    first, last = done.stdout[: len(APPENDS)], done.stdout[len(APPENDS) :]
    assert first == APPENDS
    assert last == (
        b'{"src": "n1", "dest": "c1", "body": {"type": "partition_read_ok", "in_reply_to": 3, "message": "hello",'
        b' "offset": 0, "msg_id": 4}}\n'
    )


def test_a_line_without_its_newline_at_the_end_of_the_input_is_answered_too() -> None:
    done = foldlog("node", stdin=b'{"src":"c0","dest":"n1","body":{"type":"init","msg_id":1,"node_id":"n1"}}')
    assert b"init_ok" in done.stdout


def test_a_directory_keeps_records_and_commits_over_restarts(tmp_path: Path) -> None:
    place = '"topic":"t","partition":0'
    first = foldlog(
        "node", "--dir", str(tmp_path),
        stdin=f"""\
{{"src":"c","dest":"n","body":{{"type":"partition_append","msg_id":1,{place},"message":{{"a":[1,null]}}}}}}
{{"src":"c","dest":"n","body":{{"type":"commit_offset","msg_id":2,"group":"g",{place},"offset":1}}}}
""".encode(),
    )  # fmt: skip
    assert first.returncode == 0
    second = foldlog(
        "node", "--dir", str(tmp_path),
        stdin=f"""\
{{"src":"c","dest":"n","body":{{"type":"partition_read","msg_id":1,{place},"offset":0}}}}
{{"src":"c","dest":"n","body":{{"type":"fetch_offset","msg_id":2,"group":"g",{place}}}}}
""".encode(),
    )  # fmt: skip
    bodies = [json.loads(line)["body"] for line in second.stdout.splitlines()]
    assert (bodies[0]["message"], bodies[1]["offset"]) == ({"a": [1, None]}, 1)


def test_extra_fields_come_when_asked_for_in_the_places_the_text_shows(broker: Broker) -> None:
    node = LogNode(broker, NodeOptions(segment_records=2, short_names=True))
    assert list(append(node, "a")) == ["type", "in_reply_to", "offset"]
    append(node, "b")
    answer = append(node, "c", verbose=True)
    assert list(answer.items())[2:] == [("offset", 2), ("segment", "00000002.log"), ("timestamp", 1_700_000_000)]
    assert list(read(node, 1, verbose=True).items())[2:] == [("message", "b"), ("offset", 1), ("next_offset", 2)]
    assert list(read(node, 1, verbose="yes")) == ["type", "in_reply_to", "message", "offset"]


def test_info_has_its_fields_in_the_order_of_the_text(node: LogNode, broker: Broker) -> None:
    append(node, "a")
    answer = ask(node, "partition_info", topic="orders", partition=0)
    size = broker.partition("orders", 0).size_bytes
    assert list(answer.items())[2:] == [("start_offset", 0), ("end_offset", 1), ("segments", 1), ("total_bytes", size)]


def test_an_existing_topic_rolls_as_the_command_line_says(broker: Broker) -> None:
    broker.create_topic("orders")
    node = LogNode(broker, NodeOptions(segment_records=1, verbose=True))
    names = [append(node, number)["segment"] for number in range(3)]
    assert names == [f"{number:020d}.log" for number in range(3)]


def test_a_higher_partition_number_grows_the_topic(node: LogNode, broker: Broker) -> None:
    append(node, "a")
    assert append(node, "b", partition=4)["offset"] == 0
    assert broker.topic("orders").partition_count == 5
    assert read(node, 0, partition=4)["message"] == "b"
    assert read(node, 0, partition=3)["code"] == NOT_THERE, "it exists, and nothing is in it"


@pytest.mark.parametrize(
    "message",
    [
        "text",
        "",
        "ünï\ncode \U0001f600",
        "\ud800",
        0,
        -1,
        10**30,
        1.5,
        1e-300,
        True,
        None,
        [],
        {},
        {"a": [{"b": None}]},
    ],
)
def test_any_json_value_comes_back_as_it_was_sent(node: LogNode, message: Any) -> None:
    append(node, message)
    found = read(node, 0)["message"]
    assert found == message
    assert type(found) is type(message)


def test_appends_that_are_begun_together_share_their_sync(broker: Broker) -> None:
    node = LogNode(broker, NodeOptions())
    append(node, "first")
    partition = broker.partition("orders", 0)
    lines = [
        json.dumps({"src": "c", "dest": "n", "body": {
            "type": "partition_append", "msg_id": number, "topic": "orders", "partition": 0, "message": number,
        }}).encode()
        for number in range(5)
    ]  # fmt: skip
    answers = [node.begin(line) for line in lines]
    assert partition.durable_offset == 1, "nothing waits yet"
    first = answers[0]
    assert first is not None
    assert first.body()["offset"] == 1
    assert partition.durable_offset == 6, "and one sync serves them all"


def test_an_append_whose_sync_failed_is_an_indefinite_error(
    node: LogNode, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(node, "a")

    def fail(self: Partition, next_offset: int) -> None:
        raise PartitionPoisoned("the disk is gone")

    monkeypatch.setattr(Partition, "wait_acknowledged", fail)
    answer = append(node, "b")
    assert (answer["type"], answer["code"], answer["text"]) == ("error", CRASH, "the disk is gone (restart the node)")


def test_a_full_disk_is_a_definite_error_that_may_pass(node: LogNode, monkeypatch: pytest.MonkeyPatch) -> None:
    append(node, "a")

    def fail(self: Partition, buffer: bytearray) -> None:
        raise StorageFull("no space")

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "append", fail)
        assert append(node, "b")["code"] == UNAVAILABLE
    assert append(node, "b")["offset"] == 1


def test_a_fault_of_ours_is_answered_and_the_node_goes_on(
    node: LogNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append(node, "a")

    def fail(self: Partition, buffer: bytearray) -> None:
        raise ZeroDivisionError("of all things")

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "append", fail)
        answer = append(node, "b")
    assert (answer["code"], "of all things" in answer["text"]) == (CRASH, True)
    assert caplog.records
    assert append(node, "b")["offset"] == 1


PLACE = {"topic": "orders", "partition": 0}


@pytest.mark.parametrize(
    ("code", "kind", "fields"),
    [
        (NOT_THERE, "partition_read", {**PLACE, "offset": 1}),
        (NOT_THERE, "partition_read", {**PLACE, "offset": 10**12}),
        (NOT_THERE, "partition_read", {**PLACE, "offset": -1}),
        (NOT_THERE, "partition_read", {"topic": "orders", "partition": 1, "offset": 0}),
        (NOT_THERE, "partition_read", {"topic": "nowhere", "partition": 0, "offset": 0}),
        (NOT_THERE, "partition_info", {"topic": "nowhere", "partition": 0}),
        (NOT_THERE, "partition_info", {"topic": "orders", "partition": 1}),
        (NOT_SUPPORTED, "dance", {}),
        (NOT_SUPPORTED, "", {}),
        (MALFORMED, "init", {}),
        (MALFORMED, "init", {"node_id": 3}),
        (MALFORMED, "partition_append", {}),
        (MALFORMED, "partition_append", PLACE),
        (MALFORMED, "partition_append", {**PLACE, "partition": -1, "message": 1}),
        (MALFORMED, "partition_append", {**PLACE, "partition": True, "message": 1}),
        (MALFORMED, "partition_append", {**PLACE, "partition": "0", "message": 1}),
        (MALFORMED, "partition_append", {**PLACE, "partition": 0.0, "message": 1}),
        (PRECONDITION, "partition_append", {**PLACE, "partition": 10**9, "message": 1}),
        (MALFORMED, "partition_append", {**PLACE, "topic": 5, "message": 1}),
        (MALFORMED, "partition_append", {**PLACE, "topic": "../out", "message": 1}),
        (MALFORMED, "partition_append", {**PLACE, "topic": "", "message": 1}),
        (MALFORMED, "partition_append", {**PLACE, "topic": "__consumer_offsets", "message": 1}),
        (MALFORMED, "partition_append", {**PLACE, "message": "x" * (2 << 20)}),
        (MALFORMED, "partition_read", PLACE),
        (MALFORMED, "partition_read", {**PLACE, "offset": "0"}),
        (MALFORMED, "partition_read", {**PLACE, "offset": 10**30}),
        (MALFORMED, "commit_offset", {**PLACE, "offset": 1}),
        (MALFORMED, "commit_offset", {**PLACE, "group": "g", "offset": None}),
        (MALFORMED, "commit_offset", {**PLACE, "group": "g", "offset": -5}),
        (MALFORMED, "fetch_offset", {**PLACE, "group": ""}),
        (MALFORMED, "send", {"msg": 1}),
        (MALFORMED, "send", {"key": "k"}),
        (MALFORMED, "send", {"key": [], "msg": 1}),
        (MALFORMED, "poll", {}),
        (MALFORMED, "poll", {"offsets": []}),
        (MALFORMED, "poll", {"offsets": {"k": "0"}}),
        (MALFORMED, "list_committed_offsets", {"keys": "k"}),
        (MALFORMED, "list_committed_offsets", {"keys": [None]}),
    ],
)
def test_what_cannot_be_done_has_the_code_that_says_why(
    node: LogNode, code: int, kind: str, fields: dict[str, Any]
) -> None:
    append(node, "a")
    answer = ask(node, kind, **fields)
    assert (answer["type"], answer["code"]) == ("error", code), answer
    assert list(answer) == ["type", "in_reply_to", "code", "text"]
    assert answer["text"]
    assert append(node, "b")["offset"] == 1, "and the node goes on"


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'"text"',
        b"{}",
        b'{"body": []}',
        b'{"body": {}}',
        b'{"body": {"type": 3}}',
        b"\xff\xfe",
        b"nonsense \x00",
        b"[" * 100_000,
        b'{"src": "c", "body": {"type": "send", "key": "k", "msg": NaN}}',
        b'{"src": "c", "body": {"type": "send", "key": "k", "msg": 1e999}}',
        b'{"src": "c", "body": {"type": "send", "key": "k", "msg": ' + b"1" * 5000 + b"}}",
        b" " * (LINE_BYTES_MAX + 1),
    ],
)
def test_a_line_that_is_no_message_is_a_malformed_request(node: LogNode, line: bytes) -> None:
    body = node.handle(line)
    assert body is not None
    assert (body["type"], body["in_reply_to"], body["code"]) == ("error", None, MALFORMED)


def test_an_answer_is_not_answered(node: LogNode) -> None:
    for kind in ("error", "send_ok"):
        assert node.handle(json.dumps({"body": {"type": kind, "in_reply_to": 3}}).encode()) is None


def test_a_record_that_is_not_json_is_an_error_of_its_own(node: LogNode, broker: Broker) -> None:
    broker.create_topic("orders")
    partition = broker.partition("orders", 0)
    assert isinstance(partition, Partition)
    partition.append(pack([(0, None, b"not json", ()), (0, None, None, ())]))
    assert read(node, 0)["code"] == ABORT
    assert read(node, 1)["message"] is None, "a tombstone is null"


def test_a_group_that_never_committed_is_at_0(node: LogNode) -> None:
    assert ask(node, "fetch_offset", group="g", topic="nowhere", partition=3)["offset"] == 0


def test_a_group_commits_and_fetches_and_others_do_not_notice(node: LogNode) -> None:
    append(node, "a")
    assert list(ask(node, "commit_offset", group="g", **PLACE, offset=1)) == ["type", "in_reply_to"]
    assert ask(node, "fetch_offset", group="g", **PLACE)["offset"] == 1
    assert ask(node, "fetch_offset", group="h", **PLACE)["offset"] == 0


# The kafka workload


def test_committed_offsets_of_the_workload_are_inclusive_there_and_the_next_offset_in_the_log(
    node: LogNode, broker: Broker
) -> None:
    for value in (9, 5, 4):
        ask(node, "send", key="k1", msg=value)
    ask(node, "commit_offsets", offsets={"k1": 1})
    assert ask(node, "list_committed_offsets", keys=["k1", "k2"])["offsets"] == {"k1": 1}
    assert broker.committed(WORKLOAD_GROUP)["key.k1", 0].offset == 2
    assert ask(node, "commit_offsets", offsets={})["type"] == "commit_offsets_ok"


def test_a_poll_answers_from_each_offset_on_and_leaves_out_what_was_never_sent(node: LogNode) -> None:
    for value in (9, 5, 4):
        ask(node, "send", key="k1", msg=value)
    ask(node, "send", key=2, msg="two")
    answer = ask(node, "poll", offsets={"k1": 1, "2": 0, "k3": 0})
    assert answer["msgs"] == {"k1": [[1, 5], [2, 4]], "2": [[0, "two"]]}
    assert ask(node, "poll", offsets={"k1": 3})["msgs"] == {"k1": []}
    assert ask(node, "poll", offsets={"k1": 99})["msgs"] == {"k1": []}
    assert ask(node, "poll", offsets={"k1": -1})["msgs"] == {"k1": [[0, 9], [1, 5], [2, 4]]}


def test_one_append_makes_a_bounded_number_of_partitions(node: LogNode, broker: Broker) -> None:
    refused = append(node, 1, partition=NEW_PARTITIONS_MAX)
    assert (refused["code"], "at most 64 more" in refused["text"]) == (PRECONDITION, True)
    assert "orders" not in broker.topics()
    assert append(node, 1, partition=NEW_PARTITIONS_MAX - 1)["offset"] == 0
    assert append(node, 1, partition=2 * NEW_PARTITIONS_MAX)["code"] == PRECONDITION
    assert broker.topic("orders").partition_count == NEW_PARTITIONS_MAX
    assert append(node, 1, partition=NEW_PARTITIONS_MAX)["offset"] == 0
    assert broker.topic("orders").partition_count == NEW_PARTITIONS_MAX + 1


def test_an_unknown_topic_is_answered_with_advice_for_who_sends_requests(node: LogNode) -> None:
    assert read(node, 0, topic="nowhere")["text"] == "no topic 'nowhere'; the first append to it makes it"


def test_a_group_that_never_committed_is_at_0_even_of_a_topic_that_is_not_there(node: LogNode) -> None:
    assert ask(node, "fetch_offset", group="g", topic="nowhere", partition=0)["offset"] == 0


def test_a_poll_is_bounded_and_goes_on_where_it_ended(node: LogNode, broker: Broker) -> None:
    ask(node, "send", key="k", msg=0)
    partition = broker.partition("key.k", 0)
    assert isinstance(partition, Partition)
    partition.append(pack([(0, None, b"%d" % number, ()) for number in range(1, POLL_RECORDS_MAX + 5)]))
    first = ask(node, "poll", offsets={"k": 0})["msgs"]["k"]
    assert len(first) == POLL_RECORDS_MAX
    rest = ask(node, "poll", offsets={"k": first[-1][0] + 1})["msgs"]["k"]
    assert [message for _, message in first + rest] == list(range(POLL_RECORDS_MAX + 5))


@given(st.lists(st.text(max_size=400), unique=True, max_size=20))
def test_every_key_has_a_topic_of_its_own_with_a_legal_name(keys: list[str]) -> None:
    names = [topic_of_key(key) for key in keys]
    assert len(set(names)) == len(names)
    assert all(0 < len(name) <= 249 for name in names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") for name in names)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "read", "send", "poll", "commit"]), st.sampled_from(["a", "b", "ü"]), JSON,
              st.integers(0, 6)),
    max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_random_requests_agree_with_plain_lists(steps: list[tuple[str, str, Any, int]]) -> None:
    with Broker.open(":memory:", background=False) as broker:
        node = LogNode(broker, NodeOptions())
        partitions: dict[int, list[Any]] = {}
        keys: dict[str, list[Any]] = {}
        committed: dict[str, int] = {}
        for kind, key, value, number in steps:
            if kind == "append":
                log = partitions.setdefault(number % 2, [])
                assert append(node, value, partition=number % 2)["offset"] == len(log)
                log.append(value)
            elif kind == "read":
                log = partitions.get(number % 2, [])
                answer = read(node, number, partition=number % 2)
                assert answer.get("message") == (log[number] if number < len(log) else None)
                assert (answer["type"] == "error") == (number >= len(log))
            elif kind == "send":
                log = keys.setdefault(key, [])
                assert ask(node, "send", key=key, msg=value)["offset"] == len(log)
                log.append(value)
            elif kind == "poll":
                expected = {known: [[at, one] for at, one in enumerate(log)][number:] for known, log in keys.items()}
                assert ask(node, "poll", offsets=dict.fromkeys(keys, number))["msgs"] == expected
            elif key in keys:
                ask(node, "commit_offsets", offsets={key: number})
                committed[key] = number
        assert ask(node, "list_committed_offsets", keys=["a", "b", "ü"])["offsets"] == committed


# --- commits before anything is written -----------------------------------------------------------------------------


def test_a_group_commits_where_nothing_was_written_yet_byte_for_byte() -> None:
    done = foldlog(
        "node",
        stdin=b"""\
{"src":"c0","dest":"n1","body":{"type":"init","msg_id":1,"node_id":"n1","node_ids":["n1"]}}
{"src":"c1","dest":"n1","body":{"type":"commit_offset","msg_id":2,"group":"g1","topic":"t1","partition":0,"offset":10}}
{"src":"c1","dest":"n1","body":{"type":"fetch_offset","msg_id":3,"group":"g1","topic":"t1","partition":0}}
{"src":"c1","dest":"n1","body":{"type":"fetch_offset","msg_id":4,"group":"g2","topic":"t1","partition":0}}
""",
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (
        done.stdout
        == b"""\
{"src": "n1", "dest": "c0", "body": {"type": "init_ok", "in_reply_to": 1, "msg_id": 0}}
{"src": "n1", "dest": "c1", "body": {"type": "commit_offset_ok", "in_reply_to": 2, "msg_id": 1}}
{"src": "n1", "dest": "c1", "body": {"type": "fetch_offset_ok", "in_reply_to": 3, "offset": 10, "msg_id": 2}}
{"src": "n1", "dest": "c1", "body": {"type": "fetch_offset_ok", "in_reply_to": 4, "offset": 0, "msg_id": 3}}
"""
    )


def test_a_key_that_was_never_sent_is_committed(node: LogNode) -> None:
    assert ask(node, "commit_offsets", offsets={"k1": 3, "k2": 0})["type"] == "commit_offsets_ok"
    assert ask(node, "list_committed_offsets", keys=["k1", "k2", "k3"])["offsets"] == {"k1": 3, "k2": 0}
    assert ask(node, "send", key="k1", msg="first")["offset"] == 0


def test_a_commit_far_beyond_the_partitions_there_are_is_refused_as_an_append_is(node: LogNode) -> None:
    refused = ask(node, "commit_offset", group="g", topic="t", partition=NEW_PARTITIONS_MAX, offset=1)
    assert (refused["type"], refused["code"]) == ("error", PRECONDITION)


# --- several nodes --------------------------------------------------------------------------------------------------


def line(kind: str, to: str = "n1", **fields: Any) -> bytes:
    return json.dumps({"src": "c1", "dest": to, "body": {"type": kind, "msg_id": 7, **fields}}).encode()


def test_a_message_for_another_node_is_not_answered(node: LogNode) -> None:
    assert ask(node, "init", node_id="n1", node_ids=["n1"])["type"] == "init_ok"
    assert node.begin(line("send", to="n2", key="k", msg="x")) is None
    assert node.begin(line("init", to="n2", node_id="n2", node_ids=["n2"])) is None
    answer = node.begin(line("send", key="k", msg="x"))
    assert answer is not None
    assert (answer.source, answer.body()["offset"]) == ("n1", 0), "and what was not for it was not written"


def test_several_nodes_without_a_directory_are_refused(node: LogNode) -> None:
    refused = ask(node, "init", node_id="n1", node_ids=["n1", "n2", "n3"])
    assert (refused["type"], refused["code"]) == ("error", NOT_SUPPORTED)
    assert "one of 3 nodes" in refused["text"]
    assert "--dir" in refused["text"]
    assert ask(node, "send", key="k", msg="x")["code"] == NOT_SUPPORTED, "it would be one node's own truth"
    assert ask(node, "init", node_id="n1", node_ids="n1")["code"] == MALFORMED


def test_a_node_keeps_the_name_that_it_was_given(node: LogNode) -> None:
    assert ask(node, "init", node_id="n1", node_ids=["n1"])["type"] == "init_ok"
    refused = ask(node, "init", node_id="n2", node_ids=["n2"])
    assert (refused["type"], refused["code"]) == ("error", PRECONDITION)
    assert refused["text"] == "this is node 'n1' already; start another process for 'n2'"
    assert ask(node, "init", node_id="n1", node_ids=["n1"])["type"] == "init_ok"


def test_a_node_that_is_none_of_those_there_are_is_refused(node: LogNode) -> None:
    refused = ask(node, "init", node_id="n1", node_ids=["n2", "n3"])
    assert (refused["type"], refused["code"]) == ("error", MALFORMED)
    assert refused["text"] == "init has the node_id 'n1', which is not among its node_ids: n2, n3"
    assert ask(node, "init", node_id="n1", node_ids=[])["code"] == MALFORMED
    assert ask(node, "init", node_id="n2", node_ids=["n2"])["type"] == "init_ok", "it has no name yet"


class NodeProcess:
    """A node that is talked to line by line."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [*COMMAND, "node", "--dir", str(directory)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def tell(self, kind: str, **fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line(kind, to=self.name, **fields) + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        body: dict[str, Any] = json.loads(self.process.stdout.readline())["body"]
        assert body["type"] != "error", body
        return body

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        self.tell(kind, **fields)
        return self.hear()

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(WAIT_S)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    """Three that were started together with one directory, and know of each other."""
    names = ["n1", "n2", "n3"]
    started = [NodeProcess(name, tmp_path / "data") for name in names]
    try:
        for one in started:
            one.tell("init", node_id=one.name, node_ids=names)
        assert [one.hear()["type"] for one in started] == ["init_ok"] * 3
        yield started
    finally:
        for one in started:
            one.process.kill()
            one.process.communicate()


def test_several_nodes_with_one_directory_are_one_log(nodes: list[NodeProcess]) -> None:
    offsets = [nodes[number % 3].ask("send", key="k", msg=number)["offset"] for number in range(12)]
    assert offsets == list(range(12))
    nodes[1].ask("commit_offsets", offsets={"k": 4})
    for one in nodes:
        assert one.ask("poll", offsets={"k": 0})["msgs"]["k"] == [[number, number] for number in range(12)]
        assert one.ask("list_committed_offsets", keys=["k"])["offsets"] == {"k": 4}
    for number, one in enumerate(nodes):  # all at once: no offset is given twice
        for message in range(20):
            one.tell("send", key="shared", msg=[number, message])
    given = {one.name: [one.hear()["offset"] for _ in range(20)] for one in nodes}
    assert sorted(offset for found in given.values() for offset in found) == list(range(60))
    assert all(found == sorted(found) for found in given.values())


def test_a_node_ends_and_the_others_go_on(nodes: list[NodeProcess]) -> None:
    """Also where it is the one that writes: whoever is left does it then."""
    sent = 0
    while nodes:
        for one in nodes:
            assert one.ask("send", key="k", msg=sent)["offset"] == sent
            sent += 1
        assert len(nodes[0].ask("poll", offsets={"k": 0})["msgs"]["k"]) == sent
        assert nodes.pop(0).end() == 0


def test_a_node_joins_the_broker_that_serves_its_directory(tmp_path: Path) -> None:
    with serving(str(tmp_path), *ANY_PORT) as broker, opened(tmp_path) as log:
        log.create_topic("orders")
        log.append("orders", "by a program", partition=0)
        done = foldlog(
            "node", "--dir", str(tmp_path), "--verbose",
            stdin=line("partition_read", topic="orders", partition=0, offset=0) + b"\n"
            + line("partition_append", topic="orders", partition=0, message="by a node") + b"\n"
            + line("partition_info", topic="orders", partition=0) + b"\n"
            + line("commit_offset", topic="orders", partition=0, group="g", offset=2) + b"\n",
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        read_back, appended, info, committed = (json.loads(text)["body"] for text in done.stdout.splitlines())
        assert (read_back["code"], "not written as JSON" in read_back["text"]) == (ABORT, True)
        assert (appended["offset"], appended["segment"]) == (1, "00000000000000000000.log")
        assert (info["start_offset"], info["end_offset"], info["segments"]) == (0, 2, 1)
        assert committed["type"] == "commit_offset_ok"
        assert [record.value for record in log.read("orders")] == [b"by a program", b'"by a node"']
        assert log.committed("g")[("orders", 0)].offset == 2  # type: ignore[index]
        assert broker.end() == 0
