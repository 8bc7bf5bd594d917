"""Spark's Python daemon, with what folds need imported before it forks a worker.

Spark's own daemon forks first and imports after, in every worker, and a worker dies with the task that fails in it:
0.3 s of processor time each, and finding one bad record takes some twenty such tasks.

Spark imports late because a library may start threads, which a fork does not take along. Those imported here live with
that: pyarrow's one thread is its allocator's and numpy's are a pool, and both start theirs anew in the child.
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
"""What takes long, and what every worker of a fold needs."""


def _is_spark_archive(place: str) -> bool:
    name = place.rpartition("/")[2]
    return name == "pyspark.zip" or name.startswith("py4j-") or (name.startswith("spark-") and name.endswith(".jar"))


def _drop_archives() -> None:
    """Spark puts archives of itself at the front of the path. What is imported from one is compiled each time, and for
    each task Python reads their directories again (`importlib.invalidate_caches`), which takes longer than the task.
    """
    given = list(sys.path)
    sys.path[:] = [place for place in given if not _is_spark_archive(place)]
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = given  # they stand nowhere else here
    else:
        sys.path_importer_cache.clear()


def main() -> None:
    _drop_archives()
    for name in _IMPORTED:
        import_module(name)
    from pyspark.daemon import manager

    # A worker collects garbage after each task: it would look at all that was imported here, and so copy its pages.
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
