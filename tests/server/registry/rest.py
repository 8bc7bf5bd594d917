"""A small client of the registry's REST API, for tests: what was answered, as it was answered."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any, NamedTuple
from urllib.parse import urlsplit

JSON_TYPE = "application/vnd.schemaregistry.v1+json"


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def code(self) -> int:
        return int(self.body["error_code"])


class Rest:
    def __init__(self, url: str, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._address = urlsplit(url).netloc
        self._tls = tls
        self._headers = headers or {}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection: http.client.HTTPConnection = (
            http.client.HTTPConnection(self._address, timeout=30)
            if self._tls is None
            else http.client.HTTPSConnection(self._address, timeout=30, context=self._tls)
        )
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            kinds = {} if data is None else {"Content-Type": JSON_TYPE}
            sent = {**kinds, **self._headers, **{name.replace("_", "-"): one for name, one in headers.items()}}
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            text = response.read()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, json.loads(text) if text else None, told)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.ask("POST", path, body, **headers)

    def put(self, path: str, body: Any) -> Answer:
        return self.ask("PUT", path, body)

    def delete(self, path: str) -> Answer:
        return self.ask("DELETE", path)

    def register(self, subject: str, schema: Any, kind: str | None = None, **more: Any) -> Answer:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        given = {"schema": text, **({} if kind is None else {"schemaType": kind}), **more}
        return self.post(f"/subjects/{subject}/versions", given)


def record(*fields: str, name: str = "R") -> dict[str, Any]:
    """An Avro record; a field whose name ends in ? has a default."""
    made = [{"name": one.rstrip("?"), "type": "int"} | ({"default": 0} if one.endswith("?") else {}) for one in fields]
    return {"type": "record", "name": name, "fields": made}
