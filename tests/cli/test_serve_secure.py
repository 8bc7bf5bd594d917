"""`foldlog serve --secure`: what it prints is all that clients need, and nobody else is let in."""

from __future__ import annotations

import base64
import os
import re
import socket
import ssl
import stat
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import foldlog
from cli.command import WAIT_S, environment
from cli.command import foldlog as run
from cli.serving import ANY_PORT, Serving, serving
from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.cli.serve import warn_of_no_users
from foldlog.errors import AuthenticationFailed
from foldlog.server.access.secure_start import NewAdmin, client_settings
from foldlog.server.config.settings import ServerSettings
from server.access.sasl_broker import set_password

PASSWORD = re.compile(r"its password is shown only now: (\S+)")


def printed(broker: Serving, last: str = "--command-config") -> str:
    """What it says below its first line, until the last line of it."""
    lines: list[str] = []
    assert broker.process.stdout is not None
    for line in broker.process.stdout:
        lines.append(line)
        if last in line:
            broker.process.stdout.readline()
            break
    return "".join(lines)


def java_properties(text: str, path: Path) -> str:
    """The lines for Java, in a file."""
    found = re.search(r"^  bootstrap\.servers=.*?^  sasl\.jaas\.config=[^\n]*$", text, flags=re.MULTILINE | re.DOTALL)
    assert found is not None, text
    path.write_text(re.sub(r"^  ", "", found[0], flags=re.MULTILINE))
    return str(path)


def test_the_printed_settings_let_a_client_in_and_others_are_kept_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(str(data), "--secure", *ANY_PORT, "--create", "orders") as broker:
        text = printed(broker)
        password = PASSWORD.search(text)
        assert password is not None
        address = f"127.0.0.1:{broker.address[1]}"
        properties = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(data / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": password[1],
        }
        with foldlog.connect(f"kafka://{address}", properties=properties) as log:
            log.append("orders", b"by wire")
        config = java_properties(text, tmp_path / "client.properties")
        assert b"orders" in run("topic", "list", "-b", address, "--command-config", config).stdout
        with pytest.raises(AuthenticationFailed):
            foldlog.connect(f"kafka://{address}", properties=properties | {"sasl.password": "wrong"}).topics()
        with socket.create_connection(broker.address) as plain:
            plain.sendall(b"\0\0\0\x0c" + bytes(12))
            assert plain.recv(1) in (b"", b"\x15")  # closed, perhaps after an alert of TLS
        with foldlog.open(str(data)) as log:  # who may write the directory needs no password
            log.append("orders", b"by the directory")
            assert [record.value for record in log.read("orders")] == [b"by wire", b"by the directory"]
        assert broker.end() == 0
    modes = {name: stat.S_IMODE((data / name).stat().st_mode) for name in ("access.json", "broker.pem", "ca-key.pem")}
    assert set(modes.values()) == {0o600}
    assert password[1].encode() not in b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())


def test_what_is_printed_can_be_pasted_anywhere(tmp_path: Path) -> None:
    """The directory is named as it is from here, with a space in it; clients are somewhere else. What is printed for
    Python is run as it is."""
    data = tmp_path / "my data"
    where = os.path.relpath(data)
    with serving(where, "--secure", *ANY_PORT, "--create", "orders") as broker:
        text = printed(broker)
        assert str(data / "ca.pem") in text
        found = re.search(r"^  log = foldlog\.connect.*?\}\)$", text, flags=re.MULTILINE | re.DOTALL)
        assert found is not None, text
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        pasted = "import foldlog\n" + textwrap.dedent(found[0]) + "\nprint(log.topics())\n"
        words = [sys.executable, "-c", pasted]
        done = subprocess.run(words, cwd=elsewhere, env=environment(), capture_output=True, timeout=WAIT_S, check=False)
        assert b"orders" in done.stdout, done.stderr
        config = java_properties(text, elsewhere / "client.properties")
        address = f"127.0.0.1:{broker.address[1]}"
        assert b"orders" in run("topic", "list", "-b", address, "--command-config", config).stdout
        assert broker.end() == 0


def test_a_second_start_keeps_certificate_and_users(tmp_path: Path) -> None:
    data = tmp_path / "data"
    seen = []
    for _ in range(2):
        with serving(str(data), "--secure", *ANY_PORT) as broker:
            text = printed(broker)
            seen.append((PASSWORD.search(text) is not None, (data / "broker.pem").read_bytes()))
            assert broker.end() == 0
    assert [is_new for is_new, _ in seen] == [True, False]
    assert seen[0][1] == seen[1][1]


def served_certificate(address: tuple[str, int], ca: Path) -> bytes:
    """The one that the broker shows now, verified."""
    context = ssl.create_default_context(cafile=str(ca))
    with socket.create_connection(address) as raw, context.wrap_socket(raw, server_hostname="localhost") as secured:
        found = secured.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_a_certificate_that_is_made_anew_is_taken_by_a_broker_that_runs(tmp_path: Path) -> None:
    """The authority stays, so a client that connects verifies both."""
    data = tmp_path / "data"
    with serving(str(data), "--secure", *ANY_PORT) as broker:
        printed(broker)
        ca = tmp_path / "ca.pem"
        ca.write_bytes((data / "ca.pem").read_bytes())
        before = served_certificate(broker.address, ca)
        ended = run("certificate", "renew", str(data))
        assert ended.returncode == 0, ended.stderr
        assert b"certificate of " in ended.stdout
        deadline, pause = time.monotonic() + WAIT_S, threading.Event()
        while served_certificate(broker.address, ca) == before:
            assert time.monotonic() < deadline
            pause.wait(0.05)
        assert broker.end() == 0


def test_it_prints_how_prometheus_gets_at_the_numbers(tmp_path: Path) -> None:
    """The printed commands are run, and the numbers asked for as the printed settings say."""
    data, secret = tmp_path / "data", tmp_path / "prometheus.txt"
    secret.write_text("a long password\n")
    secret.chmod(0o600)
    with serving(str(data), "--secure", *ANY_PORT, "--metrics", "https://127.0.0.1:0") as broker:
        text = printed(broker, "static_configs")
        target = re.search(r'targets: \["([^"]+)"\]', text)
        assert target is not None
        assert f'ca_file: "{data / "ca.pem"}"' in text
        url = f"https://{target[1]}/metrics"
        context = ssl.create_default_context(cafile=str(data / "ca.pem"))
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, context=context)
        for line in re.findall(r"^  foldlog (user create|acl create)(.*)$", text, flags=re.MULTILINE):
            words = [*line[0].split(), *line[1].replace("prometheus.txt", str(secret)).split()]
            assert run(*words).returncode == 0
        asked = urllib.request.Request(url)
        asked.add_header("Authorization", "Basic " + base64.b64encode(b"prometheus:a long password").decode())
        with urllib.request.urlopen(asked, context=context) as answer:
            assert b"foldlog_build_info" in answer.read()
        assert broker.end() == 0


def test_what_other_machines_reach_by_http_has_tls(tmp_path: Path) -> None:
    flags = (*ANY_PORT, "--metrics", "0.0.0.0:0", "--console", "0.0.0.0:0", "--registry", "0.0.0.0:0")
    with serving(str(tmp_path / "data"), "--secure", *flags) as broker:
        assert broker.ready.count("https://") == 3
        printed(broker, "static_configs")
        assert broker.end() == 0


@pytest.mark.parametrize(
    ("path", "flags", "sentence"),
    [
        (":memory:", (), b"give one instead of :memory:"),
        ("data", ("--listen", "PLAINTEXT://127.0.0.1:0"), b"without a name before it"),
    ],
)
def test_what_cannot_be_secured_is_said(tmp_path: Path, path: str, flags: tuple[str, ...], sentence: bytes) -> None:
    ended = run("serve", path if path == ":memory:" else str(tmp_path / path), "--secure", *flags)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert not (tmp_path / "data").exists()


def test_a_broker_that_nobody_can_log_in_to_says_so(caplog: pytest.LogCaptureFixture) -> None:
    settings = ServerSettings.parse({"listeners": "SASL_PLAINTEXT://127.0.0.1:0"})
    with Broker.open(MEMORY_PATH) as broker:
        warn_of_no_users(broker, ServerSettings())
        assert caplog.text == ""
        warn_of_no_users(broker, settings)
        assert "foldlog user create NAME -d :memory:" in caplog.text
        caplog.clear()
        set_password(broker, "ann", "hunter2 hunter2")
        warn_of_no_users(broker, settings)
        assert caplog.text == ""


@pytest.mark.parametrize(
    ("super_users", "told"),
    [
        ("User:ops;User:admin", "admin may do everything\n"),
        ("User:ops", "admin may do what ACLs allow, since super.users does not name it"),
    ],
)
def test_the_admin_is_not_promised_what_super_users_does_not_give(super_users: str, told: str) -> None:
    admin = NewAdmin("admin", "secret")
    assert told in client_settings("h:1", "ca.pem", admin, None, "data", super_users)
