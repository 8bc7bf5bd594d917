"""The messages in the tree are what the generator writes from kio today, and nothing needs kio to use them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from foldlog.wire.messages import APIS, NAMES

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "generate_messages.py"


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("generate_messages", SCRIPT)
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
    changed.write_text(changed.read_text().replace('"group_id"', '"group"'))
    monkeypatch.setattr(generator, "DIRECTORY", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate_messages.py", "--check"])
    assert generator.main() == 1
    assert sorted(generator.stale_modules()) == ["heartbeat.py"]


def test_each_module_belongs_to_an_api(generator: ModuleType) -> None:
    modules = {path.stem for path in generator.DIRECTORY.glob("*.py")} - {"__init__"}
    assert {api.module for api in APIS.values()} == set(generator.SERVED)
    assert modules == {*generator.SERVED, *generator.ASKED}
    assert set(APIS) < set(NAMES)


def test_the_codec_works_without_kio_and_loads_one_api_at_a_time() -> None:
    code = (
        "import sys; sys.modules['kio'] = None\n"
        "from foldlog.wire import frames, error_codes\n"
        "from foldlog.wire.codec import decode, encode\n"
        "request = frames.request_class(12)\n"
        "assert decode(request, 4, encode(request(group_id='g'), 4)).group_id == 'g'\n"
        "print(sorted(name for name in sys.modules if name.startswith('foldlog.wire.messages.')))\n"
        "print(sorted(set(sys.modules) & {'asyncio', 'socket', 'uvloop', 'pyarrow'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["['foldlog.wire.messages.heartbeat']", "[]"]
