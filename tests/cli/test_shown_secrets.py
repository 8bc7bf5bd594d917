"""What others see of our processes, in `ps`, has no secret in it; and who writes one there is told of the file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import foldlog
from cli.command import COMMAND, WAIT_S, environment
from cli.serving import ANY_PORT, serving
from foldlog.cli.shown_secrets import find_shown

SECRET = "hunter2-hunter2"

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc here")


def titles(parent: int) -> list[bytes]:
    """Command lines and names of a process, of its threads and of all that descends from it."""
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        found += [(task / "comm").read_bytes()]
        for child in (task / "children").read_text().split():
            found += titles(int(child))
    return [*found, Path(f"/proc/{parent}/cmdline").read_bytes()]


@pytest.mark.parametrize(
    "flags",
    [
        ("-X", f"ssl.keystore.key={SECRET}"),
        ("--console", "127.0.0.1:0", "--console-token", SECRET),
        ("--console", "127.0.0.1:0", f"--console-token={SECRET}"),
    ],
    ids=["-X", "token", "token="],
)
def test_a_broker_hides_what_was_on_its_command_line_and_warns(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with serving(str(tmp_path / "data"), *ANY_PORT, *flags) as broker:
        shown = titles(broker.process.pid)
        assert any(b"serve" in one for one in shown)
        assert SECRET.encode() not in b"\n".join(shown)
        assert broker.end() == 0
    said = [line for line in broker.errors if "is on the command line" in line]
    assert len(said) == 1
    assert "--config FILE" in said[0]
    assert SECRET not in "\n".join(broker.errors) + broker.ready


def test_a_broker_that_got_its_secrets_otherwise_shows_them_nowhere_and_does_not_warn(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"foldlog.console.token={SECRET}\nfoldlog.console=127.0.0.1:0\n")
    config.chmod(0o600)
    for flags, variable in (
        (("--config", str(config)), ""),
        (("--console", "127.0.0.1:0"), SECRET),
    ):
        with serving(str(tmp_path / "data"), *ANY_PORT, *flags, FOLDLOG_CONSOLE_TOKEN=variable) as broker:
            assert SECRET.encode() not in b"\n".join(titles(broker.process.pid))
            assert broker.end() == 0
        assert SECRET not in "\n".join(broker.errors) + broker.ready
        assert not [line for line in broker.errors if "command line" in line]


def test_a_command_hides_its_password_while_it_runs_and_names_the_file_instead(tmp_path: Path) -> None:
    """One that reads records until it is ended. The broker does not ask who it is, so the password is not used."""
    with foldlog.open(str(tmp_path / "data")) as log:
        log.create_topic("orders")
        log.append("orders", b"one")
    with serving(str(tmp_path / "data"), *ANY_PORT) as broker:
        at = f"127.0.0.1:{broker.address[1]}"
        words = ("topic", "consume", "orders", "--follow", "-b", at, "-X", f"ssl.key.password={SECRET}")
        reading = subprocess.Popen(
            [*COMMAND, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert reading.stdout is not None
            assert "one" in reading.stdout.readline()
            shown = b"\n".join(titles(reading.pid))
            assert b"ssl.key.password=xxx" in shown
            assert SECRET.encode() not in shown
        finally:
            reading.terminate()
            _, errors = reading.communicate(timeout=WAIT_S)
        assert broker.end() == 0
    assert errors.count("ssl.key.password is on the command line") == 1
    assert "--command-config FILE" in errors
    assert SECRET not in errors


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["topic", "list", "-X", f"sasl.password={SECRET}"], [("sasl.password", "--command-config FILE")]),
        (["topic", "list", f"-Xsasl.password={SECRET}"], [("sasl.password", "--command-config FILE")]),
        (["topic", "list", f"--property=sasl.password={SECRET}"], [("sasl.password", "--command-config FILE")]),
        (["copy", "--to-property", f"sasl.jaas.config={SECRET}"], [("sasl.jaas.config", "--to-config FILE")]),
        (["copy", "--from", f"kafka://h:1?a=b&sasl.password={SECRET}"], [("sasl.password", "--from-config FILE")]),
        (["fold", "run", "-b", f"kafka://ann:{SECRET}@h:1"], [("a password", "--command-config FILE")]),
        (["serve", "data", "-X", f"listener.name.a.ssl.key.password={SECRET}"],
         [("listener.name.a.ssl.key.password", "--config FILE")]),
        (["topic", "list", "-X", "sasl.username=ann", "-b", "kafka://h:1?client.id=x"], []),
        (["user", "create", "ann", "--password-file", "secret.txt"], []),
    ],
)  # fmt: skip
def test_where_secrets_stand(words: list[str], found: list[tuple[str, str]]) -> None:
    assert [(one.name, one.instead) for one in find_shown(words)] == found
    assert all(one.secret == SECRET and SECRET not in one.warning for one in find_shown(words))
