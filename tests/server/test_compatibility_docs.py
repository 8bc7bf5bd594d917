"""docs/reference/kafka_apis.md says what a broker serves: compared with the messages there are and a running broker.

Every API that Kafka has stands on the page, with its versions or among what is not served. The clients it names are
those that the tests install (docs/kafka_compatibility.md).
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from foldlog.wire.messages import APIS, NAMES
from foldlog.wire.messages.api_versions import ApiVersionsRequest
from server.conftest import Connect

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "kafka_apis.md").read_text(encoding="utf-8")
COMPATIBILITY = (ROOT / "docs" / "kafka_compatibility.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<key>\d+) \| (?P<name>\w+) \| (?P<first>\d+)(?: to (?P<last>\d+))? \|", re.MULTILINE)
PRODUCE = 0
TELEMETRY = (71, 72)
"""Advertised where clients are asked for their metrics only, as their rows say."""
SINCE = re.compile(r"(?P<name>[\w-]+)(?:\[[\w,]+\])?>=(?P<version>[\d.]+)")


class Served(NamedTuple):
    """A row of the first table."""

    name: str
    first: int
    last: int


def section(title: str, page: str = PAGE) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def documented() -> dict[int, Served]:
    rows = ROW.finditer(section("What is served"))
    return {int(row["key"]): Served(row["name"], int(row["first"]), int(row["last"] or row["first"])) for row in rows}


def test_the_table_is_what_there_are_messages_for() -> None:
    assert documented() == {key: Served(NAMES[key], api.first, api.last) for key, api in APIS.items()}


def test_the_table_is_what_a_broker_advertises(connect: Connect) -> None:
    answer = connect().ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 4)
    advertised = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    written = {key: (row.first, row.last) for key, row in documented().items()}
    written[PRODUCE] = (0, written[PRODUCE][1])  # the row says so, in words
    assert advertised == {key: versions for key, versions in written.items() if key not in TELEMETRY}


def test_every_other_api_of_kafka_is_named_once_among_what_is_not_served() -> None:
    names = re.findall(r"\b[A-Z][A-Za-z]+\b", section("What is not served"))
    missing = {key: name for key, name in NAMES.items() if key not in APIS and names.count(name) != 1}
    assert not missing
    assert not [NAMES[key] for key in APIS if NAMES[key] in names]


@pytest.mark.parametrize("name", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_the_clients_are_those_that_the_tests_install(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {
        found["name"]: found["version"]
        for extra in ("dev", "kafka")
        for one in project["optional-dependencies"][extra]
        if (found := SINCE.match(one))
    }
    row = re.search(
        rf"^\| {name}[^|]*\| (?P<version>[\d.]+) \|", section("What it is tested with", COMPATIBILITY), re.MULTILINE
    )
    assert row is not None
    assert numbers(row["version"]) >= numbers(wanted[name])


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
