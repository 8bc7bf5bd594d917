"""A PostgreSQL database, captured: its topics hold what its tables hold, transaction by transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import foldlog
from capture.shop import Shop, boundaries, records, state
from foldlog import capture
from foldlog.capture.captured_log import CapturedLog
from foldlog.errors import CaptureError, ChangesLost, DatabaseRefused, DatabaseUnavailable, InvalidArgument
from postgres_server import PostgresServer

ITEMS = "CREATE TABLE items (id integer PRIMARY KEY, name text, price numeric(9,2))"


@pytest.fixture
def log() -> Iterator[foldlog.Log]:
    with foldlog.open(":memory:") as opened:
        yield opened


def test_a_snapshot_and_then_every_transaction_as_one(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea', 1.10), (2, 'cake', 3)")
    assert shop.run(log).snapshot_rows == 2
    shop.execute("UPDATE items SET name = 'green tea' WHERE id = 1", "DELETE FROM items WHERE id = 2")
    shop.execute("INSERT INTO items VALUES (3, NULL, NULL)")
    with pytest.raises(psycopg.errors.DivisionByZero):
        shop.execute("INSERT INTO items VALUES (4, 'never', 1)", "SELECT 1 / 0")
    shop.execute("UPDATE items SET id = 30 WHERE id = 3", "INSERT INTO items VALUES (3, 'new', 0)")
    done = shop.run(log)
    assert (done.transactions, done.snapshot_rows) == (3, 0)
    topic = shop.topic("items")
    assert records(log, topic) == [
        ("1", {"id": 1, "name": "tea", "price": "1.10"}, "r"),
        ("2", {"id": 2, "name": "cake", "price": "3.00"}, "r"),
        ("1", {"id": 1, "name": "green tea", "price": "1.10"}, "u"),
        ("2", None, "d"),
        ("3", {"id": 3, "name": None, "price": None}, "c"),
        ("3", None, "d"),
        ("30", {"id": 30, "name": None, "price": None}, "c"),
        ("3", {"id": 3, "name": "new", "price": "0.00"}, "c"),
    ]
    assert boundaries(log, topic) == [["1", "2"], ["1", "2"], ["3"], ["3", "30", "3"]]
    assert shop.run(log).records == 0
    assert log.topic_config(topic)["cleanup.policy"].value == "compact"


@pytest.mark.faults
def test_a_transaction_of_several_tables_is_one_in_the_log(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS, "CREATE TABLE stock (item integer, place text, count bigint, PRIMARY KEY (place, item))")
    shop.run(log, {"items": "things", "public.stock": ""})
    shop.execute(
        "INSERT INTO items VALUES (1, 'tea', 1)", "INSERT INTO stock VALUES (1, 'cellar', 9000000000000000001)"
    )
    shop.run(log, {"items": "things", "public.stock": ""})
    assert state(log, "things") == {"1": {"id": 1, "name": "tea", "price": "1.00"}}
    key = '{"place":"cellar","item":1}'  # several columns are an object, in the order of the primary key
    assert state(log, shop.topic("stock")) == {key: {"item": 1, "place": "cellar", "count": 9000000000000000001}}
    commits = {dict(record.headers)["commit"] for name in ("things", shop.topic("stock")) for record in log.read(name)}
    assert len(commits) == 1


def test_debezium_s_envelope(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea', 1)")
    shop.run(log, values="debezium")
    shop.execute("ALTER TABLE items REPLICA IDENTITY FULL", "UPDATE items SET name = 'oolong'")
    shop.execute("ALTER TABLE items REPLICA IDENTITY DEFAULT", "DELETE FROM items")
    shop.run(log, values="debezium")
    read, updated, deleted, tombstone = records(log, shop.topic("items"))
    tea, oolong = {"id": 1, "name": "tea", "price": "1.00"}, {"id": 1, "name": "oolong", "price": "1.00"}
    assert [one[0] for one in (read, updated, deleted, tombstone)] == ['{"id":1}'] * 4
    assert [(one[1]["before"], one[1]["after"], one[1]["op"]) for one in (read, updated, deleted)] == [
        (None, tea, "r"),
        (tea, oolong, "u"),
        ({"id": 1}, None, "d"),
    ]
    assert tombstone[1] is None
    source = updated[1]["source"]
    assert (source["connector"], source["db"], source["table"]) == ("postgresql", shop.name, "items")
    assert (read[1]["source"]["snapshot"], source["snapshot"]) == ("true", "false")
    assert 0 < source["lsn"] < deleted[1]["source"]["lsn"]
    assert source["ts_ms"] <= updated[1]["ts_ms"]


TYPES = """CREATE TABLE every (
    id bigint PRIMARY KEY, b boolean, i2 smallint, f4 real, f8 double precision, n numeric, big numeric(40,10), t text,
    c char(4), by bytea, d date, ts timestamp, tz timestamptz, tm time, iv interval, u uuid, j json, jb jsonb,
    ai integer[], at text[], mood feeling, moods feeling[], positive positive, span int4range, ip inet, price money,
    gone integer, doubled bigint GENERATED ALWAYS AS (id * 2) STORED, boxes box[])"""

ROW = """INSERT INTO every VALUES ({id}, true, -7, 0.1, 'NaN', 12.340, 123456789012345678901234567890.0123456789,
    E'tab\\t "quote" \\\\ line\\n\\u00e9', 'ab', '\\x00ff5c', '2026-11-18', '2026-11-18 09:30:00.25',
    '2026-11-18 09:30:00+05:30', '09:30:00', '1 day 02:00', '6f1c1b1e-7c0d-4a9c-9a63-0d6f4e4f2a11',
    ' {{"a": [1, 1.10]}} ', '{{"b": null}}', '{{{{1,NULL}},{{3,4}}}}', '{{"a,b","c \\" d",NULL,"NULL",""}}', 'happy',
    '{{happy,sad}}', 5, '[1,5)', '10.0.0.1', 5, 1, DEFAULT, '{{(1,2),(0,0);(3,4),(0,0)}}')"""

SAME = {
    "b": True, "i2": -7, "f4": 0.1, "f8": "NaN", "n": "12.340", "big": "123456789012345678901234567890.0123456789",
    "t": 'tab\t "quote" \\ line\né', "c": "ab  ", "by": "AP9c", "d": "2026-11-18", "ts": "2026-11-18T09:30:00.25",
    "tz": "2026-11-18T04:00:00Z", "tm": "09:30:00", "iv": "P1DT2H", "u": "6f1c1b1e-7c0d-4a9c-9a63-0d6f4e4f2a11",
    "j": {"a": [1, 1.10]}, "jb": {"b": None}, "ai": [[1, None], [3, 4]], "at": ["a,b", 'c " d', None, "NULL", ""],
    "mood": "happy", "moods": ["happy", "sad"], "positive": 5, "span": "[1,5)", "ip": "10.0.0.1", "price": "$5.00",
    "boxes": ["(1,2),(0,0)", "(3,4),(0,0)"],
}  # fmt: skip


def test_types_are_kept_and_alike_in_snapshot_and_stream(shop: Shop, log: foldlog.Log) -> None:
    shop.execute("SET lc_monetary = 'C'", "CREATE TYPE feeling AS ENUM ('happy', 'sad')")
    shop.execute("CREATE DOMAIN positive AS integer CHECK (VALUE > 0)", TYPES, "ALTER TABLE every DROP COLUMN gone")
    row = ROW.replace("5, 1, DEFAULT", "5, DEFAULT")
    shop.execute(row.format(id=1))
    shop.run(log)
    shop.execute(row.format(id=2))
    shop.execute("INSERT INTO every (id) VALUES (3)")
    shop.run(log)
    found = state(log, shop.topic("every"))
    assert found["1"] == {"id": 1, **SAME}
    assert found["2"] == {"id": 2, **SAME}
    assert found["3"] == {"id": 3, **dict.fromkeys(SAME)}


@pytest.mark.faults
def test_exact_numbers_as_numbers_keep_every_digit(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea', 1.10)")
    shop.run(log, numeric="number")
    (record,) = log.read(shop.topic("items"))
    assert record.value == b'{"id":1,"name":"tea","price":1.10}'


@pytest.mark.parametrize("identity", ["DEFAULT", pytest.param("FULL", marks=pytest.mark.faults)])
def test_a_large_value_that_did_not_change_is_kept(shop: Shop, log: foldlog.Log, identity: str) -> None:
    """The server does not send it again. It comes from the row before, or from the topic."""
    shop.execute(
        "CREATE TABLE pages (id integer PRIMARY KEY, title text, body text, doc json)",
        f"ALTER TABLE pages REPLICA IDENTITY {identity}",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL, ALTER doc SET STORAGE EXTERNAL",
    )
    shop.execute(
        "INSERT INTO pages VALUES (1, 'a', repeat('x', 9000), ('[1.10, \"' || repeat('y', 9000) || '\"]')::json)"
    )
    shop.run(log)
    shop.execute("UPDATE pages SET title = 'b'")
    shop.execute(
        "INSERT INTO pages VALUES (2, 'c', repeat('z', 9000), NULL)",
        "UPDATE pages SET id = 20, title = 'd' WHERE id = 2",
    )
    shop.run(log)
    shop.execute("UPDATE pages SET title = 'e'")
    shop.run(log)
    found = state(log, shop.topic("pages"))
    assert found == {
        "1": {"id": 1, "title": "e", "body": "x" * 9000, "doc": [1.10, "y" * 9000]},
        "20": {"id": 20, "title": "e", "body": "z" * 9000, "doc": None},
    }
    assert all(b"[1.10, " in (one.value or b"") for one in log.read(shop.topic("pages")) if one.key == b"1")


def test_a_truncation_deletes_every_key(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea', 1), (2, 'cake', 3)")
    shop.run(log)
    shop.execute("INSERT INTO items VALUES (3, 'x', 1)", "TRUNCATE items", "INSERT INTO items VALUES (2, 'pie', 4)")
    shop.run(log)
    assert state(log, shop.topic("items")) == {"2": {"id": 2, "name": "pie", "price": "4.00"}}
    assert sorted(boundaries(log, shop.topic("items"))[-1]) == ["1", "2", "2", "3", "3"]


def test_schema_changes_are_followed(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea', 1)")
    shop.run(log)
    shop.execute("ALTER TABLE items ADD COLUMN tags text[] DEFAULT '{a}'", "UPDATE items SET price = 2")
    shop.execute("ALTER TABLE items RENAME name TO title", "ALTER TABLE items DROP COLUMN price")
    shop.execute("INSERT INTO items VALUES (2, 'cake')", "ALTER TABLE items RENAME TO things")
    shop.execute("INSERT INTO things VALUES (3, 'pie')")
    shop.run(log)
    assert records(log, shop.topic("items"))[1:] == [
        ("1", {"id": 1, "name": "tea", "price": "2.00", "tags": ["a"]}, "u"),
        ("2", {"id": 2, "title": "cake", "tags": ["a"]}, "c"),
        ("3", {"id": 3, "title": "pie", "tags": ["a"]}, "c"),  # a table that was renamed stays in its topic
    ]


@pytest.mark.faults
def test_a_table_that_comes_later_gets_a_snapshot_of_its_own(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS)
    shop.run(log)
    shop.execute("CREATE TABLE more (id integer PRIMARY KEY)", "INSERT INTO more VALUES (1)")
    shop.execute("INSERT INTO items VALUES (1, 'tea', 1)", "INSERT INTO more VALUES (2)")
    shop.run(log)
    shop.execute("INSERT INTO more VALUES (3)")
    shop.run(log)
    assert [one[2] for one in records(log, shop.topic("more"))] == ["r", "r", "c"]
    assert list(state(log, shop.topic("items"))) == ["1"]


@pytest.mark.faults
def test_a_partitioned_table_is_one_topic(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(
        "CREATE TABLE days (day date PRIMARY KEY, n integer) PARTITION BY RANGE (day)",
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
        "CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
        "INSERT INTO days VALUES ('2026-01-31', 1)",
    )
    shop.run(log)
    shop.execute("INSERT INTO days VALUES ('2026-02-01', 2)", "UPDATE days SET day = '2026-02-02' WHERE n = 1")
    shop.run(log)
    assert state(log, shop.topic("days")) == {
        "2026-02-01": {"day": "2026-02-01", "n": 2},
        "2026-02-02": {"day": "2026-02-02", "n": 1},
    }


@pytest.mark.faults
def test_transactions_may_be_written_together_but_never_in_part(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS)
    shop.run(log, together=3)
    for number in range(0, 14, 2):
        shop.execute(f"INSERT INTO items VALUES ({number}, 'a', 1)", f"INSERT INTO items VALUES ({number + 1}, 'b', 1)")
    assert shop.run(log, together=3).transactions == 7
    found = boundaries(log, shop.topic("items"))
    assert all(len(keys) in (2, 4, 6) for keys in found), found
    assert len(found) < 7
    assert [key for keys in found for key in keys] == [str(number) for number in range(14)]
    assert len({dict(record.headers)["commit"] for record in log.read(shop.topic("items"))}) == 7


@pytest.mark.faults
def test_a_snapshot_of_several_transactions_that_was_cut_short_is_finished(
    shop: Shop, log: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of more than five minutes is: what it has written counts, and only what differs is written again."""
    shop.execute(ITEMS, "INSERT INTO items SELECT i, 'a', i FROM generate_series(1, 20) AS i")
    monkeypatch.setattr("foldlog.capture.runner.SNAPSHOT_COMMIT_MS", -1)
    send = CapturedLog.send
    left = iter(range(12))

    def cut_short(self: CapturedLog, *arguments: Any) -> None:
        if next(left, None) is None:
            raise ConnectionError("cut short")
        send(self, *arguments)

    with monkeypatch.context() as cutting:
        cutting.setattr(CapturedLog, "send", cut_short)
        with pytest.raises(ConnectionError):
            shop.run(log)
    assert len(records(log, shop.topic("items"))) == 12
    shop.execute("DELETE FROM items WHERE id = 3", "UPDATE items SET name = 'b' WHERE id = 4")
    assert shop.run(log).snapshot_rows == 9
    assert sorted(state(log, shop.topic("items"))) == sorted(str(number) for number in range(1, 21) if number != 3)
    assert [key for key, value, op in records(log, shop.topic("items"))[12:] if value is None] == ["3"]
    shop.execute("UPDATE items SET name = 'c' WHERE id = 4")
    assert shop.run(log).records == 1
    assert state(log, shop.topic("items"))["4"]["name"] == "c"


# --- what cannot be captured ------------------------------------------------------------------------------------------


def test_a_table_that_cannot_be_captured_is_refused_before_anything_is_changed(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(
        ITEMS,
        "CREATE TABLE keyless (text text)",
        "CREATE VIEW seen AS TABLE items",
        "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY)",
        "CREATE TABLE untold (id int PRIMARY KEY)",
        "ALTER TABLE untold REPLICA IDENTITY NOTHING",
    )
    for table, told in {
        "keyless": "public.keyless has no primary key",
        "seen": "public.seen is a view",
        "unlogged": "public.unlogged is not logged",
        "untold": "REPLICA IDENTITY NOTHING",
        "nowhere": "there is no table 'nowhere'",
    }.items():
        with pytest.raises(DatabaseRefused, match=told):
            shop.run(log, ["items", table])
    assert shop.rows("SELECT 1 FROM pg_publication") == []


@pytest.mark.faults
def test_of_all_tables_those_without_a_key_are_left_out_and_told(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(
        ITEMS,
        "CREATE TABLE notes (text text)",
        "CREATE TABLE named (name text NOT NULL UNIQUE)",
        "ALTER TABLE named REPLICA IDENTITY USING INDEX named_name_key",
        "INSERT INTO named VALUES ('a b')",
    )
    shop.run(log)
    assert [line for line in shop.said if "left out: public.notes has no primary key" in line]
    assert state(log, shop.topic("named")) == {"a b": {"name": "a b"}}
    shop.execute("UPDATE notes SET text = ''")  # the server lets it: the table is not published


def test_wrong_urls_and_missing_rights_are_one_sentence(shop: Shop, log: foldlog.Log, postgres: PostgresServer) -> None:
    shop.execute(ITEMS)
    with pytest.raises(InvalidArgument, match="is not a URL such as postgresql://"):
        capture.run(capture.postgres("mysql://localhost/shop", name="shop"), log, once=True)
    closed = f"postgresql://postgres@127.0.0.1:1/{shop.name}"
    with pytest.raises(DatabaseUnavailable, match=r"cannot be reached: .*refused"):
        capture.run(capture.postgres(closed, name="shop"), log, once=True)
    shop.execute(f"CREATE ROLE r{shop.name[-20:]} LOGIN", f"GRANT SELECT ON items TO r{shop.name[-20:]}")
    url = postgres.url_of(shop.name).replace("postgres@", f"r{shop.name[-20:]}@")
    with pytest.raises(DatabaseRefused, match=r"this role may not publish these tables; .* CREATE PUBLICATION"):
        capture.run(capture.postgres(url, name=shop.name), log, once=True)
    shop.execute(f"CREATE PUBLICATION foldlog_{shop.name} FOR TABLE items")
    with pytest.raises(DatabaseRefused, match=r"may not replicate; .* ALTER ROLE .* REPLICATION"):
        capture.run(capture.postgres(url, name=shop.name), log, once=True)


@pytest.mark.faults
def test_text_that_is_not_utf8_is_one_sentence(postgres: PostgresServer, log: foldlog.Log) -> None:
    url = postgres.new_database(options="ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
    with psycopg.connect(url, autocommit=True, client_encoding="UTF8") as connection:
        shop = Shop(url, connection)
        shop.execute(ITEMS)
        shop.run(log)
        shop.execute("INSERT INTO items VALUES (1, convert_from('\\xff', 'SQL_ASCII'), 1)")
        for again in (False, True):
            with pytest.raises(DatabaseRefused, match="invalid byte sequence for encoding"):
                shop.run(log, again=again)
        shop.forget()


# --- when changes were lost -------------------------------------------------------------------------------------------


def drop_slot(shop: Shop) -> None:
    shop.connection.execute("SELECT pg_drop_replication_slot(%s)", (f"foldlog_{shop.name}",))


def advance_slot(shop: Shop) -> None:
    shop.connection.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", (f"foldlog_{shop.name}",))


def make_slot_anew(shop: Shop) -> None:
    drop_slot(shop)
    shop.connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (f"foldlog_{shop.name}",))


@pytest.mark.parametrize(
    ("lose", "told"),
    [
        (drop_slot, "is gone"),
        pytest.param(advance_slot, "somebody else has read it", marks=pytest.mark.faults),
        pytest.param(make_slot_anew, "made it anew", marks=pytest.mark.faults),
    ],
)
def test_lost_changes_are_said_and_a_new_snapshot_writes_what_differs(
    shop: Shop, log: foldlog.Log, lose: Any, told: str
) -> None:
    shop.execute(ITEMS, "INSERT INTO items SELECT i, 'same', i FROM generate_series(1, 50) AS i")
    shop.run(log)
    shop.execute("UPDATE items SET name = 'lost' WHERE id = 7", "DELETE FROM items WHERE id = 8")
    lose(shop)
    shop.execute("INSERT INTO items VALUES (51, 'after', 1)")
    with pytest.raises(ChangesLost, match=f"{told}.*--snapshot again"):
        shop.run(log)
    before = len(records(log, shop.topic("items")))
    assert shop.run(log, again=True).snapshot_rows == 2
    assert records(log, shop.topic("items"))[before:] == [
        ("7", {"id": 7, "name": "lost", "price": "7.00"}, "r"),
        ("51", {"id": 51, "name": "after", "price": "1.00"}, "r"),
        ("8", None, "d"),
    ]
    shop.execute("UPDATE items SET name = 'later' WHERE id = 1")
    assert shop.run(log).records == 1


@pytest.mark.faults
def test_another_primary_key_needs_another_snapshot(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea', 1)")
    shop.run(log)
    shop.execute("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (name)")
    with pytest.raises(ChangesLost, match=r"the primary key of public.items was \(id\) and is \(name\)"):
        shop.run(log)
    shop.run(log, again=True)
    assert state(log, shop.topic("items")) == {"tea": {"id": 1, "name": "tea", "price": "1.00"}}


@pytest.mark.faults
def test_one_slot_is_not_read_into_two_logs(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS)
    shop.run(log)
    wanted = pytest.raises(DatabaseRefused, match="the capture of another log may read it")
    with foldlog.open(":memory:") as other, wanted:
        shop.run(other)
    shop.execute("INSERT INTO items VALUES (1, 'tea', 1)")
    assert shop.run(log).records == 1


@pytest.mark.faults
def test_a_topic_with_records_of_others_is_left_alone(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS)
    log.create_topic("taken")
    log.append("taken", {"id": 1}, key="1")
    with pytest.raises(CaptureError, match="topic 'taken' has records that this capture did not write"):
        shop.run(log, {"items": "taken"})


@pytest.mark.faults
def test_a_topic_that_was_deleted_is_filled_again(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea', 1)")
    shop.run(log)
    log.delete_topic(shop.topic("items"))
    shop.run(log)
    assert list(state(log, shop.topic("items"))) == ["1"]


def test_the_status_tells_how_far_it_is_and_what_is_kept(shop: Shop, log: foldlog.Log) -> None:
    shop.execute(ITEMS)
    chosen = shop.capture()
    assert capture.status(chosen, log).source.state == "not begun"
    shop.run(log)
    shop.execute("INSERT INTO items SELECT i, repeat('x', 100), i FROM generate_series(1, 1000) AS i")
    found = capture.status(chosen, log)
    assert (found.source.state, found.source.reader) == ("stopped", None)
    assert (found.source.lag_bytes or 0) > 100_000
    assert (found.source.kept_bytes or 0) >= (found.source.lag_bytes or 0)
    shop.run(log)
    assert (capture.status(chosen, log).source.lag_bytes or 0) < 10_000
    assert len(capture.drop(chosen)) == 2
    assert capture.status(chosen, log).source.state == "slot lost"
