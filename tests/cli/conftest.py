"""One broker and one directory per module, and a fresh terminal at each place for a test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cli.places import PLACES, Place, Terminal, all_places


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    with all_places(tmp_path_factory.mktemp("places")) as found:
        yield found


@pytest.fixture(params=PLACES)
def at(
    request: pytest.FixtureRequest, places: dict[str, Place], capsys: pytest.CaptureFixture[str]
) -> Iterator[Terminal]:
    """The test runs at every place, and leaves nothing behind for the next."""
    with emptied_after(places[request.param]) as place:
        yield Terminal(place, capsys)


@pytest.fixture
def at_directory(places: dict[str, Place], capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    with emptied_after(places["directory"]) as place:
        yield Terminal(place, capsys)


@contextmanager
def emptied_after(place: Place) -> Iterator[Place]:
    yield place
    with place.open() as log:
        for group in log.groups():
            log.delete_group(group)
        for topic in log.topics():
            log.delete_topic(topic)
