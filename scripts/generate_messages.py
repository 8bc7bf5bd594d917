"""Write `foldlog/wire/messages/`: one module for each API that is served or asked, from Apache Kafka's own schemas.

Kafka's schemas are JSON files in the kafka-clients jar on Maven Central. What is committed are the facts in them, a
line a field: names, types, and the versions that have them. A message is one class for all versions of it, as in
Kafka's own clients, and its module is imported when its API is first asked for.

    python scripts/generate_messages.py           write the modules; needs Java and Maven
    python scripts/generate_messages.py --check   exit 1 if they are not what would be written
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / "src" / "foldlog" / "wire" / "messages"
CONFIG = ROOT / "pyproject.toml"
sys.path.insert(0, str(ROOT))

from clusters.maven import SCHEMAS, SCHEMAS_VERSION, fetch  # noqa: E402

SERVED = (
    "produce", "fetch", "list_offsets", "metadata", "offset_commit", "offset_fetch", "find_coordinator", "join_group",
    "heartbeat", "leave_group", "sync_group", "describe_groups", "list_groups", "api_versions", "create_topics",
    "delete_topics", "delete_records", "init_producer_id", "offset_for_leader_epoch", "describe_configs",
    "update_features", "get_telemetry_subscriptions", "push_telemetry",
    "alter_configs", "describe_log_dirs", "create_partitions", "delete_groups", "incremental_alter_configs",
    "offset_delete", "describe_cluster", "describe_producers", "describe_topic_partitions", "elect_leaders",
    "alter_partition_reassignments", "list_partition_reassignments", "alter_replica_log_dirs", "describe_quorum",
    "list_config_resources", "consumer_group_heartbeat", "consumer_group_describe", "add_partitions_to_txn",
    "add_offsets_to_txn", "end_txn", "write_txn_markers", "txn_offset_commit", "describe_transactions",
    "list_transactions", "share_group_heartbeat", "share_group_describe", "share_fetch", "share_acknowledge",
    "describe_share_group_offsets", "alter_share_group_offsets", "delete_share_group_offsets", "sasl_handshake",
    "sasl_authenticate", "describe_acls", "create_acls", "delete_acls", "describe_client_quotas",
    "alter_client_quotas", "describe_user_scram_credentials", "alter_user_scram_credentials",
)  # fmt: skip

PYTHON_TYPES = {
    "bool": ("bool", "False"),
    "int8": ("int", "0"),
    "int16": ("int", "0"),
    "uint16": ("int", "0"),
    "int32": ("int", "0"),
    "int64": ("int", "0"),
    "float64": ("float", "0.0"),
    "string": ("str", '""'),
    "bytes": ("bytes", 'b""'),
    "uuid": ("bytes", "ZERO_UUID"),
    "records": ("Records", 'b""'),
}
"""A type of the schemas: what it is in Python, and the value of a field that nobody set."""

HEADER = '''"""{name}, generated from the schemas of Apache Kafka {version} by scripts/generate_messages.py."""

from __future__ import annotations

{sequence}from foldlog.wire.schema import {imports}
'''

IMPORTS = ("ZERO_UUID", "Message", "Records", "Request", "Response", "field")

INDEX = '''"""Every API that is served, with its module here, and the names of all.

Generated from the schemas of Apache Kafka {version} by scripts/generate_messages.py.
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

Json = dict[str, Any]


@dataclass(frozen=True)
class Versions:
    """From the first to the last, both included; none at all if the last is below the first."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str, within: Versions | None = None) -> Versions:
        """`3`, `3-5`, `3+` or `none`, as far as the message has them."""
        if text == "none":
            return cls(0, -1)
        first, dash, last = text.removesuffix("+").partition("-")
        end = int(last) if dash else 2**15 if text.endswith("+") else int(first)
        found = cls(int(first), end)
        return found if within is None else cls(max(found.first, within.first), min(found.last, within.last))

    def __bool__(self) -> bool:
        return self.first <= self.last


@cache
def schemas() -> dict[str, Json]:
    """Every request and response by its name."""
    found = {}
    with zipfile.ZipFile(fetch(SCHEMAS) / f"kafka-clients-{SCHEMAS_VERSION}.jar") as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name):
                # Comments stand on lines of their own, or behind a comma or a bracket.
                text = re.sub(r"^\s*//.*$|(?<=[,\[\]{}])\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                schema = json.loads(text)
                found[schema["name"]] = schema
    return found


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


class Module:
    """The text of one API's module: structs before what holds them."""

    def __init__(self, api: str) -> None:
        self._api = camel_case(api)
        self._structs: dict[str, str] = {}

    def text(self) -> str:
        classes = [self._top(schemas()[f"{self._api}{base}"], base) for base in ("Request", "Response")]
        body = "\n\n".join(classes) + f"\n\nREQUEST = {self._api}Request\nRESPONSE = {self._api}Response\n"
        header = HEADER.format(
            name=self._api,
            version=SCHEMAS_VERSION,
            sequence="from collections.abc import Sequence\n\n" if "Sequence[" in body else "",
            imports=", ".join(name for name in IMPORTS if re.search(rf"\b{name}\b", body)),
        )
        return f"{header}\n\n{body}"

    def _top(self, schema: Json, base: str) -> str:
        valid = self._valid = valid_versions(schema)
        common = {struct["name"]: struct for struct in schema.get("commonStructs", [])}
        structs: list[str] = []
        lines = list(self._fields(schema["fields"], valid, common, structs))
        versions = f"versions=({valid.first}, {valid.last}), flexible_from={flexible_from(schema)}"
        structs.append(
            f"class {schema['name']}({base}, api_key={schema['apiKey']}, {versions}):\n"
            + ("\n".join(lines) or "    pass")
        )
        return "\n\n".join(structs)

    def _fields(self, fields: list[Json], valid: Versions, common: dict[str, Any], structs: list[str]) -> Iterator[str]:
        for one in fields:
            versions = Versions.parse(one["versions"], valid)
            if versions:
                yield "    " + self._field(one, versions, common, structs)

    def _field(self, one: Json, versions: Versions, common: dict[str, Any], structs: list[str]) -> str:
        kind = one["type"].removeprefix("[]")
        is_array = kind != one["type"]
        is_struct = kind not in PYTHON_TYPES
        if is_struct:
            # A struct that several fields share has the versions of all of them.
            shared = common.get(kind)
            fields, of = (one["fields"], versions) if shared is None else (shared["fields"], self._valid)
            kind = self._struct(kind, fields, of, common, structs)
        nullable = Versions.parse(one.get("nullableVersions", "none"), versions)
        tagged = Versions.parse(one.get("taggedVersions", "none"), versions)
        arguments = [kind if is_struct else f'"{kind}"', str(versions.first), str(versions.last)]
        if is_array:
            arguments.append("is_array=True")
        if nullable:
            arguments.append(f"nullable_from={nullable.first}")
        if tagged:
            arguments.append(f"tag={one['tag']}")
            if tagged.first != versions.first:
                arguments.append(f"tagged_from={tagged.first}")
        if (nullable and nullable.last != versions.last) or (tagged and tagged.last != versions.last):
            raise SystemExit(f"{one['name']} ends to be nullable or tagged, and a field has no way to say that")
        arguments.append(f"default={default_text(one, kind, is_array=is_array, is_struct=is_struct)}")
        item = kind if is_struct else PYTHON_TYPES[kind][0]
        python_type = f"Sequence[{item}]" if is_array else item
        # A struct with a tag that is None has only defaults, so it is not on the wire: an object less for most answers.
        if nullable or (is_struct and not is_array and tagged):
            python_type += " | None"
        return f"{snake_case(one['name'])}: {python_type} = field({', '.join(arguments)})"

    def _struct(
        self, name: str, fields: list[Json], valid: Versions, common: dict[str, Any], structs: list[str]
    ) -> str:
        """Its class's name, once its text stands before."""
        lines = "\n".join(self._fields(fields, valid, common, structs))
        if self._structs.get(name, lines) != lines:
            name += "Result"  # the answer's: Kafka names some structs of a request and of its answer alike
            if self._structs.get(name, lines) != lines:
                raise SystemExit(f"three different structs are named {name.removesuffix('Result')}")
        if name not in self._structs:
            self._structs[name] = lines
            structs.append(f"class {name}(Message):\n{lines or '    pass'}")
        return name


def default_text(one: Json, kind: str, *, is_array: bool, is_struct: bool) -> str:
    given = one.get("default")
    if given == "null" or (given is None and is_struct and not is_array):
        return "None"
    if is_array:
        return "()"
    if given is None:
        return PYTHON_TYPES[kind][1]
    if PYTHON_TYPES[kind][0] == "int":
        return str(int(str(given), 0))
    if kind == "bool":
        return str(str(given) == "true")
    return json.dumps(given)


def valid_versions(schema: Json) -> Versions:
    """Those of the request and its answer, without a last one that the release calls unstable: it may still change."""
    valid = Versions.parse(schema["validVersions"])
    request = schemas()[re.sub("Response$", "Request", schema["name"])]
    return Versions(valid.first, valid.last - 1) if request.get("latestVersionUnstable") else valid


def flexible_from(schema: Json) -> int | None:
    flexible = Versions.parse(schema["flexibleVersions"], valid_versions(schema))
    return flexible.first if flexible else None


def index_text() -> str:
    requests = sorted(
        (schema["apiKey"], name.removesuffix("Request"), schema)
        for name, schema in schemas().items()
        if schema["type"] == "request" and schema["validVersions"] != "none"
    )
    apis = []
    for key, name, schema in requests:
        if snake_case(name) in SERVED:
            valid = valid_versions(schema)
            facts = f'{key}, "{snake_case(name)}", {valid.first}, {valid.last}, {flexible_from(schema)}'
            apis.append(f"    {key}: Api({facts}),")
    names = [f'    {key}: "{name}",' for key, name, _ in requests]
    return INDEX.format(version=SCHEMAS_VERSION, apis="\n".join(apis), names="\n".join(names))


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
    texts = {f"{api}.py": Module(api).text() for api in SERVED}
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
            print(
                f"not what Apache Kafka {SCHEMAS_VERSION} says: {', '.join(stale)};"
                " run python scripts/generate_messages.py"
            )
        return 1 if stale else 0
    for name, text in stale.items():
        (DIRECTORY / name).write_text(text)
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
