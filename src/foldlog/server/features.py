"""Features: what clients may rely on, in versions that an operator can raise and lower (KIP-584, UpdateFeatures).

A feature has the versions that this broker supports, and a level, which ApiVersions calls finalised: clients use the
feature up to it. Levels that were changed are kept with the other settings that change while the broker runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.errors import brief_repr
from foldlog.server.topic_admin import refuse
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.broker.dynamic_settings import DynamicSettings, Settings

_KIND: Final = "features"
_NAME: Final = ""


class Feature(NamedTuple):
    """The supported versions of a feature, and the level that it has unless it is changed; 0 is off."""

    first: int
    last: int
    level: int


FEATURES: Final[Mapping[str, Feature]] = MappingProxyType(
    {
        "transaction.version": Feature(0, 2, 2),  # 2: epochs that rise with each transaction (KIP-890)
        "group.version": Feature(0, 1, 1),  # 1: consumer groups (KIP-848)
        "share.version": Feature(0, 1, 1),  # 1: share groups (KIP-932)
    }
)
"""Every feature, by Kafka's name."""


class UpgradeType(IntEnum):
    """Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A wanted level, and the direction that the client expects; None if it named none that there is."""

    name: str
    level: int
    upgrade_type: UpgradeType | None


class Features:
    """The features of a broker and their levels. Any thread."""

    def __init__(self, stored: DynamicSettings, table: Mapping[str, Feature] = FEATURES) -> None:
        self._stored = stored
        self.table = table

    @property
    def epoch(self) -> int:
        """Rises with each change of a level; clients believe the highest that they have seen."""
        return self._stored.current.epoch

    def levels(self) -> dict[str, int]:
        """The level of each feature; without those that are off."""
        changed = self._stored.current.of(_KIND, _NAME)
        levels = {name: self._level(changed, name) for name in self.table}
        return {name: level for name, level in levels.items() if level}

    def update(self, updates: Iterable[FeatureUpdate], *, validate_only: bool) -> None:
        """Change all of these levels, or none: raises RefusedByBroker. On a thread: durable on return."""

        def decide(changed: Settings) -> Settings:
            wanted = dict(changed)
            for update in updates:
                self._check(update, self._level(changed, update.name))
                wanted[update.name] = str(update.level)
            return wanted

        self._stored.change(_KIND, _NAME, decide, validate_only=validate_only)

    def _level(self, changed: Settings, name: str) -> int:
        feature = self.table.get(name)
        if feature is None:
            return 0
        # Clamped: another version of foldlog may have stored it.
        return min(max(int(changed.get(name, feature.level)), feature.first), feature.last)

    def _check(self, update: FeatureUpdate, level: int) -> None:
        name, wanted = brief_repr(update.name), update.level
        feature = self.table.get(update.name)
        if update.upgrade_type is None:
            sentence = "the upgrade type is none of upgrade (1), safe downgrade (2) and unsafe downgrade (3)"
        elif wanted < 0:
            sentence = "a level is at least 0"
        elif feature is None:
            sentence = "there is no such feature here"
        elif not feature.first <= wanted <= feature.last:
            sentence = f"versions {feature.first} to {feature.last} are supported"
        elif wanted < level and update.upgrade_type is UpgradeType.UPGRADE:
            sentence = f"it is at {level}, and going down has to be asked for as a downgrade"
        elif wanted > level and update.upgrade_type is not UpgradeType.UPGRADE:
            sentence = f"it is at {level}, and a downgrade cannot go up"
        else:
            sentence = ""
        if sentence:
            refuse(ErrorCode.INVALID_UPDATE_VERSION, f"feature {name} cannot be set to {wanted}: {sentence}")
