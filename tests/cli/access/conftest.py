"""The places of the other commands, with a broker that has an authorizer, and nothing left for the next test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.places import Place, Terminal, all_places
from foldlog.broker.access.acls import AclFilter
from foldlog.client.backends.backend import backend_of


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    settings = ("-X", "authorizer.class.name=foldlog", "-X", "super.users=User:ANONYMOUS")
    with all_places(tmp_path_factory.mktemp("places"), *settings) as found:
        yield found


@pytest.fixture
def emptied(at: Terminal) -> Iterator[Terminal]:
    yield at
    with at.place.open() as log:
        access = backend_of(log).access()
        for user in access.users():
            access.delete_user(user.name)
        access.delete_acls(AclFilter())
        for one, values in access.quotas().items():
            access.set_quotas(one, dict.fromkeys(values))
