"""A topic of changes keeps the contract of views: in a directory, in one that another process serves, and by wire.

The contract's own tests, and on top of them what is particular to a topic: what its records are.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from foldlog.spark.change_topics.changes import ChangesTopic, changes
from foldlog.spark.origins.origin import origin_spec
from views.view_contract import ViewCase, ViewContract


def bound(source: str | Path, topic: str = "mirrored", **options: object) -> ChangesTopic:
    view = changes(topic, **options)  # type: ignore[arg-type]
    view.bind(origin_spec(source))
    return view


class TestChangesInADirectory(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        foldlog.open(tmp_path / "log").close()
        return ViewCase(lambda: bound(tmp_path / "log"))


@pytest.mark.faults
class TestChangesWithOld(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        foldlog.open(tmp_path / "log").close()
        return ViewCase(lambda: bound(tmp_path / "log", old=True, partitions=2))
