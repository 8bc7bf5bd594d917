"""What the tests of handlers share: a broker whose handlers are called directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server.small_node import SmallNode


@pytest.fixture
def small() -> Iterator[SmallNode]:
    node = SmallNode()
    yield node
    node.close()
