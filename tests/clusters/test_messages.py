"""Kafka's own classes read what our codec writes, of every message in every version, and write the same bytes.

Messages are filled at random from our schemas. That nothing is missing in those is another question: the modules are
compared with what the generator writes from Kafka's schemas, and the fields with those that Kafka's JSON names.
"""

from __future__ import annotations

import base64
import importlib
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
from clusters.maven import KAFKA, SCHEMAS, JarsUnavailable, class_path, fetch

from foldlog.wire.codec import encode
from foldlog.wire.messages import APIS
from foldlog.wire.schema import ApiMessage, Field, Message

ROOT = Path(__file__).resolve().parent.parent.parent
READER = ROOT / "clusters" / "MessageReader.java"
Filled = TypeVar("Filled", bound=Message)

FILLINGS = 8
"""How many messages of each kind and version."""

TIMEOUT_S = 300

SAMPLES: dict[str, Any] = {
    "bool": lambda rng: rng.random() < 0.5,
    "int8": lambda rng: rng.randrange(-(1 << 7), 1 << 7),
    "int16": lambda rng: rng.randrange(-(1 << 15), 1 << 15),
    "uint16": lambda rng: rng.randrange(1 << 16),
    "int32": lambda rng: rng.randrange(-(1 << 31), 1 << 31),
    "int64": lambda rng: rng.randrange(-(1 << 63), 1 << 63),
    "float64": lambda rng: rng.uniform(-1e9, 1e9),
    "string": lambda rng: rng.choice(["", "a", "é" * 80, "name"]),
    "bytes": lambda rng: rng.randbytes(rng.choice([0, 1, 200])),
    "records": lambda rng: rng.randbytes(rng.choice([0, 70])),
    "uuid": lambda rng: rng.randbytes(16),
}


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    try:
        fetch(KAFKA)
        fetch(SCHEMAS)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    spec = importlib.util.spec_from_file_location("generate_messages", ROOT / "scripts" / "generate_messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


def test_the_messages_are_what_the_generator_writes(generator: ModuleType) -> None:
    assert sorted(generator.stale_modules()) == []


def test_a_message_changed_by_hand_is_noticed(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in generator.DIRECTORY.glob("*.py"):
        (tmp_path / module.name).write_text(module.read_text())
    changed = tmp_path / "heartbeat.py"
    changed.write_text(changed.read_text().replace("group_id", "group"))
    monkeypatch.setattr(generator, "DIRECTORY", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate_messages.py", "--check"])
    assert generator.main() == 1
    assert sorted(generator.stale_modules()) == ["heartbeat.py"]


def test_each_module_belongs_to_an_api(generator: ModuleType) -> None:
    modules = {path.stem for path in generator.DIRECTORY.glob("*.py")} - {"__init__"}
    assert {api.module for api in APIS.values()} == set(generator.SERVED)
    assert modules == {*generator.SERVED}


def test_kafkas_own_classes_read_and_write_what_we_write(generator: ModuleType) -> None:
    rng = random.Random(1)
    asked = [one for name in generator.SERVED for one in fillings(name, rng)]
    lines = [
        f"{type(one).__name__} {version} {base64.b64encode(written(one, version)).decode()}" for one, version in asked
    ]
    # The clients of the schemas first: the broker's jars have what writes their JSON, and older clients.
    classes = f"{class_path(fetch(SCHEMAS))}:{class_path(fetch(KAFKA))}"
    done = subprocess.run(
        ["java", "-XX:+UseSerialGC", "-cp", classes, str(READER)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(asked)
    for (message, version), answer in zip(asked, answers, strict=True):
        what = f"{type(message).__name__} version {version}"
        left_over, again, read = answer.split(" ", 2)
        assert left_over == "0", what
        assert base64.b64decode(again) == written(message, version), what
        check_json(json.loads(read), message, version, what)


def fillings(name: str, rng: random.Random) -> Iterator[tuple[ApiMessage, int]]:
    module = importlib.import_module(f"foldlog.wire.messages.{name}")
    for kind in (module.REQUEST, module.RESPONSE):
        for version in range(kind.VERSIONS[0], kind.VERSIONS[1] + 1):
            for _ in range(FILLINGS):
                yield filled(kind, version, rng), version


def filled(kind: type[Filled], version: int, rng: random.Random) -> Filled:
    """With values in the fields that the version has, and defaults in the others."""
    return kind(**{one.name: value_of(one, version, rng) for one in fields_of(kind, version)})


def fields_of(kind: type[Message], version: int) -> list[Field]:
    return [one for one in kind.SCHEMA if one.first <= version <= one.last]


def value_of(one: Field, version: int, rng: random.Random) -> Any:
    if one.is_nullable and rng.random() < 0.2:
        return None
    if one.is_array:
        return [single_value(one, version, rng) for _ in range(rng.choice([0, 1, 2]))]
    return single_value(one, version, rng)


def single_value(one: Field, version: int, rng: random.Random) -> Any:
    return filled(one.item, version, rng) if one.item is not None else SAMPLES[one.kind](rng)


def written(message: ApiMessage, version: int) -> bytes:
    return bytes(encode(message, version))


def check_json(found: dict[str, Any], message: Message, version: int, what: str) -> None:
    """Every field that Kafka names is one of ours with the same value; without a tag, every one of ours is named."""
    named = {snake_case(key): value for key, value in found.items()}
    fields = {one.name: one for one in fields_of(type(message), version)}
    sizes = {f"{name}_size_in_bytes" for name, one in fields.items() if one.kind == "records"}
    assert set(named) <= {*fields, *sizes}, what
    for name, one in fields.items():
        where = f"{what}: {name}"
        if one.kind == "records":
            continue
        if name not in named:
            assert one.tag is not None, where
            continue
        check_value(named[name], getattr(message, name), one, version, where)


def check_value(found: Any, ours: Any, one: Field, version: int, where: str) -> None:
    if ours is None or found is None:
        assert found == ours, where
    elif one.is_array:
        assert len(found) == len(ours), where
        for theirs, mine in zip(found, ours, strict=True):
            check_single(theirs, mine, one, version, where)
    else:
        check_single(found, ours, one, version, where)


def check_single(found: Any, ours: Any, one: Field, version: int, where: str) -> None:
    if one.item is not None:
        check_json(found, ours, version, where)
    elif one.kind == "bytes":
        assert base64.b64decode(found) == ours, where
    elif one.kind == "uuid":
        assert base64.urlsafe_b64decode(f"{found}==") == ours, where
    elif one.kind == "float64":
        assert found == pytest.approx(ours), where
    else:
        assert found == ours, where


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
