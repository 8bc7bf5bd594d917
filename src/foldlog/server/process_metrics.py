"""What a scrape looks up about the process, under the names that every Prometheus client gives it."""

from __future__ import annotations

import os
import platform
import resource
import time
from typing import Final

from foldlog import __version__
from foldlog.server.exposition import Family, Sample

_STATM: Final = "/proc/self/statm"
_DESCRIPTORS: Final = "/proc/self/fd"


def process_families() -> list[Family]:
    """CPU everywhere; memory and descriptors where there is /proc. Cheap enough for the event loop."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    families = [
        Family(
            "process_cpu_seconds_total", "counter", "CPU time used, user and system.", [Sample(time.process_time())]
        ),
        Family("process_max_fds", "gauge", "Descriptors the process may have open.", [Sample(limit)]),
    ]
    resident_bytes = _resident_bytes()
    if resident_bytes is not None:
        text = "Memory of the process that is in RAM."
        families.append(Family("process_resident_memory_bytes", "gauge", text, [Sample(resident_bytes)]))
    descriptors = _open_descriptors()
    if descriptors is not None:
        families.append(Family("process_open_fds", "gauge", "Descriptors that are open.", [Sample(descriptors)]))
    return families


def build_family() -> Family:
    labels = (("version", __version__), ("python", platform.python_version()))
    return Family("foldlog_build_info", "gauge", "1; what runs is in the labels.", [Sample(1, labels)])


def _resident_bytes() -> int | None:
    try:
        with open(_STATM, encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _open_descriptors() -> int | None:
    try:
        return len(os.listdir(_DESCRIPTORS)) - 1  # without the one that lists them
    except OSError:
        return None
