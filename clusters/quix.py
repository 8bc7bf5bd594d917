"""Quix Streams from PyPI, in a directory of its own: what it pins does not touch what else is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from clusters.cache import cached
from clusters.processes import ClusterProcess

QUIX: Final = "quixstreams==3.28.1"
COUNTS: Final = Path(__file__).with_name("quix_counts.py")
INSTALL_TIMEOUT_S: Final = 600


class QuixUnavailable(Exception):
    """pip could not install it. The text says why."""


def quix_counts(bootstrap: str, source: str, target: str, directory: Path) -> ClusterProcess:
    """The program of quix_counts.py, not started yet. QuixUnavailable if pip cannot install Quix Streams."""
    recipe = f"{QUIX} {sys.implementation.cache_tag}"
    packages = cached("quix", recipe.encode(), _install)
    command = [sys.executable, str(COUNTS), bootstrap, source, target, str(directory / "state")]
    path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    return ClusterProcess("Quix Streams", command, directory / "quix.log", {"PYTHONPATH": path})


def _install(directory: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--only-binary=:all:",
        "--target",
        str(directory),
        QUIX,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    if done.returncode:
        raise QuixUnavailable(f"pip could not install {QUIX}: {done.stderr[-2000:]}")
