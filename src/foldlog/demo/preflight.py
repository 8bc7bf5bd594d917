"""What the demo needs, looked for before anything is started: each thing that is missing is one sentence."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from foldlog.demo.stock_clients import installed_client

JAVA_OLDEST: Final = 17
_PACKAGES: Final = {
    "pyspark": "Spark, which runs the folds (a download of 456 MB)",
    "pyarrow": "Arrow, which carries their rows",
    "tantivy": "the full-text index",
    "deltalake": "the lake table",
}
INSTALL: Final = "pip install 'foldlog[spark,views,kafka]'"


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found. `postgres` is the directory of PostgreSQL's server, None where there is none."""

    kafka_client: str
    postgres: Path | None


def missing_pieces() -> list[str]:
    """One sentence for each thing without which the demo cannot run."""
    missing: list[str] = []
    java = java_complaint()
    if java:
        missing.append(java)
    absent = [f"{name} ({what})" for name, what in _PACKAGES.items() if find_spec(name) is None]
    if installed_client() is None:
        absent.append("confluent-kafka (the stock Kafka client)")
    if absent:
        missing.append(f"These Python packages are missing: {', '.join(absent)}; install them: {INSTALL}")
    return missing


def look_around() -> Machine:
    """What there is, once nothing is missing."""
    return Machine(installed_client() or "", server_binaries() if find_spec("psycopg") is not None else None)


def java_complaint() -> str:
    """What is wrong with this machine's Java; an empty text if nothing is."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    advice = f"install Java {JAVA_OLDEST} or newer (Debian: apt-get install default-jre-headless)"
    if shutil.which(java) is None:
        place = f"JAVA_HOME={home}" if home else "PATH"
        return f"Spark needs Java, and there is none in {place}; {advice}"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = java_version(told)
    if version is None or version >= JAVA_OLDEST:
        return ""  # one that does not say what it is may do
    return f"Spark needs a newer Java than {version}; {advice}"


def java_version(told: str) -> int | None:
    """
    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_402"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return None if found is None else int(found[1])


def server_binaries() -> Path | None:
    """The directory that holds PostgreSQL's `initdb` and `postgres`, the newest version first."""
    candidates = [Path(found).resolve().parent for found in (shutil.which("postgres"),) if found]
    versions = glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/usr/pgsql-*/bin")
    candidates += sorted(map(Path, versions), key=lambda path: _digits(path.parent.name), reverse=True)
    for candidate in candidates:
        if (candidate / "initdb").exists() and (candidate / "postgres").exists():
            return candidate
    return None


def _digits(name: str) -> int:
    return int("".join(character for character in name if character.isdigit()) or 0)
