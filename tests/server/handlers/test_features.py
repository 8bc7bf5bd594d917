"""Features have levels that ApiVersions shows and UpdateFeatures changes: all of a request, or none, and for good."""

from __future__ import annotations

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.files.memory import MemoryFiles
from foldlog.server.features import Feature, Features
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from foldlog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from server.small_node import Denies, SmallNode

TABLE = {"planes.version": Feature(0, 3, 2), "trains.version": Feature(1, 2, 1)}
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def featured(files: MemoryFiles | None = None) -> SmallNode:
    small = SmallNode(files)
    small.node.features = Features(small.broker.dynamic_settings, TABLE)
    return small


def shown(small: SmallNode, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = small.ask(request, version)
    assert isinstance(answer, ApiVersionsResponse)
    return answer


def levels(small: SmallNode) -> dict[str, int]:
    found = shown(small).finalized_features
    assert all(one.min_version_level == one.max_version_level for one in found)
    return {one.name: one.max_version_level for one in found}


def update(
    small: SmallNode, *wanted: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != UPGRADE)
        for name, level, kind in wanted
    ]
    answer = small.ask(UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only), version)
    assert isinstance(answer, UpdateFeaturesResponse)
    assert bool(answer.error_message) == bool(answer.error_code)
    return answer


def test_features_are_shown_as_clients_of_each_version_can_read_them() -> None:
    small = featured()
    for version in (4, 5):
        answer = shown(small, version)
        supported = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
        assert supported == {"planes.version": (0, 3), "trains.version": (1, 2)}
    old = shown(small, 3)
    assert [one.name for one in old.supported_features] == ["trains.version"], "older clients fail at a 0"
    assert levels(small) == {"planes.version": 2, "trains.version": 1}
    assert shown(small).finalized_features_epoch == 0
    small.close()


def test_without_features_clients_hear_of_no_epoch(small: SmallNode) -> None:
    small.node.features = Features(small.broker.dynamic_settings, {})
    assert (shown(small).finalized_features_epoch, list(shown(small).finalized_features)) == (-1, [])


@pytest.mark.parametrize("version", range(3))
def test_every_version_changes_levels_for_good(version: int) -> None:
    files = MemoryFiles()
    small = featured(files)
    answer = update(small, ("planes.version", 3, UPGRADE), ("trains.version", 2, UPGRADE), version=version)
    assert answer.error_code == ErrorCode.NONE
    names = [(one.feature, one.error_code) for one in answer.results]
    assert names == ([] if version >= 2 else [("planes.version", 0), ("trains.version", 0)])
    assert levels(small) == {"planes.version": 3, "trains.version": 2}
    epoch = shown(small).finalized_features_epoch
    assert update(small, ("planes.version", 0, SAFE), version=version).error_code == ErrorCode.NONE
    assert levels(small) == {"trains.version": 2}, "0 is off"
    assert shown(small).finalized_features_epoch > epoch >= 1
    small.close()
    again = featured(files)
    assert levels(again) == {"trains.version": 2}
    again.close()


@pytest.mark.parametrize(
    "wanted",
    [
        [("ships.version", 1, UPGRADE)],
        [("ships.version", 0, SAFE)],
        [("planes.version", 4, UPGRADE)],
        [("planes.version", -1, SAFE)],
        [("trains.version", 0, SAFE)],
        [("planes.version", 1, UPGRADE)],
        [("planes.version", 3, SAFE)],
        [("planes.version", 3, UNSAFE)],
        [("planes.version", 3, UPGRADE), ("ships.version", 1, UPGRADE)],
    ],
)
def test_an_update_that_cannot_be_changes_nothing(wanted: list[tuple[str, int, int]]) -> None:
    small = featured()
    for version in range(3):
        answer = update(small, *wanted, version=version)
        assert (answer.error_code, list(answer.results)) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert levels(small) == {"planes.version": 2, "trains.version": 1}
    small.close()


def test_an_unknown_kind_of_upgrade_is_refused_and_a_check_changes_nothing() -> None:
    small = featured()
    assert update(small, ("planes.version", 3, 9)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(small, ("planes.version", 3, UPGRADE), validate_only=True).error_code == ErrorCode.NONE
    assert update(small).error_code == ErrorCode.NONE
    assert levels(small)["planes.version"] == 2
    small.close()


def test_a_level_that_another_version_stored_is_brought_into_the_supported_range() -> None:
    small = featured()
    small.broker.dynamic_settings.change("features", "", lambda _: {"planes.version": "9"})
    assert levels(small)["planes.version"] == 3
    small.close()


def test_who_may_not_alter_the_cluster_changes_no_level() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.ALTER, ResourceType.CLUSTER)))
    assert update(small, ("planes.version", 1, SAFE)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    small.close()


def test_a_client_that_means_another_broker_is_sent_back_to_its_bootstrap_servers(small: SmallNode) -> None:
    """KIP-1242: addresses are given to other machines, and a client would write into somebody else's log."""

    def asked(cluster_id: str | None, node_id: int) -> ErrorCode:
        request = ApiVersionsRequest(
            client_software_name="x", client_software_version="1", cluster_id=cluster_id, node_id=node_id
        )
        return ErrorCode(small.ask(request, 5).error_code)

    here = small.node.cluster_id
    assert asked(here, 1) is asked(None, -1) is ErrorCode.NONE
    assert asked(here, 2) is asked("another", 1) is ErrorCode.REBOOTSTRAP_REQUIRED
    assert asked(here, -1) is asked(None, 1) is ErrorCode.INVALID_REQUEST
