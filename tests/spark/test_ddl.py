"""Columns that foldlog reads from a DDL without Spark are those that Spark reads from it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from foldlog.errors import InvalidArgument
from foldlog.views.ddl import columns_of

DDLS = [
    "merchant STRING, amount_paise BIGINT, at TIMESTAMP",
    "a boolean, b tinyint, c byte, d smallint, e short, f int, g integer, h long, i float, j real, k double",
    "a BINARY, b DATE, c TIMESTAMP_NTZ, d TIMESTAMP_LTZ, e DECIMAL, f DECIMAL(7), g DEC(38, 10), h NUMERIC(3,3)",
    "`a b` STRING NOT NULL COMMENT 'it''s, a <name>', `back``tick`: INT, _x1 STRING COMMENT \"two\"",
    "a ARRAY<ARRAY<INT>>, b MAP<STRING, ARRAY<DOUBLE>>, c STRUCT<x: INT, y: STRUCT<z: DATE NOT NULL>>, d STRUCT<>",
    "a struct<`odd name`:string,b:map<int,struct<c:bigint>>>",
]


def test_types_are_those_of_spark(spark: SparkSession) -> None:
    for ddl in DDLS:
        parsed = StructType.fromDDL(ddl)
        assert isinstance(parsed, StructType)
        assert columns_of(ddl) == to_arrow_schema(parsed, timezone="UTC"), ddl


@pytest.mark.parametrize(
    "ddl",
    [
        "a",
        "a INT b INT",
        "a INT,",
        "a ARRAY<INT",
        "a MAP<STRING>",
        "a DECIMAL(39)",
        "a VARIANT",
        "a-b INT",
        "a INT, A INT",
    ],
)
def test_what_is_not_a_list_of_columns_gets_one_sentence(ddl: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        columns_of(ddl)
    assert "\n" not in str(refused.value)
