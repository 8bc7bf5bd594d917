"""Spark's Python daemon, which imports what folds need before it forks a worker.

Spark's own daemon forks first, so every worker imports again, and a worker dies with the task that fails in it: 0.3 s
of processor time each, and finding one bad record takes some twenty such tasks.

Spark imports late because a library may start threads, which a fork does not copy. The libraries imported here cope
with that: pyarrow's one thread is its allocator's, numpy's are a pool, and both are restarted in the child.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Final

_IMPORTED: Final = (
    "pandas",
    "pyarrow.compute",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "foldlog.spark.folds.reading",
)
"""Modules that are slow to import, and that every worker of a fold needs."""


def _is_spark_archive(entry: str) -> bool:
    name = entry.rpartition("/")[2]
    return name == "pyspark.zip" or name.startswith("py4j-") or (name.startswith("spark-") and name.endswith(".jar"))


def _drop_archives() -> None:
    """Spark puts archives of itself at the front of the path. Modules from an archive are compiled on each import, and
    Python reads the archives again for each task (`importlib.invalidate_caches`), which takes longer than the task.
    """
    given = list(sys.path)
    sys.path[:] = [entry for entry in given if not _is_spark_archive(entry)]
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = given  # pyspark is nowhere else on this path
    else:
        sys.path_importer_cache.clear()


def main() -> None:
    _drop_archives()
    for name in _IMPORTED:
        import_module(name)
    from pyspark.daemon import manager

    # A worker runs the garbage collector after each task: without this it would touch, and so copy, the shared pages.
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
