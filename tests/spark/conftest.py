"""One Spark session for the whole run: all tests that use it run in one process, whatever the number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_session import ensure_archive, missing_java, start_session


@pytest.hookimpl(tryfirst=True)  # before xdist reads the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The hook is called with all items of the run, not only with this folder's."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    reason = missing_java()
    if reason is not None:
        pytest.skip(reason)
    ensure_archive()
    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
