"""A topic of changes keeps the contract of views: in a directory, in one that another process serves, and by wire. On
Apache Kafka: `tests/clusters/test_changes_apache.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import foldlog
from foldlog import Log
from foldlog.errors import FoldError, SchemaChanged
from foldlog.spark.change_topics.changes import ChangesTopic, changes
from foldlog.spark.origins.origin import origin_spec
from views.view_contract import START, ViewCase, ViewContract, at, held, play, some_events


def bound(source: str | Path, topic: str = "mirrored", *, old: bool = False, partitions: int = 1) -> ChangesTopic:
    view = changes(topic, old=old, partitions=partitions)
    view.bind(origin_spec(source))
    return view


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Log]:
    with foldlog.open(tmp_path / "log", listen=True) as log:
        yield log


class TestChangesInADirectory(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        foldlog.open(tmp_path / "log").close()
        return ViewCase(lambda: bound(tmp_path / "log"))

    def test_a_topic_with_records_of_others_is_refused(self, case: ViewCase, tmp_path: Path) -> None:
        with foldlog.open(tmp_path / "log") as log:
            log.create_topic("mirrored", config={"cleanup.policy": "compact"})
            log.append("mirrored", "mine", key="k")
        with pytest.raises(FoldError, match="has records that no fold has written"):
            case.open().prepare(case.shape, START)

    def test_a_topic_in_which_rows_expire_is_refused(self, case: ViewCase, tmp_path: Path) -> None:
        with foldlog.open(tmp_path / "log") as log:
            log.create_topic("mirrored")
        with pytest.raises(FoldError, match=r"cleanup.policy=delete, and rows would expire"):
            case.open().prepare(case.shape, START)

    def test_a_topic_that_was_deleted_is_made_anew(self, case: ViewCase, tmp_path: Path) -> None:
        view = case.open()
        view.prepare(case.shape, START)
        play(view, case, some_events(20), [20])
        with foldlog.open(tmp_path / "log") as log:
            log.delete_topic("mirrored")
        view.close()  # who reads on notices after a moment
        assert view.bookmark() is None
        assert view.prepare(case.shape, START) == START
        assert held(view) == []
        view.close()

    def test_more_partitions_move_no_key(self, case: ViewCase, tmp_path: Path) -> None:
        events = some_events(40)
        view = case.open()
        view.prepare(case.shape, START)
        play(view, case, events, [20])
        with foldlog.open(tmp_path / "log") as log:
            log.grow_topic("mirrored", 3)
        view.apply(case.delta(events, 20, 40), at(20), at(40))
        with foldlog.open(tmp_path / "log", mode="r") as log:
            assert [end for _, end in log.offsets("mirrored").values()][1:] == [0, 0]
        view.close()

    def test_old_values_are_asked_for_from_the_beginning(self, case: ViewCase, tmp_path: Path) -> None:
        case.open().prepare(case.shape, START)
        with pytest.raises(SchemaChanged, match="has only the new row"):
            bound(tmp_path / "log", old=True).prepare(case.shape, START)


@pytest.mark.faults
class TestChangesWithOld(ViewContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ViewCase:
        foldlog.open(tmp_path / "log").close()
        return ViewCase(lambda: bound(tmp_path / "log", old=True, partitions=2))


@pytest.mark.faults
class TestChangesInAServedDirectory(ViewContract):
    @pytest.fixture
    def case(self, served: Log) -> ViewCase:
        return ViewCase(lambda: bound(served.path, partitions=3))


@pytest.mark.faults
class TestChangesByWire(ViewContract):
    @pytest.fixture
    def case(self, served: Log) -> ViewCase:
        pytest.importorskip("confluent_kafka", reason="enable with: pip install 'foldlog[kafka]'")
        return ViewCase(lambda: bound(f"kafka://{served.bootstrap}", partitions=2))
