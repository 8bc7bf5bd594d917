"""A function that has changed is noticed, and one that has not is not: across calls, processes and growing schemas."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.udtf import UserDefinedTableFunction

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog.errors import FoldError
from foldlog.spark.folds import fingerprint
from foldlog.spark.folds.declaration import DeclaredTopic, Fold
from foldlog.spark.folds.deltas import prepare
from foldlog.spark.folds.fingerprint import logic_of
from foldlog.spark.folds.plans import plan_key, plan_text
from foldlog.spark.folds.reading import TopicFrames
from foldlog.spark.origins.origin import open_origin, origin_spec
from foldlog.views.bookmark import Bookmark, Logic, Position
from foldlog.views.contract import View
from folds_model import SCHEMA, fill, mirror_of, payment

Function = Callable[[DataFrame], DataFrame]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments", partitions=1)
        fill(log, "payments", [("a", payment(amount_paise=5)), ("b", payment(amount_paise=50))])
    return tmp_path / "data"


def _plus(step: int) -> Callable[[int], int]:
    def added(value: int) -> int:
        return (value or 0) + step

    return added


FUNCTIONS: dict[str, Function] = {
    "itself": lambda rows: rows,
    "filter": lambda rows: rows.filter("amount_paise > 5"),
    "another filter": lambda rows: rows.filter("amount_paise > 6"),
    "column": lambda rows: rows.withColumn("x", F.upper("merchant")),
    "another column": lambda rows: rows.withColumn("x", F.lower("merchant")),
    "higher order": lambda rows: rows.withColumn("x", F.transform(F.array("note"), lambda one: F.concat(one, one))),
    "udf": lambda rows: rows.withColumn("x", F.udf(_plus(1), "long")("amount_paise")),
    "udf with another number": lambda rows: rows.withColumn("x", F.udf(_plus(2), "long")("amount_paise")),
    "SQL": lambda rows: rows.sparkSession.sql(
        "WITH r AS (SELECT * FROM {rows}) SELECT * FROM r WHERE note > 'a'", rows=rows
    ),
    "static recursion": lambda rows: rows.sparkSession.sql(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5)"
        " SELECT rows.* FROM {rows} rows JOIN r ON amount_paise = n",
        rows=rows,
    ),
    "another static recursion": lambda rows: rows.sparkSession.sql(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 6)"
        " SELECT rows.* FROM {rows} rows JOIN r ON amount_paise = n",
        rows=rows,
    ),
    "mapInArrow": lambda rows: rows.mapInArrow(lambda batches: batches, rows.schema),
}


def _logic(function: Function, spark: SparkSession, directory: Path, schema: str = SCHEMA) -> Logic:
    topic = fl.topic("payments", key="tx_id", schema=schema)
    with foldlog.open(directory, mode="r"):
        origin = open_origin(origin_spec(directory))
    try:
        frames = TopicFrames(spark, topic, origin.spec, origin.topic("payments").topic_id)
        return prepare(fl.fold(topic, into=FileView(directory / "x"), name="it")(function), frames).logic
    finally:
        origin.close()


@pytest.mark.faults
def test_each_function_has_a_fingerprint_of_its_own_and_always_the_same(spark: SparkSession, directory: Path) -> None:
    found = {name: _logic(function, spark, directory) for name, function in FUNCTIONS.items()}
    again = {name: _logic(function, spark, directory) for name, function in FUNCTIONS.items()}
    assert found == again
    assert len(set(found.values())) == len(FUNCTIONS)


@pytest.mark.parametrize("name", ["itself", "filter", "column", "udf"])
def test_a_column_that_the_topic_gains_is_no_change_of_the_function(
    spark: SparkSession, directory: Path, name: str
) -> None:
    before, after = (_logic(FUNCTIONS[name], spark, directory, schema) for schema in (SCHEMA, SCHEMA + ", late INT"))
    assert before == after


def test_the_code_of_a_function_is_the_same_text_in_another_process_and_on_another_line(tmp_path: Path) -> None:
    source = """
        from pyspark import cloudpickle
        from foldlog.spark.folds.fingerprint import _function_lines
        LIMITS = {"a", "b", "c", "d"}
        def helper(value):
            return value in LIMITS
        def made(step):
            return lambda value, scale=2: helper(value) and [one + step for one in range(scale)]
        print("\\n".join(_function_lines(cloudpickle.dumps((made(7), None)), {})))
    """
    told = set()
    for number in range(3):
        file = tmp_path / f"one_{number}.py"
        file.write_text("\n" * number + textwrap.dedent(source))
        done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True, timeout=120)
        told.add(done.stdout)
    assert len(told) == 1
    assert "{'a', 'b', 'c', 'd'}" in told.pop()


def _folds(view: View, topic: DeclaredTopic) -> tuple[Fold, Fold]:
    declare = fl.fold(topic, into=view, name="big")
    return declare(lambda rows: rows.filter("amount_paise > 1")), declare(lambda rows: rows.filter("amount_paise > 10"))


def test_a_run_stops_at_a_changed_function_goes_on_if_told_and_says_so_until_a_rebuild(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    topic = fl.topic("payments", key="tx_id", schema=SCHEMA)
    view = fl.lake(tmp_path / "lake", mode="merge")
    old, new = _folds(view, topic)
    fl.run([old], directory, once=True, spark=spark)
    fl.run([old], directory, once=True, spark=spark)
    with pytest.raises(FoldError, match=r"is another one than its view was made with.*rebuild big.*--accept-change"):
        fl.run([new], directory, once=True, spark=spark)
    assert fl.status([new], directory)[0].mixes == 0
    fl.run([new], directory, once=True, spark=spark, accept_change=True)
    (state,) = fl.status([new], directory)
    assert state.mixes == 1
    assert state.published is not None
    assert state.published.mixes == 1
    fl.run([new], directory, once=True, spark=spark)  # accepted once, it is the view's function
    fl.rebuild(new, directory, spark=spark)
    assert fl.status([new], directory)[0].mixes == 0
    fl.run([new], directory, once=True, spark=spark)
    rows = [row["tx_id"] for batch in view.scan().batches for row in batch.to_pylist()]
    assert rows == list(mirror_of(directory, "payments", lambda row: row["amount_paise"] > 10))


@pytest.mark.faults
def test_a_view_from_before_takes_the_function_it_is_given(
    directory: Path, tmp_path: Path, spark: SparkSession
) -> None:
    topic = fl.topic("payments", key="tx_id", schema=SCHEMA)
    view = FileView(tmp_path / "view")
    old, new = _folds(view, topic)
    fl.run([old], directory, once=True, spark=spark)
    stored = view.bookmark()
    assert stored is not None
    assert stored.logic is not None
    view.move(stored, replace(stored, logic=None))
    with foldlog.open(directory) as log:
        fill(log, "payments", [("c", payment(amount_paise=70))])
    fl.run([new], directory, once=True, spark=spark)
    assert set(view.rows()) == {"a", "b", "c"}
    with pytest.raises(FoldError, match="is another one than its view was made with"):
        fl.run([old], directory, once=True, spark=spark)


def test_another_version_of_spark_does_not_stop_a_run(caplog: pytest.LogCaptureFixture) -> None:
    stored = Bookmark("t", "id", {0: Position(7)}, {0: 0}, logic=Logic(1, 10, 2))
    kept = fingerprint.logic_to_store("it", stored, Logic(5, 11), has_rows=True, accept_change=False)
    assert kept == Logic(5, 11, 2)
    assert "another version" in caplog.text
    same = fingerprint.logic_to_store("it", stored, Logic(1, 11), has_rows=True, accept_change=False)
    assert same == Logic(1, 11, 2)
    with pytest.raises(FoldError, match="is another one"):
        fingerprint.logic_to_store("it", stored, Logic(5, 10), has_rows=True, accept_change=False)


def test_a_fingerprint_of_an_older_form_is_replaced_and_that_is_said_once(
    directory: Path, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    topic = fl.topic("payments", key="tx_id", schema=SCHEMA)
    view = FileView(tmp_path / "view")
    old, new = _folds(view, topic)
    fl.run([old], directory, once=True, spark=spark)
    stored = view.bookmark()
    assert stored is not None
    view.move(stored, replace(stored, logic=Logic(1, 10, 2)))
    fl.run([old], directory, once=True, spark=spark)  # there is nothing to read, and it is noted all the same
    fl.run([old], directory, once=True, spark=spark)
    assert caplog.text.count("is of another version") == 1
    assert fl.status([old], directory)[0].mixes == 2
    with pytest.raises(FoldError, match="is another one than its view was made with"):
        fl.run([new], directory, once=True, spark=spark)


# --- what Spark's own texts leave out -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return _rows(spark)


def _rows(spark: SparkSession, tasks: int = 1) -> DataFrame:
    def foldlog_rows(batches: Iterator[Any]) -> Iterator[Any]:
        return batches

    return spark.range(0, tasks, 1, tasks).mapInArrow(foldlog_rows, "id string, v bigint, s string, t timestamp")


def _forty(last: int) -> list[Column]:
    return [F.lit(number) for number in (*range(39), last)]


LONG: dict[str, Callable[[DataFrame, int], DataFrame]] = {
    "a map": lambda rows, last: rows.withColumn("x", F.create_map(*_forty(last))),
    "an array": lambda rows, last: rows.withColumn("x", F.array(*_forty(last))),
    "a struct": lambda rows, last: rows.withColumn("x", F.struct(*_forty(last))),
    "a list": lambda rows, last: rows.withColumn("x", F.lit([*range(39), last])),
    "the greatest": lambda rows, last: rows.withColumn("x", F.greatest(*_forty(last))),
    "a map in a filter": lambda rows, last: rows.filter(F.create_map(*_forty(last))[2] == F.col("v")),
    "a schema": lambda rows, last: rows.filter(
        F.from_json("s", ", ".join(f"c{number} INT" for number in (*range(39), last)))["c1"] == F.col("v")
    ),
    "a cast": lambda rows, last: rows.filter(
        F.from_json("s", "STRUCT<" + ", ".join(f"c{n} INT" for n in range(40)) + ">").cast(
            "STRUCT<" + ", ".join(f"d{n} {'INT' if n < 39 or last < 50 else 'STRING'}" for n in range(40)) + ">"
        )["d1"]
        == F.col("v")
    ),
}


@pytest.mark.parametrize("what", LONG)
def test_what_stands_behind_the_25th_field_is_part_of_what_a_plan_does(rows: DataFrame, what: str) -> None:
    first, again, other = (logic_of(LONG[what](rows, last)) for last in (40, 40, 999))
    assert first == again
    assert first != other


@pytest.mark.faults
def test_the_key_of_a_plan_is_complete_and_the_same_for_each_range(spark: SparkSession) -> None:
    def key(last: object, tasks: int = 1) -> tuple[str, int]:
        given = _rows(spark, tasks)
        made = given.withColumn("x", F.create_map(*_forty(7), F.lit(1), F.lit(last)))
        made = made.withColumn("y", F.transform(F.array("s"), lambda one: F.concat(one, one)))
        made = spark.sql("WITH r AS (SELECT * FROM {made}) SELECT * FROM r", made=made)
        return plan_key(given, plan_text(made))

    assert key(8) == key(8)
    assert key(8) == key(8, tasks=3)
    assert key(8) != key(9)
    assert key("order#17") == key("order#17")
    assert key("order#17") != key("order#18")
    next_number = max(map(int, re.findall(r"#(\d+)", plan_text(_rows(spark)).analysed)))
    for text in (f"#{next_number + 1000}", "lambda x_7", "CTERelationRef 7", f"_pyspark_{0:032x}"):
        assert key(text) == key(text)
        assert key(text) != key(text[:-1] + ("2" if text[-1] == "1" else "1"))
    assert spark.conf.get("spark.sql.debug.maxToStringFields") == "25"
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active.conf.get("spark.sql.debug.maxToStringFields") == "25"


PAIRS: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], Callable[[DataFrame, DataFrame], DataFrame]]] = {
    "the column of a joined frame": (
        lambda rows, q: rows.alias("r").join(q.alias("q"), "id").select("id", "r.v", "r.t"),
        lambda rows, q: rows.alias("r").join(q.alias("q"), "id").select("id", "q.v", "r.t"),
    ),
    "the column of a joined frame in a filter": (
        lambda rows, q: rows.alias("r").join(q.alias("q"), "id").filter("r.v > 1").select("id", "r.v"),
        lambda rows, q: rows.alias("r").join(q.alias("q"), "id").filter("q.v > 1").select("id", "r.v"),
    ),
    "the order of a union's columns": (
        lambda rows, q: rows.select("id", "s").union(rows.select("id", "s")),
        lambda rows, q: rows.select("id", "s").union(rows.select("s", "id")),
    ),
    "the type of a literal": (
        lambda rows, q: rows.withColumn("x", F.hash(F.lit(1))),
        lambda rows, q: rows.withColumn("x", F.hash(F.lit("1"))),
    ),
    "an option": (
        lambda rows, q: rows.withColumn("x", F.from_json("s", "a INT", {"mode": "PERMISSIVE"})),
        lambda rows, q: rows.withColumn("x", F.from_json("s", "a INT", {"mode": "FAILFAST"})),
    ),
    "the way of a join": (
        lambda rows, q: rows.join(q.select("id"), "id"),
        lambda rows, q: rows.join(q.select("id"), "id", "left"),
    ),
    "a subquery": (
        lambda rows, q: rows.sparkSession.sql("SELECT * FROM {r} WHERE v > (SELECT max(v) FROM {q})", r=rows, q=q),
        lambda rows, q: rows.sparkSession.sql("SELECT * FROM {r} WHERE v > (SELECT min(v) FROM {q})", r=rows, q=q),
    ),
    "a field of an exploded struct": (
        lambda rows, q: rows.select("id", F.explode(F.array("s", "id")).alias("one")),
        lambda rows, q: rows.select("id", F.explode(F.array("id", "s")).alias("one")),
    ),
}


@pytest.mark.parametrize("what", PAIRS)
def test_two_plans_that_do_not_do_the_same_have_two_fingerprints(
    rows: DataFrame, spark: SparkSession, what: str
) -> None:
    q = spark.createDataFrame([("a", 7)], "id STRING, v BIGINT")
    one, other = PAIRS[what]
    assert logic_of(one(rows, q)) == logic_of(one(rows, q))
    assert logic_of(other(rows, q)) == logic_of(other(rows, q))
    assert logic_of(one(rows, q)) != logic_of(other(rows, q))


@pytest.mark.parametrize(
    ("setting", "value", "made"),
    [
        ("spark.sql.ansi.enabled", "false", lambda rows: rows.withColumn("x", F.col("s").cast("int"))),
        ("spark.sql.ansi.enabled", "false", lambda rows: rows.withColumn("x", F.to_timestamp("s"))),
        ("spark.sql.session.timeZone", "Asia/Tokyo", lambda rows: rows.withColumn("x", F.col("t").cast("string"))),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY", lambda rows: rows.withColumn("x", F.to_date("s", "yy"))),
    ],
)
def test_a_setting_that_changes_what_a_plan_gives_is_part_of_it(
    spark: SparkSession, rows: DataFrame, setting: str, value: str, made: Function
) -> None:
    before, passed_on = logic_of(made(rows)), logic_of(rows)
    stood = spark.conf.get(setting, None)
    spark.conf.set(setting, value)
    try:
        assert logic_of(made(rows)) != before
        assert logic_of(rows) == passed_on
    finally:
        spark.conf.unset(setting) if stood is None else spark.conf.set(setting, stood)
    assert logic_of(made(rows)) == before


def test_a_zone_is_no_part_of_a_plan_that_looks_at_no_time(spark: SparkSession, rows: DataFrame) -> None:
    before, stood = logic_of(rows.withColumn("x", F.col("v").cast("int"))), spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert logic_of(rows.withColumn("x", F.col("v").cast("int"))) == before
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(stood))


# --- a function that changes while it runs --------------------------------------------------------------------------

MERCHANTS = [f"m{number % 3}" for number in range(40)]


def _uses_list(chosen: list[str]) -> Function:
    return lambda rows: rows.filter(F.col("merchant").isin(chosen))


def _uses_odd_list(chosen: list[str]) -> Function:
    """The texts of which look as Spark's numbers do."""
    of_merchants = {"m1": "#50000", "m2": "#60000"}
    odd = [of_merchants[one] for one in chosen[-1:]]
    return lambda rows: rows.filter(F.when(F.col("merchant") == "m1", "#50000").otherwise("#60000").isin(odd))


def _uses_list_in_python(chosen: list[str]) -> Function:
    return lambda rows: rows.filter(F.udf(lambda merchant: merchant in chosen, "boolean")("merchant"))


@pytest.fixture
def many(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "many") as log:
        log.create_topic("payments", partitions=1)
        fill(log, "payments", [(f"tx{n}", payment(merchant)) for n, merchant in enumerate(MERCHANTS)])
    return tmp_path / "many"


def _changing(view: FileView, using: Callable[[list[str]], Function]) -> Fold:
    """A fold that uses one merchant more once something is stored."""
    chosen = ["m1"]

    @fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=view)
    def choosing(rows: DataFrame) -> DataFrame:
        if view.deltas and "m2" not in chosen:
            chosen.append("m2")
        return using(chosen)(rows)

    return choosing


@pytest.mark.parametrize("using", [_uses_list, _uses_odd_list, _uses_list_in_python])
def test_a_plan_that_changes_inside_a_run_stops_it_as_at_a_start(
    many: Path, tmp_path: Path, spark: SparkSession, using: Callable[[list[str]], Function]
) -> None:
    view = FileView(tmp_path / "view")
    with pytest.raises(FoldError, match=r"is another one than its view was made with.*--accept-change"):
        fl.run([_changing(view, using)], many, once=True, spark=spark, range_bytes=1000)
    assert {row["merchant"] for row in view.rows().values()} == {"m1"}
    stored = view.bookmark()
    assert stored is not None
    assert stored.logic is not None
    assert stored.logic.mixes == 0


def test_a_plan_that_changes_inside_a_run_is_accepted_and_counted_as_at_a_start(
    many: Path, tmp_path: Path, spark: SparkSession
) -> None:
    view = FileView(tmp_path / "view")
    fold = _changing(view, _uses_list)
    fl.run([fold], many, once=True, spark=spark, range_bytes=1000, accept_change=True)
    assert {row["merchant"] for row in view.rows().values()} == {"m1", "m2"}
    assert fl.status([fold], many)[0].mixes == 1
    assert [row["merchant"] for row in view.rows().values()].count("m2") < MERCHANTS.count("m2")


def test_a_plan_that_changes_while_a_fold_is_tried_is_no_mistake_of_ours(
    many: Path, tmp_path: Path, spark: SparkSession
) -> None:
    view = FileView(tmp_path / "view")
    chosen: list[str] = ["m1"]
    calls: list[int] = []

    @fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=view)
    def choosing(rows: DataFrame) -> DataFrame:
        calls.append(1)
        if len(calls) == 4:  # twice to look at it, once for the range, and then it is tried
            chosen.append("m2")
        return rows.filter(F.col("merchant").isin(chosen))

    with pytest.raises(FoldError, match=r"gave another plan for the same rows.*nothing of this range was stored"):
        fl.run([choosing], many, once=True, spark=spark)
    assert view.rows() == {}


def test_a_function_that_makes_another_plan_for_rows_than_for_none_is_refused(
    many: Path, tmp_path: Path, spark: SparkSession
) -> None:
    view = FileView(tmp_path / "view")
    fold = fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=view, name="counting")(
        lambda rows: rows.withColumn("note", F.lit(str(rows.count())))
    )
    with pytest.raises(FoldError, match="makes another plan each time it is called"):
        fl.run([fold], many, once=True, spark=spark, range_bytes=1500)
    assert view.rows() == {}


# --- what a function takes from around it ---------------------------------------------------------------------------

CHANGES: dict[str, tuple[str, str]] = {
    "a class": ("class C:\n  def go(s, v): return v + {}", "C().go(v)"),
    "an object": ("class C:\n  def __init__(s, n): s.n = n\nc = C({})", "v + c.n"),
    "a function in a list": ("fs = [lambda v: v + {}]", "fs[0](v)"),
    "a function behind a cache": ("import functools\n@functools.cache\ndef g(v): return v + {}", "g(v)"),
    "a date": ("import datetime\nday = datetime.date(2020, 1, {})", "v < day"),
    "a decimal": ("from decimal import Decimal\nrate = Decimal('1.{}')", "v * rate"),
    "a pattern": ("import re\nform = re.compile('[a-z]{{{}}}')", "form.match(v)"),
    "a dict of sets": ("kinds = {{'a': {{'x', 'y', '{}'}}}}", "v in kinds['a']"),
    "a function of re's": ("from re import sub\nform = '{}'", "sub(form, '', v)"),
    "functions of json's": ("from json import dumps, loads\nkey = '{}'", "dumps(loads(v)[key])"),
    "a method of a pattern": ("import re\nmatch = re.compile('[a-z]{{{}}}').match", "match(v)"),
    "a method of a text": ("join = '{}'.join", "join(v)"),
    "a frozenset in a closure": ("def made(some): return lambda v: v in some\ng = made(frozenset('abc{}'))", "g(v)"),
    "an enum": (
        "import enum\nclass Kind(enum.Enum):\n  A = 1\n  B = 1 + {}\nclass N(enum.IntEnum):\n  X = 1",
        "(Kind.B, N.X)",
    ),
    "a number of an enum": ("import enum\nclass N(enum.IntEnum):\n  X = {}\nx = N.X", "v + x"),
    "a dataclass": ("import dataclasses\n@dataclasses.dataclass\nclass D:\n  a: int = {}\n  b: str = 'x'", "D().a + v"),
    "a partial": ("import functools\ndef g(a, v): return a + v\np = functools.partial(g, {})", "p(v)"),
    "a logger": ("import logging\nlog = logging.getLogger('x{}')", "log.info(v)"),
    "an abstract class": (
        "import abc\nclass A(abc.ABC):\n  @abc.abstractmethod\n  def go(s): ...\nclass B(A):\n  def go(s): return {}",
        "B().go()",
    ),
    "a named tuple": ("import typing\nclass T(typing.NamedTuple):\n  a: int = {}", "T().a"),
    "how often one is in a list": ("def g(v): return v\nfs = [g] * {}", "[one(v) for one in fs]"),
    "a value of a module beside": ("import types, math as m\nk = {}\ndef g(v): return m.floor(v) + k", "g(v)"),
    "a default of a factory's": ("import operator\nget = operator.itemgetter({})", "get(v)"),
}


TELLING = """
import json, re, sys
from pyspark import cloudpickle
from foldlog.spark.folds.fingerprint import _function_lines
seed, number = sys.argv[1:]
# What a process did before is no part of a function: the library keeps some of it.
re.sub("x" * int(seed), "", "y")
told = {}
for what, (around, used) in json.load(sys.stdin).items():
    exec(f"{around.format(number)}\\ndef f(v): return {used}", globals())
    told[what] = "\\n".join(_function_lines(cloudpickle.dumps((f, None)), {}))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told_elsewhere() -> list[dict[str, str]]:
    """The texts of all CHANGES of three processes: two with the same number, one with another."""
    found = []
    for seed, number in (("1", "1"), ("2", "1"), ("3", "2")):
        done = subprocess.run(
            [sys.executable, "-c", TELLING, seed, number],
            input=json.dumps(CHANGES),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        found.append(json.loads(done.stdout))
    return found


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_what_a_function_takes_from_around_it_is_noticed(
    told_elsewhere: list[dict[str, str]], what: str
) -> None:
    first, again, other = (one[what] for one in told_elsewhere)
    assert first == again
    assert first != other


SAME: dict[str, tuple[str, str]] = {
    "an edited docstring": ('def f(v):\n  "One."\n  return v + 1', 'def f(v):\n  "Another."\n  return v + 1'),
    "a docstring more": ("def f(v):\n  if v: return v", 'def f(v):\n  "New."\n  if v: return v'),
    "a comment": ("def f(v):\n  return v + 1", "# Why.\ndef f(v):\n  # Because.\n  return v + 1  # so"),
    "a variable's name": ("def f(v):\n  w = v\n  return w + 1", "def f(value):\n  other = value\n  return other + 1"),
    "a docstring inside": (
        "def f(v):\n  def g(w): return w + 1\n  return g(v)",
        'def f(v):\n  def g(w):\n    "Adds."\n    return w + 1\n  return g(v)',
    ),
    "a docstring of a class inside": (
        'def f(v):\n  class C:\n    "One."\n    x = 1\n  return v + C.x',
        'def f(v):\n  class C:\n    "Two.\\n\\nAnd more."\n    x = 1\n  return v + C.x',
    ),
    "a docstring of a class around": (
        'class C:\n  "One."\n  def go(s, v): return v\ndef f(v): return C().go(v)',
        'class C:\n  "Two."\n  def go(s, v):\n    "Goes."\n    return v\ndef f(v): return C().go(v)',
    ),
}
OTHER: dict[str, tuple[str, str]] = {
    "a number": ("def f(v): return v + 1", "def f(v): return v + 2"),
    "an attribute": ("def f(v): return v.upper()", "def f(v): return v.lower()"),
    "an operator": ("def f(v): return v < 1", "def f(v): return v > 1"),
    "a default": ("def f(v, w=1): return v + w", "def f(v, w=2): return v + w"),
    "the order of arguments": ("def f(v, w=1): return v - w", "def f(v, w=1): return w - v"),
    "a text that looks like a docstring": ("f = lambda v: ('a', v)", "f = lambda v: ('b', v)"),
    "a text in a list": ("def f(v): return ['a' for _ in v]", "def f(v): return ['b' for _ in v]"),
    "a name for an argument": ("def f(v): return int(v, base=8)", "def f(v): return dict(v, base=8)"),
}


def _made(source: str) -> str:
    """The text of the function that a file of this source has."""
    names: dict[str, Callable[..., object]] = {"__name__": "__main__"}  # type: ignore[dict-item]
    exec(compile(source, "folds.py", "exec"), names)
    return "\n".join(fingerprint._code_lines(names["f"], {}))


@pytest.mark.parametrize("what", SAME)
def test_what_a_function_says_of_itself_is_no_part_of_what_it_does(what: str) -> None:
    before, after = map(_made, SAME[what])
    assert before == after


@pytest.mark.parametrize("what", OTHER)
def test_what_a_function_does_is(what: str) -> None:
    before, after = map(_made, OTHER[what])
    assert before != after


def _doubling(step: int) -> Function:
    class Doubled:
        """Gives each value twice."""

        def eval(self, value: int) -> Iterator[tuple[int]]:
            yield (value,)
            yield (value + step,)

    table_function = UserDefinedTableFunction(Doubled, returnType="doubled BIGINT", deterministic=True)
    return lambda rows: rows.lateralJoin(table_function(F.col("amount_paise").outer()))


def test_a_change_of_a_table_function_is_noticed(spark: SparkSession, directory: Path) -> None:
    first, again, other = (_logic(_doubling(step), spark, directory) for step in (1, 1, 2))
    assert first == again
    assert first != other


def _looking_up(spark: SparkSession, table: dict[str, set[str]], none: str = "none") -> Function:
    """A function that uses a broadcast."""
    sent = spark.sparkContext.broadcast(table)
    return lambda rows: rows.withColumn("x", F.udf(lambda one: str(sent.value.get(one, none)))("merchant"))


def test_a_broadcast_counts_by_its_value_and_the_function_around_it_by_its_code(
    spark: SparkSession, directory: Path
) -> None:
    found = _logic(_looking_up(spark, {"m0": {"a", "b"}}), spark, directory)
    assert _logic(_looking_up(spark, {"m0": {"b", "a"}}), spark, directory) == found
    assert _logic(_looking_up(spark, {"m0": {"a", "c"}}), spark, directory) != found
    assert _logic(_looking_up(spark, {"m0": {"a", "b"}}, none="?"), spark, directory) != found


def _large(step: int, last: int = 0) -> Function:
    """A function that Spark sends as a broadcast, since it is over a megabyte."""
    known = [*("x" * 100_000 + str(number) for number in range(12)), last]
    return lambda rows: rows.withColumn("x", F.udf(lambda one: one + step in known, "boolean")("amount_paise"))


def test_a_large_function_counts_by_its_code_and_by_what_it_uses(spark: SparkSession, directory: Path) -> None:
    found = _logic(_large(1), spark, directory)
    assert _logic(_large(1), spark, directory) == found
    assert _logic(_large(2), spark, directory) != found
    assert _logic(_large(1, last=1), spark, directory) != found


def test_a_run_stops_at_a_changed_broadcast(directory: Path, tmp_path: Path, spark: SparkSession) -> None:
    declare = fl.fold(fl.topic("payments", key="tx_id", schema=SCHEMA), into=FileView(tmp_path / "view"), name="it")
    fl.run([declare(_looking_up(spark, {"m0": {"a"}}))], directory, once=True, spark=spark)
    with pytest.raises(FoldError, match="is another one than its view was made with"):
        fl.run([declare(_looking_up(spark, {"m0": {"b"}}))], directory, once=True, spark=spark)


SENDING = """
from io import BytesIO
import pickle
from pyspark import cloudpickle
from pyspark.core.broadcast import _from_id
from foldlog.spark.folds.fingerprint import SentBroadcast, _function_lines
class Sent:
    def __reduce__(self):
        return _from_id, (7,)
value = {"long": bytes(1 << 21), "all": {"a", "b", "c", "d"}}
sent = Sent()
packed = cloudpickle.dumps((lambda one: sent.value[one], None))
print("\\n".join(_function_lines(packed, {7: SentBroadcast(lambda: BytesIO(pickle.dumps(value)))})))
"""


def test_a_broadcast_is_the_same_text_in_another_process() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", SENDING],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


class _OfWorkers:
    """An object that can be unpacked in workers only."""

    def __reduce__(self) -> Any:
        return _only_in_workers, (os.getpid(),)


def _only_in_workers(driver: int) -> _OfWorkers:
    if os.getpid() == driver:
        raise RuntimeError("there is no such file on the driver")
    return _OfWorkers()


def test_where_a_function_cannot_be_unpacked_it_is_said_once_that_no_change_is_noticed(
    spark: SparkSession, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def using(held: object) -> Function:
        def reads_file(one: str) -> str:
            return f"{held} {one}"

        return lambda rows: rows.withColumn("x", F.udf(reads_file)("merchant"))

    for _ in range(2):
        _logic(using(_OfWorkers()), spark, directory)
    assert caplog.text.count("'reads_file' of a fold cannot be unpacked on the driver (RuntimeError: there is no") == 1
    assert caplog.text.count("cannot be told; if you change it, rebuild the view") == 1


def test_a_change_of_a_module_beside_the_file_is_noticed(
    spark: SparkSession, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rates_beside.py").write_text("def convert(value):\n    return (value or 0) + 1\n")
    (tmp_path / "folds.py").write_text(
        "import foldlog.spark as fl\n"
        "import rates_beside\n"
        f"topic = fl.topic('payments', key='tx_id', schema='{SCHEMA}')\n"
        "@fl.fold(topic, into=fl.table('shop.db', 'payments'))\n"
        "def it(rows):\n"
        "    from pyspark.sql import functions as F\n"
        "    return rows.withColumn('x', F.udf(lambda value: rates_beside.convert(value), 'long')('amount_paise'))\n"
    )
    (fold,) = fl.load_folds(tmp_path / "folds.py")
    origin = open_origin(origin_spec(directory))
    try:
        frames = TopicFrames(spark, fold.topic, origin.spec, origin.topic("payments").topic_id)
        found, again = prepare(fold, frames).logic, prepare(fold, frames).logic
        monkeypatch.setattr(sys.modules["rates_beside"], "convert", _plus(2))
        changed = prepare(fold, frames).logic
    finally:
        origin.close()
    assert found == again
    assert found != changed


def test_what_looks_like_a_number_of_sparks_in_a_literal_is_a_value(spark: SparkSession, directory: Path) -> None:
    filters = ["note = 'order#17'", "note = 'order#18'", "note IN ('#1', 'x')", "note IN ('#2', 'x')"]
    found = [_logic(lambda rows, one=one: rows.filter(one), spark, directory) for one in filters]  # type: ignore[misc]
    again = [_logic(lambda rows, one=one: rows.filter(one), spark, directory) for one in filters]  # type: ignore[misc]
    assert found == again
    assert len(set(found)) == len(filters)
