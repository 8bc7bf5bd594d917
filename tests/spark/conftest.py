"""One Spark session for the whole run: every test in this folder runs in one process, whatever the number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_session import start_session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The hook is called with all items of the run, not only with this folder's."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
