"""Apicurio Registry keeps its schemas in topics of our broker (kafkasql), and has them after kills of both."""

from __future__ import annotations

import json
import signal
import urllib.error
from pathlib import Path

import pytest
from clusters.apicurio import APICURIO, Registry
from clusters.maven import JarsUnavailable, fetch_archive

from faults.served import ServedDirectory

SUBJECT = "/subjects/orders-value/versions"


def schema(*fields: str) -> dict[str, str]:
    """Version 2 and later of an order has what it did not have before with a default, as compatible readers need it."""
    typed = [{"name": name, "type": "long", **({"default": 0} if at else {})} for at, name in enumerate(fields)]
    return {"schema": json.dumps({"type": "record", "name": "Order", "fields": typed})}


def fields_of(registry: Registry, version: int) -> list[str]:
    return [field["name"] for field in json.loads(registry.ask(f"{SUBJECT}/{version}")["schema"])["fields"]]


def test_schemas_are_there_after_kills_of_registry_and_broker(tmp_path: Path) -> None:
    try:
        fetch_archive(APICURIO)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with (
        ServedDirectory(tmp_path, "-X", "group.initial.rebalance.delay.ms=0") as served,
        Registry(tmp_path, served.bootstrap) as registry,
    ):
        first = registry.ask(SUBJECT, schema("id"))["id"]
        assert served.end(signal.SIGKILL) == -signal.SIGKILL
        served.start()
        second = registry.ask(SUBJECT, schema("id", "amount"))["id"]
        registry.kill()
        registry.start()
        assert registry.ask(SUBJECT) == [1, 2]
        assert [fields_of(registry, version) for version in (1, 2)] == [["id"], ["id", "amount"]]
        assert registry.ask(SUBJECT, schema("id"))["id"] == first != second, "a schema that is known has its id"
        with pytest.raises(urllib.error.HTTPError):
            registry.ask(f"{SUBJECT}/3")
