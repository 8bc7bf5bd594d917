"""`foldlog user` at a directory, at a broker, and at a directory that a broker serves; no password is ever shown."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import foldlog
from cli.command import parsed
from cli.places import Terminal
from foldlog.broker.access.store import stored_access
from foldlog.cli import exit_codes
from foldlog.cli.access import user
from foldlog.cli.main import main
from foldlog.files.posix import PosixFiles


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text("correct horse\n")
    path.chmod(0o600)
    return str(path)


def knows(at: Terminal, name: str, password: str) -> bool:
    """Whether what is stored fits that password."""
    return stored_access(PosixFiles(), str(at.place.directory)).users.knows(name, password)


def test_users_are_made_listed_changed_and_deleted(emptied: Terminal, secret: str, tmp_path: Path) -> None:
    at = emptied
    assert at("user", "list") == (0, "", "there are no users; to make one: foldlog user create NAME\n")
    assert at.done("user", "create", "alice", "--password-file", secret) == "alice: created\n"
    assert at.json("user", "create", "bob", "--password-file", secret) == [{"user": "bob", "status": "created"}]
    assert at.done("user", "list", "-q") == "alice\nbob\n"
    assert at.json("user", "list")[0] == {
        "user": "alice",
        "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "iterations": 16_384,
    }
    assert knows(at, "alice", "correct horse")
    other = tmp_path / "other"
    other.write_text("battery staple")
    other.chmod(0o600)
    assert at.done("user", "password", "alice", "--password-file", str(other)) == "alice: password changed\n"
    assert knows(at, "alice", "battery staple")
    assert not knows(at, "alice", "correct horse")
    assert at.done("user", "delete", "alice", "bob", "--dry-run") == (
        "alice: would be deleted\nbob: would be deleted\n"
    )
    assert at.done("user", "delete", "alice", "bob") == "alice: deleted\nbob: deleted\n"
    assert at.done("user", "list", "-q") == ""


def test_who_is_there_and_who_is_not(emptied: Terminal, secret: str) -> None:
    at = emptied
    at.done("user", "create", "alice", "--password-file", secret)
    again = at.refused(exit_codes.IN_THE_WAY, "user", "create", "alice", "--password-file", secret)
    assert "foldlog user password alice" in again
    for verb in (("password", "bob", "--password-file", secret), ("delete", "alice", "bob")):
        assert "no user 'bob'" in at.refused(exit_codes.NOT_FOUND, "user", *verb)
    assert at.done("user", "list", "-q") == "alice\n"


def test_names_and_passwords_that_cannot_be(at_directory: Terminal, tmp_path: Path, secret: str) -> None:
    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    for data in (b"", b"\n", b"two\nlines\n", b"\xff\n", b"x" * 5000):
        wrong.write_bytes(data)
        at_directory.refused(exit_codes.USAGE, "user", "create", "alice", "--password-file", str(wrong))
    for name in ("", " alice", "a\nb"):
        at_directory.refused(exit_codes.USAGE, "user", "create", name, "--password-file", secret)
    assert at_directory.done("user", "list", "-q") == ""


def test_a_password_comes_from_a_pipe(at_directory: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe\n")))
    at_directory.done("user", "create", "piped", "--password-file", "-")
    assert knows(at_directory, "piped", "from a pipe")
    at_directory.done("user", "delete", "piped")


def test_a_file_that_others_can_read_is_named(at_directory: Terminal, secret: str) -> None:
    Path(secret).chmod(0o644)
    code, _, told = at_directory("user", "create", "loose", "--password-file", secret)
    assert code == 0
    assert secret in told
    assert "0644" in told
    assert "correct" not in told
    at_directory.done("user", "delete", "loose")


def test_a_person_is_asked_twice_and_a_script_is_not(at_directory: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--password-file" in at_directory.refused(exit_codes.USAGE, "user", "create", "asked")
    monkeypatch.setattr(user, "is_attended", lambda: True)
    answers = iter(["one", "two", "same", "same"])
    monkeypatch.setattr(user, "getpass", lambda _: next(answers))
    assert "passwords differ" in at_directory.refused(exit_codes.USAGE, "user", "create", "asked")
    at_directory.done("user", "create", "asked")
    assert knows(at_directory, "asked", "same")
    at_directory.done("user", "delete", "asked")


def test_no_option_takes_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["user", "create", "alice", "--password", "secret", "-d", "x"]) == exit_codes.USAGE
    assert "secret" not in capsys.readouterr().err
    assert parsed(["user", "create", "alice"], FOLDLOG_PASSWORD_FILE="there").password_file == "there"


def test_what_is_stored_is_readable_by_its_owner_alone(at_directory: Terminal, secret: str) -> None:
    at_directory.done("user", "create", "kept", "--password-file", secret)
    path = at_directory.place.directory / "access.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"correct horse" not in path.read_bytes()
    at_directory.done("user", "delete", "kept")


def test_a_directory_that_somebody_writes_without_serving_is_still_read(
    tmp_path: Path, secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(tmp_path / "written")
    foldlog.open(directory).close()
    assert main(["user", "create", "alice", "--password-file", secret, "-d", directory]) == 0
    with foldlog.open(directory):
        capsys.readouterr()
        assert main(["user", "list", "-q", "-d", directory]) == 0
        assert capsys.readouterr().out == "alice\n"
