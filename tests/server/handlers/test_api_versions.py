"""What is advertised is answered: the list is compared with what the dispatcher serves, API by API.

An answer for a version that is too new is checked as bytes, as old clients read it.
"""

from __future__ import annotations

import pytest

from foldlog.server.call import served_api
from foldlog.server.handlers.api_versions import served_versions, unsupported_version
from foldlog.wire.codec import decode, encode
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from server.small_node import SmallNode

PRODUCE = 0


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_every_api(small: SmallNode, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.0-rc.1")
    answer = small.ask(request, version)
    assert answer.error_code == ErrorCode.NONE
    assert answer.api_keys == list(served_versions())


@pytest.mark.parametrize("version", range(5))
def test_the_newest_transactions_and_groups_are_finalized(small: SmallNode, version: int) -> None:
    """Clients of version 3 fail at a feature that begins at 0, so they hear only which one is in force."""
    answer = small.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), version)
    supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
    finalized = [(one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features]
    newest = {"transaction.version": 2, "group.version": 1, "share.version": 1}
    assert supported == ([(name, 0, level) for name, level in newest.items()] if version >= 4 else [])
    assert finalized == ([(name, level, level) for name, level in newest.items()] if version >= 3 else [])
    assert (answer.finalized_features_epoch >= 0) == (version >= 3), "clients ignore features without an epoch"


def test_what_is_listed_is_served_and_what_is_beside_it_is_not() -> None:
    for api in served_versions():
        first = 3 if api.api_key == PRODUCE else api.min_version
        for version in range(first, api.max_version + 1):
            assert served_api(api.api_key, version) is not None, f"{api} is listed and not served"
        assert served_api(api.api_key, api.max_version + 1) is None
        assert served_api(api.api_key, first - 1) is None


def test_produce_is_listed_from_0_because_librdkafka_looks_there_before_it_compresses() -> None:
    assert {api.api_key: api.min_version for api in served_versions()}[PRODUCE] == 0


def test_a_version_that_is_too_new_is_told_in_version_0_which_versions_there_are() -> None:
    answer = decode(ApiVersionsResponse, 0, encode(unsupported_version(), 0))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys == list(served_versions())


@pytest.mark.parametrize(("name", "software_version"), [("", "1"), ("x", ""), ("-x", "1"), ("x", "1."), ("x y", "1")])
def test_a_client_that_names_itself_badly_is_refused(small: SmallNode, name: str, software_version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    for version in (3, 4, 5):
        answer = small.ask(request, version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert not answer.api_keys
