"""Programs of franz-go, built once with Go's own tools and the module proxy: its clients, and its broker, kfake."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from clusters.cache import cached

SOURCES: Final = Path(__file__).parent
BUILD_TIMEOUT_S: Final = 600


class GoUnavailable(Exception):
    """There is no Go here, or the modules cannot be had. The text says which."""


def franz_program() -> Path:
    """The clients; franz/main.go says how they are called. GoUnavailable without Go."""
    return _program("franz")


def kfake_program() -> Path:
    """The broker; kfake/main.go says how it is called. GoUnavailable without Go."""
    return _program("kfake")


def _program(name: str) -> Path:
    if shutil.which("go") is None:
        raise GoUnavailable("go is not installed; enable with: apt-get install golang")
    recipe = b"".join((SOURCES / name / file).read_bytes() for file in ("main.go", "go.mod", "go.sum"))
    return cached("go", recipe, partial(_build, name)) / name


def _build(name: str, directory: Path) -> None:
    command = ["go", "build", "-mod=readonly", "-o", str(directory / name), "."]
    done = subprocess.run(
        command, cwd=SOURCES / name, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise GoUnavailable(f"Go could not build {SOURCES / name}: {done.stderr[-2000:]}")
