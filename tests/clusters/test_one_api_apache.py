"""One API, with Apache Kafka for the cluster: every test of tests/client/test_one_api.py, against its broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters.apache_kafka import ApacheKafka

import foldlog
from client.log_places import IN_A_HURRY
from client.test_one_api import *  # noqa: F403 its tests, and the fixtures that they share


@pytest.fixture(scope="module")  # type: ignore[no-redef]  # the same, in another place
def log(apache_kafka: ApacheKafka) -> Iterator[foldlog.Log]:
    """One log for all tests: what they share is its broker, and nothing in it."""
    with foldlog.connect(apache_kafka.url, properties=IN_A_HURRY) as connected:
        yield connected


@pytest.fixture  # type: ignore[no-redef]  # the one difference: Kafka forgets after a week
def kept_by_default() -> str:
    return "604800000"
