"""What is fetched or built once for tests and benchmarks: directories that runs share, made whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cached(kind: str, recipe: bytes, make: Callable[[Path], None]) -> Path:
    """The directory that `make` fills, made again only if the recipe is another. Any number of processes may ask at
    once. What `make` raises, or a kill in the middle of it, leaves nothing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = Path(base) / "foldlog" / kind
    home.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(recipe).hexdigest()[:12]
    directory = home / digest
    with (home / f"{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=home) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                make(made)
                made.rename(directory)
    return directory
