"""What `fold init` makes of records. A generated object is read back by the schema that was inferred from it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from foldlog.spark.advice.first_pipeline import pipeline_text
from foldlog.spark.advice.inference import propose
from foldlog.spark.decoders.decoder import decoder_for

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="`"), min_size=1, max_size=4)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5)
    | st.dates().map(str)
    | st.datetimes().map(lambda one: one.isoformat())
)
VALUES = st.recursive(
    LEAVES, lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=3), max_leaves=6
)


@pytest.fixture(scope="module")
def _session(spark: Any) -> Any:
    """A DDL is parsed by Spark."""
    return spark


@pytest.mark.usefixtures("_session")
@settings(max_examples=settings().max_examples // 3)  # Spark parses a schema for each
@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=5))
def test_every_sampled_object_fits_the_schema_that_was_inferred(objects: list[dict[str, Any]]) -> None:
    values = [json.dumps(one).encode() for one in objects]
    found = propose([(None, value) for value in values])
    if found.format != "json":
        return
    declared = StructType.fromDDL(found.schema)
    assert isinstance(declared, StructType)
    schema = to_arrow_schema(declared, timezone="UTC")
    assert schema.names == list(found.columns)
    _, reasons = decoder_for("json", schema).decode(pa.array(values, pa.binary()))
    assert reasons is None, (found.schema, reasons)


def proposed(*values: object, keys: list[Any] | None = None) -> Any:
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in values]
    return propose(list(zip(keys or [None] * len(texts), texts, strict=True)))


def test_types_are_as_exact_as_the_values() -> None:
    found = proposed(
        {
            "id": 1,
            "at": "2024-02-29T12:00:00Z",
            "day": "2024-02-29",
            "price": 1.5,
            "far": 1.23456789,
            "ok": True,
            "x": None,
        },
        {"id": 2, "at": "2024-02-29", "day": "2024-02-29", "price": 10.25, "far": 2, "ok": False, "tags": [{"a": 1}]},
    )
    assert found.schema == (
        "id BIGINT, at TIMESTAMP, day DATE, price DECIMAL(18,2), far DOUBLE, ok BOOLEAN, tags ARRAY<STRUCT<a: BIGINT>>"
    )
    assert found.notes == ("x is always null: left out",)


def test_a_field_of_several_types_is_left_out_and_said() -> None:
    found = proposed({"a": 1, "b": 1}, {"a": "1", "b": 2})
    assert (found.schema, found.notes) == ("b BIGINT", ("a is of several types: left out",))


def test_the_key_is_the_field_that_is_equal_to_it() -> None:
    assert proposed({"n": 1, "tx": "a"}, {"n": 1, "tx": "b"}, keys=[b"a", b"b"]).key == "tx"
    assert proposed({"n": 1}, {"n": 2}, keys=[b"1", b"2"]).key == "n"
    assert proposed({"n": 1}, {"n": 2}, keys=[b"01", b"2"]).key == "key"
    assert proposed({"n": 1}, {"n": 2}, keys=[b"1", None]).key is None
    binary = proposed({"n": 1}, keys=[b"\xff"])
    assert (binary.key, binary.schema) == ("key", "key BINARY, n BIGINT")


def test_other_formats_are_recognised() -> None:
    change = {"before": None, "after": {"id": 1, "name": "tea"}, "op": "c"}
    found = proposed(change, {"schema": {}, "payload": change}, keys=[b'{"id":1}', b'{"schema":{},"payload":{"id":1}}'])
    assert (found.format, found.schema, found.key) == ("debezium", "id BIGINT, name STRING", "id")
    assert proposed(b"1;tea", b"2;chai").options == {"delimiter": ";"}
    assert proposed(b"1,2024-02-29", b"2,2024-03-01").schema == "c1 BIGINT, c2 DATE"
    assert proposed(b"hello", b"world").format == "text"
    assert proposed(b"\0\0\0\0\7abc").notes[0].startswith("values name schemas of a registry (7)")
    assert proposed(b"\xff\xfe").format == "raw"


def test_something_to_count_by_is_found() -> None:
    rows = [{"merchant": ("tea", "chai")[n % 2], "note": f"n{n}", "order_id": n, "paise": n % 5} for n in range(12)]
    text, found = pipeline_text("pay-ments", [(None, json.dumps(row).encode()) for row in rows])
    assert (found.group, found.measure) == ("merchant", "paise")
    assert "def pay_ments_by_merchant(rows):" in text
    assert "\"paise_sum\": fl.sum('paise')" in text
