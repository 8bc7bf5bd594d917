"""Spark looks for data sources in modules named pyspark_*: with this one installed, `format("foldlog")` works."""

from __future__ import annotations

try:
    from foldlog.spark.source.data_source import FoldlogSource as DefaultSource
except ImportError as error:
    import sys

    # Spark logs what is raised here, and goes on without the source.
    raise ImportError(
        f"Spark looks for data sources with {sys.executable}, which cannot use foldlog: {error}; set PYSPARK_PYTHON to"
        f" a Python that has it, or run: {sys.executable} -m pip install 'foldlog[spark]'"
    ) from None

__all__ = ["DefaultSource"]
