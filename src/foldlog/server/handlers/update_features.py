"""UpdateFeatures: the levels of features, which ApiVersions shows, are raised or lowered. Versions 0 to 2.

0 allows a downgrade by a flag, 1 names its kind and can only check, 2 answers without results for single features. All
features of a request are updated, or none: then the answer has the error of the first that cannot be.
"""

from __future__ import annotations

from typing import Final

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.features import FeatureUpdate, UpgradeType
from foldlog.server.topic_admin import refuse_if_leaving, told
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_TYPES_FROM: Final = 1
_ONE_RESULT_FROM: Final = 2


async def handle(call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not call.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        return UpdateFeaturesResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="the cluster may not be altered"
        )
    updates = [_update(call.version, update) for update in request.feature_updates]
    code, message = ErrorCode.NONE, None
    try:
        refuse_if_leaving(call.node)
        await call.node.run(_carry_out, call, updates, request.validate_only)
    except FoldlogError as error:
        code, message = told(error)
    has_results = call.version < _ONE_RESULT_FROM and code is ErrorCode.NONE
    return UpdateFeaturesResponse(
        error_code=code,
        error_message=message,
        results=[UpdatableFeatureResult(feature=one.name, error_message=None) for one in updates if has_results],
    )


def _update(version: int, update: FeatureUpdateKey) -> FeatureUpdate:
    wanted: UpgradeType | None
    if version < _TYPES_FROM:
        wanted = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    else:
        wanted = UpgradeType(update.upgrade_type) if update.upgrade_type in set(UpgradeType) else None
    return FeatureUpdate(update.feature, update.max_version_level, wanted)


def _carry_out(call: Call, updates: list[FeatureUpdate], validate_only: bool) -> None:
    call.node.features.update(updates, validate_only=validate_only)
