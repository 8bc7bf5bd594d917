"""Secrets that a broker has seen are nowhere to be read afterwards: not in its log at any level, not in the console's
API or /metrics, not in what settings are described as, not in errors and tracebacks of commands, not in `fold status`.

Process titles are in tests/cli/test_shown_secrets.py; each `repr` beside the tests of what it is of.
"""

from __future__ import annotations

import base64
import gc
import logging
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest

import foldlog
from cli.command import foldlog as run
from clients.bearer_tokens import token, token_settings
from foldlog.broker.access.users import Users
from foldlog.errors import AuthenticationFailed
from foldlog.server.console.api import Api
from foldlog.server.console.folds import FoldPages
from foldlog.server.console.scene import ScenePages
from foldlog.server.server import Server
from foldlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from server.access.sasl_broker import MECHANISMS, PASSWORD, SIMPLE_USER, sasl_broker, set_password
from server.console.console_site import ConsoleSite
from server.raw_client import RawClient

ROOT = Path(__file__).resolve().parents[3]
GUESS = "a-guess-that-is-wrong"
CHANGED = "the-password-after"
KEY_PASSWORD = "of-the-keystore"

FOLDS = """
import foldlog.spark as fl

orders = fl.topic("orders", key="tx_id", schema="amount BIGINT")

@fl.fold(orders, into=fl.table("{place}/orders.db", "orders"))
def mirror(rows): return rows
"""


def connect(server: Server, password: str, mechanism: str) -> foldlog.Log:
    return foldlog.connect(
        f"kafka://{server.bootstrap}",
        properties={
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": SIMPLE_USER,
            "sasl.password": password,
        },
    )


def pages(site: ConsoleSite, cookie: str) -> str:
    """Everything that the console's API tells, and /metrics."""
    told = []
    for kind in (Api, FoldPages, ScenePages):
        made: Api | FoldPages | ScenePages = kind.__new__(kind)  # type: ignore[assignment]
        for route in made.routes():
            if route.method == "GET" and route.path.startswith("/api/") and route.path != "/api/events":
                path = re.sub(r"\{(\w+)\}", lambda found: {"partition": "0"}.get(found[1], "orders"), route.path)
                told.append(site.ask("GET", path, headers={"Cookie": cookie}).body.decode())
    assert len(told) > 5
    assert site.server.metrics_address is not None
    host, port = site.server.metrics_address
    basic = base64.b64encode(f"{SIMPLE_USER}:{PASSWORD}".encode()).decode()
    asked = urllib.request.Request(f"http://{host}:{port}/metrics", headers={"Authorization": f"Basic {basic}"})
    with urllib.request.urlopen(asked) as answer:
        told.append(answer.read().decode())
    return "\n".join(told)


def described(server: Server) -> str:
    """All settings of the broker, as its owner is told of them."""
    client = RawClient(server.addresses[1])
    of_broker = DescribeConfigsResource(resource_type=4, resource_name="1")
    answer = client.ask(DescribeConfigsRequest(resources=[of_broker]), 4)
    client.close()
    assert len(answer.results[0].configs) > 50
    return repr(answer)


def test_what_a_broker_was_told_is_nowhere_afterwards(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bearer = token()
    settings = token_settings(MECHANISMS, tmp_path / "jwks.json") | {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "foldlog.console": "127.0.0.1:0",
        "foldlog.metrics": "127.0.0.1:0",
        "authorizer.class.name": "foldlog",
        "super.users": f"User:{SIMPLE_USER};User:service;User:ANONYMOUS",
        "ssl.key.password": KEY_PASSWORD,
        "connections.max.reauth.ms": 3_600_000,
    }
    with sasl_broker(settings) as (broker, server):
        site = ConsoleSite(broker, server)
        for mechanism in MECHANISMS.split(","):
            with connect(server, PASSWORD, mechanism) as log:
                log.append("orders", b"1")
            with pytest.raises(AuthenticationFailed) as refused:
                connect(server, GUESS, mechanism).topics()
            assert GUESS not in repr(refused.value)
        form = urlencode({"user": SIMPLE_USER, "password": PASSWORD}).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        cookie = site.ask("POST", "/login", form, kind).headers["set-cookie"].partition(";")[0]
        wrong = urlencode({"user": SIMPLE_USER, "password": GUESS}).encode()
        assert GUESS not in site.ask("POST", "/login", wrong, kind).body.decode()
        assert server.metrics_address is not None
        metrics = "http://{}:{}/metrics".format(*server.metrics_address)
        with urllib.request.urlopen(urllib.request.Request(metrics, headers={"Authorization": f"Bearer {bearer}"})):
            pass
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(urllib.request.Request(metrics, headers={"Authorization": f"Bearer {bearer[:-9]}"}))
        told = pages(site, cookie) + described(server)
        told += command_errors(server, tmp_path)
        users = broker.access.current.users
        set_password(broker, SIMPLE_USER, CHANGED)
        told += caplog.text + repr(broker.access.current) + repr(users) + repr(settings_of(server))
    assert "login refused" in caplog.text, "nothing was logged"
    assert_without(told, users, [PASSWORD, GUESS, CHANGED, KEY_PASSWORD, bearer, bearer[:-9], cookie.partition("=")[2]])


def assert_without(told: str, users: Users, secrets: list[str]) -> None:
    kept = [part for one in users.of(SIMPLE_USER).values() for part in (one.salt, one.stored_key, one.server_key)]
    secrets = [*secrets, users.secret.hex(), *(base64.b64encode(part).decode() for part in kept)]
    assert [secret for secret in secrets if secret in told] == []


def settings_of(server: Server) -> object:
    """What the server was started with, found as a debugger would."""
    found = [one for one in gc.get_referents(server.__dict__) if type(one).__name__ == "ServerSettings"]
    assert found
    return found


def command_errors(server: Server, place: Path) -> str:
    """What commands print that fail for a wrong password, with their tracebacks, and `fold status` of one that does
    not."""
    folds = place / "folds.py"
    folds.write_text(FOLDS.format(place=place))
    told = ""
    for password, words in (
        (GUESS, ("topic", "list", "--debug")),
        (PASSWORD, ("fold", "status", "-f", str(folds), "--format", "json")),
    ):
        config = place / "client.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.username={SIMPLE_USER}\nsasl.password={password}\n"
        )
        config.chmod(0o600)
        done = run(*words, "-b", server.bootstrap, "--command-config", str(config))
        assert (done.returncode == 0) == (password == PASSWORD), done
        told += (done.stdout + done.stderr).decode()
    assert "Traceback" in told
    assert '"mirror"' in told
    return told


# --- what is checked in ----------------------------------------------------------------------------------------------

ASSIGNED = re.compile(r"""(?:password|secret|token)["']?\s*[=:]\s*["']?([^\s"',;}<>&)]{4,})""", re.IGNORECASE)
PLACEHOLDERS = re.compile(r"TOKEN|PASSWORD|…|\.\.\.|\$|\{|^write$|^anyone$|^hunter2$|_file|^\(|\[")
"""What examples have in the place of a secret; the rest is words of a sentence."""


def test_no_example_has_a_secret_in_it() -> None:
    """Of documentation, packaging and scripts; keys of the tests are made as they run, but for one of localhost's."""
    words = ["git", "ls-files", "--", "*.md", "*.toml", "*.properties", "*.yml", "*.sh", "Containerfile", "demo"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no checkout with git")
    files = [ROOT / name for name in done.stdout.split()]
    assert len(files) > 30
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "PRIVATE KEY-----\n" not in text, file
        values = [one for one in ASSIGNED.findall(text) if not PLACEHOLDERS.search(one)]
        found += [(file.name, one) for one in values if re.search(r"\d", one) or len(one) > 16]
    assert found == []
