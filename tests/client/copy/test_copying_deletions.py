"""A copy that mirrors its source follows its log start, also where the copy has other offsets, and deletes nothing that
the source still has."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from client.copy.copies import ignored
from foldlog.client.copy.copying import Copying, Pair


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "compact"])
def test_a_copy_at_other_offsets_follows_the_log_start(tmp_path: Path, policy: str) -> None:
    with (
        foldlog.open(tmp_path / "data") as source,
        foldlog.open(tmp_path / "served", listen=True) as served,
        foldlog.connect(f"kafka://{served.bootstrap}") as target,
    ):
        source.create_topic("orders", config={"cleanup.policy": policy})
        for number in range(10):
            source.append("orders", str(number), key=str(number))
        source.delete_records("orders", {0: 4})
        with Copying(source, target, [Pair("orders", "orders")]) as copying:
            copying.prepare()
            maps = {route: one.offsets for route, one in copying.copy_all(ignored).items()}
            assert target.offsets("orders") == {0: (0, 6)}
            source.delete_records("orders", {0: 7})
            copying.follow_starts(maps)
            found = {"delete": "789", "compact,delete": "789", "compact": "456789"}[policy]
            assert "".join(record.text() or "" for record in served.read("orders")) == found
            copying.follow_starts(maps)
        assert target.offsets("orders") == {0: (6 - len(found), 6)}
