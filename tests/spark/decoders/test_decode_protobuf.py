"""Protobuf to columns: messages that google.protobuf itself builds, of a descriptor with every kind of field.

Messages are set field by field and read back; whatever else the bytes are, a row or a reason comes out and never an
exception.
"""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidArgument
from foldlog.spark.decoders.decoder import decoder_for
from foldlog.spark.decoders.protobuf import ProtobufDecoder

Field = descriptor_pb2.FieldDescriptorProto
SINCE_1970 = datetime(1970, 1, 1, tzinfo=UTC)
SCALARS = {
    "double": (Field.TYPE_DOUBLE, pa.float64()),
    "float": (Field.TYPE_FLOAT, pa.float32()),
    "int64": (Field.TYPE_INT64, pa.int64()),
    "uint64": (Field.TYPE_UINT64, pa.decimal128(20, 0)),
    "int32": (Field.TYPE_INT32, pa.int32()),
    "uint32": (Field.TYPE_UINT32, pa.int64()),
    "sint32": (Field.TYPE_SINT32, pa.int32()),
    "fixed64": (Field.TYPE_FIXED64, pa.decimal128(20, 0)),
    "bool": (Field.TYPE_BOOL, pa.bool_()),
    "string": (Field.TYPE_STRING, pa.string()),
    "bytes": (Field.TYPE_BYTES, pa.binary()),
}
WELL_KNOWN = (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)


def payment_file() -> Any:
    """shop.proto, written without a compiler."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(known.DESCRIPTOR.name for known in WELL_KNOWN)
    state = file.enum_type.add(name="State")
    for number, name in enumerate(["NEW", "PAID"]):
        state.value.add(name=name, number=number)
    file.message_type.add(name="Other").field.add(name="x", number=1, type=Field.TYPE_INT32, label=1)
    message = file.message_type.add(name="Payment")
    number = 0

    def add(
        name: str, type_: Any, type_name: str | None = None, *, label: Any = Field.LABEL_OPTIONAL, **more: Any
    ) -> None:
        nonlocal number
        number += 1
        message.field.add(name=name, number=number, type=type_, type_name=type_name, label=label, **more)

    for name, (type_, _) in SCALARS.items():
        add(f"a_{name}", type_)
    add("state", Field.TYPE_ENUM, ".shop.State")
    add("maybe", Field.TYPE_INT64, proto3_optional=True, oneof_index=1)
    message.oneof_decl.add(name="paid")
    message.oneof_decl.add(name="_maybe")
    add("card", Field.TYPE_STRING, oneof_index=0)
    add("coins", Field.TYPE_INT32, oneof_index=0)
    add("at", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add("took", Field.TYPE_MESSAGE, ".google.protobuf.Duration")
    add("wrapped", Field.TYPE_MESSAGE, ".google.protobuf.Int64Value")
    add("extra", Field.TYPE_MESSAGE, ".google.protobuf.Struct")
    add("line", Field.TYPE_MESSAGE, ".shop.Payment.Line")
    add("lines", Field.TYPE_MESSAGE, ".shop.Payment.Line", label=Field.LABEL_REPEATED)
    add("tags", Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    add("totals", Field.TYPE_MESSAGE, ".shop.Payment.TotalsEntry", label=Field.LABEL_REPEATED)
    entry = message.nested_type.add(name="TotalsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=Field.TYPE_MESSAGE, type_name=".shop.Payment.Line", label=1)
    line = message.nested_type.add(name="Line")
    line.field.add(name="item", number=1, type=Field.TYPE_STRING, label=1)
    line.field.add(name="at", number=2, type=Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    return file


def descriptor_set(*files: Any) -> bytes:
    return bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


SHOP = payment_file()
SET = descriptor_set(SHOP)
pool = descriptor_pool.Default()
pool.Add(SHOP)
Payment: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Payment"))
LINE = pa.struct([("item", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
COLUMNS = pa.schema(
    [
        *((f"a_{name}", of) for name, (_, of) in SCALARS.items()),
        ("state", pa.string()),
        ("maybe", pa.int64()),
        ("card", pa.string()),
        ("coins", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("took", pa.duration("us")),
        ("wrapped", pa.int64()),
        ("extra", pa.string()),
        ("line", LINE),
        ("lines", pa.list_(pa.field("element", LINE))),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("totals", pa.map_(pa.string(), LINE)),
    ]
)
EMPTY_ROW: dict[str, Any] = {
    **dict.fromkeys(COLUMNS.names),
    **dict.fromkeys(("a_double", "a_float"), 0.0),
    **dict.fromkeys(("a_int64", "a_int32", "a_uint32", "a_sint32"), 0),
    **dict.fromkeys(("a_uint64", "a_fixed64"), Decimal(0)),
    "lines": [],
    "tags": [],
    "totals": [],
    "a_bool": False,
    "a_string": "",
    "a_bytes": b"",
    "state": "NEW",
}
"""Only what has presence is null."""


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """A message's bytes, and what the columns have to hold."""
    message, row = Payment(), dict(EMPTY_ROW)

    def put(name: str, value: Any, shown: Any = ...) -> None:
        if draw(st.booleans()):
            setattr(message, name, value)
            row[name] = value if shown is ... else shown

    put("a_double", draw(st.floats(allow_nan=False)))
    put("a_float", draw(st.floats(width=32, allow_nan=False)))
    put("a_int64", draw(st.integers(-(2**63), 2**63 - 1)))
    big = draw(st.integers(0, 2**64 - 1))
    put("a_uint64", big, Decimal(big))
    put("a_uint32", draw(st.integers(0, 2**32 - 1)))
    put("a_sint32", draw(st.integers(-(2**31), 2**31 - 1)))
    put("a_string", draw(st.text(max_size=4)))
    put("a_bytes", draw(st.binary(max_size=4)))
    state = draw(st.integers(0, 3))
    put("state", state, ["NEW", "PAID", "2", "3"][state])
    put("maybe", draw(st.sampled_from([0, 5])))
    paid = draw(st.sampled_from([None, "card", "coins"]))
    if paid is not None:
        row[paid] = "" if paid == "card" else draw(st.integers(0, 3))
        setattr(message, paid, row[paid])
    nanos, seconds = draw(st.integers(0, 10**9 - 1)), draw(st.integers(-(10**10), 10**11))
    if draw(st.booleans()):
        message.at.seconds, message.at.nanos = seconds, nanos
        row["at"] = SINCE_1970 + timedelta(seconds=seconds, microseconds=nanos // 1000)
        message.took.seconds, message.took.nanos = -5, -1999
        row["took"] = -timedelta(seconds=5, microseconds=1)
        message.wrapped.value = row["wrapped"] = 0
        message.wrapped.SetInParent()
        message.extra["b"] = [1, "x", None]
        message.extra["a"] = True
        row["extra"] = '{"a": true, "b": [1.0, "x", null]}'
    if draw(st.booleans()):
        message.line.item = "one"
        message.lines.add(item="two").at.seconds = 1
        message.lines.add()
        message.tags.extend(["x", ""])
        for name in ("z", "a"):
            message.totals[name].item = name
        row["line"] = {"item": "one", "at": None}
        row["lines"] = [{"item": "two", "at": SINCE_1970 + timedelta(seconds=1)}, {"item": "", "at": None}]
        row["tags"] = ["x", ""]
        row["totals"] = [("a", {"item": "a", "at": None}), ("z", {"item": "z", "at": None})]
    return message.SerializeToString(), row


def rows_of(decoder: Any, *values: bytes | None) -> tuple[list[dict[str, Any]], list[str | None]]:
    columns, reasons = decoder.decode(pa.array(values, pa.binary()))
    for column, field in zip(columns, decoder.schema, strict=True):
        column.validate(full=True)
        assert column.type == field.type
    rows = pa.Table.from_arrays(columns, schema=decoder.schema).to_pylist()
    return rows, [None] * len(values) if reasons is None else reasons.to_pylist()


@given(st.lists(messages(), max_size=4))
def test_what_was_set_is_read(pairs: list[tuple[bytes, dict[str, Any]]]) -> None:
    decoder = ProtobufDecoder(SET, "shop.Payment")
    assert decoder.schema == COLUMNS
    rows, reasons = rows_of(decoder, None, b"", *(data for data, _ in pairs))
    for row in rows[1:]:
        row["extra"] = row["extra"] and json.dumps(json.loads(row["extra"]))
    assert rows == [dict.fromkeys(COLUMNS.names), EMPTY_ROW, *(row for _, row in pairs)]
    assert not any(reasons)


@given(messages(), st.data())
def test_any_bytes_give_a_row_or_a_reason(pair: tuple[bytes, Any], data: st.DataObject) -> None:
    good = pair[0]
    at = data.draw(st.integers(0, len(good)))
    bad = good[:at] + data.draw(st.binary(max_size=12)) + good[at + data.draw(st.integers(0, 3)) :]
    rows, reasons = rows_of(ProtobufDecoder(SET, "shop.Payment"), good, bad, good)
    assert rows[0] == rows[2]
    assert reasons[0] is reasons[2] is None
    assert reasons[1] is None or not any(value is not None for value in rows[1].values())


def test_what_is_no_message_has_a_reason() -> None:
    late = Payment()
    late.at.seconds = 2**62
    _, reasons = rows_of(ProtobufDecoder(SET, "shop.Payment"), b"\xff", late.SerializeToString())
    assert reasons[0] is not None
    assert reasons[0].startswith("not a shop.Payment: ")
    assert reasons[1] == f"at: {2**62} seconds is not a timestamp of the years 1 to 9999"


def test_a_required_field_that_is_missing_is_a_reason() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    message = file.message_type.add(name="Old")
    message.field.add(name="id", number=1, type=Field.TYPE_INT32, label=Field.LABEL_REQUIRED)
    message.field.add(name="note", number=2, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    rows, reasons = rows_of(ProtobufDecoder(descriptor_set(file), "old.Old"), b"\x08\x05", b"")
    assert rows[0] == {"id": 5, "note": None}
    assert reasons == [None, "required fields are missing: id"]


@pytest.mark.parametrize(
    ("message", "front", "reason"),
    [
        ("shop.Payment", b"\x02\x02", None),
        ("shop.Payment", b"\x00", "message [0] of its file, not shop.Payment"),
        ("shop.Other", b"\x00", None),
        ("shop.Other", b"\x02\x00", None),
        ("shop.Payment.Line", b"\x04\x02\x02", None),  # counted with the map's entry type
        ("shop.Payment.Line", b"\x04\x02\x00", None),  # and without
        ("shop.Payment.Line", b"\x04\x02\x04", "message [1, 2] of its file, not shop.Payment.Line"),
        ("shop.Payment", b"", "ends inside the message indexes"),
        ("shop.Payment", b"\x01", "a path of -1 message indexes"),
        ("shop.Payment", b"\x80" * 11, "a message index without an end"),
    ],
)
def test_the_path_of_the_wire_format_has_to_lead_to_the_message(message: str, front: bytes, reason: str | None) -> None:
    decoder = pickle.loads(pickle.dumps(ProtobufDecoder(SET, message, confluent=True)))
    _, reasons = rows_of(decoder, b"\0\0\0\0\7" + front)
    assert reasons == [reason]


def test_values_without_the_wire_format_are_told_apart() -> None:
    _, reasons = rows_of(ProtobufDecoder(SET, "shop.Other", confluent=True), b"\x08\x05", b"\x08\x05\x08\x05\x08\x05")
    assert reasons == ["2 bytes are too few for a schema id", "begins with byte 8 instead of 0 and a schema id"]


def test_descriptors_come_as_a_file_as_bytes_or_as_a_class(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(SET)
    for decoder in (
        ProtobufDecoder(path, "shop.Payment"),
        ProtobufDecoder(str(path), "shop.Payment"),
        ProtobufDecoder(SET, "shop.Payment"),
        ProtobufDecoder(Payment),
        decoder_for("protobuf", descriptors=Payment),
    ):
        assert pickle.loads(pickle.dumps(decoder)).schema == COLUMNS


def test_a_schema_picks_columns() -> None:
    wanted = pa.schema([("coins", pa.int32()), ("a_string", pa.string())])
    decoder = decoder_for("protobuf", wanted, descriptors=SET, message="shop.Payment")
    assert rows_of(decoder, Payment(coins=3, a_string="x", tags=["y"]).SerializeToString())[0] == [
        {"coins": 3, "a_string": "x"}
    ]


def recursive_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="tree.proto", package="tree", syntax="proto3")
    node = file.message_type.add(name="Node")
    node.field.add(name="left", number=1, type=Field.TYPE_MESSAGE, type_name=".tree.Node", label=1)
    node.field.add(name="size", number=2, type=Field.TYPE_INT32, label=1)
    empty = file.message_type.add(name="Holder")
    empty.field.add(name="nothing", number=1, type=Field.TYPE_MESSAGE, type_name=".tree.Nothing", label=1)
    file.message_type.add(name="Nothing")
    return file


TREE = descriptor_set(recursive_file())
LACKING = descriptor_set(descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["other/b.proto"]))


@pytest.mark.parametrize(
    ("descriptors", "message", "sentence"),
    [
        (None, None, "needs descriptors"),
        (SET, None, "name the message"),
        (5, "x", "a path, bytes or a message class"),
        ("/no/such/file", "x", "cannot be read: No such file"),
        (b"\xff", "x", "not a descriptor set"),
        (SET, "shop.Refund", "no message 'shop.Refund' in the descriptor set; there are shop.Other, shop.Payment"),
        (LACKING, "x", "lacks 'other/b.proto'; make it with protoc --include_imports"),
        (TREE, "tree.Node", "contains itself"),
        (TREE, "tree.Holder", "a message without fields"),
        (TREE, "tree.Nothing", "has no fields"),
    ],
    ids=str,
)
def test_what_has_no_columns_is_refused_at_once(descriptors: Any, message: str | None, sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        ProtobufDecoder(descriptors, message)


def test_a_part_of_a_message_that_has_no_column_can_be_left_out() -> None:
    decoder = ProtobufDecoder(TREE, "tree.Node", schema=pa.schema([("size", pa.int32())]))
    assert rows_of(decoder, b"\x10\x05")[0] == [{"size": 5}]


def test_a_well_known_message_can_be_the_value_itself() -> None:
    rows, _ = rows_of(ProtobufDecoder(timestamp_pb2.Timestamp), timestamp_pb2.Timestamp(seconds=5).SerializeToString())
    assert rows == [{"seconds": 5, "nanos": 0}]
