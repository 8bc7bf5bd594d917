"""Whatever is sent, the answer is one JSON object with a code and a sentence, and the registry goes on."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldlog.testing import Broker
from server.registry.rest import JSON_TYPE, Rest


@pytest.fixture(scope="module")
def rest() -> Iterator[Rest]:
    with Broker(registry=True) as broker:
        yield Rest(broker.schema_registry_url)


BODIES = [
    b"{",
    b"\xff\xfe",
    b"[]",
    b"3",
    b"null",
    b'{"schema":3}',
    b'{"schema":[]}',
    b'{"schema":"\\ud800"}',
    b'{"schema":"\\"int\\"","references":3}',
    b'{"schema":"\\"int\\"","references":[{}]}',
    b'{"schema":"\\"int\\"","version":"x"}',
    b'{"schema":"\\"int\\"","id":1e999}',
    b'{"schema":"\\"int\\"","schemaType":{}}',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"schema":"' + b"x" * 500_000 + b'"}',
    json.dumps({"schema": '{"type":"array","items":' * 2000, "schemaType": "AVRO"}).encode(),
    json.dumps({"schema": "message M {" * 20_000, "schemaType": "PROTOBUF"}).encode(),
    json.dumps({"schema": '{"$ref":"#"}' * 2, "schemaType": "JSON"}).encode(),
    json.dumps({"schema": '{"allOf":[{"$ref":"#"}]' + "}" * 1, "schemaType": "XML"}).encode(),
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("path", ["/subjects/bad/versions", "/config/bad"])
def test_a_bad_body_is_one_clear_error(rest: Rest, path: str, body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        answer = rest.ask("PUT" if "config" in path else "POST", path, body)
    assert 400 <= answer.status < 500
    assert set(answer.body) == {"error_code", "message"}
    assert 0 < len(answer.body["message"]) < 2000
    assert "Traceback" not in caplog.text


PATHS = [
    "/subjects/../../etc/passwd",
    "/subjects/%2e%2e/versions",
    "/subjects/%00/versions",
    "/subjects//versions",
    "/subjects/" + "x" * 5000 + "/versions",
    "/subjects/a/versions/99999999999999999999",
    "/subjects/a/versions/\u0661",
    "/schemas/ids/-1",
    "/schemas/ids/99999999999999999999",
    "/contexts/../subjects/a/versions",
    "/contexts//subjects",
    "/%",
    "/?subjectPrefix=%ff%fe",
]


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PATCH"])
def test_a_path_that_means_nothing_is_one_clear_error(rest: Rest, method: str, path: str) -> None:
    answer = rest.ask(method, quote(path, safe="/?%=&"), {"schema": "{"} if method == "POST" else None)
    assert answer.status < 500
    if answer.status >= 400:
        assert set(answer.body) == {"error_code", "message"}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    st.lists(
        st.one_of(
            st.sampled_from(
                ["subjects", "schemas", "ids", "versions", "config", "mode", "compatibility", "latest", "1"]
            ),
            st.text("a%/.:\0é\ud800", max_size=4),
        ),
        max_size=5,
    ),
    st.one_of(
        st.binary(max_size=20),
        st.fixed_dictionaries(
            {"schema": st.text('{}[]":;=a1 ', max_size=12), "schemaType": st.sampled_from(["AVRO", "JSON", "PROTOBUF"])}
        ).map(lambda one: json.dumps(one).encode()),
    ),
)
def test_noise_never_breaks_it(rest: Rest, method: str, parts: list[str], body: bytes) -> None:
    path = "/" + "/".join(quote(one.encode("utf-8", "surrogatepass"), safe="") for one in parts)
    answer = rest.ask(method, path, body or None)
    assert answer.status < 500


def test_a_body_over_the_limit_is_refused_and_the_next_request_is_served(rest: Rest) -> None:
    host, port = urlsplit("//" + rest._address).hostname, urlsplit("//" + rest._address).port
    assert host is not None
    assert port is not None
    with socket.create_connection((host, port), timeout=30) as connected:
        head = f"POST /subjects/a/versions HTTP/1.1\r\nHost: {host}\r\nContent-Type: {JSON_TYPE}\r\n"
        connected.sendall(f"{head}Content-Length: {3 << 20}\r\n\r\n".encode())
        try:
            for _ in range(3):
                connected.sendall(b"x" * (1 << 20))
        except OSError:
            pass  # it has answered, and reads no more
        answer = connected.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"error_code": 413' in answer
    assert rest.get("/subjects").status == 200
