"""Few rows of the driver's, into a plan of Spark's and out of it again, without a job.

Spark has such rows in its plan (LocalRelation), and evaluates filters, projections and the like over them while it
plans: by its own expressions, on the driver. PySpark's own ways in and out take longer than that: `createDataFrame` of
an Arrow table starts a server for one connection, and `toArrow` a job. Here the bytes go with the call. These calls are
Spark's own affair: where one is not as it is known here, PySpark's ways are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_DIRECT_BYTES: Final = 1 << 20
"""More than this is quicker through PySpark's socket: bytes of a call are sent as text."""

_ROWS_MAX: Final = 5_000
_EVERYTHING: Final = 2**62


class _Calls(NamedTuple):
    """Of the JVM. Looking one up by its name takes a round trip for each part of the name."""

    list: Any
    scala: Any
    frame: Any
    arrow: Any


_calls: WeakKeyDictionary[SparkSession, _Calls] = WeakKeyDictionary()


def _calls_of(spark: SparkSession) -> _Calls:
    if spark not in _calls:
        jvm: Any = spark._jvm
        arrow = getattr(getattr(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters$"), "MODULE$")
        scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        _calls[spark] = _Calls(jvm.java.util.ArrayList, scala, jvm.PythonSQLUtils.toDataFrame, arrow)
    return _calls[spark]


def local_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """A frame of these rows, which are in the types of `to_arrow_schema(schema, timezone="UTC")`."""
    # PySpark refuses columns without a chunk, as of a table of no batches.
    rows = rows.combine_chunks() if len(rows) else rows.schema.empty_table()
    if rows.nbytes <= _DIRECT_BYTES:
        try:
            return _direct_frame(spark, rows, schema)
        except (Py4JError, AttributeError) as error:
            if isinstance(error, Py4JJavaError):
                raise
    return spark.createDataFrame(rows, schema=schema)


def _direct_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    calls = _calls_of(spark)
    batches = calls.list()
    for batch in rows.to_batches():
        batches.add(batch.serialize().to_pybytes())
    frame = DataFrame(calls.frame(calls.scala(batches.iterator()), schema.json(), spark._jsparkSession), spark)
    frame._schema = schema
    return frame


def evaluated(frame: DataFrame) -> pa.Table | None:
    """The frame's rows, if Spark has evaluated all of its plan by planning it; None if not, or if they are many."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    if plan.nodeName() != "LocalRelation":
        return None
    import pyarrow as pa

    wanted = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    rows = plan.data()
    count = rows.size()
    if not count:
        return wanted.empty_table()
    if count > _ROWS_MAX:
        return None
    try:
        found = _calls_of(frame.sparkSession).arrow.toBatchWithSchemaIterator(
            rows.iterator(), frame._jdf.schema(), _EVERYTHING, _EVERYTHING, "UTC", True, False
        )
        parts = []
        while found.hasNext():
            parts.append(pa.ipc.open_stream(found.next()).read_all())
        return pa.concat_tables(parts).cast(wanted)
    except (Py4JError, AttributeError) as error:
        if isinstance(error, Py4JJavaError):
            raise
        return None
