"""Schemas by the id that values name: from a registry's REST API, from files, or from a dict."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from foldlog.errors import InvalidArgument, RegistryUnavailable, brief_repr
from foldlog.files.paths import PathLike, absolute, is_directory, read_text
from foldlog.limits import (
    REGISTRY_ANSWER_BYTES_MAX,
    REGISTRY_REFERENCES_MAX,
    REGISTRY_SCHEMAS_MAX,
    REGISTRY_TIMEOUT_S,
)

_NO_SUCH_SCHEMA: Final = (40401, 40402, 40403)
"""A registry's error codes for an unknown subject, version or schema. Any other 404 is not about a schema."""

_FILE_SUFFIXES: Final = (".avsc", ".json")


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema's text, and the schemas it references, each after those it references itself, with their names."""

    text: str
    references: tuple[str, ...] = ()
    kind: str = "AVRO"
    names: tuple[str, ...] = ()


_known: dict[tuple[str, int], RegisteredSchema] = {}
"""Schemas from registries, cached for all tasks of this process."""


class SchemaRegistry:
    """Looks up schemas by id, on the driver and on executors; can be pickled.

    `source` is a URL (http or https, as served by Confluent's registry, Karapace and Apicurio's compatible address), a
    directory with a file `<id>.avsc` or `<id>.json` per schema, or a dict from id to schema, if schemas are kept in a
    repository. `user_info` is "user:password" for basic authentication; it may be in the URL instead.
    """

    def __init__(self, source: str | PathLike[str] | Mapping[int, Any], *, user_info: str | None = None) -> None:
        self._schemas: dict[int, RegisteredSchema] | None = None
        self._is_directory = False
        self._url = ""
        self._user_info = user_info
        if isinstance(source, Mapping):
            self._schemas = {
                _schema_id(number): RegisteredSchema(_as_text(schema)) for number, schema in source.items()
            }
            self.location = "in memory"
        elif isinstance(source, str) and "://" in source:
            self._set_url(source)
            self.location = self._url
        elif isinstance(source, str | PathLike):
            self.location = absolute(source)
            self._is_directory = True
            if not is_directory(self.location):
                raise InvalidArgument(f"there is no directory of schemas at {self.location}")
        else:
            raise InvalidArgument(f"a registry is a URL, a directory or a dict, not {brief_repr(source)}")

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.location})"

    def _set_url(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgument("a registry's URL begins with http:// or https:// and names a host")
        if parts.username is not None and self._user_info is None:
            name, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
            self._user_info = f"{name}:{password}"
        host = parts.netloc.rpartition("@")[2]
        self._url = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """The schema of an id, or None if the registry does not know it; RegistryUnavailable if it does not answer."""
        if self._schemas is not None:
            return self._schemas.get(schema_id)
        known = _known.get((self.location, schema_id))
        if known is not None:
            return known
        found = self._from_directory(schema_id) if self._is_directory else self._from_url(schema_id)
        if found is not None:
            if len(_known) >= REGISTRY_SCHEMAS_MAX:
                _known.clear()
            _known[self.location, schema_id] = found
        return found

    def _from_directory(self, schema_id: int) -> RegisteredSchema | None:
        for suffix in _FILE_SUFFIXES:
            name = f"{schema_id}{suffix}"
            try:
                return RegisteredSchema(read_text(f"{self.location}/{name}"))
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as error:
                raise RegistryUnavailable(self.location, f"{name} cannot be read ({error})") from error
        return None

    def _from_url(self, schema_id: int) -> RegisteredSchema | None:
        answer = self._get(f"/schemas/ids/{schema_id}")
        if answer is None:
            return None
        return self._with_references(answer)

    def version(self, subject: str, wanted: int | Literal["latest"]) -> tuple[int, RegisteredSchema] | None:
        """A version of a subject, with its number; None if the registry does not know it. Only of one with a URL."""
        if not self._url:
            raise InvalidArgument(
                "subjects are asked of a registry's URL; this registry has schemas by their ids alone"
            )
        answer = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{wanted}")
        if answer is None:
            return None
        number = answer.get("version")
        if not isinstance(number, int):
            raise RegistryUnavailable(self.location, "its answer holds no version")
        return number, self._with_references(answer)

    def _with_references(self, answer: dict[str, Any]) -> RegisteredSchema:
        references: dict[tuple[str, int], tuple[str, str]] = {}
        self._collect_references(answer, references)
        names, texts = zip(*references.values(), strict=True) if references else ((), ())
        return RegisteredSchema(self._text_of(answer), texts, str(answer.get("schemaType") or "AVRO"), names)

    def _collect_references(self, answer: dict[str, Any], found: dict[tuple[str, int], tuple[str, str]]) -> None:
        for reference in answer.get("references") or ():
            try:
                name, subject, version = reference.get("name"), str(reference["subject"]), int(reference["version"])
            except (KeyError, TypeError, ValueError):
                raise RegistryUnavailable(self.location, f"it names a reference {brief_repr(reference)}") from None
            if (subject, version) in found:
                continue
            if len(found) >= REGISTRY_REFERENCES_MAX:
                raise RegistryUnavailable(self.location, "a schema refers to too many others")
            inner = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}")
            if inner is None:
                raise RegistryUnavailable(
                    self.location, f"it does not know {subject!r} {version}, which a schema refers to"
                )
            found[subject, version] = ("", "")  # set before its own references, which may lead back here
            self._collect_references(inner, found)
            # Moved to the end: after the schemas that it references.
            del found[subject, version]
            found[subject, version] = (str(name or subject), self._text_of(inner))

    def _text_of(self, answer: dict[str, Any]) -> str:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise RegistryUnavailable(self.location, "its answer holds no schema")
        return text

    def _get(self, path: str) -> dict[str, Any] | None:
        """A JSON object; None if the registry has no such schema."""
        request = urllib.request.Request(
            self._url + path, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        )
        if self._user_info is not None:
            # Not sent along when a registry redirects to another host.
            request.add_unredirected_header(
                "Authorization", f"Basic {base64.b64encode(self._user_info.encode()).decode()}"
            )
        try:
            with urllib.request.urlopen(request, timeout=REGISTRY_TIMEOUT_S) as response:
                body = response.read(REGISTRY_ANSWER_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                if _error_code(error.read(REGISTRY_ANSWER_BYTES_MAX)) in _NO_SUCH_SCHEMA:
                    return None
            raise RegistryUnavailable(self.location, f"it answers {error.code} ({error.reason}) to {path}") from error
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            raise RegistryUnavailable(self.location, f"{why}") from error
        if len(body) > REGISTRY_ANSWER_BYTES_MAX:
            raise RegistryUnavailable(self.location, f"its answer has more than {REGISTRY_ANSWER_BYTES_MAX} bytes")
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RegistryUnavailable(self.location, "its answer is not a JSON object")
        return answer


def _error_code(body: bytes) -> int | None:
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    return answer.get("error_code") if isinstance(answer, dict) else None


def _schema_id(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 32:
        raise InvalidArgument(f"a schema id is a number of four bytes, not {brief_repr(number)}")
    return number


def _as_text(schema: Any) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)
