"""What a table looks like is decided before anything is made: every shape that would break a promise is refused in a
sentence that says what to do, and making a view connects to nothing.
"""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from foldlog.errors import InvalidArgument, SchemaChanged, ViewUnavailable
from foldlog.views.contract import Shape
from foldlog.views.sql.postgres import public_url
from foldlog.views.table.shape import TableShape, decide_shape, reconcile
from foldlog.views.table.table import table

COLUMNS = pa.schema(
    [("id", pa.string()), ("line", pa.int32()), ("share", pa.float64()), ("tags", pa.list_(pa.string()))]
)


def decide(shape: Shape, key: tuple[str, ...] = ()) -> TableShape:
    return decide_shape(shape, key, "table t", loading=False)


def test_the_key_is_what_the_view_names_else_the_fold_s_else_the_record_s() -> None:
    assert decide(Shape(COLUMNS, "id")).key == ("id",)
    assert decide(Shape(COLUMNS, "id", ("id", "line"))).key == ("id", "line")
    assert decide(Shape(COLUMNS, "id", ("id",)), ("line", "id")).key == ("line", "id")
    assert decide(Shape(COLUMNS, None, ("line",))).key == ("line",)


@pytest.mark.parametrize(
    ("shape", "key", "said"),
    [
        (Shape(COLUMNS), (), "needs a key"),
        (Shape(COLUMNS, "id"), ("line",), "has to include 'id'"),
        (Shape(COLUMNS, "id"), ("id", "id"), "twice"),
        (Shape(COLUMNS, "tx"), (), "'tx', which the fold's rows do not have"),
        (Shape(COLUMNS, "id"), ("id", "tx"), "'tx', which the fold's rows do not have"),
        (Shape(COLUMNS, None, ("share",)), (), "double is not exact"),
        (Shape(COLUMNS, None, ("tags",)), (), "is not exact"),
        (Shape(pa.schema([("id", pa.string()), ("ID", pa.string())]), "id"), (), "differ in case only"),
        (Shape(pa.schema([("id", pa.string()), ("_offset", pa.int64())]), "id"), (), "under another name"),
        (Shape(pa.schema([("id", pa.string()), ("x", pa.null())]), "id"), (), "column 'x' cannot be kept"),
        (Shape(pa.schema([("id", pa.string()), ("x", pa.duration("us"))]), "id"), (), "cast it in the fold"),
        (Shape(pa.schema([("id", pa.string()), ("x" * 64, pa.string())]), "id"), (), "too long to name a column"),
        (Shape(pa.schema([("id", pa.string()), ("a\0b", pa.string())]), "id"), (), "printable"),
        (
            Shape(pa.schema([("id", pa.string()), ("x", pa.struct([("a", pa.int8()), ("a", pa.int8())]))]), "id"),
            (),
            "two fields of the same name",
        ),
    ],
)
def test_a_shape_that_cannot_be_kept_is_refused_in_one_sentence(shape: Shape, key: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        decide(shape, key)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_shape_is_stored_to_the_last_detail() -> None:
    rich = pa.schema(
        [
            pa.field("id", pa.large_string(), metadata={b"a": b"b"}, nullable=False),
            ("at", pa.timestamp("us", "Asia/Kolkata")),
            ("m", pa.map_(pa.string(), pa.list_(pa.decimal128(38, 18)))),
        ]
    )
    shape = decide(Shape(rich, "id"))
    again = TableShape.from_json(shape.to_json(), "table t")
    assert again == shape
    assert again.columns.field("at").type == pa.timestamp("us", "UTC")
    assert again.columns.field("id").type == pa.string()
    assert again.columns.field("id").metadata is None
    # The same fold reconciles with itself, however Arrow spells its types.
    assert reconcile(again, decide(Shape(rich, "id")), "table t") is again
    with pytest.raises(ViewUnavailable, match="cannot be understood"):
        TableShape.from_json('{"columns": "AAAA"}', "table t")


def test_columns_may_be_added_and_left_out_but_not_change() -> None:
    stored = decide(Shape(COLUMNS, "id"))
    grown = decide(Shape(pa.schema([("id", pa.string()), ("new", pa.int8())]), "id"))
    assert reconcile(stored, grown, "table t").columns.names == [*COLUMNS.names, "new"]
    for changed, said in [
        (pa.schema([("id", pa.int64())]), "'id' is string, and the fold's is int64"),
        (pa.schema([("id", pa.string()), ("Line", pa.int32())]), "writes it 'Line'"),
    ]:
        with pytest.raises(SchemaChanged, match=said):
            reconcile(stored, decide(Shape(changed, "id")), "table t")
    with pytest.raises(SchemaChanged, match="its key is"):
        reconcile(stored, decide(Shape(COLUMNS, None, ("id",))), "table t")


@pytest.mark.parametrize(
    "name",
    [
        "",
        7,
        None,
        "a.b.c",
        ".b",
        "a.",
        "x" * 64,
        "a\nb",
        "sqlite_x",
        "_foldlog_bookmarks",
        "t__old",
        "T__REBUILD",
        "pg_x",
    ],
)
def test_names_that_an_engine_would_bend_are_refused(name: object) -> None:
    for place in ("postgresql://localhost/shop", "views/live.db"):
        with pytest.raises(InvalidArgument):
            table(place, name)  # type: ignore[arg-type]


def test_a_schema_is_for_postgresql_and_odd_names_are_fine() -> None:
    assert "shop.payments in postgresql://localhost/x" in table("postgres://localhost/x", "shop.payments").place
    with pytest.raises(InvalidArgument, match="no schemas"):
        table("live.db", "shop.payments")
    assert 'pay"ments; --' in table("live.db", 'pay"ments; --').place


@pytest.mark.parametrize(
    "place", ["", 7, b"x", "oracle://localhost/shop", "sqlite://x", ":memory:", "sqlite:///", "a\0b"]
)
def test_places_that_cannot_hold_a_table_are_refused(place: object) -> None:
    with pytest.raises(InvalidArgument):
        table(place, "payments")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [[], 7, [""], ["a", 7], {"a"}])
def test_keys_are_columns(key: object) -> None:
    with pytest.raises(InvalidArgument, match="a key is"):
        table("live.db", "payments", key)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://shop:s3cret@db/shop", "postgresql://shop@db/shop"),
        ("postgres://shop:s3@cret@db:1,db2:2/shop", "postgresql://shop@db:1,db2:2/shop"),
        ("postgresql://db/shop?password=s3cret&sslmode=require", "postgresql://db/shop?sslmode=require"),
        ("postgresql:///shop?host=/run&sslpassword=s3cret", "postgresql:///shop?host=%2Frun"),
        ("postgresql://", "postgresql://"),
    ],
)
def test_places_do_not_show_passwords(url: str, shown: str) -> None:
    assert public_url(url) == shown
    view = table(url, "payments")
    assert view.place == f"table payments in {shown}"
    assert "s3" not in repr(view.shadow("rebuild").place)


def test_making_a_view_imports_no_driver_and_no_arrow() -> None:
    program = (
        "import sys; from foldlog.views.table.table import table;"
        "table('postgresql://u:p@db/x', 'payments').shadow('verify'); table('live.db', 'payments');"
        "print(sorted({'psycopg', 'pyarrow', 'pyspark', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
