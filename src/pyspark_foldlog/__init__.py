"""Spark looks for data sources in modules named pyspark_*: with this one installed, `format("foldlog")` works."""

from __future__ import annotations

from foldlog.spark.source.data_source import FoldlogSource as DefaultSource

__all__ = ["DefaultSource"]
