"""Is the foldlog that is installed in this environment whole? Run it with the environment's own interpreter.

    python scripts/check_installed.py

The release check runs it in empty environments, and so does every wheel that is built for a release. It shares nothing
with the package's tests: it uses what a stranger has after `pip install foldlog pytest`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TIMEOUT_S = 60
CONSOLE_FILES = ("index.html", "*.css", "*.js", "*.svg")
COMPILED = (
    "foldlog.client.handles",
    "foldlog.files.reads",
    "foldlog.files.status",
    "foldlog.files.sync_threads",
    "foldlog.log.fetched",
    "foldlog.records.kernels",
    "foldlog.server.fetches.fetch_pass",
    "foldlog.spark.decoders.json_screen",
    "foldlog.wire.fetch_frames",
    "foldlog.wire.produce_frames",
)
USE = """
import foldlog
with foldlog.open("data") as log:
    log.create_topic("orders")
    log.append("orders", {"lamps": 3}, key="17")
with foldlog.open("data") as log:
    assert [record.json() for record in log.read("orders", 0)] == [{"lamps": 3}]
"""
TEST = """
def test_a_stranger_gets_a_broker(kafka_broker):
    kafka_broker.log.create_topic("orders")
    kafka_broker.log.append("orders", {"lamps": 3})
    assert str(kafka_broker).startswith("127.0.0.1:")
    assert [record.json() for record in kafka_broker.log.read("orders")] == [{"lamps": 3}]
"""


def run(*command: str, cwd: str) -> str:
    """What it printed; its errors end the check."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("FOLDLOG_", "PYTHONPATH"))}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(holds: bool, wrong: str) -> None:
    if not holds:
        raise SystemExit(wrong)


def main() -> None:
    package = Path(str(importlib.metadata.distribution("foldlog").locate_file("foldlog")))
    expect("site-packages" in package.parts or "dist-packages" in package.parts, f"{package} is no installed package")
    for name in COMPILED:
        stem = package.parent.joinpath(*name.split("."))
        expect(any(stem.parent.glob(f"{stem.name}.*.so")), f"{name} was not compiled")
    for pattern in CONSOLE_FILES:
        expect(any((package / "console").glob(pattern)), f"the console's {pattern} is missing")
    expect((package / "py.typed").exists(), "py.typed is missing")
    expect(not any(package.rglob("*.pyx")), "a wheel has no use for .pyx sources")
    command = str(Path(sys.executable).with_name("foldlog"))
    with tempfile.TemporaryDirectory() as directory:
        facts = json.loads(run(command, "version", "--format", "json", cwd=directory))
        expect(facts["version"] == importlib.metadata.version("foldlog"), f"two versions: {facts['version']}")
        expect(facts["kernels"] == "compiled", "the kernels in use are those in Python")
        expect(None not in facts["requires"].values(), f"a requirement is missing: {facts['requires']}")
        run(sys.executable, "-I", "-W", "error", "-c", USE, cwd=directory)
        run(command, "check", "data", cwd=directory)
        Path(directory, "test_stranger.py").write_text(TEST, encoding="utf-8")
        tested = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=directory)
        expect("1 passed" in tested, tested)
    print(f"foldlog {facts['version']} on Python {facts['python']}: kernels, console, command and fixture are there")


if __name__ == "__main__":
    main()
