"""One Spark session for the whole run: tests/conftest.py lets all tests of this folder run in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_session import ensure_archive, missing_java, start_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    reason = missing_java()
    if reason is not None:
        pytest.skip(reason)
    ensure_archive()
    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
