"""Settings that were changed while a broker ran, of everything but topics: the file `settings.json`.

Replacing the file is the commit point of a change: a power cut leaves all of it or nothing. It holds, for each kind of
resource and each name, what was set, as text, and an epoch that rises with each change:

    {"version":1,"epoch":2,"resources":{
    "broker":{"":{"log.retention.ms":"3600000"},"1":{"max.connections":"50"}},
    "client-metrics":{"latency":{"interval.ms":"30000"}}},
    "crc32c":"89abcdef"}

What a name means, and which values are allowed, is known to whoever serves the directory. A directory that no setting
was ever changed in has no such file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from foldlog.broker.checked_json import lines_of, sealed, unsealed
from foldlog.errors import InvalidConfig
from foldlog.files.base import Files, read_file, replace_file, storage_error
from foldlog.limits import DYNAMIC_SETTINGS_BYTES_MAX

SETTINGS_NAME: Final = "settings.json"
_VERSION: Final = 1

_ADVICE: Final = "restore it from a backup, or remove it: the settings are then those that the broker is started with"

Settings = Mapping[str, str]
_NOTHING: Final[Settings] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ChangedSettings:
    """What was set, at one moment. Immutable. `epoch` rises with each change, and is 0 before the first."""

    epoch: int = 0
    resources: Mapping[str, Mapping[str, Settings]] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, kind: str, name: str) -> Settings:
        """What was set for a resource; nothing if nothing was."""
        return self.resources.get(kind, {}).get(name, _NOTHING)

    def names(self, kind: str) -> list[str]:
        """The resources of a kind for which something was set, in order."""
        return sorted(self.resources.get(kind, {}))

    def changed(self, kind: str, name: str, settings: Settings) -> ChangedSettings:
        """A copy with these settings for a resource; without any, the resource is gone."""
        others = {other: held for other, held in self.resources.get(kind, {}).items() if other != name}
        named = {**others, name: dict(settings)} if settings else others
        kinds = {other: held for other, held in self.resources.items() if other != kind}
        return replace(self, epoch=self.epoch + 1, resources={**kinds, kind: named} if named else kinds)


class DynamicSettings:
    """The changed settings of a directory that this process writes. Any thread.

    `current` is always the durable state. `may_write` raises if the directory is no longer this process's. `watchers`
    are called with each new state, in order, before the change returns: what was changed is then in force.
    """

    def __init__(self, files: Files, directory: str, may_write: Callable[[], None]) -> None:
        """Raises CorruptLog or NewerVersion if the file cannot be read as what was written."""
        self._files = files
        self._path = f"{directory}/{SETTINGS_NAME}"
        self._may_write = may_write
        # Before all locks of broker.py: putting a change into force reconfigures topics.
        self._changing = threading.Lock()
        self.watchers: list[Callable[[ChangedSettings], None]] = []
        try:
            self.current = decode(read_file(files, self._path), self._path)
        except FileNotFoundError:
            self.current = ChangedSettings()

    def change(
        self, kind: str, name: str, decide: Callable[[Settings], Settings], *, validate_only: bool = False
    ) -> ChangedSettings:
        """Replace what is set for a resource by what `decide` makes of it, with no other change in between. Durable on
        return, and in force. `decide` may raise a FoldlogError; nothing is changed then."""
        with self._changing:
            before = self.current.of(kind, name)
            wanted = decide(before)
            if validate_only or wanted == before:
                return self.current
            changed = self.current.changed(kind, name, wanted)
            data = encode(changed)
            if len(data) > DYNAMIC_SETTINGS_BYTES_MAX:
                raise InvalidConfig(
                    f"the changed settings would take {len(data)} bytes, and all of them take at most"
                    f" {DYNAMIC_SETTINGS_BYTES_MAX}; delete some, or set shorter ones"
                )
            self._may_write()
            try:
                replace_file(self._files, self._path, data)
            except OSError as error:
                raise storage_error(
                    "the settings could not be changed; check the disk, and try again", error
                ) from error
            self.current = changed
            for watcher in list(self.watchers):
                watcher(changed)
            return changed


def encode(settings: ChangedSettings) -> bytes:
    resources = lines_of(
        {
            kind: {name: dict(sorted(held.items())) for name, held in sorted(named.items())}
            for kind, named in settings.resources.items()
        }
    )
    return sealed(f'{{"version":{_VERSION},"epoch":{settings.epoch},"resources":{{{resources}}}')


def decode(data: bytes, path: str) -> ChangedSettings:
    """The inverse of `encode`. Raises CorruptLog, naming `path`, if a byte differs from what `encode` wrote,
    NewerVersion if a newer foldlog wrote it."""
    fields = unsealed(data, path, _VERSION, _ADVICE)
    return ChangedSettings(fields["epoch"], fields["resources"])
