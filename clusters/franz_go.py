"""franz-go's clients: the program in `franz`, built once with Go's own tools and the module proxy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from clusters.cache import cached

SOURCES: Final = Path(__file__).with_name("franz")
BUILD_TIMEOUT_S: Final = 600


class GoUnavailable(Exception):
    """There is no Go here, or the modules cannot be had. The text says which."""


def franz_program() -> Path:
    """The program; franz/main.go says how it is called. GoUnavailable without Go."""
    if shutil.which("go") is None:
        raise GoUnavailable("go is not installed; enable with: apt-get install golang")
    recipe = b"".join((SOURCES / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    return cached("go", recipe, _build) / "franz"


def _build(directory: Path) -> None:
    command = ["go", "build", "-mod=readonly", "-o", str(directory / "franz"), "."]
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode:
        raise GoUnavailable(f"Go could not build {SOURCES}: {done.stderr[-2000:]}")
