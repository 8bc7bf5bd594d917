"""A table of records: whatever is asked, page by page, is exactly what a look at every record finds."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldlog.broker.broker import Broker
from foldlog.errors import InvalidArgument
from foldlog.limits import CONSOLE_ROWS_MAX
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from foldlog.server.console import search as search_module
from foldlog.server.console.record_filters import PathTest, RecordFilter, parse_path
from foldlog.server.console.search import RecordSearch, found
from server.console.console_site import ConsoleSite, console

Row = tuple[int, bytes | None, bytes | None]
"""Time, key and value."""

VALUES = st.sampled_from([None, b"", b"tea", b"TEA and milk", b'{"n": 1}', b'{"n": 2, "s": "tea"}', b"\x81\xa1n\x02"])
ROWS = st.tuples(st.integers(0, 50), st.sampled_from([None, b"a", b"b"]), VALUES)
PARTITIONS = st.lists(st.lists(st.lists(ROWS, min_size=1, max_size=4), max_size=6), min_size=1, max_size=3)


def written(broker: Broker, number: int, batches: list[list[Row]]) -> list[tuple[int, Row]]:
    """The records with their offsets."""
    partition = broker.partition("t", number)
    assert isinstance(partition, Partition)
    rows: list[tuple[int, Row]] = []
    for batch in batches:
        appended = partition.append(pack([(*row, ()) for row in batch]))
        partition.wait_acknowledged(appended.next_offset)
        rows += [(appended.base_offset + at, row) for at, row in enumerate(batch)]
    return rows


def asked_for(question: RecordSearch, row: Row) -> bool:
    """By hand, not by the code that is tested; of the filters that are drawn below."""
    _, key, value = row
    wanted = question.filter
    if wanted.key is not None and key != wanted.key:
        return False
    if wanted.text is not None and not any(b"tea" in (data or b"").lower() for data in (key, value)):
        return False
    return wanted.test is None or value in (b'{"n": 2, "s": "tea"}', b"\x81\xa1n\x02")


@settings(max_examples=150, deadline=None)
@given(
    PARTITIONS,
    st.booleans(),
    st.integers(1, 7),
    st.sampled_from([None, b"a"]),
    st.sampled_from([None, b"Tea"]),
    st.sampled_from([None, "$.n > 1"]),
    st.sampled_from([1, 60, 200, 1 << 20]),
)
def test_page_by_page_one_sees_every_record_once(
    partitions: list[list[list[Row]]],
    is_newest_first: bool,
    limit: int,
    key: bytes | None,
    text: bytes | None,
    path: str | None,
    budget: int,
) -> None:
    wanted = RecordFilter(key, text, None if path is None else PathTest.parse(path))
    question = RecordSearch(wanted, is_newest_first, limit=limit)
    with Broker.open(":memory:", background=False) as broker, pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "CONSOLE_READ_BYTES_MAX", budget)
        patch.setattr(search_module, "_SHARE_MIN", 1)
        broker.create_topic("t", len(partitions))
        expected = {
            number: [offset for offset, row in written(broker, number, batches) if asked_for(question, row)]
            for number, batches in enumerate(partitions)
        }
        total = sum(len(batch) for batches in partitions for batch in batches)
        seen: dict[int, list[int]] = {number: [] for number in expected}
        scanned, cursor = 0, ""
        is_done = False
        for _ in range(20 * (total + 2)):
            page = found(broker, "t", replace_cursor(question, cursor))
            is_done = page["is_done"]
            assert len(page["records"]) <= limit
            for row in page["records"]:
                seen[row["partition"]].append(row["offset"])
            scanned, cursor = scanned + page["scanned"], page["cursor"]
            assert scanned + page["left"] == total
            if is_done:
                break
        assert is_done
        assert seen == {number: offsets[::-1] if is_newest_first else offsets for number, offsets in expected.items()}


def replace_cursor(question: RecordSearch, cursor: str) -> RecordSearch:
    return RecordSearch(
        question.filter, question.is_newest_first, (), search_module._parse_cursor(cursor), question.limit
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), max_size=12).map(sorted), min_size=1, max_size=3), st.booleans())
def test_records_of_several_partitions_come_in_the_order_of_time(times: list[list[int]], is_newest_first: bool) -> None:
    with Broker.open(":memory:", background=False) as broker:
        broker.create_topic("t", len(times))
        for number, one in enumerate(times):
            written(broker, number, [[(at, None, b"x")] for at in one])
        page = found(broker, "t", RecordSearch(RecordFilter(), is_newest_first, limit=20))
        everything = sorted((at for one in times for at in one), reverse=is_newest_first)
        assert [row["timestamp"] for row in page["records"]] == everything[:20]


# --- paths ------------------------------------------------------------------------------------------------------------

DOCUMENT: Any = {
    "customer": {"id": 17, "name": "Ada"},
    "items": [{"sku": "tea", "n": 2}, {"sku": "milk"}],
    "a b": {"x.y": True},
    "zip": "01067",
    "none": None,
    "1": "one",
}


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ("$.customer.id = 17", True),
        ("customer.id == 17", True),
        ("$.customer.id = 18", False),
        ("$.customer.id != 18", True),
        ("$.customer.id != 17", False),
        ("$.missing != 17", False),
        ("$.customer.id >= 17", True),
        ("$.customer.id > 17", False),
        ("$.customer.id<18.5", True),
        ("$.customer.id > ada", False),
        ("$.customer.name = Ada", True),
        ('$.customer.name = "Ada"', True),
        ("$.customer.name ~ ad", True),
        ("$.customer.name > Ab", True),
        ("$.zip = 01067", True),
        ("$.zip = 1067", False),
        ("$.items[0].sku = tea", True),
        ("items[*].sku = milk", True),
        ("items[*].sku = cake", False),
        ("items[5].sku", False),
        ("items[0].n", True),
        ('["a b"]["x.y"] = true', True),
        ('["a b"]["x.y"] = 1', False),
        ("$.none", True),
        ("$.none = null", True),
        ("$.customer ~ Ada", True),
        ("$.1 = one", True),
        ("$", True),
    ],
)
def test_a_path_finds_what_stands_there(test: str, holds: bool) -> None:
    assert PathTest.parse(test).holds(DOCUMENT) is holds


@pytest.mark.parametrize("text", ["", "= 3", "$.a =", "$.a[", "$.a[x]", "$.a ! 3", "a..b", "$.a = ", '["a'])
def test_what_is_no_path_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"\$\.customer\.id"):
        PathTest.parse(text)


def test_a_column_is_a_path_without_a_test() -> None:
    with pytest.raises(InvalidArgument):
        parse_path("$.a = 3")


# --- over HTTP --------------------------------------------------------------------------------------------------------


def search(site: ConsoleSite, **query: object) -> Any:
    return site.get(f"/api/topics/orders/search?{urlencode(query)}")


@pytest.fixture
def site() -> Any:
    with console() as site:
        site.broker.create_topic("orders", 2)
        for number in range(2):
            rows = [(b"u%d" % at, b'{"n": %d, "who": {"id": %d}}' % (at, at % 3)) for at in range(10)]
            for at, row in enumerate(rows):
                site.append("orders", number, row, at_ms=1000 + at * 10 + number)
        yield site


def test_columns_keys_times_and_partitions(site: ConsoleSite) -> None:
    page = search(site, path="$.who.id = 2", columns='["$.n", "who.id", "$.missing"]', order="oldest", limit=3)
    assert [row["columns"] for row in page["records"]] == [["2", "2", None], ["2", "2", None], ["5", "2", None]]
    assert [row["offset"] for row in search(site, key="u4")["records"]] == [4, 4]
    assert search(site, key="u")["records"] == []
    assert len(search(site, until=(1 << 63) - 1, key="u4")["records"]) == 2
    rows = search(site, since=1050, until=1061, partitions="1")["records"]
    assert [(row["partition"], row["timestamp"]) for row in rows] == [(1, 1061), (1, 1051)]


def test_a_tail_goes_on_where_the_table_began(site: ConsoleSite) -> None:
    tail = search(site, limit=5)["tail"]
    assert search(site, order="oldest", cursor=tail)["records"] == []
    site.append("orders", 1, (b"new", b"1"), (b"other", b"2"))
    page = search(site, order="oldest", cursor=tail, key="new")
    assert [row["key"]["text"] for row in page["records"]] == ["new"]
    assert search(site, order="oldest", cursor=page["cursor"])["records"] == []


@pytest.mark.parametrize(
    "query",
    [
        {"order": "sideways"},
        {"limit": 0},
        {"limit": CONSOLE_ROWS_MAX + 1},
        {"partitions": "x"},
        {"partitions": "0-999999999"},
        {"cursor": "0=-1"},
        {"cursor": "zero"},
        {"columns": "$.a"},
        {"columns": '["$.a ="]'},
        {"columns": json.dumps(["$.a"] * 21)},
        {"path": "= 3"},
        {"decoder": "cobol"},
        {"since": "yesterday"},
        {"text": "x" * 1001},
    ],
)
def test_a_bad_question_is_answered_in_one_sentence(site: ConsoleSite, query: dict[str, object]) -> None:
    answer = site.ask("GET", f"/api/topics/orders/search?{urlencode(query)}")
    assert answer.status == 400
    assert answer.json["error"]


def test_a_partition_or_topic_that_is_not_there_is_not_found(site: ConsoleSite) -> None:
    assert site.ask("GET", "/api/topics/orders/search?partitions=7").status == 404
    assert site.ask("GET", "/api/topics/orders/search?cursor=7=1").status == 404
    assert site.ask("GET", "/api/topics/nothing/search").status == 404


def test_what_is_shown_can_be_had_as_a_file(site: ConsoleSite) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    chosen = "records=0%3D3.2;1%3D0.0.9"
    lines = site.ask("GET", f"/api/topics/orders/download?format=jsonl&{chosen}")
    assert lines.headers["content-disposition"] == 'attachment; filename="orders.jsonl"'
    records = [json.loads(line) for line in lines.body.splitlines()]
    assert [(one["partition"], one["offset"]) for one in records] == [(0, 3), (0, 5), (1, 0), (1, 9)]
    assert records[1]["value"] == {"n": 5, "who": {"id": 2}}
    table = pq.read_table(io.BytesIO(site.ask("GET", f"/api/topics/orders/download?format=parquet&{chosen}").body))
    assert table["offset"].to_pylist() == [3, 5, 0, 9]
    assert table["value"].to_pylist()[1] == b'{"n": 5, "who": {"id": 2}}'
    assert table["key"].to_pylist() == [b"u3", b"u5", b"u0", b"u9"]


@pytest.mark.parametrize("query", ["", "records=", "records=0%3Dx", "format=xml&records=0%3D1", "records=0%3D-1"])
def test_a_file_of_nothing_is_refused(site: ConsoleSite, query: str) -> None:
    assert site.ask("GET", f"/api/topics/orders/download?{query}").status == 400


def test_a_file_is_bounded(site: ConsoleSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "CONSOLE_DOWNLOAD_BYTES_MAX", 200)
    answer = site.ask("GET", "/api/topics/orders/download?records=0%3D0.1.1.1")
    assert answer.status == 400
    assert "foldlog topic consume orders" in answer.json["error"]
