"""More partitions than the soft limit on descriptors: it is raised when needed, or refused in a sentence.

In a child process, because a limit is the whole process's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WRITE_MANY = """
import resource, sys
import foldlog

hard = int(sys.argv[2])
with foldlog.open(sys.argv[1]) as log:
    log.create_topic("many", partitions=120)
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
    try:
        for number in range(120):
            log.append("many", b"value", partition=number)
        print(sum(end for _, end in log.offsets("many").values()))
    except foldlog.errors.StorageError as error:
        print(error)
"""


@pytest.mark.parametrize(("hard", "said"), [(1000, "120"), (60, "Too many open files")])
def test_more_partitions_than_descriptors(tmp_path: Path, hard: int, said: str) -> None:
    child = [sys.executable, "-c", WRITE_MANY, str(tmp_path / "data"), str(hard)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False)
    assert said in done.stdout, done.stderr
