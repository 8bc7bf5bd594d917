"""Spark reads, writes and folds the log. `import foldlog.spark as fl` is how pipelines begin.

Importing this imports neither pyspark nor any engine: they are imported on first use. It sets the Python that Spark
runs, unless one is configured: see `interpreter`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foldlog.spark.decoders.record_types import by_field, by_header, by_schema
from foldlog.spark.folds.declaration import DeclaredTopic as Topic
from foldlog.spark.folds.declaration import Fold, fold, load_folds, topic
from foldlog.spark.interpreter import prefer_this_python
from foldlog.views.contract import META, Delta, Shape, Snapshot, View
from foldlog.views.counters.measures import (  # they are `fl.sum` and so on
    approx_count_distinct,
    avg,
    count,
    count_distinct,
    first,
    last,
    max,  # noqa: A004
    min,  # noqa: A004
    quantile,
    sum,  # noqa: A004
    top,
)
from foldlog.views.counters.windows import sessions, window

if TYPE_CHECKING:
    from foldlog.spark.backfill import backfill
    from foldlog.spark.change_topics.changes import changes
    from foldlog.spark.folds.commands import (
        ask,
        drop,
        explain,
        first_pipeline,
        log_at,
        preview,
        rebuild,
        rewind,
        run,
        status,
        verify,
    )
    from foldlog.spark.functions import from_avro, from_json, from_protobuf
    from foldlog.spark.joins import join, join_asof
    from foldlog.spark.queries.sql import sql
    from foldlog.spark.sink.writers import finish_writes
    from foldlog.views.bookmark import Bookmark
    from foldlog.views.counters.counters import counters
    from foldlog.views.lake.lake import lake
    from foldlog.views.reduce.reduce import each_row, reduce
    from foldlog.views.search.search import search
    from foldlog.views.table.table import table
    from foldlog.views.versions.versions import history

_HOMES = {
    "Bookmark": "foldlog.views.bookmark",
    "ask": "foldlog.spark.folds.commands",
    "backfill": "foldlog.spark.backfill",
    "changes": "foldlog.spark.change_topics.changes",
    "counters": "foldlog.views.counters.counters",
    "drop": "foldlog.spark.folds.commands",
    "each_row": "foldlog.views.reduce.reduce",
    "explain": "foldlog.spark.folds.commands",
    "finish_writes": "foldlog.spark.sink.writers",
    "first_pipeline": "foldlog.spark.folds.commands",
    "from_avro": "foldlog.spark.functions",
    "from_json": "foldlog.spark.functions",
    "from_protobuf": "foldlog.spark.functions",
    "history": "foldlog.views.versions.versions",
    "join": "foldlog.spark.joins",
    "join_asof": "foldlog.spark.joins",
    "lake": "foldlog.views.lake.lake",
    "log_at": "foldlog.spark.folds.commands",
    "preview": "foldlog.spark.folds.commands",
    "rebuild": "foldlog.spark.folds.commands",
    "reduce": "foldlog.views.reduce.reduce",
    "rewind": "foldlog.spark.folds.commands",
    "run": "foldlog.spark.folds.commands",
    "search": "foldlog.views.search.search",
    "sql": "foldlog.spark.queries.sql",
    "status": "foldlog.spark.folds.commands",
    "table": "foldlog.views.table.table",
    "verify": "foldlog.spark.folds.commands",
}


prefer_this_python()


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'foldlog.spark' has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found  # found directly by the next access
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "META",
    "Bookmark",
    "Delta",
    "Fold",
    "Shape",
    "Snapshot",
    "Topic",
    "View",
    "approx_count_distinct",
    "ask",
    "avg",
    "backfill",
    "by_field",
    "by_header",
    "by_schema",
    "changes",
    "count",
    "count_distinct",
    "counters",
    "drop",
    "each_row",
    "explain",
    "finish_writes",
    "first",
    "first_pipeline",
    "fold",
    "from_avro",
    "from_json",
    "from_protobuf",
    "history",
    "join",
    "join_asof",
    "lake",
    "last",
    "load_folds",
    "log_at",
    "max",
    "min",
    "preview",
    "quantile",
    "rebuild",
    "reduce",
    "rewind",
    "run",
    "search",
    "sessions",
    "sql",
    "status",
    "sum",
    "table",
    "top",
    "topic",
    "verify",
    "window",
]
