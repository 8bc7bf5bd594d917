"""What a query asks for, and why some cannot be kept up to date: each refusal is one sentence, without Spark."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import foldlog.spark as fl
from foldlog.errors import FoldError, InvalidArgument
from foldlog.spark.queries.joined import SqlJoin
from foldlog.spark.queries.query import SqlQuery, parsed_query
from foldlog.views.counters.windows import Sessions, Window

SCHEMA = "merchant STRING, amount BIGINT, note STRING, at TIMESTAMP, part STRUCT<a: INT>, xs ARRAY<INT>"
PAYMENTS = fl.topic("payments", key="tx_id", schema=SCHEMA)

SHOPS = fl.topic("shops", key="shop", schema="city STRING, size BIGINT")

sql = partial(fl.sql, topics=[PAYMENTS, SHOPS])
"""Other tests of this process declare a topic of this name, too."""


def parsed(text: str) -> SqlQuery:
    asked = parsed_query(text)
    assert isinstance(asked, SqlQuery)
    return asked


def texts(query: SqlQuery) -> dict[str, str]:
    return {item.name: item.text for item in query.items}


def test_the_parts_of_a_query_are_the_text_that_was_written() -> None:
    asked = parsed(
        "select tx_id, concat(merchant, ', FROM ', note) AS title, p.amount IS DISTINCT FROM 7 odd, xs[0] AS `first x`"
        " from `payments` AS p -- a comment, with WHERE\n where amount > 0 AND note <> 'GROUP BY;' ;"
    )
    assert (asked.topic, asked.alias) == ("payments", "p")
    assert texts(asked) == {
        "tx_id": "tx_id",
        "title": "concat(merchant, ', FROM ', note)",
        "odd": "p.amount IS DISTINCT FROM 7",
        "first x": "xs[0]",
    }
    assert asked.where == "amount > 0 AND note <> 'GROUP BY;'"
    assert not asked.measures


def test_groups_and_measures() -> None:
    asked = parsed(
        "SELECT upper(merchant) AS m, count(*) AS n, sum(amount + 1) AS total, count(note) AS notes, max(at) AS latest,"
        " avg(amount) FILTER (WHERE amount > 0 AND note IN ('a', 'b')) AS mean, count(DISTINCT note) AS different,"
        " count(*) FILTER (WHERE amount = 0) AS free FROM payments WHERE amount >= 0 GROUP BY 1"
    )
    assert [(item.name, item.text) for item in asked.by] == [("m", "upper(merchant)")]
    assert {name: measure.kind for name, measure in asked.measures.items()} == {
        "n": "count",
        "total": "sum",
        "notes": "count",
        "latest": "max",
        "mean": "avg",
        "different": "count_distinct",
        "free": "count",
    }
    measured = {name: asked.measured.get(one.column or "") for name, one in asked.measures.items()}
    assert measured == {
        "n": None,
        "total": "amount + 1",
        "notes": "note",
        "latest": "at",
        "mean": "CASE WHEN amount > 0 AND note IN ('a', 'b') THEN amount END",
        "different": "note",
        "free": "CASE WHEN amount = 0 THEN 1 END",
    }


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("window(at, '5 minutes')", Window("__time", 300_000)),
        ("window(at, '1 hour', '15 minutes')", Window("__time", 3_600_000, 900_000)),
        ("session_window(at, '30 minutes')", Sessions("__time", 1_800_000)),
    ],
)
def test_windows(written: str, window: object) -> None:
    name = written.partition("(")[0]
    for start in (f"{name}.start", f"{written}.start AS window_start"):
        asked = parsed(f"SELECT merchant, {start}, sum(amount) AS s FROM payments GROUP BY merchant, {written}")
        assert asked.window == window
        assert asked.time == "at"
        assert [item.name for item in asked.by] == ["merchant"]


LAWLESS = {
    "SELECT tx_id, merchant FROM payments ORDER BY merchant": "ORDER BY; order when you query the view",
    "SELECT tx_id FROM payments LIMIT 3": "LIMIT; limit when you query the view",
    "SELECT tx_id FROM payments LIMIT 3 OFFSET 2": "(LIMIT|OFFSET)",
    "SELECT DISTINCT merchant FROM payments": "DISTINCT; a table keeps one row of each key",
    "SELECT merchant, count(*) AS n FROM payments GROUP BY merchant HAVING count(*) > 2": "HAVING; filter when",
    "SELECT tx_id, row_number() OVER (ORDER BY at) AS n FROM payments": "a window function",
    "SELECT tx_id FROM payments JOIN shops ON amount < size": "ON amount < size; joins are maintained on columns that",
    "SELECT tx_id FROM payments JOIN shops ON upper(merchant) = shop": "joins are maintained on columns that",
    "SELECT tx_id FROM payments JOIN shops ON city = 'Goa'": "a join that nothing is equal in",
    "SELECT tx_id FROM payments, shops": "a CROSS JOIN; joins that are maintained are INNER and LEFT",
    "SELECT tx_id FROM payments FULL OUTER JOIN shops ON merchant = shop": "a FULL OUTER JOIN",
    "SELECT tx_id FROM payments LEFT SEMI JOIN shops ON merchant = shop": "a LEFT SEMI JOIN",
    "SELECT tx_id FROM payments JOIN shops ON merchant = shop JOIN shops s ON merchant = s.shop": "two joins",
    "SELECT city, count(*) AS n FROM payments JOIN shops ON merchant = shop GROUP BY city": "an aggregate over a join",
    "SELECT tx_id, amount + size AS x FROM payments JOIN shops ON merchant = shop": "which computes with both topics",
    "SELECT tx_id FROM payments JOIN shops ON merchant = shop WHERE amount > size": "on both topics",
    "SELECT tx_id FROM payments LEFT JOIN shops ON merchant = shop WHERE city = 'Goa'": "write it in ON",
    "SELECT tx_id FROM payments LEFT JOIN shops ON merchant = shop AND amount > 1": "write it in WHERE",
    "SELECT tx_id FROM payments WHERE merchant IN (SELECT name FROM shops)": "a subquery",
    "SELECT tx_id FROM (SELECT * FROM payments)": "a subquery",
    "WITH x AS (SELECT 1) SELECT * FROM payments": "WITH",
    "SELECT tx_id FROM payments UNION ALL SELECT tx_id FROM refunds": "UNION",
    "SELECT tx_id, current_timestamp() AS now FROM payments": "current_timestamp.*use the column _timestamp",
    "SELECT tx_id FROM payments WHERE at > now()": "now\\(\\); it would depend on when the fold ran",
    "SELECT tx_id, current_date AS d FROM payments": "current_date",
    "SELECT tx_id, rand() AS r FROM payments": "rand\\(\\); it gives something else each time",
    "SELECT tx_id, uuid() AS r FROM payments": "uuid\\(\\)",
    "SELECT tx_id, current_user() AS u FROM payments": "current_user\\(\\); it would depend on who runs the fold",
    "SELECT * FROM payments TABLESAMPLE (10 PERCENT)": "TABLESAMPLE; filter by a hash",
    "SELECT tx_id, x FROM payments LATERAL VIEW explode(xs) t AS x": "LATERAL VIEW; use explode",
    "SELECT merchant, sum(amount) / count(*) AS mean FROM payments GROUP BY merchant": "which computes with aggregates",
    "SELECT merchant, max_by(note, at) AS last FROM payments GROUP BY merchant": "fl.last\\(",
    "SELECT merchant, first(note) AS f FROM payments GROUP BY merchant": "depends on the order of rows",
    "SELECT merchant, collect_list(note) AS f FROM payments GROUP BY merchant": "maintained are count, sum",
    "SELECT merchant, sum(DISTINCT amount) AS f FROM payments GROUP BY merchant": "count\\(DISTINCT one_column\\) only",
    "SELECT merchant, count(*) AS n FROM payments GROUP BY CUBE (merchant)": "CUBE",
    "SELECT merchant, count(*) AS n FROM payments GROUP BY ALL": "GROUP BY ALL",
    "SELECT *, count(*) AS n FROM payments": "\\* beside aggregates",
    "SELECT merchant FROM payments GROUP BY merchant": "GROUP BY without an aggregate",
    "SELECT window.end AS e, window.start, count(*) AS n FROM payments GROUP BY window(at, '1 hour')": "plus the width",
    "SELECT window.start, count(*) AS n FROM payments GROUP BY window(at, '1 hour', '1 hour', '5 minutes')": "a start",
}


@pytest.mark.parametrize("query", LAWLESS)
def test_what_cannot_be_kept_up_to_date_is_refused_with_the_reason(query: str) -> None:
    with pytest.raises(InvalidArgument, match=f"cannot be kept up to date.*{LAWLESS[query]}") as refused:
        sql(query, into="x.db", name="x")
    assert "\n" not in str(refused.value)


WRONG = {
    "": "takes a query",
    "SELECT tx_id FROM payments; SELECT 1": "2 statements",
    "SELECT tx_id FROM": "cannot be parsed",
    "SELECT (tx_id FROM payments": "cannot be parsed",
    "DROP TABLE payments": "this is DROP",
    "INSERT INTO x SELECT tx_id FROM payments": "this is INSERT",
    "SELECT 1 AS one": "reads no topic",
    "SELECT tx_id FROM shop.payments": "name a topic, in `backticks`",
    "SELECT tx_id FROM paymnts": "'paymnts', which is not a declared topic .*payments",
    "SELECT tx_id, merchnt FROM payments": "has no column 'merchnt'; it has .*did you mean 'merchant'\\?",
    "SELECT tx_id FROM payments WHERE q.amount > 1": "has no column 'q'",
    "SELECT merchant, sum(amont) AS s FROM payments GROUP BY merchant": "has no column 'amont'",
    "SELECT tx_id, amount + 1 FROM payments": "'amount \\+ 1' needs a name",
    "SELECT tx_id, amount AS a, note AS A FROM payments": "two columns the name 'A'",
    "SELECT merchant, note, count(*) AS n FROM payments GROUP BY merchant": "'note' is neither aggregated nor in",
    "SELECT count(*) AS n FROM payments GROUP BY merchant": "GROUP BY merchant is not selected",
    "SELECT count(*) AS n FROM payments GROUP BY window(at, '1 hour')": "the window is not selected",
    "SELECT window.start AS hour, count(*) AS n FROM payments GROUP BY window(at, '1 hour')": "AS window_start",
    "SELECT window.start, count(*) AS n FROM payments GROUP BY window(at, 5)": "is not a window such as",
    "SELECT merchant FROM payments": "does not select 'tx_id'; add it",
    "SELECT tx_id, q.city FROM payments p JOIN shops s ON p.merchant = s.shop": "say of which topic the column 'q' is",
    "SELECT tx_id, s.cty FROM payments p JOIN shops s ON p.merchant = s.shop": "'shops' has no column 'cty'; it has",
    "SELECT tx_id, _offset AS o FROM payments JOIN shops ON merchant = shop": "payments._offset or shops._offset",
    "SELECT tx_id FROM payments JOIN shop ON merchant = shop": "'shop', which is not a declared topic",
    "SELECT tx_id FROM payments JOIN payments ON merchant = tx_id": "with itself",
    "SELECT tx_id, s.shop AS merchant FROM payments LEFT JOIN shops s ON merchant = s.shop": "AS right_merchant",
}


@pytest.mark.parametrize("query", WRONG)
def test_a_wrong_query_gets_one_sentence(query: str) -> None:
    with pytest.raises(InvalidArgument, match=WRONG[query]) as refused:
        sql(query, into="x.db", name="x")
    assert "\n" not in str(refused.value)


def test_columns_of_structs_lambdas_and_meta_are_known() -> None:
    columns = "TX_ID, payments.part.a AS a, part.a AS b, transform(xs, x -> x + 1) AS c, _offset AS o"
    sql(f"SELECT {columns} FROM payments", into="x.db", name="x")


def test_a_join_is_a_fold_of_two_topics(tmp_path: Path) -> None:
    fold = sql(
        "SELECT p.tx_id, amount * 2 AS twice, s.city AS `the city` FROM payments p LEFT JOIN shops s"
        " ON s.shop = p.merchant AND size BETWEEN 1 AND 3 WHERE amount > 0 AND (note IS NULL OR note <> 'a AND b')",
        into=tmp_path / "x.db",
        name="placed",
    )
    assert [part.topic.name for part in fold.parts] == ["payments", "shops"]
    join: object = fold.function
    assert isinstance(join, SqlJoin)
    assert (join.how, join.on) == ("left", {"merchant": "shop"})
    assert join.left.items == {"tx_id": "p.tx_id", "twice": "amount * 2", "merchant": "`p`.`merchant`"}
    assert join.left.where == ["amount > 0", "(note IS NULL OR note <> 'a AND b')"]
    assert join.right.items == {"the city": "s.city", "shop": "`s`.`shop`"}
    assert join.right.where == ["size BETWEEN 1 AND 3"]
    with pytest.raises(InvalidArgument, match="give a table of SQLite or PostgreSQL"):
        sql("SELECT tx_id FROM payments JOIN shops ON merchant = shop", into=fl.lake(tmp_path / "lake"), name="x")


def test_where_it_goes(tmp_path: Path) -> None:
    counted = "SELECT merchant, count(*) AS n FROM payments GROUP BY merchant"
    assert sql(counted, into=tmp_path / "x.db", name="per_merchant").view.kind == "counters"
    assert sql("SELECT * FROM payments", into=tmp_path / "x.db", name="mirror").view.kind == "table"
    assert sql("SELECT * FROM payments", into=fl.table(tmp_path / "x.db", "all_of_them")).name == "all_of_them"
    assert sql("SELECT note FROM payments", into=fl.lake(tmp_path / "lake"), name="notes").view.kind == "lake"
    for query, into, why in (
        (counted, fl.table(tmp_path / "x.db", "t"), "give the place alone"),
        ("SELECT * FROM payments", fl.lake(tmp_path / "lake"), "needs a name"),
        ("SELECT * FROM payments", fl.counters(tmp_path / "x.db", measures={"n": fl.count()}), "has no aggregate"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            sql(query, into=into)


def test_a_file_sees_its_own_topics(tmp_path: Path) -> None:
    file = tmp_path / "folds.py"
    file.write_text(
        "import foldlog.spark as fl\n"
        "fl.topic('orders', key='id', schema='amount BIGINT')\n"
        "fl.sql('SELECT sum(amount) AS total FROM orders', into='x.db', name='total')\n"
        "fl.sql('SELECT * FROM payments', into='x.db', name='mirror')\n"
    )
    with pytest.raises(FoldError, match=r"line 4: .*'payments', which is not a declared topic \(there are: orders\)"):
        fl.load_folds(file)
    file.write_text(file.read_text().rpartition("fl.sql(")[0])
    (total,) = fl.load_folds(file)
    assert total.topic.name == "orders"
