"""Where it was measured: the machine without its name, the versions, and what its disk and loopback do."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sysconfig
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from bench import broker_limits
from bench.kafka.effort import Effort
from bench.kafka.results import percentile
from bench.kafka.sides import kafka_version
from bench.measuring import Place
from clusters.maven import SPARK_KAFKA_TOKEN_VERSION, SPARK_KAFKA_VERSION

from foldlog.records.loops import COMPILED

SPARK, CONNECTOR = "Spark", "Spark's Kafka connector"

_BLOCK = bytes(1 << 20)
_SMALL_WRITE = bytes(200)
_PREALLOCATED_BYTES = 4 << 20
_SEQUENTIAL_BYTES = 512 << 20
_STREAM_S = 0.5


def versions() -> dict[str, str]:
    found = {
        "foldlog": version("foldlog"),
        "compiled loops": "yes" if COMPILED else "no",
        "Apache Kafka": kafka_version(),
        "Java": java_version(_output("java", "-version")),
        "Python": _python(),
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": _librdkafka(),
    }
    if find_spec("pyspark"):
        found |= {
            SPARK: version("pyspark"),
            CONNECTOR: SPARK_KAFKA_VERSION,
            f"{CONNECTOR}, its token provider": SPARK_KAFKA_TOKEN_VERSION,
        }
    return found


def java_version(text: str) -> str:
    """
    >>> java_version('openjdk version "17.0.15" 2025-04-15')
    '17.0.15'
    """
    found = re.search(r'version "([^"]+)"', text)
    return found[1] if found else "unknown"


def facts(directory: Path) -> dict[str, str]:
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": f"{os.cpu_count()} cores, {platform.machine()}",
        "memory": f"{memory_bytes / 1e9:.0f} GB",
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "file system": file_system(directory, Path("/proc/self/mounts").read_text(encoding="utf-8")),
    }


def file_system(directory: Path, mounts: str) -> str:
    """The kind of the one that the directory is on: that with the longest matching path.

    >>> file_system(Path("/data/x"), "d1 / ext4 rw 0 0\\nd2 /data xfs rw 0 0")
    'xfs'
    """
    kinds = {Path(point): kind for _, point, kind, *_ in (line.split() for line in mounts.splitlines() if line)}
    for parent in [directory, *directory.parents]:
        if parent in kinds:
            return kinds[parent]
    return "unknown"


def limits(place: Place, effort: Effort) -> dict[str, float]:
    """What no broker can beat here: the disk one block after the other, a sync, and a stream through the loopback."""
    size = min(_SEQUENTIAL_BYTES, effort.raw_bytes)
    sync = fdatasync_s(place, effort.fdatasyncs)
    return {
        "sequential_write_bytes_per_s": broker_limits.append_and_sync(place, _BLOCK, 60.0, size, sync_bytes=size),
        "fdatasync_p50_s": percentile(sync, 50),
        "fdatasync_p99_s": percentile(sync, 99),
        "loopback_bytes_per_s": broker_limits.loopback_stream(_STREAM_S),
    }


def fdatasync_s(place: Place, times: int) -> list[float]:
    """Seconds of each write of a small batch with its fdatasync, sorted."""
    path = place.fresh()
    descriptor = os.open(path / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    found = []
    try:
        for _ in range(times):
            begun = time.perf_counter()
            os.write(descriptor, _SMALL_WRITE)
            os.fdatasync(descriptor)
            found.append(time.perf_counter() - begun)
    finally:
        os.close(descriptor)
        place.give_back(path)
    return sorted(found)


def preallocated_fdatasync_s(place: Place, times: int) -> list[float]:
    """`fdatasync_s`, into blocks that were written before: a sync then changes no metadata of the file system."""
    path = place.fresh()
    descriptor = os.open(path / "raw", os.O_RDWR | os.O_CREAT, 0o644)
    found = []
    try:
        os.write(descriptor, bytes(_PREALLOCATED_BYTES))
        os.fsync(descriptor)
        for number in range(times):
            begun = time.perf_counter()
            os.pwrite(descriptor, _SMALL_WRITE, number * len(_SMALL_WRITE) % _PREALLOCATED_BYTES)
            os.fdatasync(descriptor)
            found.append(time.perf_counter() - begun)
    finally:
        os.close(descriptor)
        place.give_back(path)
    return sorted(found)


def _python() -> str:
    """Its version, and whether it was built for speed, as packaged ones are: the broker feels it."""
    is_optimised = "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))
    return platform.python_version() + ("" if is_optimised else ", built without profile-guided optimisation")


def _librdkafka() -> str:
    from confluent_kafka import libversion

    return str(libversion()[0])


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout + done.stderr
