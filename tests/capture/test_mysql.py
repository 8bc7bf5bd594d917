"""MySQL and MariaDB as a source, on a real server: what the topics hold is compared with what the tables hold."""

from __future__ import annotations

import json
import random

import pytest

import foldlog
from capture.mysql_shop import MySqlShop
from capture.shop import boundaries, records, state
from foldlog import capture
from foldlog.errors import ChangesLost, DatabaseRefused, DatabaseUnavailable, InvalidArgument

pytestmark = pytest.mark.faults  # the server takes seconds to start

ITEMS = "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(50))"


@pytest.fixture
def log() -> foldlog.Log:
    return foldlog.open(":memory:")


def test_a_snapshot_and_then_the_stream(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea'), (2, 'cake')")
    assert shop.run(log).snapshot_rows == 2
    shop.execute("UPDATE items SET name = 'green tea' WHERE id = 1", "DELETE FROM items WHERE id = 2")
    shop.execute("INSERT INTO items VALUES (3, NULL)")
    shop.execute("UPDATE items SET id = 4 WHERE id = 3")
    done = shop.run(log)
    assert (done.transactions, done.snapshot_rows) == (3, 0)
    assert records(log, shop.topic("items")) == [
        ("1", {"id": 1, "name": "tea"}, "r"),
        ("2", {"id": 2, "name": "cake"}, "r"),
        ("1", {"id": 1, "name": "green tea"}, "u"),
        ("2", None, "d"),
        ("3", {"id": 3, "name": None}, "c"),
        ("3", None, "d"),
        ("4", {"id": 4, "name": None}, "c"),
    ]
    assert boundaries(log, shop.topic("items"))[1:] == [["1", "2"], ["3"], ["3", "4"]]
    assert shop.run(log).records == 0
    assert shop.run(log, again=True).records == 0


def test_debezium_envelopes(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute(ITEMS)
    shop.run(log, values="debezium")
    shop.execute("INSERT INTO items VALUES (1, 'tea')")
    shop.execute("UPDATE items SET name = 'cake'")
    shop.execute("DELETE FROM items")
    shop.run(log, values="debezium")
    found = records(log, shop.topic("items"))
    assert [key for key, *_ in found] == ['{"id":1}'] * 4
    tea, cake = {"id": 1, "name": "tea"}, {"id": 1, "name": "cake"}
    events = [value for _, value, _ in found[:3]]
    assert [(event["op"], event["before"], event["after"]) for event in events] == [
        ("c", None, tea),
        ("u", tea, cake),
        ("d", cake, None),
    ]
    assert found[3][1] is None
    source = events[1]["source"]
    assert (source["connector"], source["db"], source["table"]) == ("mysql", shop.name, "items")
    assert source["file"].startswith("binlog.")
    assert source["pos"] > 4
    assert source["server_id"] == 1


TYPES = """
    CREATE TABLE kinds (
        id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, s SMALLINT UNSIGNED, m MEDIUMINT, mu MEDIUMINT UNSIGNED,
        i INT UNSIGNED ZEROFILL, y YEAR, b BIGINT, bu BIGINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(30,10),
        nz DECIMAL(6,2) UNSIGNED ZEROFILL, bits BIT(11), da DATE, dt DATETIME, dt3 DATETIME(3), ts TIMESTAMP(6) NULL,
        ti TIME, ti2 TIME(2), c CHAR(5), v VARCHAR(300), l VARCHAR(20) CHARACTER SET latin1,
        u2 VARCHAR(20) CHARACTER SET utf16, txt MEDIUMTEXT, e ENUM('a','ö','c,d'),
        el ENUM('x','ü') CHARACTER SET latin1,
        se SET('x','y','ü'), bi BINARY(4), vb VARBINARY(20), bl BLOB, js JSON, g INT AS (t + 1) STORED,
        vg INT AS (t + 2) VIRTUAL, p POINT)
"""
NAMES = (
    "t, tu, s, m, mu, i, y, b, bu, f, d, n, nz, bits, da, dt, dt3, ts, ti, ti2, c, v, l, u2, txt, e, el, se, bi, vb,"
    " bl, js, p"
)
ROWS = (
    """-128, 255, 65535, -8388608, 16777215, 7, 2026, -9223372036854775808, 18446744073709551615, 0.1, 1e-7,
       '-12345678901234567890.0123456789', 1.5, b'10000000001', '2026-11-18', '2026-11-18 09:30:00',
       '1000-01-01 00:00:00.125', '2026-11-18 09:30:00.25', '-838:59:59', '12:00:00.07', 'a  ', 'ø "q" \\n', '€uro',
       'äß', REPEAT('x', 70000), 'ö', 'ü', 'x,ü', x'0100', x'00ff', x'', '{"a": [1, 2.5, null, true], "b": "ü"}',
       ST_GeomFromText('POINT(1 2)')""",
    """127, 0, 0, 8388607, 0, 0, 1901, 9223372036854775807, 0, 16777216, 1.7976931348623157e308, '0', 0, 0,
       '9999-12-31', '9999-12-31 23:59:59', '2026-01-01 00:00:00', '1970-01-02 00:00:01', '838:59:59', '-00:00:00.5',
       '', '', '', '', '', 'c,d', 'x', '', x'01020304', x'', REPEAT('y', 300), '[]', NULL""",
    "NULL" + ", NULL" * 32,
    """1, 1, 1, 1, 1, 1, 0, 1, 1, -3.4e38, -0.5, '0.0000000001', 9999.99, 2047, '0000-00-00', '0000-00-00 00:00:00',
       '2026-11-18 09:30:00.999', '0000-00-00 00:00:00', '-00:00:01', '-12:34:56.78', 'ab de', 'x', 'x', 'x', 'x', 'a',
       'x', 'x,y,ü', x'00000000', x'00', x'00', '"text"', NULL""",
)


def test_types_are_kept_and_the_stream_writes_what_a_snapshot_writes(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute("SET SESSION sql_mode = ''", TYPES)
    for number, row in enumerate(ROWS):
        shop.execute(f"INSERT INTO kinds (id, {NAMES}) VALUES ({number}, {row})")
    shop.run(log)
    shop.execute(f"INSERT INTO kinds (id, {NAMES}) SELECT id + 10, {NAMES} FROM kinds")
    shop.execute("UPDATE kinds SET id = id + 10 WHERE id >= 10")
    shop.run(log)
    found = state(log, shop.topic("kinds"))
    assert len(found) == 2 * len(ROWS)
    for number in range(len(ROWS)):
        assert {**found[str(number)], "id": number + 20} == found[str(number + 20)]
    assert shop.run(log, again=True).records == 0  # byte for byte
    first, second, third, fourth = (found[str(number)] for number in range(4))
    assert first["bu"] == 18446744073709551615
    assert first["b"] == -9223372036854775808
    assert (first["t"], first["tu"], first["s"], first["m"], first["mu"]) == (-128, 255, 65535, -8388608, 16777215)
    assert (first["i"], first["y"], fourth["y"], first["f"], first["d"]) == (7, 2026, 0, 0.1, 1e-7)
    assert (first["n"], first["nz"], first["bits"]) == ("-12345678901234567890.0123456789", "1.50", 1025)
    assert (first["dt"], first["dt3"]) == ("2026-11-18T09:30:00", "1000-01-01T00:00:00.125")
    assert (first["ts"], first["ti"], first["ti2"]) == ("2026-11-18T09:30:00.250000Z", "-838:59:59", "12:00:00.07")
    assert (first["c"], first["v"], first["l"], first["u2"]) == ("a", 'ø "q" \n', "€uro", "äß")
    assert (first["e"], first["el"], first["se"]) == ("ö", "ü", "x,ü")
    assert (first["bi"], first["vb"], first["bl"]) == ("AQAAAA==", "AP8=", "")
    assert first["js"] == {"a": [1, 2.5, None, True], "b": "ü"}
    assert (second["ti2"], fourth["ti2"], second["se"]) == ("-00:00:00.50", "-12:34:56.78", "")
    assert (fourth["da"], fourth["dt"], fourth["ts"]) == (
        "0000-00-00",
        "0000-00-00T00:00:00",
        "0000-00-00T00:00:00.000000Z",
    )
    assert set(third.values()) == {None, 2}
    assert "g" not in first
    assert "vg" not in first


def test_numbers_of_json_have_all_digits(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute("CREATE TABLE t (id INT PRIMARY KEY, n DECIMAL(40,20))", "INSERT INTO t VALUES (1, 1.1)")
    shop.run(log, numeric="number")
    shop.execute("UPDATE t SET n = 12345678901234567890.12345678901234567890")
    shop.run(log, numeric="number")
    values = [record.value for record in log.read(shop.topic("t"))]
    assert values == [b'{"id":1,"n":1.10000000000000000000}', b'{"id":1,"n":12345678901234567890.12345678901234567890}']


def test_random_values_look_alike_in_the_stream_and_in_a_snapshot(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop, chance = mysql_shop, random.Random(7)
    shop.execute(
        "CREATE TABLE r (a BIGINT, b VARCHAR(40), f FLOAT, d DOUBLE, n DECIMAL(25,8), t TIME(6), dt DATETIME(6),"
        " s VARCHAR(100), j JSON, PRIMARY KEY (a, b))"
    )
    shop.run(log)
    for number in range(150):
        document = json.dumps(
            {
                str(chance.random()): chance.choice((chance.randrange(-(2**63), 2**64), chance.random(), 1e300, "é\n"))
                for _ in range(chance.randrange(5))
            }
        )
        moment = f"{chance.randrange(1000, 9999)}-01-{chance.randrange(1, 28):02} 23:00:00.{chance.randrange(10**6):06}"
        span = f"{chance.randrange(-800, 800)}:{chance.randrange(60)}:07.{chance.randrange(10**6):06}"
        numbers = [
            number,
            f"k{number % 7}",
            chance.uniform(-1, 1) * 10.0 ** chance.randrange(-30, 30),
            chance.gauss(0, 1e9),
        ]
        numbers.append(chance.randrange(-(10**25) + 1, 10**25) / 10**8)
        with shop.connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO r VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (*numbers, span, moment, "".join(chance.choices("aü€𝄞\\\"'\0\t", k=20)), document),
            )
    shop.run(log)
    assert len(state(log, shop.topic("r"))) == 150
    assert '{"a":7,"b":"k0"}' in state(log, shop.topic("r"))
    assert shop.run(log, again=True).records == 0


def test_columns_change_under_the_stream(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    """Everything below is read afterwards: each change with the columns that the table had then."""
    shop = mysql_shop
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea')")
    shop.run(log)
    shop.execute("INSERT INTO items VALUES (2, 'two')")
    shop.execute("ALTER TABLE items ADD COLUMN price DECIMAL(9,2) DEFAULT 1 FIRST")
    shop.execute("INSERT INTO items VALUES (2.5, 3, 'three')")
    shop.execute("ALTER TABLE items DROP COLUMN name, ADD COLUMN size TINYINT UNSIGNED")
    shop.execute("INSERT INTO items VALUES (3, 4, 200)")
    shop.run(log)
    assert [value for _, value, _ in records(log, shop.topic("items"))[1:]] == [
        {"id": 2, "name": "two"},
        {"price": "2.50", "id": 3, "name": "three"},
        {"price": "3.00", "id": 4, "size": 200},
    ]
    shop.execute("ALTER TABLE items DROP PRIMARY KEY, ADD PRIMARY KEY (id, price)")
    shop.execute("INSERT INTO items VALUES (9, 9, 9)")
    with pytest.raises(ChangesLost, match=r"the primary key of items.*--snapshot again"):
        shop.run(log)
    shop.run(log, again=True)
    assert state(log, shop.topic("items"))['{"id":9,"price":"9.00"}']["size"] == 9
    assert len(state(log, shop.topic("items"))) == 5


def test_a_truncated_table_and_others_left_alone(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute(ITEMS, "CREATE TABLE others LIKE items", "INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    shop.execute("INSERT INTO others VALUES (1, 'o')")
    shop.run(log, ["items"])
    shop.execute("INSERT INTO others VALUES (2, 'o')")
    shop.execute("TRUNCATE TABLE items")
    shop.execute("INSERT INTO items VALUES (3, 'c')")
    assert shop.run(log, ["items"]).records == 3
    assert state(log, shop.topic("items")) == {"3": {"id": 3, "name": "c"}}
    assert log.topics() == [shop.topic("items")]


def test_a_table_that_another_one_replaces(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    """As tools do that change a table without locking it: the copy takes its name. The binlog does not say its rows."""
    shop = mysql_shop
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    shop.run(log, ["items"])
    shop.execute("CREATE TABLE copy (id INT PRIMARY KEY, name VARCHAR(90), more INT)")
    shop.execute("INSERT INTO copy VALUES (1, 'a', 1), (3, 'c', 3)")
    shop.execute("RENAME TABLE items TO old, copy TO items")
    shop.execute("INSERT INTO items VALUES (4, 'd', 4)")
    shop.run(log, ["items"])
    assert any("another table is items now" in said for said in shop.said)
    assert {key: row["name"] for key, row in state(log, shop.topic("items")).items()} == {"1": "a", "3": "c", "4": "d"}
    shop.execute("DROP TABLE items")
    shop.execute(ITEMS)
    shop.execute("INSERT INTO items VALUES (9, 'new')")
    shop.run(log, ["items"])
    assert state(log, shop.topic("items")) == {"9": {"id": 9, "name": "new"}}
    assert shop.run(log, ["items"], again=True).records == 0


def test_what_is_rolled_back_is_not_written(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute(ITEMS)
    shop.run(log)
    shop.execute("INSERT INTO items VALUES (1, 'a')", "SAVEPOINT s", "INSERT INTO items VALUES (2, 'b')",
                 "ROLLBACK TO s", "INSERT INTO items VALUES (3, 'c')")  # fmt: skip
    with shop.connection.cursor() as cursor:
        shop.connection.begin()
        cursor.execute("INSERT INTO items VALUES (4, 'd')")
        shop.connection.rollback()
    shop.run(log)
    assert boundaries(log, shop.topic("items")) == [["1", "3"]]


def test_tables_that_cannot_be_captured(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute(ITEMS, "CREATE TABLE nokey (a INT)", "CREATE TABLE old (a INT PRIMARY KEY) ENGINE=MyISAM")
    shop.execute("CREATE VIEW v AS SELECT * FROM items")
    for table, why in (
        ("nokey", "no primary key"),
        ("old", "engine MyISAM.*ALTER TABLE .* ENGINE=InnoDB"),
        ("v", "is a view"),
        ("gone", "there is no table 'gone'.*there are items"),
    ):
        with pytest.raises(DatabaseRefused, match=why):
            shop.run(log, [table])
    assert log.topics() == []
    shop.run(log)
    assert log.topics() == [shop.topic("items")]
    assert sum("left out" in said for said in shop.said) == 2


def test_a_foreign_key_that_changes_rows_by_itself(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    """InnoDB does not log what it cascades; MySQL 9.6 and later do it above InnoDB, and log it."""
    shop = mysql_shop
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    shop.execute(
        "CREATE TABLE parts (id INT PRIMARY KEY, item INT, FOREIGN KEY (item) REFERENCES items (id) ON DELETE CASCADE)"
    )
    shop.execute("INSERT INTO parts VALUES (1, 1)")
    if shop.server.kind == "mysql":
        shop.run(log)
        shop.execute("DELETE FROM items")
        shop.run(log)
        assert state(log, shop.topic("parts")) == {}
        return
    with pytest.raises(DatabaseRefused, match=r"foreign key .* with ON DELETE CASCADE.*not in the binlog"):
        shop.run(log, ["parts"])


def test_a_purged_binlog_says_so(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute(ITEMS, "INSERT INTO items VALUES (1, 'a')")
    shop.run(log)
    found = capture.status(shop.capture(), log)
    assert (found.source.state, found.source.lag_bytes) == ("stopped", 0)
    shop.execute("UPDATE items SET name = 'b'")
    assert (capture.status(shop.capture(), log).source.lag_bytes or 0) > 100
    shop.execute("FLUSH BINARY LOGS")
    newest = shop.rows("SHOW BINARY LOGS")[-1][0]
    assert "the next that the server purges" in (capture.status(shop.capture(), log).source.warning or "")
    while shop.rows("SHOW BINARY LOGS")[0][0] < newest:  # not as long as a recovery would need the file
        shop.rows(f"PURGE BINARY LOGS TO '{newest}'")
    assert capture.status(shop.capture(), log).source.state == "binlog lost"
    with pytest.raises(ChangesLost, match=r"purged its binlog before .*--snapshot again"):
        shop.run(log)
    assert shop.run(log, again=True).records == 1
    assert state(log, shop.topic("items")) == {"1": {"id": 1, "name": "b"}}


def test_a_session_that_logs_less_is_noticed(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute(ITEMS)
    for setting, why in (
        ("binlog_row_image = 'MINIMAL'", "without all its columns"),
        ("binlog_format = 'STATEMENT'", "logged as a statement"),
    ):
        shop.run(log, again=True)
        shop.rows(f"SET SESSION {setting}")
        shop.execute("INSERT INTO items (id) VALUES (1)")
        with pytest.raises(ChangesLost, match=why):
            shop.run(log)
        shop.rows("SET SESSION binlog_row_image = 'FULL'")
        shop.rows("SET SESSION binlog_format = 'ROW'")
        shop.execute("DELETE FROM items")


def test_users_without_rights_and_wrong_urls(mysql_shop: MySqlShop, log: foldlog.Log) -> None:
    shop = mysql_shop
    shop.execute(ITEMS)
    user = f"u{shop.name[-8:]}"
    shop.execute(f"CREATE USER {user}@'%'", f"GRANT SELECT ON {shop.name}.* TO {user}@'%'")
    url = shop.server.url_of(shop.name, user)
    with pytest.raises(DatabaseRefused, match=r"may not do that.*docs/capture.md"):
        shop.run(log, url=url)
    more = "REPLICATION SLAVE, REPLICATION CLIENT"
    more += ", REPLICATION MASTER ADMIN" if shop.server.kind == "mariadb" else ", RELOAD"
    shop.execute(f"GRANT {more} ON *.* TO {user}@'%'")
    assert shop.run(log, url=url).records == 0
    with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
        shop.run(log, url="mysql://root@127.0.0.1:1/shop")
    with pytest.raises(InvalidArgument, match="names no database"):
        shop.run(log, url="mysql://root@127.0.0.1", name="x")
    with pytest.raises(InvalidArgument, match="'wrong' is not an option"):
        shop.run(log, url=f"{shop.url}?wrong=1")
    with pytest.raises(DatabaseRefused, match=r"has server_id=1.*\?server_id=NUMBER"):
        shop.run(log, url=f"{shop.url}?server_id=1")
