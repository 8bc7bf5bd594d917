"""The paths of Confluent's schema registry: what each takes, and what it answers. docs/registry.md lists them.

Handlers run on threads of the registry: they may wait for the disk. A subject's rights are those of its topic:
`orders-key` and `orders-value` are of topic `orders`, any other subject of a topic with its own name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from foldlog import __version__
from foldlog.broker.access.acls import CLUSTER_NAME, AclOperation, ResourceType
from foldlog.broker.registry import refusals
from foldlog.broker.registry.refusals import RegistryRefusal
from foldlog.broker.registry.registry import (
    ALL_CONTEXTS,
    BACKWARD,
    LATEST,
    MAX_VERSION,
    NewSchema,
    Registry,
    has_prefix,
)
from foldlog.broker.registry.schemas import AVRO, TYPES, Reference, SchemaText
from foldlog.broker.registry.state import SubjectConfig, Version, context_of, qualified, unqualified
from foldlog.errors import brief_repr
from foldlog.limits import REGISTRY_REFERENCES_MAX
from foldlog.server.authorizer import Authorizer
from foldlog.server.console.rights import Asks, Right, identity_of
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
CONTEXT_HEADER: Final = "x-foldlog-context"
"""Not a client's: where the paths of a context, /contexts/NAME/..., have put its name."""

_TRUE: Final = frozenset({"true", "1", ""})
_SUFFIXES: Final = ("-key", "-value")
_KEPT_BY_OTHERS: Final = ("metadata", "ruleSet")

DESCRIBE: Final = AclOperation.DESCRIBE


def topic_of(subject: str) -> str:
    """The topic whose rights a subject has.

    >>> topic_of("orders-value"), topic_of(":.eu:orders-key"), topic_of("com.shop.Order")
    ('orders', 'orders', 'com.shop.Order')
    """
    name = unqualified(subject)
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def of_subject(operation: AclOperation) -> Asks:
    return lambda request: [Right(operation, ResourceType.TOPIC, topic_of(_subject(request)))]


def of_all(operation: AclOperation) -> Asks:
    return lambda _: [Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)]


def _nothing(_: HttpRequest) -> list[Right]:
    """For what says nothing about subjects, and for lists, which hold what one may see."""
    return []


class RegistryApi:
    """The handlers. Any thread."""

    def __init__(self, registry: Registry, authorizer: Authorizer, cluster_id: str) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._cluster_id = cluster_id

    def routes(self) -> list[HttpRoute]:
        write, delete = AclOperation.WRITE, AclOperation.DELETE
        looks, alters = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
        subject, version = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
        checks = "/compatibility/subjects/{subject}/versions"
        return [
            HttpRoute("GET", "/", lambda _: _json({}), _nothing),
            HttpRoute("GET", "/subjects", self.subjects, _nothing),
            HttpRoute("POST", subject, self.lookup, of_subject(DESCRIBE)),
            HttpRoute("DELETE", subject, self.delete_subject, of_subject(delete)),
            HttpRoute("GET", f"{subject}/versions", self.versions, of_subject(DESCRIBE)),
            HttpRoute("POST", f"{subject}/versions", self.register, of_subject(write)),
            HttpRoute("GET", version, self.version, of_subject(DESCRIBE)),
            HttpRoute("DELETE", version, self.delete_version, of_subject(delete)),
            HttpRoute("GET", f"{version}/schema", self.version_text, of_subject(DESCRIBE)),
            HttpRoute("GET", f"{version}/referencedby", self.referring, of_subject(DESCRIBE)),
            HttpRoute("GET", "/schemas", self.schemas, _nothing),
            HttpRoute("GET", "/schemas/types", lambda _: _json(list(TYPES)), _nothing),
            HttpRoute("GET", "/schemas/ids/{id}", self.schema, _nothing),
            HttpRoute("GET", "/schemas/ids/{id}/schema", self.schema_text, _nothing),
            HttpRoute("GET", "/schemas/ids/{id}/subjects", self.subjects_of_id, _nothing),
            HttpRoute("GET", "/schemas/ids/{id}/versions", self.versions_of_id, _nothing),
            HttpRoute("GET", "/contexts", self.contexts, _nothing),
            HttpRoute("POST", checks, self.compatibility, of_subject(DESCRIBE)),
            HttpRoute("POST", checks + "/{version}", self.compatibility, of_subject(DESCRIBE)),
            HttpRoute("GET", "/config", self.config, of_all(looks)),
            HttpRoute("PUT", "/config", self.set_config, of_all(alters)),
            HttpRoute("DELETE", "/config", self.delete_config, of_all(alters)),
            HttpRoute("GET", "/config/{subject}", self.config, of_subject(looks)),
            HttpRoute("PUT", "/config/{subject}", self.set_config, of_subject(alters)),
            HttpRoute("DELETE", "/config/{subject}", self.delete_config, of_subject(alters)),
            HttpRoute("GET", "/mode", self.mode, of_all(looks)),
            HttpRoute("PUT", "/mode", self.set_mode, of_all(alters)),
            HttpRoute("GET", "/mode/{subject}", self.mode, of_subject(looks)),
            HttpRoute("PUT", "/mode/{subject}", self.set_mode, of_subject(alters)),
            HttpRoute("DELETE", "/mode/{subject}", self.delete_mode, of_subject(alters)),
            HttpRoute("GET", "/v1/metadata/id", self.cluster, _nothing),
            HttpRoute("GET", "/v1/metadata/version", lambda _: _json({"version": __version__}), _nothing),
        ]

    # --- subjects and versions ----------------------------------------------------------------------------------------

    def subjects(self, request: HttpRequest) -> HttpResponse:
        prefix = _subject_prefix(request, ALL_CONTEXTS)
        found = self._registry.subjects(
            prefix=prefix, deleted=_flag(request, "deleted"), deleted_only=_flag(request, "deletedOnly")
        )
        return _json(_paged(request, [one for one in found if self._sees(request, one)]))

    def register(self, request: HttpRequest) -> HttpResponse:
        return _json({"id": self._registry.register(_subject(request), _wanted(request)).id})

    def lookup(self, request: HttpRequest) -> HttpResponse:
        found = self._registry.lookup(_subject(request), _wanted(request), deleted=_flag(request, "deleted"))
        return _json(_shown(found))

    def versions(self, request: HttpRequest) -> HttpResponse:
        found = self._registry.versions(
            _subject(request), deleted=_flag(request, "deleted"), deleted_only=_flag(request, "deletedOnly")
        )
        return _json(_paged(request, [one.number for one in found]))

    def version(self, request: HttpRequest) -> HttpResponse:
        found = self._version(request)
        return _json(_shown(found, self._formatted(request, found.schema)))

    def version_text(self, request: HttpRequest) -> HttpResponse:
        return _text(self._formatted(request, self._version(request).schema))

    def _version(self, request: HttpRequest) -> Version:
        return self._registry.version(
            _subject(request), _number(request.named["version"]), deleted=_flag(request, "deleted")
        )

    def referring(self, request: HttpRequest) -> HttpResponse:
        return _json(self._registry.referring_ids(_subject(request), _number(request.named["version"])))

    def delete_subject(self, request: HttpRequest) -> HttpResponse:
        return _json(self._registry.delete_subject(_subject(request), permanent=_flag(request, "permanent")))

    def delete_version(self, request: HttpRequest) -> HttpResponse:
        number = _number(request.named["version"])
        return _json(self._registry.delete_version(_subject(request), number, permanent=_flag(request, "permanent")))

    # --- ids ----------------------------------------------------------------------------------------------------------

    def schemas(self, request: HttpRequest) -> HttpResponse:
        prefix = _subject_prefix(request, "")  # the default context; subjects are listed of all. So it is at Confluent.
        found = [
            one
            for one in self._registry.all_versions(deleted=_flag(request, "deleted"))
            if has_prefix(one.subject, prefix) and self._sees(request, one.subject)
        ]
        if _flag(request, "latestOnly"):
            found = list({one.subject: one for one in found}.values())
        return _json([_shown(one) for one in _paged(request, found)])

    def schema(self, request: HttpRequest) -> HttpResponse:
        schema = self._of_id(request)
        answer = _described(schema, self._formatted(request, schema))
        if _flag(request, "fetchMaxId"):
            answer["maxId"] = self._registry.max_id(_query_subject(request))
        return _json(answer)

    def schema_text(self, request: HttpRequest) -> HttpResponse:
        return _text(self._formatted(request, self._of_id(request)))

    def subjects_of_id(self, request: HttpRequest) -> HttpResponse:
        return _json(_paged(request, sorted({one.subject for one in self._users_of_id(request)})))

    def versions_of_id(self, request: HttpRequest) -> HttpResponse:
        found = [{"subject": one.subject, "version": one.number} for one in self._users_of_id(request)]
        return _json(_paged(request, found))

    def _users_of_id(self, request: HttpRequest) -> list[Version]:
        context = context_of(_query_subject(request))
        found = self._registry.versions_of_id(_schema_id(request), context=context, deleted=_flag(request, "deleted"))
        return [one for one in found if self._sees(request, one.subject)]

    def _of_id(self, request: HttpRequest) -> SchemaText:
        """The schema of the id in the path, for who may see one of its subjects."""
        schema_id, subject = _schema_id(request), _query_subject(request)
        schema, users = self._registry.schema(schema_id, subject)
        if not any(self._sees(request, one) for one in users):
            raise refusals.schema_not_found(schema_id)
        return schema

    def _formatted(self, request: HttpRequest, schema: SchemaText) -> str:
        return self._registry.formatted(schema, request.query.get("format", ""))

    def _sees(self, request: HttpRequest, subject: str) -> bool:
        return self._authorizer.allows(identity_of(request), DESCRIBE, ResourceType.TOPIC, topic_of(subject))

    def contexts(self, request: HttpRequest) -> HttpResponse:
        return _json(_paged(request, self._registry.contexts()))

    def cluster(self, _: HttpRequest) -> HttpResponse:
        clusters = {"kafka-cluster": self._cluster_id, "schema-registry-cluster": "schema-registry"}
        return _json({"scope": {"path": [], "clusters": clusters}})

    # --- compatibility, settings, modes -------------------------------------------------------------------------------

    def compatibility(self, request: HttpRequest) -> HttpResponse:
        number = _number(request.named["version"]) if "version" in request.named else None
        found = self._registry.incompatibilities(_subject(request), _wanted(request), number)
        answer: dict[str, Any] = {"is_compatible": not found}
        if _flag(request, "verbose"):
            answer["messages"] = found
        return _json(answer)

    def config(self, request: HttpRequest) -> HttpResponse:
        subject = _subject_or_all(request)
        found = self._registry.config(subject, or_global=_flag(request, "defaultToGlobal"))
        return _json(_shown_config(found, "compatibilityLevel"))

    def set_config(self, request: HttpRequest) -> HttpResponse:
        body = _body(request)
        level, normalize = body.get("compatibility"), body.get("normalize")
        if level is not None and not isinstance(level, str):
            level = ""  # no level has this name
        if normalize is not None and not isinstance(normalize, bool):
            raise _unprocessable("normalize is true or false")
        others = sorted(name for name, value in body.items() if value is not None and name not in _CONFIG_MEMBERS)
        if others or (level is None and normalize is None):
            named = f", not {', '.join(others)}" if others else ""
            raise _unprocessable(f"a subject has the settings compatibility and normalize{named[:200]}")
        return _json(
            _shown_config(self._registry.set_config(_subject_or_all(request), level, normalize), "compatibility")
        )

    def delete_config(self, request: HttpRequest) -> HttpResponse:
        return _json(_shown_config(self._registry.delete_config(_subject_or_all(request)), "compatibilityLevel"))

    def mode(self, request: HttpRequest) -> HttpResponse:
        found = self._registry.mode(_subject_or_all(request), or_global=_flag(request, "defaultToGlobal"))
        return _json({"mode": found})

    def set_mode(self, request: HttpRequest) -> HttpResponse:
        mode = _body(request).get("mode")
        found = self._registry.set_mode(
            _subject_or_all(request), mode if isinstance(mode, str) else "", force=_flag(request, "force")
        )
        return _json({"mode": found})

    def delete_mode(self, request: HttpRequest) -> HttpResponse:
        return _json({"mode": self._registry.delete_mode(_subject(request))})


_CONFIG_MEMBERS: Final = frozenset({"compatibility", "normalize"})


# --- what requests say ------------------------------------------------------------------------------------------------


def _subject(request: HttpRequest) -> str:
    """The subject in the path, in the context that the path names, if it names one."""
    name = request.named.get("subject", "")
    context = request.headers.get(CONTEXT_HEADER, "")
    return name if not context or name.startswith(":.") else qualified(context, name)


def _subject_or_all(request: HttpRequest) -> str | None:
    if "subject" in request.named:
        return _subject(request)
    return _context_prefix(request) or None


def _context_prefix(request: HttpRequest) -> str:
    context = request.headers.get(CONTEXT_HEADER, "")
    return f":{context}:" if context and context != "." else ""


def _subject_prefix(request: HttpRequest, default: str) -> str:
    """What subjects have to begin with; `default` where neither the path nor the query says it."""
    given, context = request.query.get("subjectPrefix"), _context_prefix(request)
    if given is None:
        return context or default
    return given if given.startswith((":.", ALL_CONTEXTS)) else context + given


def _query_subject(request: HttpRequest) -> str:
    return request.query.get("subject", "") or _context_prefix(request)


def _number(text: str) -> int:
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MAX_VERSION:
        return int(text)
    raise refusals.invalid_version(text[:100])


def _schema_id(request: HttpRequest) -> int:
    text = request.named["id"]
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return int(text)
    raise RegistryRefusal(HTTPStatus.NOT_FOUND, "HTTP 404 Not Found")


def _flag(request: HttpRequest, name: str) -> bool:
    return name in request.query and request.query[name].lower() in _TRUE


def _paged(request: HttpRequest, found: list[Any]) -> list[Any]:
    offset, limit = (_count(request, name) for name in ("offset", "limit"))
    begin = max(0, offset or 0)
    return found[begin:] if limit is None or limit < 0 else found[begin : begin + limit]


def _count(request: HttpRequest, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise RegistryRefusal(HTTPStatus.BAD_REQUEST, f"{name}={brief_repr(text)} is not a number")
    return int(text)


def _unprocessable(why: str) -> RegistryRefusal:
    return RegistryRefusal(HTTPStatus.UNPROCESSABLE_ENTITY, why)


def _body(request: HttpRequest) -> dict[str, Any]:
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        raise RegistryRefusal(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise _unprocessable("the body is not a JSON object")
    return body


def _wanted(request: HttpRequest) -> NewSchema:
    body = _body(request)
    text, kind = body.get("schema"), body.get("schemaType")
    if not isinstance(text, str) or not text.strip():
        raise refusals.invalid_schema('Empty schema; send it as text, as in {"schema": "..."}')
    if kind is not None and not isinstance(kind, str):
        raise refusals.invalid_schema(f"schemaType is one of {', '.join(TYPES)}")
    for name in _KEPT_BY_OTHERS:
        if body.get(name):
            raise _unprocessable(f"{name} is not kept by this registry; send the schema without it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise refusals.invalid_schema("its text holds half a character (a lone surrogate)") from None
    schema = SchemaText((kind or AVRO).upper(), text, _references(request, body.get("references")))
    return NewSchema(schema, _flag(request, "normalize"), _whole(body, "id"), _whole(body, "version"))


def _references(request: HttpRequest, given: Any) -> tuple[Reference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > REGISTRY_REFERENCES_MAX:
        raise _unprocessable(f"references is a list of at most {REGISTRY_REFERENCES_MAX}")
    found = []
    context = request.headers.get(CONTEXT_HEADER, "") or context_of(_subject(request))
    for one in given:
        is_whole = isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("subject"), str)
        if not is_whole or type(one.get("version")) is not int:
            raise _unprocessable("a reference has a name, a subject and a version")
        subject = one["subject"]
        subject = subject if subject.startswith(":.") else qualified(context, subject)
        found.append(Reference(one["name"], subject, one["version"]))
    return tuple(found)


def _whole(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    if value is None:
        return -1
    if type(value) is not int or not -1 <= value <= MAX_VERSION:
        raise _unprocessable(f"{name} is a number from 1 to {MAX_VERSION}")
    return value


# --- what answers say -------------------------------------------------------------------------------------------------


def _described(schema: SchemaText, text: str) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    if schema.kind != AVRO:
        answer["schemaType"] = schema.kind
    answer["schema"] = text
    if schema.references:
        answer["references"] = [one.as_json() for one in schema.references]
    return answer


def _shown(version: Version, text: str | None = None) -> dict[str, Any]:
    named = {"subject": version.subject, "version": version.number, "id": version.id}
    return {**named, **_described(version.schema, version.schema.text if text is None else text)}


def _shown_config(config: SubjectConfig, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = {name: config.compatibility or BACKWARD}
    if config.normalize is not None:
        answer["normalize"] = config.normalize
    return answer


def _json(value: Any, status: int = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(status, json.dumps(value).encode(), CONTENT_TYPE)


def _text(text: str) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, text.encode(), CONTENT_TYPE)


def error_answer(status: int, code: int, sentence: str) -> HttpResponse:
    """
    >>> error_answer(404, 40401, "Subject 'a' not found.").body
    b'{"error_code": 40401, "message": "Subject \\'a\\' not found."}'
    """
    return _json({"error_code": code, "message": sentence}, status)
