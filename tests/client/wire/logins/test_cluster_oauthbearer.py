"""Logging in with a token: where it comes from, how it is shown, for how long it is kept, and what is told if it fails.

The brokers are simulated (login_door.py); the token endpoint is a real HTTP server on this machine.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import pytest

from client.wire.logins.login_door import VERSIONS, Login
from client.wire.simulated_cluster import SimulatedCluster
from client.wire.test_cluster_reads import read
from foldlog.client.wire.cluster import Cluster
from foldlog.client.wire.logins.oauthbearer import TOKENS, TokenSource, unsecured_token
from foldlog.client.wire.properties import ClusterProperties
from foldlog.errors import AuthenticationFailed, BrokerUnreachable, InvalidConfig
from foldlog.records.loops import pack

QUICK = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "2", "fetch.max.wait.ms": "1"}
SECRET = "s3cret/=?"
BEARER = {**QUICK, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


class Endpoint(HTTPServer):
    """Gives tokens to one client; `asked` has what each question said."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, list[str]]] = []
        self.status = 200
        self.answered_times: int | None = None  # after so many answers it says nothing any more; None: it goes on
        self.is_over = threading.Event()
        self.answer: dict[str, object] = {"access_token": "token-1", "expires_in": 3600}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/oauth2/token"

    def properties(self, **more: str) -> dict[str, str]:
        return {
            **BEARER,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.id": "ann",
            "sasl.oauthbearer.client.secret": SECRET,
            **{f"sasl.oauthbearer.{name}": value for name, value in more.items()},
        }


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        who = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        self.server.asked.append({**parse_qs(body), "who": [who], "path": [self.path]})
        if len(self.server.asked) - 1 == self.server.answered_times:
            self.server.is_over.wait()
        data = json.dumps(self.server.answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.is_over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def login() -> Login:
    return Login({}, mechanisms=("OAUTHBEARER",), tokens={"token-1": "ann", "token-2": "ann"})


@pytest.fixture
def simulated(login: Login) -> Iterator[SimulatedCluster]:
    with SimulatedCluster(nodes=2, versions=VERSIONS) as started:
        started.door = login.door
        (partition,) = started.create("orders")
        partition.append(pack([(1, None, b"paid", ())]))
        yield started


def values(simulated: SimulatedCluster, properties: dict[str, str]) -> list[bytes | None]:
    with Cluster.open(simulated.address(), properties) as cluster:
        return [record.value for record in read(cluster, "orders", 0, 1)]


def test_a_token_of_the_endpoint_lets_in_and_serves_every_connection(
    simulated: SimulatedCluster, login: Login, endpoint: Endpoint
) -> None:
    properties = endpoint.properties(scope="read write", extensions="traceId=7, logicalCluster=lkc-1")
    assert values(simulated, properties) == values(simulated, properties) == [b"paid"]
    assert set(login.logins) == {"ann"}
    assert len(login.logins) > 1
    (asked,) = endpoint.asked
    assert asked == {
        "grant_type": ["client_credentials"],
        "scope": ["read write"],
        "who": ["ann:s3cret%2F%3D%3F"],
        "path": ["/oauth2/token"],
    }
    assert set(login.extensions) == {"traceId=7", "logicalCluster=lkc-1"}


def test_another_token_is_asked_for_when_most_of_its_life_is_over(
    simulated: SimulatedCluster, endpoint: Endpoint
) -> None:
    endpoint.answer["expires_in"] = 0.001
    assert values(simulated, endpoint.properties()) == [b"paid"]
    assert values(simulated, endpoint.properties()) == [b"paid"]
    assert len(endpoint.asked) > 1


def test_a_token_that_a_broker_refuses_is_not_shown_again(
    simulated: SimulatedCluster, login: Login, endpoint: Endpoint
) -> None:
    endpoint.answer["access_token"] = "token-9"
    with pytest.raises(AuthenticationFailed, match="OAUTHBEARER") as caught:
        values(simulated, endpoint.properties())
    assert "token-9" not in str(caught.value)
    endpoint.answer["access_token"] = "token-2"
    assert values(simulated, endpoint.properties()) == [b"paid"]


@pytest.mark.parametrize(
    ("status", "answer", "told"),
    [
        (401, {"error": "invalid_client", "error_description": f"bad secret {SECRET}"}, r"no token: bad secret \.\.\."),
        (400, {"error": "invalid_scope"}, "no token: invalid_scope"),
        (200, {}, "no token: status 200, and no token"),
        (200, {"access_token": "with a\nline"}, "no token: status 200, and no token"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_told_without_the_secret(
    simulated: SimulatedCluster, endpoint: Endpoint, status: int, answer: dict[str, object], told: str
) -> None:
    endpoint.status, endpoint.answer = status, answer
    with pytest.raises(AuthenticationFailed, match=told) as caught:
        values(simulated, endpoint.properties())
    assert SECRET not in str(caught.value)
    assert len(endpoint.asked) == 1, "a second try changes nothing"


def test_an_endpoint_that_fails_is_asked_again_and_then_told(simulated: SimulatedCluster, endpoint: Endpoint) -> None:
    """Its status is what is told, also where the call's own time ends in the middle of a question."""
    endpoint.status = 503
    endpoint.answered_times = 1
    properties = {**endpoint.properties(), "default.api.timeout.ms": "2000"}
    with pytest.raises(BrokerUnreachable, match=r"no token from http://127\.0\.0\.1:.* status 503"):
        values(simulated, properties)
    assert len(endpoint.asked) == 2


def test_a_token_without_a_signature_is_made_here() -> None:
    source = TokenSource.parse(
        {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principalClaimName=azp principal=ann scope=a,b lifeSeconds=60 extension_x=1",
        }
    )
    header, claims, signature = unsecured_token(source, 1000).split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "==")) == {
        "azp": "ann",
        "scope": ["a", "b"],
        "iat": 1000,
        "exp": 1060,
    }
    assert (signature, source.extensions) == ("", (("x", "1"),))
    assert TOKENS.token(source, 1) == TOKENS.token(source, 1), "it is good for a while"


OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    "sasl.oauthbearer.client.id": "ann",
    "sasl.oauthbearer.client.secret": SECRET,
}


def test_javas_names_are_taken_too() -> None:
    names = {
        "sasl.oauthbearer.token.endpoint.url": OIDC["sasl.oauthbearer.token.endpoint.url"],
        "sasl.oauthbearer.client.credentials.client.id": "ann",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    }
    assert TokenSource.parse(names) == TokenSource.parse(OIDC)
    assert SECRET not in repr(TokenSource.parse(names))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"sasl.oauthbearer.method": "azure"}, "is not known; it is default or oidc"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, "which is like https://"),
        ({**OIDC, "sasl.oauthbearer.client.id": ""}, r"needs sasl\.oauthbearer\.client\.id$"),
        ({**OIDC, "sasl.oauthbearer.client.secret": ""}, r"needs sasl\.oauthbearer\.client\.secret$"),
        ({**OIDC, "sasl.oauthbearer.grant.type": "jwt-bearer"}, "works only with librdkafka"),
        ({**OIDC, "sasl.oauthbearer.extensions": "auth=x"}, "not name=value"),
        ({"enable.sasl.oauthbearer.unsecure.jwt": "true"}, "needs principal="),
        ({"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal"}, "not name=value"),
        (
            {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=a life=1"},
            "does not take 'life'",
        ),
        (
            {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=a lifeSeconds=0"},
            "no number of seconds",
        ),
    ],
)
def test_what_is_missing_is_one_sentence_without_the_secret(said: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told) as caught:
        ClusterProperties.parse({**BEARER, **said})
    assert SECRET not in str(caught.value)
