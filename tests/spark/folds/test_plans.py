"""The law of folds: what a plan shows to depend on the split is refused before it runs, and everything else is not.

The plans are real ones, of the session all tests share; nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from foldlog.errors import FoldError, UnlawfulFold
from foldlog.spark.folds import plans
from foldlog.spark.folds.plans import check_plan, is_cached, keeps_tasks, kept_columns, used_columns

Make = Callable[[DataFrame, DataFrame], Any]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    def foldlog_rows(batches: Iterator[Any]) -> Iterator[Any]:
        return batches

    return spark.range(0, 1, 1, 1).mapInArrow(foldlog_rows, "id bigint, a string, items array<int>, _offset bigint")


@pytest.fixture(scope="module")
def static(spark: SparkSession) -> DataFrame:
    return spark.range(3).select(F.col("id"), F.lit("x").alias("s"))


def _text(value: int) -> str:
    return str(value)


def _sql(text: str) -> Make:
    return lambda rows, static: rows.sparkSession.sql(text, rows=rows, static=static)


def _by_view(rows: DataFrame, static: DataFrame) -> DataFrame:
    rows.createOrReplaceTempView("rows_by_name")
    return rows.sparkSession.sql("SELECT a, count(*) FROM rows_by_name GROUP BY a")


_WITH = "WITH r AS (SELECT * FROM {rows}) "

UNLAWFUL: dict[str, tuple[Make, str]] = {
    "zipWithIndex": (lambda rows, static: rows.zipWithIndex("n"), "it numbers rows"),
    "row_number behind a CTE": (_sql(_WITH + "SELECT *, row_number() OVER (ORDER BY id) n FROM r"), "window function"),
    "GROUP BY behind a CTE": (_sql(_WITH + "SELECT a, count(*) FROM r GROUP BY a"), "aggregates"),
    "GROUP BY inside a CTE": (
        _sql("WITH r AS (SELECT a, count(*) n FROM {rows} GROUP BY a) SELECT * FROM r"),
        "aggreg",
    ),
    "DISTINCT behind a CTE": (_sql(_WITH + "SELECT DISTINCT a FROM r"), "duplicates"),
    "LIMIT behind a CTE": (_sql(_WITH + "SELECT * FROM r LIMIT 3"), "limited number"),
    "LIMIT behind two CTEs": (_sql(_WITH + ", s AS (SELECT * FROM r) SELECT * FROM s LIMIT 3"), "limited number"),
    "self join behind a CTE": (_sql(_WITH + "SELECT x.* FROM r x JOIN r y ON x.id = y.id"), "each other"),
    "rand behind a CTE": (_sql(_WITH + "SELECT *, rand() FROM r"), "another result each time"),
    "rand inside a CTE": (_sql("WITH r AS (SELECT *, rand() x FROM {rows}) SELECT * FROM r"), "another result each"),
    "uuid behind a CTE": (_sql(_WITH + "SELECT *, uuid() FROM r"), "another result each time"),
    "numbering behind a CTE": (_sql(_WITH + "SELECT *, monotonically_increasing_id() FROM r"), "another result each"),
    "clock behind a CTE": (_sql(_WITH + "SELECT *, current_timestamp() FROM r"), "looks at the clock"),
    "subquery of a CTE": (_sql(_WITH + "SELECT * FROM r WHERE id = (SELECT max(id) FROM r)"), "aggregates"),
    "EXISTS over a CTE": (
        _sql(_WITH + "SELECT * FROM r WHERE EXISTS (SELECT 1 FROM r o WHERE o.id > r.id)"),
        "a subquery looks at the topic's other rows",
    ),
    "IN over the rows": (
        _sql("SELECT * FROM {rows} WHERE id IN (SELECT id FROM {rows} WHERE a = 'x')"),
        "a subquery looks at the topic's other rows",
    ),
    "a static frame that looks at the rows": (
        _sql("SELECT r.* FROM {rows} r JOIN (SELECT * FROM {static} WHERE id IN (SELECT id FROM {rows})) s USING (id)"),
        "a subquery looks at the topic's other rows",
    ),
    "UNION with a static CTE": (
        _sql(
            "WITH r AS (SELECT id FROM {rows}), s AS (SELECT id FROM {static})"
            " SELECT * FROM r UNION ALL SELECT * FROM s"
        ),
        "do not come from the topic",
    ),
    "recursion": (
        _sql(
            "WITH RECURSIVE t(n) AS (SELECT id FROM {rows} UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n FROM t"
        ),
        "recursion",
    ),
    "temporary view": (_by_view, "aggregates"),
    "GROUP BY in a derived table": (_sql("SELECT * FROM (SELECT a, count(*) FROM {rows} GROUP BY a)"), "aggregates"),
    "clock in a static frame": (
        lambda rows, static: rows.join(static.withColumn("now", F.current_timestamp()), "id"),
        "looks at the clock",
    ),
    "chance in a static frame": (
        lambda rows, static: rows.join(static.withColumn("r", F.rand()), "id"),
        "another result each time",
    ),
    "groupBy": (lambda rows, static: rows.groupBy("a").count(), "aggregates"),
    "agg over all": (lambda rows, static: rows.agg(F.max("id")), "aggregates"),
    "distinct": (lambda rows, static: rows.select("a").distinct(), "duplicates"),
    "dropDuplicates": (lambda rows, static: rows.dropDuplicates(["a"]), "duplicates"),
    "limit": (lambda rows, static: rows.limit(3), "limited number"),
    "offset": (lambda rows, static: rows.offset(3), "skips"),
    "window function": (
        lambda rows, static: rows.withColumn("n", F.row_number().over(Window.partitionBy("a").orderBy("id"))),
        "window function",
    ),
    "sample": (lambda rows, static: rows.sample(0.5), "samples"),
    "exceptAll": (lambda rows, static: rows.select("id").exceptAll(static.select("id")), "subtracts"),
    "intersect": (lambda rows, static: rows.select("id").intersect(static.select("id")), "intersect"),
    "self join": (
        lambda rows, static: rows.join(rows.select(F.col("id").alias("other")), F.col("id") == F.col("other")),
        "each other",
    ),
    "right join": (lambda rows, static: rows.join(static, "id", "right"), "right outer join keeps"),
    "full join": (lambda rows, static: rows.join(static, "id", "full"), "full outer join keeps"),
    "left join from static": (lambda rows, static: static.join(rows, "id", "left"), "left outer join keeps"),
    "anti join from static": (lambda rows, static: static.join(rows, "id", "leftanti"), "left anti join keeps"),
    "union with static": (
        lambda rows, static: rows.select("id").union(static.select("id")),
        "do not come from the topic",
    ),
    "rand": (lambda rows, static: rows.withColumn("r", F.rand()), "another result each time"),
    "uuid": (lambda rows, static: rows.withColumn("r", F.expr("uuid()")), "another result each time"),
    "monotonically_increasing_id": (
        lambda rows, static: rows.withColumn("r", F.monotonically_increasing_id()),
        "another result each time",
    ),
    "nondeterministic udf": (
        lambda rows, static: rows.withColumn("r", F.udf(_text).asNondeterministic()("id")),
        "another result each time",
    ),
    "current_timestamp": (lambda rows, static: rows.withColumn("r", F.current_timestamp()), "looks at the clock"),
    "now inside": (lambda rows, static: rows.filter("a > cast(now() as string)"), "looks at the clock"),
    "current_date": (lambda rows, static: rows.withColumn("r", F.current_date()), "looks at the clock"),
    "now as a text": (
        lambda rows, static: rows.filter("a < cast(cast(' Now ' AS TIMESTAMP) AS STRING)"),
        "looks at the clock",
    ),
    "today as a text": (lambda rows, static: rows.filter("a < cast(to_date('today') AS STRING)"), "looks at the clock"),
    "applyInArrow": (
        lambda rows, static: rows.groupBy("a").applyInArrow(lambda table: table, rows.schema),
        "groups rows",
    ),
    "static only": (lambda rows, static: static, "does not come from the rows"),
}

LAWFUL: dict[str, Make] = {
    "itself": lambda rows, static: rows,
    "filter": lambda rows, static: rows.filter("id > 0"),
    "select": lambda rows, static: rows.select("id", F.upper("a").alias("a")),
    "explode": lambda rows, static: rows.withColumn("item", F.explode("items")),
    "inner join": lambda rows, static: rows.join(static, "id"),
    "broadcast join": lambda rows, static: rows.join(F.broadcast(static), "id"),
    "left join": lambda rows, static: rows.join(static, "id", "left"),
    "right join from static": lambda rows, static: static.join(rows, "id", "right"),
    "semi and anti join": lambda rows, static: rows.join(static, "id", "leftsemi").join(static, "id", "leftanti"),
    "aggregated static": lambda rows, static: rows.join(static.groupBy("id").count(), "id"),
    "union with itself": lambda rows, static: rows.filter("id > 0").union(rows.filter("id < 0")),
    "udf": lambda rows, static: rows.withColumn("r", F.udf(_text)("id")),
    "sort and repartition": lambda rows, static: rows.orderBy("id").repartition(2),
    "scalar subquery of a static frame": lambda rows, static: rows.filter("id > (select 1)"),
    "first of a static frame": lambda rows, static: rows.join(static.groupBy("id").agg(F.first("s")), "id"),
    "CTE": _sql(_WITH + "SELECT * FROM r WHERE id > 0"),
    "CTE of a static frame": _sql(
        "WITH s AS (SELECT id, count(*) n FROM {static} GROUP BY id) SELECT * FROM {rows} JOIN s USING (id)"
    ),
    "watermark": lambda rows, static: rows.withColumn("at", F.timestamp_millis("id")).withWatermark("at", "1 hour"),
    "unpivot": lambda rows, static: rows.withColumn("b", F.upper("a")).unpivot("id", ["a", "b"], "name", "value"),
    "observe": lambda rows, static: rows.observe("seen", F.count(F.lit(1)).alias("n")),
    "rebalance": lambda rows, static: rows.hint("rebalance"),
    "mapInPandas": lambda rows, static: rows.mapInPandas(lambda frames: frames, rows.schema),
    "pipe": _sql("FROM {rows} |> WHERE id > 0 |> EXTEND id + 1 AS more |> DROP a"),
    "lateral": _sql("SELECT * FROM {rows}, LATERAL (SELECT id + 1 AS more)"),
    "both halves of a CTE": _sql(_WITH + "SELECT * FROM r WHERE id > 0 UNION ALL SELECT * FROM r WHERE id < 0"),
}


CLOCKS = """
    TIMESTAMP 'now' | DATE 'today' | timestamp_ntz"Yesterday" | TIMESTAMP_LTZ ' tomorrow UTC' | DATE 'today UTC' | now()
    CAST('now' AS TIMESTAMP) | CAST('tomorrow' AS DATE) | CAST(concat('to', 'day') AS DATE) | CAST(trim('now ') AS DATE)
    try_cast('now' AS timestamp) | to_timestamp('now') | to_date('today') | date('today') | timestamp('now') | curdate()
    'now'::timestamp | at > 'now' | at IN ('now', 'today') | at BETWEEN 'yesterday' AND 'now' | coalesce(at, 'now')
    date_trunc('day', 'now') | date_add('today', 1) | year('now') | hour('now') | datediff('today', DATE '2020-01-01')
    timestampdiff(DAY, at, 'now') | date_format('now', 'yyyy') | at > TIMESTAMP 'now' - INTERVAL 1 DAY | current_time()
    current_timestamp() | current_timestamp | localtimestamp() | current_date() | unix_timestamp()
"""
CHANCES = """
    uuid() | rand() | rand(1) | randn() | random() | random(1) | uniform(1, 10) | uniform(1, 10, 5) | randstr(5)
    shuffle(items) | shuffle(items, 3) | monotonically_increasing_id() | spark_partition_id() | input_file_name()
    input_file_block_start() | input_file_block_length() | reflect('java.util.UUID', 'randomUUID') | randstr(5, 3)
    java_method('java.lang.System', 'nanoTime')
"""
SURROUNDINGS = """
    current_user() | user() | session_user() | current_database() | current_schema() | current_catalog()
    current_timezone() | version() | current_path()
"""
RANDOM_BYTES = """
    aes_encrypt(a, '0123456789abcdef') | base64(aes_encrypt(a, '0123456789abcdef', 'CBC'))
"""
HARMLESS = """
    CAST('now' AS STRING) | a = 'now' | upper('today') | TIMESTAMP 'epoch' | TIMESTAMP '2020-01-01 00:00:00' | hash(a)
    DATE '2020-01-01' | DATE'-0044-03-15' | CAST(a AS TIMESTAMP) | try_to_timestamp(a) | make_date(2020, 1, 1)
    aes_encrypt(a, '0123456789abcdef', 'ECB') | aes_encrypt(a, '0123456789abcdef', 'CBC', 'DEFAULT', unhex(md5(a)))
    at > '2020-01-01' | window(at, '1 day') | sha2(a, 256) | typeof(a)
"""
CONSTANT = {"e", "pi", "make_dt_interval", "make_interval", "make_ym_interval"}
"""Functions that may be called without an argument, and are then the same everywhere."""

EXPRESSIONS = [
    (text.strip(), told)
    for texts, told in (
        (CLOCKS, "looks at the clock"),
        (CHANCES, "gives another result each time"),
        (SURROUNDINGS, "depends on who runs it, and where"),
        (RANDOM_BYTES, "other random bytes each time"),
        (HARMLESS, None),
    )
    for line in texts.strip().splitlines()
    for text in line.split(" | ")
]


@pytest.mark.parametrize(("text", "told"), EXPRESSIONS, ids=[text for text, _ in EXPRESSIONS])
def test_an_expression_that_is_another_at_each_replay_is_refused(rows: DataFrame, text: str, told: str | None) -> None:
    result = rows.selectExpr("*", "timestamp_millis(_offset) AS at").selectExpr("*", f"{text} AS found")
    if told is None:
        check_plan("mirror", rows, result)
        return
    with pytest.raises(UnlawfulFold, match=told):
        check_plan("mirror", rows, result)


def test_every_function_without_arguments_is_refused_or_known_to_be_constant(
    rows: DataFrame, spark: SparkSession
) -> None:
    """A later Spark may bring others: they are looked at, and put into one of the lists."""
    registry = spark._jsparkSession.sessionState().functionRegistry()
    found = registry.listFunction()
    allowed: set[str] = set()
    for function in (found.apply(number) for number in range(found.size())):
        name, usage = function.funcName(), str(registry.lookupFunction(function).get().getUsage())
        if not re.search(r"\b" + re.escape(name) + r"\([\[)]", usage):
            continue  # it cannot be called without an argument
        try:
            result = rows.selectExpr("*", f"{name}() AS found")
        except (AnalysisException, ParseException):
            continue  # it takes arguments after all
        try:
            check_plan("mirror", rows, result)
        except UnlawfulFold:
            continue
        allowed.add(name)
    assert allowed == CONSTANT


def test_a_clock_behind_a_view_a_function_or_a_variable_of_sql_is_refused(rows: DataFrame, spark: SparkSession) -> None:
    rows.createOrReplaceTempView("rows_for_clocks")
    spark.sql("CREATE OR REPLACE TEMP VIEW clocked AS SELECT *, TIMESTAMP 'now' AS found FROM rows_for_clocks")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION clock() RETURNS TIMESTAMP RETURN TIMESTAMP 'now'")
    spark.sql("DECLARE OR REPLACE VARIABLE started TIMESTAMP DEFAULT TIMESTAMP 'now'")
    snowy = spark.sql("SELECT *, '\U0001f328' AS snow, TIMESTAMP 'now' AS found FROM {rows}", rows=rows)
    for result in (spark.table("clocked"), rows.selectExpr("*", "clock()"), snowy):
        with pytest.raises(UnlawfulFold, match="TIMESTAMP 'now' looks at the clock"):
            check_plan("mirror", rows, result)
    with pytest.raises(UnlawfulFold, match="depends on who runs it"):
        check_plan("mirror", rows, rows.selectExpr("*", "started"))


def test_an_operator_that_the_law_does_not_know_is_refused(rows: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    sifted = rows.filter("id > 0")
    check_plan("mirror", rows, sifted)
    monkeypatch.setattr(plans, "_PER_ROW_NODES", plans._PER_ROW_NODES - {"Filter"})
    with pytest.raises(UnlawfulFold, match="its plan has a Filter, of which it is not known"):
        check_plan("mirror", rows, sifted)


@pytest.mark.parametrize("name", UNLAWFUL)
def test_what_would_depend_on_the_split_is_refused_by_name(rows: DataFrame, static: DataFrame, name: str) -> None:
    make, told = UNLAWFUL[name]
    with pytest.raises(UnlawfulFold, match="'per_minute' breaks the law of folds") as refused:
        check_plan("per_minute", rows, make(rows, static))
    assert told in str(refused.value)


@pytest.mark.parametrize("name", LAWFUL)
def test_what_looks_at_one_row_at_a_time_is_allowed(rows: DataFrame, static: DataFrame, name: str) -> None:
    check_plan("mirror", rows, LAWFUL[name](rows, static))


def test_a_fold_that_returns_no_frame_is_told_so(rows: DataFrame) -> None:
    with pytest.raises(FoldError, match="returned NoneType and not a DataFrame"):
        check_plan("mirror", rows, None)


def test_only_the_columns_that_a_fold_uses_are_read(rows: DataFrame, static: DataFrame) -> None:
    assert used_columns(rows) == frozenset({"id", "a", "items", "_offset"})
    assert used_columns(rows.filter("id > 0").select("a")) == frozenset({"id", "a"})
    assert used_columns(rows.join(static, "id").select("s", "_offset")) == frozenset({"id", "_offset"})


def test_only_what_the_view_takes_of_a_fold_s_columns_is_read(rows: DataFrame) -> None:
    result = rows.filter("id > 0").withColumn("b", F.col("a"))
    assert used_columns(result, {"_offset"}) == frozenset({"id", "_offset"})
    assert used_columns(result, {"b"}) == frozenset({"id", "a"})
    assert used_columns(result, {"B"}) == frozenset({"id", "a", "items", "_offset"}), (
        "Spark finds it; here it is unknown"
    )


@pytest.mark.parametrize(
    ("make", "keeps"),
    [
        (lambda rows, static: rows.filter("id > 0").selectExpr("explode(items) AS item"), True),
        (lambda rows, static: rows.mapInArrow(lambda batches: batches, rows.schema), True),
        (lambda rows, static: rows.repartition(2), False),
        (lambda rows, static: rows.sort("id"), False),
        (lambda rows, static: rows.join(static, "id"), False),
        (lambda rows, static: rows.union(rows), False),
    ],
    ids=["filter and explode", "mapInArrow", "repartition", "sort", "join", "union"],
)
def test_rows_stay_in_the_task_that_read_them_unless_a_node_may_move_them(
    rows: DataFrame, static: DataFrame, make: Make, keeps: bool
) -> None:
    assert keeps_tasks(make(rows, static)) is keeps


@pytest.mark.parametrize(
    "make",
    [
        lambda rows, static: rows.filter("id > (select 1)").select("a"),
        lambda rows, static: rows.mapInArrow(lambda batches: batches, rows.schema).select("a"),
        lambda rows, static: rows.filter("id > 0").union(rows.filter("id < 0")).select("a"),
        _sql(_WITH + "SELECT a FROM r"),
    ],
    ids=["subquery", "mapInArrow", "union", "CTE"],
)
def test_where_a_plan_is_not_understood_all_columns_are_read(rows: DataFrame, static: DataFrame, make: Make) -> None:
    assert used_columns(make(rows, static)) is None


def test_what_is_cached_of_the_rows_is_seen_and_what_is_cached_beside_them_is_not(
    rows: DataFrame, static: DataFrame
) -> None:
    result = rows.filter("id > 0").select("a")
    static.cache()
    try:
        assert not is_cached(rows, result.join(static, F.col("a") == F.col("s")))
        cached = rows.filter("id > 0").cache()
        try:
            assert is_cached(rows, result)
            assert used_columns(result) == frozenset({"id", "a"})  # of the plan, whatever Spark has cached
        finally:
            cached.unpersist(blocking=True)
        assert not is_cached(rows, result)
    finally:
        static.unpersist(blocking=True)


KEPT: dict[str, tuple[Make, bool]] = {
    "itself": (lambda rows, static: rows, True),
    "renamed and back": (lambda rows, static: rows.withColumnRenamed("id", "x").withColumnRenamed("x", "id"), True),
    "selected as itself": (lambda rows, static: rows.withColumn("id", F.col("id")), True),
    "behind a CTE": (_sql(_WITH + "SELECT * FROM r"), True),
    "beside others": (lambda rows, static: rows.join(static, "id", "left").withColumn("i", F.explode("items")), True),
    "union": (lambda rows, static: rows.filter("id > 0").union(rows.filter("id < 0")), True),
    "changed": (lambda rows, static: rows.withColumn("id", F.col("id") + 1), False),
    "another's": (
        lambda rows, static: rows.withColumn("x", F.col("_offset")).drop("id").withColumnRenamed("x", "id"),
        False,
    ),
    "changed in one branch": (
        lambda rows, static: rows.filter("id > 0").union(rows.withColumn("id", -F.col("id"))),
        False,
    ),
    "changed behind a CTE": (_sql("WITH r AS (SELECT id + 1 AS id, a FROM {rows}) SELECT * FROM r"), False),
    "of the static frame": (
        lambda rows, static: rows.drop("id").join(static, F.col("a") == F.col("s")),
        False,
    ),
    "through a function": (lambda rows, static: rows.mapInArrow(lambda batches: batches, rows.schema), False),
}


@pytest.mark.parametrize("name", KEPT)
def test_whether_the_key_is_passed_on_unchanged_is_seen(rows: DataFrame, static: DataFrame, name: str) -> None:
    make, is_kept = KEPT[name]
    assert ("id" in kept_columns(make(rows, static))) is is_kept
