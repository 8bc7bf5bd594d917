"""A lake in Apache Iceberg's own REST catalog: ranges, executors' files, a second runner, growth, compaction, rebuild.

What the table holds is compared with the plain model of the views' contract.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from clusters.iceberg_rest import RestCatalogServer
from clusters.maven import JarsUnavailable
from pyiceberg.catalog import load_catalog

from foldlog.errors import StaleBookmark
from foldlog.views.contract import Shape
from foldlog.views.lake.compaction import CompactionGoal
from foldlog.views.lake.lake import lake
from views.lake.lake_cases import HistoryCase
from views.staged_contract import stage
from views.view_contract import COLUMNS, START, at, held, in_order, opened, play, some_events

EVENTS = some_events(60)


@pytest.fixture
def rest_catalog(tmp_path: Path) -> Iterator[dict[str, str]]:
    try:
        with RestCatalogServer(tmp_path) as server:
            yield {"type": "rest", "uri": server.url}
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


@pytest.mark.timeout(600)
def test_a_lake_in_a_rest_catalog(rest_catalog: dict[str, str], tmp_path: Path) -> None:
    case = HistoryCase(lambda: lake("shop.payments", "iceberg", catalog=rest_catalog, partition_by="merchant"))
    grown = Shape(pa.schema([COLUMNS.field("tx_id"), ("note", pa.string()), *list(COLUMNS)[1:]]), "tx_id", ("tx_id",))
    with opened(case) as view, opened(case) as other:
        assert view.bookmark() is None
        view.prepare(case.shape, START)
        play(view, case, EVENTS, [5, 10, 15, 20])
        lost = stage(other, case, EVENTS, 20, 30)
        view.apply_staged(stage(view, case, EVENTS, 20, 30), at(20), at(30))
        with pytest.raises(StaleBookmark):
            other.apply_staged(lost, at(20), at(30))
        assert held(view) == in_order(case.content(EVENTS, 30))
        done = view.compact(CompactionGoal(1 << 20, 0))
        assert done.joined > done.written == done.files
        assert view.bookmark() == at(30)
        assert held(view) == in_order(case.content(EVENTS, 30))
        view.prepare(grown, START)
        with closing(view.shadow("rebuild")) as shadow:
            shadow.prepare(grown, at(0, epoch=1))
            play(shadow, case, EVENTS, [60], epoch=1)
            view.swap(shadow)
        wanted = in_order([{**row, "note": None} for row in case.content(EVENTS, 60)])
        assert held(view) == wanted
        assert view.drop_old()
        assert held(view) == wanted
        with closing(load_catalog("any", **rest_catalog)) as catalog:
            assert catalog.list_tables("shop") == [("shop", "payments")]
            assert catalog.load_table("shop.payments").scan().to_arrow().num_rows == 60
        view.drop()
        assert view.bookmark() is None
    assert not list((tmp_path / "warehouse").rglob("*.parquet"))
