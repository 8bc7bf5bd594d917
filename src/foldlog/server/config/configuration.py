"""Sources of settings, in order of precedence: flags, the environment, a file, the defaults.

- Flags: `--listen` and the like, and `-X name=value` for every property.
- The environment: FOLDLOG_ and the property's name in capitals with underscores, FOLDLOG_NUM_PARTITIONS; of our own
  without their `foldlog.`, so FOLDLOG_METRICS. One that is empty counts as not set.
- A file: TOML, names flat or in tables; or Kafka's own syntax if its name ends with .properties.

A setting from a higher source replaces all its synonyms from lower ones: log.retention.hours as a flag wins over
log.retention.ms in a file, although within one source the smaller unit counts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from foldlog.errors import InvalidConfig, brief_repr
from foldlog.files.paths import open_to_others, read_text
from foldlog.server.config.broker_settings import ALIASES, BROKER_SETTINGS, SYNONYMS
from foldlog.server.config.properties_file import parse_properties
from foldlog.server.config.property_reading import is_secret, setting_name
from foldlog.server.config.settings import ServerSettings

ENVIRONMENT_PREFIX: Final = "FOLDLOG_"
CONFIG_VARIABLE: Final = "FOLDLOG_CONFIG"
"""Names the file if no flag does."""

_NOT_SETTINGS: Final = frozenset({CONFIG_VARIABLE, "FOLDLOG_PURE_PYTHON"})
_NEAREST_CUTOFF: Final = 0.8
_NEEDS_QUOTES: Final = '; a name that begins with another setting\'s goes in quotes: "max.connections.per.ip" = 10'


class Given(NamedTuple):
    """A value, and where it was set, for errors about it."""

    value: object
    origin: str

    def __repr__(self) -> str:
        return f"Given(..., {self.origin!r})"  # the value may be a secret


@dataclass(frozen=True, slots=True)
class Configuration:
    """Properties of all sources together, with `warnings` for the person who set them."""

    given: Mapping[str, Given]
    warnings: list[str] = field(default_factory=list)

    def settings(self) -> ServerSettings:
        """The settings. Raises InvalidConfig with the invalid property and its source."""
        return ServerSettings.parse(
            {name: given.value for name, given in self.given.items()},
            {name: given.origin for name, given in self.given.items()},
        )


def gather(flags: Mapping[str, Given], environment: Mapping[str, str], path: str | None) -> Configuration:
    """Merge the sources. The file is the one at `path`, or the one that the environment names."""
    from_environment, warnings = read_environment(environment)
    path = path or environment.get(CONFIG_VARIABLE) or None
    from_file = read_file(path) if path is not None else {}
    warnings += _loose(path, from_file)
    merged: dict[str, Given] = {}
    for layer in (from_file, from_environment, flags):
        replaced = {name for property_name in layer for name in _same_thing(property_name)}
        merged = {name: given for name, given in merged.items() if (setting_name(name) or name) not in replaced}
        merged.update(layer)
    return Configuration(merged, warnings)


def environment_variable(name: str) -> str:
    """
    >>> environment_variable("log.retention.ms"), environment_variable("foldlog.metrics")
    ('FOLDLOG_LOG_RETENTION_MS', 'FOLDLOG_METRICS')
    """
    return ENVIRONMENT_PREFIX + name.removeprefix("foldlog.").replace(".", "_").upper()


def read_environment(environment: Mapping[str, str]) -> tuple[dict[str, Given], list[str]]:
    """The properties set by variables, and a warning for each variable that sets nothing.

    These are no errors: a cluster manager may add some of its own, FOLDLOG_PORT for a service `foldlog`.
    """
    names = {environment_variable(name): name for name in (*BROKER_SETTINGS, *ALIASES)}
    given: dict[str, Given] = {}
    warnings: list[str] = []
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NOT_SETTINGS or not environment[variable]:
            continue
        if variable in names:
            given[names[variable]] = Given(environment[variable], f"the environment variable {variable}")
        else:
            near = difflib.get_close_matches(variable, names, n=1, cutoff=_NEAREST_CUTOFF)
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.append(f"the environment variable {variable} is no setting, and has no effect{hint}")
    return given, warnings


def read_file(path: str) -> dict[str, Given]:
    """The properties in a file. Raises InvalidConfig if it cannot be read, or is not in the format of its name."""
    try:
        text = read_text(path, "utf-8-sig")
    except OSError as error:
        raise InvalidConfig(
            f"the configuration file {path} cannot be read: {error.strerror or error};"
            f" check what --config, or the environment variable {CONFIG_VARIABLE}, names"
        ) from None
    except ValueError:
        raise InvalidConfig(f"the configuration file {path} is not text in UTF-8; save it as such") from None
    properties = _properties_of(path, text) if path.endswith(".properties") else _toml_of(path, text)
    return {name: Given(value, path) for name, value in properties.items()}


def _loose(path: str | None, properties: Iterable[str]) -> list[str]:
    """A warning if others can read a file with secrets."""
    mode = None if path is None else open_to_others(path)
    secret = next(filter(is_secret, properties), None)
    if mode is None or secret is None:
        return []
    return [f"{path} has {secret} and is open to others (mode {mode}); chmod 600 {path}"]


def parse_assignments(assignments: Iterable[str]) -> dict[str, Given]:
    """The `-X name=value` flags; the last of a name counts."""
    given: dict[str, Given] = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not name:
            raise InvalidConfig(f"-X {brief_repr(text)} is not -X name=value, such as -X num.partitions=3")
        given[name] = Given(value, f"-X {name}")
    return given


def _same_thing(property_name: str) -> tuple[str, ...]:
    """The settings that a property replaces: itself, or all defaults of the same topic setting."""
    name = setting_name(property_name)
    if name is None:
        return (property_name,)
    return SYNONYMS.get(BROKER_SETTINGS[name].topic_setting or "", (name,))


def _properties_of(path: str, text: str) -> dict[str, str]:
    try:
        return parse_properties(text)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path} is not a properties file: {error}") from None


def _toml_of(path: str, text: str) -> dict[str, object]:
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        advice = _NEEDS_QUOTES if "overwrite" in str(error) else ""
        raise InvalidConfig(f"{path} is not TOML: {error}{advice}") from None
    properties: dict[str, object] = {}
    for name, value in _flattened(document, ""):
        if name in properties:
            raise InvalidConfig(f"{path} sets {name} twice, by its whole name and in a table; keep one of them")
        properties[name] = value
    return properties


def _flattened(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
