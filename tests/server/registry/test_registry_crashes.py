"""Kill the broker between registering and answering: no id that was answered is lost or given to another schema."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from foldlog.testing import Broker
from server.registry.rest import Rest, record


def _registered(rest: Rest, name: str) -> int | None:
    """The id that was answered; None if nothing was."""
    try:
        answer = rest.register(name, record(name))
    except OSError:
        return None
    return int(answer.body["id"]) if answer.status == 200 else None


def test_ids_survive_kills_while_schemas_are_registered(tmp_path: Path) -> None:
    with Broker(registry=True, path=tmp_path) as broker:
        rest = Rest(broker.schema_registry_url)
        told: dict[str, int] = {}
        for round_number in range(4):
            names = [f"r{round_number}n{number}" for number in range(40)]
            under_way = threading.Event()

            def register(names: list[str] = names, under_way: threading.Event = under_way) -> None:
                for number, name in enumerate(names):
                    found = _registered(rest, name)
                    if found is None:
                        return
                    told[name] = found
                    if number == 3:
                        under_way.set()

            thread = threading.Thread(target=register)
            thread.start()
            assert under_way.wait(60)
            broker.kill()
            thread.join()
            broker.start()
            kept = {one["subject"]: one["id"] for one in rest.get("/schemas").body}
            assert {name: kept.get(name) for name in told} == told
            assert len(set(kept.values())) == len(kept), "no id was given twice"


def test_a_full_disk_is_an_error_and_nothing_is_registered(tmp_path: Path) -> None:
    with Broker(registry=True, path=tmp_path) as broker:
        rest = Rest(broker.schema_registry_url)
        assert _registered(rest, "before") == 1
        with broker.disk_full():
            answer = rest.register("full", record("full"))
            assert (answer.status, answer.code) == (500, 50001)
            assert rest.get("/subjects").body == ["before"]
        assert _registered(rest, "after") == 2


@pytest.mark.faults
def test_the_topic_is_compacted_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    with Broker(registry=True, path=tmp_path) as broker:
        rest = Rest(broker.schema_registry_url)
        for number in range(150):
            rest.register(f"s{number % 10}", record(*(f"f{one}?" for one in range(number // 10 + 1))))
            if number % 3 == 0:
                rest.put(f"/config/s{number % 10}", {"compatibility": "FULL"})
            if number % 50 == 49:
                broker.log.compact("_schemas")
        before = rest.get("/schemas?deleted=true").body
        assert len(before) == 150
        broker.kill_and_restart()
        assert rest.get("/schemas?deleted=true").body == before
