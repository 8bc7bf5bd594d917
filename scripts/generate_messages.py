"""Write `foldlog/wire/messages/`: one module for each API that is served or asked, from kio's schemas.

A message is one class for all versions of it, as in Kafka's own clients: it holds the fields of every version, and its
schema says in which versions each is on the wire. Made ahead of time because a kio module takes about 10 ms to import
and there is one for each version; a broker would spend its start, and every API's first request, on them.

    python scripts/generate_messages.py           write the modules
    python scripts/generate_messages.py --check   exit 1 if they are not what would be written
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib
import re
import subprocess
import sys
import tempfile
import types
import typing
from pathlib import Path
from typing import Any, Literal

import kio
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

SERVED = (
    "produce", "fetch", "list_offsets", "metadata", "offset_commit", "offset_fetch", "find_coordinator", "join_group",
    "heartbeat", "leave_group", "sync_group", "describe_groups", "list_groups", "api_versions", "create_topics",
    "delete_topics", "delete_records", "init_producer_id", "offset_for_leader_epoch", "describe_configs",
    "alter_configs", "describe_log_dirs", "create_partitions", "delete_groups", "incremental_alter_configs",
    "offset_delete", "describe_cluster", "describe_producers", "describe_topic_partitions",
)  # fmt: skip

ASKED = ("sasl_handshake", "sasl_authenticate", "consumer_group_describe")
"""What our client asks of other brokers, and ours does not answer: a module, but no place in the index."""

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / "src" / "foldlog" / "wire" / "messages"
CONFIG = ROOT / "pyproject.toml"

PRIMITIVES = {
    "bool": ("bool", "bool", "False"),
    "int8": ("int8", "int", "0"),
    "int16": ("int16", "int", "0"),
    "uint16": ("uint16", "int", "0"),
    "int32": ("int32", "int", "0"),
    "int64": ("int64", "int", "0"),
    "float64": ("float64", "float", "0.0"),
    "string": ("string", "str", '""'),
    "bytes": ("bytes", "bytes", 'b""'),
    "uuid": ("uuid", "bytes", "ZERO_UUID"),
    "records": ("records", "Records", 'b""'),
    "error_code": ("int16", "int", "0"),
    "timedelta_i32": ("int32", "int", "0"),
    "timedelta_i64": ("int64", "int", "0"),
    "datetime_i64": ("int64", "int", "0"),
}
"""kio's name of a type: ours, its type in Python, and the value of a field that nobody set."""

HEADER = '''"""{title}, versions {first} to {last}.

Written by scripts/generate_messages.py from kio {version}, not by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foldlog.wire.schema import {imports}
'''

IMPORTS = ("ZERO_UUID", "Field", "Message", "Records", "Request", "Response")

INDEX = '''"""Every API that is served, with its module here, and the names of all.

Written by scripts/generate_messages.py from kio {version}, not by hand.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple


class Api(NamedTuple):
    """An API and the versions of it that the schemas know; `module` is its module in this package.

    From `flexible_from` on its types are compact and its structs have tagged fields.
    """

    key: int
    module: str
    first: int
    last: int
    flexible_from: int | None


APIS: Final = MappingProxyType({{
{apis}
}})
"""By API key."""

NAMES: Final = MappingProxyType({{
{names}
}})
"""Kafka's name for each API key, served or not."""
'''


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a field looks like on the wire in some version."""

    type: str
    is_array: bool
    is_nullable: bool
    tag: int | None


@dataclasses.dataclass
class FieldPlan:
    name: str
    default: str
    python_type: str
    struct: StructPlan | None
    shapes: dict[int, Shape]
    is_always_there: bool
    """A struct that is on the wire whether it was given or not."""


@dataclasses.dataclass
class StructPlan:
    """A message or a struct inside one, over all versions."""

    name: str
    fields: list[FieldPlan]


def plan_struct(by_version: dict[int, type]) -> StructPlan:
    names: list[str] = []
    for version in sorted(by_version, reverse=True):
        place = 0
        for field in dataclasses.fields(by_version[version]):
            if field.name in names:
                place = names.index(field.name) + 1
            else:
                names.insert(place, field.name)
                place += 1
    fields = []
    for name in names:
        found = {
            version: field
            for version, entity in by_version.items()
            for field in dataclasses.fields(entity)
            if field.name == name
        }
        fields.append(plan_field(name, found))
    return StructPlan(by_version[max(by_version)].__name__, fields)


def plan_field(name: str, by_version: dict[int, dataclasses.Field[Any]]) -> FieldPlan:
    shapes: dict[int, Shape] = {}
    structs: dict[int, type] = {}
    kafka_type = ""
    for version, field in by_version.items():
        inner, is_array, is_nullable = unwrap(field.type)
        if dataclasses.is_dataclass(inner):
            structs[version] = typing.cast(type, inner)
            kind = "struct"
        else:
            kafka_type = field.metadata["kafka_type"]
            kind = PRIMITIVES[kafka_type][0]
            # kio has None for the zero id and for no time; on the wire neither is a null.
            is_nullable = (is_nullable and kafka_type in {"string", "bytes", "records"}) or (is_nullable and is_array)
        shapes[version] = Shape(kind, is_array, is_nullable, field.metadata.get("tag"))
    newest = by_version[max(by_version)]
    struct = plan_struct(structs) if structs else None
    if kafka_type.startswith(("timedelta", "datetime")):
        name += "_ms"
    item_type = struct.name if struct else PRIMITIVES[kafka_type][1]
    is_array = shapes[max(shapes)].is_array
    python_type = f"Sequence[{item_type}]" if is_array else item_type
    can_be_null = any(shape.is_nullable for shape in shapes.values())
    is_always_there = False
    if struct and not is_array:
        # A tagged struct that is None has only defaults, so it is not on the wire: one object less for most responses.
        can_be_null = True
        is_always_there = not all(shape.is_nullable or shape.tag is not None for shape in shapes.values())
    default = default_text(newest, is_struct=struct is not None, kafka_type=kafka_type, is_array=is_array)
    if can_be_null:
        python_type += " | None"
    return FieldPlan(name, default, python_type, struct, shapes, is_always_there)


def unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """(what is inside, whether it is an array, whether it may be null)."""
    is_nullable = False
    if typing.get_origin(annotation) in {types.UnionType, typing.Union}:
        is_nullable = True
        (annotation,) = (part for part in typing.get_args(annotation) if part is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        inner = typing.get_args(annotation)[0]
        if typing.get_origin(inner) in {types.UnionType, typing.Union}:
            (inner,) = (part for part in typing.get_args(inner) if part is not types.NoneType)
        return inner, True, is_nullable
    return annotation, False, is_nullable


def default_text(field: dataclasses.Field[Any], *, is_struct: bool, kafka_type: str, is_array: bool) -> str:
    default = field.default
    if is_array:
        return "None" if default is None else "()"
    if is_struct:
        return "None"
    if default is dataclasses.MISSING:
        return PRIMITIVES[kafka_type][2]
    if default is None:
        return {"uuid": "ZERO_UUID", "datetime_i64": "-1"}.get(kafka_type, "None")
    if isinstance(default, dt.timedelta):
        return str(default // dt.timedelta(milliseconds=1))
    if kafka_type == "error_code":
        return str(int(default))
    text = repr(default) if isinstance(default, str | bytes | bool | float) else str(int(default))
    return text.replace("'", '"')


def spans(shapes: dict[int, Shape]) -> list[tuple[int, int, Shape]]:
    """Versions one after the other in which the field looks the same."""
    found: list[tuple[int, int, Shape]] = []
    for version in sorted(shapes):
        if found and found[-1][1] == version - 1 and found[-1][2] == shapes[version]:
            found[-1] = (found[-1][0], version, shapes[version])
        else:
            found.append((version, version, shapes[version]))
    return found


def write_struct(plan: StructPlan, lines: list[str], written: dict[str, StructPlan]) -> None:
    """A struct inside a message, after those that it holds itself."""
    write_inner(plan, lines, written)
    if plan.name in written:
        if written[plan.name] != plan:
            raise SystemExit(f"two different structs are named {plan.name}")
        return
    written[plan.name] = plan
    first, last = versions_of(plan)
    lines += ["", "", f"class {plan.name}(Message):", f'    """{in_versions(first, last)}."""', ""]
    write_members(plan, lines, [])


def write_inner(plan: StructPlan, lines: list[str], written: dict[str, StructPlan]) -> None:
    for field in plan.fields:
        if field.struct:
            write_struct(field.struct, lines, written)


def write_members(plan: StructPlan, lines: list[str], constants: list[str]) -> None:
    names = ", ".join(f'"{field.name}"' for field in plan.fields)
    lines += [f"    __slots__ = ({names},)" if plan.fields else "    __slots__ = ()", *constants]
    lines.append("    SCHEMA: ClassVar[tuple[Field, ...]] = (")
    for field in plan.fields:
        lines += [f"        {schema_text(field, *span)}," for span in spans(field.shapes)]
    lines.append("    )")
    if plan.fields:
        parameters = ", ".join(f"{field.name}: {field.python_type} = {field.default}" for field in plan.fields)
        lines += ["", f"    def __init__(self, *, {parameters}) -> None:"]
        lines += [f"        self.{field.name} = {value_text(field)}" for field in plan.fields]


def value_text(field: FieldPlan) -> str:
    if field.is_always_there and field.struct:
        return f"{field.struct.name}() if {field.name} is None else {field.name}"
    return field.name


def schema_text(field: FieldPlan, first: int, last: int, shape: Shape) -> str:
    arguments = [f'"{field.name}"', f'"{shape.type}"', str(first), str(last)]
    if field.struct:
        arguments.append(f"item={field.struct.name}")
    if shape.is_array:
        arguments.append("is_array=True")
    if shape.is_nullable:
        arguments.append("is_nullable=True")
    if shape.tag is not None:
        arguments.append(f"tag={shape.tag}")
    return f"Field({', '.join(arguments)})"


def versions_of(plan: StructPlan) -> tuple[int, int]:
    found = [version for field in plan.fields for version in field.shapes]
    return min(found), max(found)


def in_versions(first: int, last: int) -> str:
    return f"In version {first}" if first == last else f"In versions {first} to {last}"


def classes_of(api: str, kind: Literal[EntityType.request, EntityType.response]) -> dict[int, type]:
    """kio's class for each version."""
    classes = {}
    for version, entities in schema_name_map[api].items():
        module, _, name = entities[kind].partition(":")
        classes[version] = getattr(importlib.import_module(module), name)
    return classes


def flexible_from(classes: dict[int, type]) -> int | None:
    return min((version for version, entity in classes.items() if getattr(entity, "__flexible__")), default=None)  # noqa: B009


def module_text(api: str) -> str:
    key = next(number for number, name in api_key_map.items() if name == api)
    versions = sorted(schema_name_map[api])
    first, last = versions[0], versions[-1]
    lines: list[str] = []
    written: dict[str, StructPlan] = {}
    tops = {}
    by_base = {"Request": classes_of(api, EntityType.request), "Response": classes_of(api, EntityType.response)}
    for base, classes in by_base.items():
        plan = plan_struct(classes)
        write_inner(plan, lines, written)
        lines += ["", "", f"class {plan.name}({base}):", f'    """{in_versions(first, last)}."""', ""]
        write_members(
            plan,
            lines,
            [
                f"    API_KEY: ClassVar[int] = {key}",
                f"    VERSIONS: ClassVar[tuple[int, int]] = ({first}, {last})",
                f"    FLEXIBLE_FROM: ClassVar[int | None] = {flexible_from(classes)}",
            ],
        )
        tops[base] = plan.name
    lines += ["", "", f"REQUEST = {tops['Request']}", f"RESPONSE = {tops['Response']}", ""]
    body = "\n".join(lines)
    header = HEADER.format(
        title=tops["Request"].removesuffix("Request"),
        first=first,
        last=last,
        version=kio.__version__,
        imports=", ".join(name for name in IMPORTS if re.search(rf"\b{name}\b", body)),
    )
    if "Sequence[" not in body:
        header = header.replace("from collections.abc import Sequence\n", "")
    return header + body


def index_text() -> str:
    apis = []
    for key, api in sorted(api_key_map.items()):
        if api in SERVED:
            classes = classes_of(api, EntityType.request)
            apis.append(f'    {key}: Api({key}, "{api}", {min(classes)}, {max(classes)}, {flexible_from(classes)}),')
    names = [
        f'    {key}: "{"".join(word.capitalize() for word in api.split("_"))}",'
        for key, api in sorted(api_key_map.items())
    ]
    return INDEX.format(version=kio.__version__, apis="\n".join(apis), names="\n".join(names))


def formatted(texts: dict[str, str]) -> dict[str, str]:
    """As `ruff format` writes them: one run over a copy, since a run for each module takes longer than all the rest."""
    ruff = Path(sys.executable).parent / "ruff"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text)
        command = [str(ruff) if ruff.exists() else "ruff", "format", "--quiet", "--config", str(CONFIG), folder]
        subprocess.run(command, check=True)
        return {name: (Path(folder) / name).read_text() for name in texts}


def stale_modules() -> dict[str, str]:
    """The modules that are not what would be written, and what would be."""
    texts = {f"{api}.py": module_text(api) for api in (*SERVED, *ASKED)}
    texts["__init__.py"] = index_text()
    stale = {}
    for name, text in formatted(texts).items():
        path = DIRECTORY / name
        if not path.exists() or path.read_text() != text:
            stale[name] = text
    return stale


def main() -> int:
    stale = stale_modules()
    if "--check" in sys.argv:
        if stale:
            print(f"not what kio {kio.__version__} says: {', '.join(stale)}; run python scripts/generate_messages.py")
        return 1 if stale else 0
    for name, text in stale.items():
        (DIRECTORY / name).write_text(text)
    print(f"{len(SERVED) + len(ASKED) + 1} modules, {len(stale)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
