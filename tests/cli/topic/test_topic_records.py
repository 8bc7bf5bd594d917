"""Records on the command line: what is produced is consumed, as text and as JSON, from every place of a topic; a table
is read out of a log; mistakes are one sentence, with what was written before them said.

Everything against a directory, a broker, and a directory that a broker serves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.records.record_places import RecordPlace, all_places
from foldlog.client.outgoing import partition_for_key

BINARY = bytes(range(128, 160))
TIME_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RecordPlace]]:
    with all_places(tmp_path_factory.mktemp("records")) as found:
        yield found


@pytest.fixture(params=["directory", "broker", "served"])
def place(request: pytest.FixtureRequest, places: dict[str, RecordPlace]) -> RecordPlace:
    return places[request.param]


@pytest.fixture
def directory(places: dict[str, RecordPlace]) -> RecordPlace:
    """For what does not depend on where the topic is."""
    return places["directory"]


def test_what_the_topic_would_delete_at_once_is_told_once(place: RecordPlace, caplog: pytest.LogCaptureFixture) -> None:
    """By the log itself, or, of a broker that others may run, by the command."""
    week, forever = place.topic(), place.topic()
    with place.log() as log:
        log.alter_topic(week, {"retention.ms": 604_800_000})
    line = json.dumps({"value": "old", "timestamp": 1_000_000_000_000}).encode() + b"\n"
    done = place.did("produce", forever, "--format", "json", stdin=line)
    assert done.err + caplog.text == f"1 record written to {forever}\n"
    done = place.did("produce", week, "--format", "json", stdin=line * 3)
    told = done.err + caplog.text
    assert told.count(f"topic '{week}' gets records that are older than its retention.ms (604800000)") == 1
    assert f"3 records written to {week}\n" in done.err


# --- there and back -------------------------------------------------------------------------------------------------


def test_lines_go_in_and_come_out(place: RecordPlace) -> None:
    topic = place.topic()
    done = place.did("produce", topic, stdin=b"one\n\nthree \xff\nlast")
    assert done.out == b""
    assert done.err == f"4 records written to {topic}\n"
    assert place.did("consume", topic).out == b"one\n\nthree \xff\nlast\n"


def test_a_topic_comes_back_the_same_through_json_lines(place: RecordPlace) -> None:
    """Partitions, timestamps, headers, tombstones and bytes that are no text included."""
    topic, copy = place.topic(3), place.topic(3)
    with place.log() as log, log.producer() as producer:
        producer.send(topic, b'{"n":  1}', key="u1", timestamp_ms=TIME_MS)
        producer.send(topic, None, key="u1", timestamp_ms=TIME_MS + 1)
        producer.send(
            topic, BINARY, key=BINARY, headers=[("a", b"1"), ("a", BINARY), ("b", None)], timestamp_ms=TIME_MS
        )
        producer.send(topic, '{\n "pretty": true\n}', partition=2, timestamp_ms=TIME_MS + 5)
        producer.send(topic, "", partition=0, timestamp_ms=TIME_MS + 6)
    lines = place.did("consume", topic, "--format", "json").out
    assert place.did("produce", copy, "--format", "json", stdin=lines).err == f"5 records written to {copy}\n"
    assert place.did("consume", copy, "--format", "json").out == lines.replace(topic.encode(), copy.encode())
    assert json.loads(lines.splitlines()[-1])["partition"] == 2


def test_keys_headers_and_partitions_are_set_for_every_line(place: RecordPlace) -> None:
    topic = place.topic(3)
    place.did(
        "produce", topic, "-k", "u1", "-p", "2", "-H", "source=web", "-H", "trace=", "-z", "zstd", stdin=b"a\nb\n"
    )
    assert place.did("consume", topic, "-f", "%p@%o %k %v %h\\n").lines == [
        "2@0 u1 a source=web,trace=",
        "2@1 u1 b source=web,trace=",
    ]


def test_a_delimiter_parts_keys_from_values(place: RecordPlace) -> None:
    topic = place.topic()
    place.did("produce", topic, "-K", "\\t", stdin=b"u1\ta\tb\nu2\t\n\tc\n")
    assert place.did("consume", topic, "-f", "<%k|%v>").out == b"<u1|a\tb><u2|><|c>"


def test_tombstones_delete_the_key_that_is_named_or_those_in_the_lines(place: RecordPlace) -> None:
    topic = place.topic()
    place.did("produce", topic, "-K", ":", stdin=b"u1:a\nu2:b\nu3:c\nu4:d\n")
    place.did("produce", topic, "-k", "u1", "--tombstone")
    place.did("produce", topic, "--tombstone", stdin=b"u3\nu4\n")
    assert place.did("latest", topic, "-f", "%k=%v\\n").lines == ["u2=b"]
    assert place.did("consume", topic, "-o", "-3", "-Z", "-f", "%k=%v ").out == b"u1=NULL u3=NULL u4=NULL "


def test_files_are_read_in_order_and_a_dash_is_standard_input(directory: RecordPlace, tmp_path: Path) -> None:
    topic = directory.topic()
    (tmp_path / "one").write_bytes(b"1\n2")
    (tmp_path / "two").write_bytes(b"4\n")
    directory.did("produce", topic, str(tmp_path / "one"), "-", str(tmp_path / "two"), stdin=b"3\n")
    assert directory.did("consume", topic).lines == ["1", "2", "3", "4"]
    directory.did("produce", topic, "-k", "u1", str(tmp_path / "two"))
    assert directory.did("consume", topic, "-o", "-1", "-f", "%k=%v").out == b"u1=4"


def test_keys_of_json_lines_find_their_partitions_anew_when_asked(place: RecordPlace) -> None:
    """A topic with fewer partitions does not have those that the lines name."""
    wide, narrow = place.topic(5), place.topic(2)
    place.did("produce", wide, "-p", "4", "-k", "u1", stdin=b"paid\n")
    lines = place.did("consume", wide, "--format", "json").out
    refused = place.run("produce", narrow, "--format", "json", stdin=lines)
    assert refused.code == 1
    assert "line 1 of standard input cannot be written" in refused.err
    assert "or give -p key" in refused.err
    place.did("produce", narrow, "--format", "json", "-p", "key", stdin=lines)
    assert place.did("latest", narrow, "--key", "u1", "-f", "%v").out == b"paid"


# --- where to read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "seen"),
    [
        ((), "0@0 0@1 0@2 0@3 1@0 1@1"),
        (("-o", "start"), "0@0 0@1 0@2 0@3 1@0 1@1"),
        (("-o", "-1"), "0@3 1@1"),
        (("-o", "+3"), "0@3"),
        (("-o", "1:3"), "0@1 0@2 1@1"),
        (("-o", ":1"), "0@0 1@0"),
        (("-o", "-3:-1"), "0@1 0@2 1@0"),
        (("-o", "@2023-11-14T22:13:22Z"), "0@2 0@3 1@1"),
        (("-o", "@2023-11-14T22:13:21Z:1s"), "0@1 1@0"),
        (("-n", "5"), "0@0 0@1 0@2 0@3 1@0"),
        (("-p", "1"), "1@0 1@1"),
        (("-p", "1,0", "-n", "3"), "1@0 1@1 0@0"),
    ],
)
def test_a_place_says_what_is_read(places: dict[str, RecordPlace], where: tuple[str, ...], seen: str) -> None:
    for place in (places["directory"], places["broker"]):
        topic = _timed_topic(place)
        assert place.did("consume", topic, *where, "-f", "%p@%o ").out.decode().split() == seen.split(), place.kind


_timed: dict[str, str] = {}


def _timed_topic(place: RecordPlace) -> str:
    """Records a second apart: four in partition 0 from 22:13:20 on, two in partition 1 from 22:13:21 on."""
    if place.kind not in _timed:
        topic = _timed[place.kind] = place.topic(2)
        with place.log() as log, log.producer() as producer:
            for second in range(4):
                producer.send(topic, b"x", partition=0, timestamp_ms=TIME_MS + second * 1000)
            for second in range(2):
                producer.send(topic, b"x", partition=1, timestamp_ms=TIME_MS + (second + 1) * 1000)
    return _timed[place.kind]


def test_several_topics_are_read_in_the_order_given(place: RecordPlace) -> None:
    one, two = place.topic(), place.topic()
    place.did("produce", one, stdin=b"1\n")
    place.did("produce", two, stdin=b"2\n")
    assert place.did("consume", two, one).lines == ["2", "1"]


def test_what_is_not_there_any_more_is_told_of(place: RecordPlace) -> None:
    topic = place.topic()
    place.did("produce", topic, stdin=b"0\n1\n2\n")
    with place.log() as log:
        log.delete_records(topic, {0: 2})
    done = place.did("consume", topic, "-o", "1")
    assert done.lines == ["2"]
    assert done.err == f"note: {topic}-0 no longer holds offset 1; it starts at 2\n"
    done = place.did("consume", topic, "-o", "end")
    assert done.out == b""
    assert "--follow waits" in done.err


def test_a_group_reads_on_from_where_it_is(place: RecordPlace) -> None:
    topic = place.topic(2)
    group = f"readers-{topic}"
    place.did("produce", topic, "-p", "0", stdin=b"0\n1\n2\n")
    place.did("produce", topic, "-p", "1", stdin=b"3\n4\n")
    first = place.did("consume", topic, "--group", group, "-n", "2").lines
    rest = place.did("consume", topic, "--group", group).lines
    assert sorted(first + rest) == ["0", "1", "2", "3", "4"]
    with place.log() as log:
        assert set(log.lag(group).values()) == {0}
    nothing = place.did("consume", topic, "--group", group)
    assert nothing.out == b""
    assert "nothing that group" in nothing.err


def test_a_member_without_a_partition_says_so(places: dict[str, RecordPlace]) -> None:
    place = places["served"]
    topic = place.topic(1)
    place.did("produce", topic, stdin=b"0\n")
    with place.log() as log, log.consumer([topic], group="full"):
        done = place.did("consume", topic, "--group", "full")
    assert done.out == b""
    assert done.err == "note: other members of group full hold every partition, so there was none to read here\n"


def test_a_count_ends_even_what_follows(place: RecordPlace) -> None:
    topic = place.topic(2)
    place.did("produce", topic, "-p", "0", stdin=b"0\n1\n2\n")
    assert place.did("consume", topic, "--follow", "-n", "2", "-p", "0").lines == ["0", "1"]
    assert place.did("consume", topic, "--follow", "-o", "1:3", "-p", "0").lines == ["1", "2"]


# --- tables ---------------------------------------------------------------------------------------------------------


def test_a_log_read_as_a_table(place: RecordPlace) -> None:
    topic = place.topic(3)
    with place.log() as log, log.producer() as producer:
        for number, (key, value) in enumerate(
            [("u1", "a"), ("u2", "b"), ("u1", "c"), ("u3", "d"), ("u2", None), ("u4", "e"), (None, "keyless")]
        ):
            producer.send(topic, value, key=key, timestamp_ms=TIME_MS + number * 1000)
    table = place.did("latest", topic)
    assert table.lines == ["KEY  VALUE", "u1   c", "u3   d", "u4   e"]
    assert table.err == "note: 1 record without a key is not in the table\n"
    assert place.did("latest", topic, "-n", "1", "-f", "%k").out == b"u4"
    assert place.did("latest", topic, "--as-of", "@2023-11-14T22:13:22Z", "-f", "%k=%v ").out == b"u1=a u2=b "
    assert place.did("latest", topic, "--key", "u1", "-f", "%v").out == b"c"
    assert place.did("latest", topic, "--key", "u1", "--as-of", "@2023-11-14T22:13:22Z", "-f", "%v").out == b"a"
    rows = [json.loads(line) for line in place.did("latest", topic, "--format", "json").lines]
    assert (rows[0]["key"], rows[0]["value"], rows[0]["timestamp"]) == ("u1", "c", TIME_MS + 2000)
    assert place.did("history", topic, "--key", "u2", "-Z", "-f", "%v ").out == b"b NULL "
    assert place.did("history", topic, "--key", "u1", "-n", "1", "-f", "%v").out == b"c"
    assert len(place.did("history", topic, "--key", "u1").lines) == 3


def test_a_key_that_is_not_in_the_table_is_exit_code_3(place: RecordPlace) -> None:
    topic = place.topic(3)
    place.did("produce", topic, "-k", "gone", stdin=b"a\n")
    place.did("produce", topic, "-k", "gone", "--tombstone")
    deleted = place.run("latest", topic, "--key", "gone")
    assert (deleted.code, deleted.out) == (3, b"")
    assert "was deleted at offset 1" in deleted.err
    for verb in ("latest", "history"):
        missing = place.run(verb, topic, "--key", "nobody")
        assert (missing.code, missing.out) == (3, b"")
        assert missing.err.endswith(f"{topic} has no record with that key\n")


def test_a_key_that_lives_elsewhere_is_found_all_the_same(place: RecordPlace) -> None:
    """Producers of other makes place keys by rules of their own."""
    topic = place.topic(2)
    for key in ("u0", "v1"):
        away = 1 - partition_for_key(key.encode(), 2)
        place.did("produce", topic, "-k", key, "-p", str(away), stdin=f"{key} is here\n".encode())
        found = place.did("latest", topic, "--key", key, "-f", "%v")
        assert found.out == f"{key} is here".encode()
        assert found.err == f"note: not in partition {1 - away}, where that key belongs; looking in the others\n"
        found = place.did("history", topic, "--key", key, "--all-partitions", "-f", "%v")
        assert (found.out, found.err) == (f"{key} is here".encode(), "")


def test_keys_that_moved_when_a_topic_grew_are_still_one_row(directory: RecordPlace) -> None:
    topic = directory.topic(1)
    with directory.log() as log:
        for number in range(8):
            log.append(topic, "old", key=f"u{number}", timestamp_ms=TIME_MS)
        log.grow_topic(topic, 5)
        for number in range(8):
            log.append(topic, "new", key=f"u{number}", timestamp_ms=TIME_MS + 1)
    assert directory.did("latest", topic, "-f", "%v ").out == b"new " * 8
    for number in range(8):
        assert directory.did("history", topic, "--key", f"u{number}", "-f", "%v ").out == b"old new "


# --- mistakes -------------------------------------------------------------------------------------------------------


def test_a_line_that_is_no_record_ends_it_with_what_came_before_written(place: RecordPlace) -> None:
    topic = place.topic()
    done = place.run(
        "produce", topic, "--format", "json", stdin=b'{"value":1}\n\n{"value":2}\n{"value":}\n{"value":3}\n'
    )
    assert done.code == 1
    assert done.err == (
        "foldlog: line 4 of standard input is not JSON: expecting value at character 10;"
        f" 2 records written to {topic} before it\n"
    )
    assert place.did("consume", topic).lines == ["1", "2"]
    done = place.run("produce", topic, "-K", "=", stdin=b"a=1\nb\n")
    assert done.code == 1
    assert "line 2 of standard input has no '=' between a key and a value; 1 record written" in done.err


def test_a_record_that_the_topic_does_not_take_names_its_line(place: RecordPlace) -> None:
    topic = place.topic()
    done = place.run("produce", topic, stdin=b"fits\n" + b"x" * 2_000_000 + b"\n")
    assert done.code == 1
    assert "line 2 of standard input cannot be written" in done.err
    assert "max.message.bytes" in done.err
    assert place.did("consume", topic).lines == ["fits"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("produce", "T", "-k", "a", "-K", ":"), "not allowed with argument -k/--key"),
        (("produce", "T", "--format", "json", "-k", "a"), "leave out -k, -K and --tombstone"),
        (("produce", "T", "--tombstone", "-K", ":"), "leave out -K"),
        (("produce", "T", "--tombstone", "-k", "a", "file"), "leave out the files"),
        (("produce", "T", "-p", "first"), "is neither a partition's number nor 'key'"),
        (("produce", "T", "-H", "web"), "is not a header, such as source=web"),
        (("produce", "T", "-z", "zst"), "did you mean 'zstd'?"),
        (("consume", "T", "-o", "-6h"), "a time begins with @, as in @-6h"),
        (("consume", "T", "-p", "a"), "is not a list of partitions"),
        (("consume", "T", "-n", "0"), "is not a whole number, 1 or more"),
        (("consume", "T", "-f", "%q"), "there are %t %p"),
        (("consume", "T", "--group", "g", "-p", "0"), "use --group or -p, not both"),
        (("consume", "T", "--group", "g", "-o", "@-1h"), "foldlog group seek g"),
        (("consume",), "TOPIC"),
        (("latest", "T", "--as-of", "1:2"), "is a range"),
        (("history", "T"), "-k/--key"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_one_sentence(
    directory: RecordPlace, arguments: tuple[str, ...], said: str
) -> None:
    topic = _timed_topic(directory)
    done = directory.run(*[topic if word == "T" else word for word in arguments])
    assert done.code == 2
    assert said in done.err
    assert done.err.startswith("foldlog: ")
    assert done.err.count("\n") == 1
    assert done.out == b""


@pytest.mark.parametrize("verb", ["consume", "tail", "latest", "history", "produce"])
def test_what_is_not_there_is_exit_code_3_and_one_sentence(place: RecordPlace, verb: str) -> None:
    done = place.run(verb, "nothing-of-that-name", *(("--key", "u1") if verb == "history" else ()))
    assert done.code == 3
    assert "no topic 'nothing-of-that-name'" in done.err
    assert done.err.count("\n") == 1
    if verb in ("consume", "tail", "produce"):
        done = place.run(verb, place.topic(2), "-p", "7" if verb == "produce" else "0,7", stdin=b"lost\n")
        assert done.code == 3
        assert "has no partition 7; it has 0 to 1" in done.err


def test_values_are_decoded_on_the_way_out_and_those_of_another_kind_are_not(directory: RecordPlace) -> None:
    topic = directory.topic()
    with directory.log() as log:
        for value in (bytes([0x81, 0xA1, 0x6E, 0x01]), b'{"n":  2}', b"plain", bytes([0xFF, 0xFE])):
            log.append(topic, value)

    def printed(how: str, *more: str) -> list[bytes]:
        return directory.did("consume", topic, "--decode", how, *more).out.splitlines()

    assert printed("auto")[:3] == [b'{"n": 1}', b'{"n":  2}', b"plain"]
    assert printed("json")[1] == b'{"n": 2}'
    assert printed("msgpack")[:2] == [b'{"n": 1}', b'{"n":  2}']
    assert printed("hex", "-n", "1") == [b"00000000  81 a1 6e 01".ljust(59) + b"..n."]
    assert json.loads(printed("msgpack", "--format", "json")[0])["value"] == {"n": 1}
    assert "msgpack" in directory.run("consume", topic, "--decode", "cobol").err


def test_values_are_decoded_by_the_schemas_of_the_log(directory: RecordPlace) -> None:
    topic = directory.topic()
    said = {"subject": "s", "version": 1, "id": 7, "schema": '{"type": "map", "values": "int"}', "deleted": False}
    key = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    with directory.log() as log:
        log.create_topic("_schemas", config={"cleanup.policy": "compact"})
        log.append("_schemas", json.dumps(said), key=key)
        log.append(topic, bytes([0, 0, 0, 0, 7, 2, 2]) + b"n" + bytes([6, 0]))
        log.append(topic, "plain")
    assert directory.did("consume", topic, "--decode", "registry").out.splitlines() == [b'{"n": 3}', b"plain"]
    framed = bytes([0, 0, 0, 0, 7, 2, 2]) + b"c" + bytes([34, 0])
    with directory.log() as log:
        for number, found in enumerate((framed, b"plain", framed + b"more", None)):
            log.append(topic, str(number), key=found)
    printed = directory.did("consume", topic, "-o", "2:", "--decode", "registry", "--format", "json").out.splitlines()
    keys = [json.loads(line)["key"] for line in printed]
    assert keys == [{"c": 17}, "plain", '\0\0\0\0\7\2\2c"\0more', None], "those of another kind are as they are"
    printed = directory.did("consume", topic, "-o", "2:3", "--decode", "registry", "-f", "%k|%v\\n").out.splitlines()
    assert printed == [b'{"c": 17}|0']
    assert "--decode registry" in directory.run("consume", topic, "--registry", "http://127.0.0.1:1").err
