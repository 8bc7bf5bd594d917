"""Protobuf: the parser beside protoc itself, the printer read back, and Confluent's table of what may change."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2 as pb
from grpc_tools import protoc

from foldlog.broker.registry.protobuf_printer import print_file
from foldlog.broker.registry.protobuf_schemas import SERIALIZED, ProtobufSchema
from foldlog.broker.registry.refusals import INVALID_SCHEMA, RegistryRefusal
from foldlog.broker.registry.schemas import Referenced, parse_schema

PROTO3 = """
// A file with about everything.
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
option java_package = "com.shop"; option java_multiple_files = true;
option optimize_for = SPEED;
/* an order */
message Order {
  option deprecated = true;
  reserved 5, 7 to 9, 100 to max; reserved "old", 'older';
  enum Kind { option allow_alias = true; KIND_UNKNOWN = 0; A = 1 [deprecated = true]; B = 0x1; NEG = -7;
    reserved 40 to 50; }
  message Item { string sku = 1; optional int32 count = 2; message Deep { Order up = 1; } Deep deep = 3; }
  string id = 1 [json_name = "ID"];
  repeated Item items = 2; repeated int32 numbers = 3 [packed = false];
  map<string, Item.Deep> by_name = 4;
  oneof way { string card = 6; bytes cash = 10; Item.Deep deep = 11; }
  google.protobuf.Timestamp at = 12;
  .google.protobuf.StringValue maybe = 13;
  Kind kind = 016;
  shop.v1.Other other = 15; v1.Other again = 16;
  optional string note = 17; double d_2x = 18; sfixed64 message = 19; bool option_ = 20;
}
message Other {}
service Shop { option deprecated = true; rpc Get(Order) returns (stream Other) { option deprecated = true; }
  rpc Put(stream Order) returns (Other); }
"""

PROTO2 = """
syntax = "proto2";
package old;
message M {
  required string a = 1 [default = "x\\n\\"y\\101"];
  optional int64 b = 2 [default = -5, deprecated = true];
  optional double c = 3 [default = 1.5e3]; optional float f = 4 [default = inf]; optional bool g = 5 [default = true];
  optional E e = 6 [default = TWO];
  optional bytes h = 7 [default = "\\x00\\xff'"];
  repeated group Part = 8 { optional int32 n = 1; }
  extensions 100 to 199, 1000 to max;
  enum E { ONE = 1; TWO = 2; }
  extend M { optional string inner = 101; }
  oneof pick { int32 left = 20; string right = 21; }
}
extend M { optional int32 more = 100; repeated M many = 102; }
"""

EDITION = """
edition = "2023";
package modern;
option features.field_presence = IMPLICIT;
message M { string a = 1; repeated int32 b = 2; int32 c = 3 [features.field_presence = EXPLICIT]; reserved x, y; }
enum E { ZERO = 0; }
"""


def compiled(text: str, folder: Path) -> pb.FileDescriptorProto:
    """What protoc makes of it."""
    (folder / "default.proto").write_text(text)
    own = str(Path(protoc.__file__).parent / "_proto")
    target = folder / "set"
    assert protoc.main(["", f"-I{folder}", f"-I{own}", f"--descriptor_set_out={target}", "default.proto"]) == 0
    (file,) = pb.FileDescriptorSet.FromString(target.read_bytes()).file
    return file


@pytest.mark.parametrize("text", [PROTO3, PROTO2, EDITION], ids=["proto3", "proto2", "edition"])
def test_the_parser_makes_what_protoc_makes(text: str, tmp_path: Path) -> None:
    assert str(ProtobufSchema.parse(text).file) == str(compiled(text, tmp_path))


@pytest.mark.parametrize("text", [PROTO3, PROTO2, EDITION], ids=["proto3", "proto2", "edition"])
def test_a_printed_file_is_read_back_and_a_descriptor_is_the_same_schema_as_its_text(text: str, tmp_path: Path) -> None:
    schema = ProtobufSchema.parse(text)
    assert str(compiled(print_file(schema.file), tmp_path)) == str(schema.file)
    packed = ProtobufSchema.parse(schema.formatted(SERIALIZED))
    assert packed.identity == schema.identity == ProtobufSchema.parse(schema.identity).identity
    assert ProtobufSchema.parse(schema.normalized()).normalized() == schema.normalized()


def test_custom_options_are_kept_as_they_were_written() -> None:
    text = 'syntax = "proto3"; message M { string a = 1 [(my.opt).part = { x: 1 y: "z" }, (n) = -3, (w) = word]; }'
    printed = ProtobufSchema.parse(text).identity
    assert '(my.opt).part = { x : 1 y : "z" }, (n) = -3, (w) = word' in printed
    assert ProtobufSchema.parse(printed).identity == printed


def test_an_import_comes_from_the_references() -> None:
    money = Referenced("shop/money.proto", 'syntax = "proto3"; package shop; message Money { int64 paise = 1; }')
    text = 'syntax = "proto3"; import "shop/money.proto"; message Price { shop.Money money = 1; }'
    schema = ProtobufSchema.parse(text, [money])
    assert schema.file.message_type[0].field[0].type_name == ".shop.Money"
    with pytest.raises(RegistryRefusal, match="not among its references"):
        ProtobufSchema.parse(text)


def why_not(new: str, old: str, prefix: str = 'syntax = "proto3"; ') -> list[str]:
    return [one.kind for one in ProtobufSchema.parse(prefix + new).unreadable(ProtobufSchema.parse(prefix + old))]


@pytest.mark.parametrize(
    ("new", "old", "kind"),
    [
        ("message M { int32 a = 1; string b = 2; }", "message M { int32 a = 1; }", None),
        ("message M { int32 a = 1; }", "message M { int32 a = 1; string b = 2; }", None),
        ("message M { int32 other = 1; }", "message M { int32 a = 1; }", None),
        ("message M { int64 a = 1; }", "message M { uint32 a = 1; }", None),
        ("message M { bool a = 1; }", "message M { int32 a = 1; }", None),
        ("message M { sint32 a = 1; }", "message M { int32 a = 1; }", "FIELD_SCALAR_KIND_CHANGED"),
        ("message M { string a = 1; }", "message M { int32 a = 1; }", "FIELD_SCALAR_KIND_CHANGED"),
        ("message M { bytes a = 1; }", "message M { string a = 1; }", None),
        ("message M { repeated string a = 1; }", "message M { string a = 1; }", None),
        ("message M { repeated int32 a = 1; }", "message M { int32 a = 1; }", "FIELD_NUMERIC_LABEL_CHANGED"),
        ("message M { N a = 1; } message N {}", "message M { int32 a = 1; } message N {}", "FIELD_KIND_CHANGED"),
        (
            "message M { O a = 1; } message N {} message O {}",
            "message M { N a = 1; } message N {} message O {}",
            "FIELD_NAMED_TYPE_CHANGED",
        ),
        ("message M {}", "message M {} message N {}", "MESSAGE_REMOVED"),
        ("message M {} message N {}", "message M {}", None),
        ("message M { E a = 1; } enum E { Z = 0; }", "message M { int32 a = 1; }", None),
        ("enum E { Z = 0; A = 1; }", "enum E { Z = 0; }", None),
        ("message M { oneof o { int32 a = 1; } }", "message M { int32 a = 1; }", None),
        (
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            "message M { int32 a = 1; int32 b = 2; }",
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        ),
        (
            "message M { oneof o { int32 a = 1; } }",
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            "ONEOF_FIELD_REMOVED",
        ),
        ("message M { oneof o { int32 a = 1; int32 b = 2; } }", "message M { oneof o { int32 a = 1; } }", None),
        ("message M { map<string, int64> a = 1; }", "message M { map<string, int32> a = 1; }", None),
        (
            "message M { map<string, string> a = 1; }",
            "message M { map<string, int32> a = 1; }",
            "FIELD_SCALAR_KIND_CHANGED",
        ),
        ("package b; message M { N n = 1; } message N {}", "package a; message M { N n = 1; } message N {}", None),
        ("message M { M up = 1; string a = 2; }", "message M { M up = 1; int32 a = 2; }", "FIELD_SCALAR_KIND_CHANGED"),
    ],
)
def test_the_table_of_changes(new: str, old: str, kind: str | None) -> None:
    assert why_not(new, old) == ([] if kind is None else [kind])


def test_required_fields_may_neither_come_nor_go() -> None:
    with_field, without = "message M { required int32 a = 1; }", "message M {}"
    prefix = 'syntax = "proto2"; '
    assert why_not(with_field, without, prefix) == ["REQUIRED_FIELD_ADDED"]
    assert why_not(without, with_field, prefix) == ["REQUIRED_FIELD_REMOVED"]


@pytest.mark.parametrize(
    "text",
    [
        "message",
        'syntax = "proto4";',
        'syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }',
        'syntax = "proto3"; message M { int32 a = 0; }',
        'syntax = "proto3"; message M { int32 a = 99999999999999999999; }',
        'syntax = "proto3"; message M { Gone a = 1; }',
        'syntax = "proto3"; message M { string a = 1',
        'syntax = "proto3"; enum E { A = 1; }',
        'syntax = "proto3"; import "../../etc/passwd";',
        'syntax = "proto3"; import "google/protobuf/gone.proto";',
        "syntax = 'proto3'; message M { string a = 1 [default = 'x']; ",
        "message M { optional string a = '; }",
        'syntax = "proto3";' + "message M {" * 500,
        "AAAA",
        "\x00",
        'syntax = "proto3"; option optimize_for = 7.5;',
    ],
)
def test_what_is_no_schema_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(RegistryRefusal) as refusal:
        parse_schema("PROTOBUF", text)
    assert refusal.value.code == INVALID_SCHEMA
