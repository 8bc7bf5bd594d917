"""`foldlog acl`: at a directory, at a broker, and at a directory that a broker serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.places import Terminal
from cli.serving import ANY_PORT, serving
from foldlog.cli import exit_codes
from foldlog.cli.main import main


def row(**changed: str) -> dict[str, str]:
    fields = {
        "principal": "User:alice",
        "permission": "allow",
        "operation": "read",
        "resource": "topic:orders",
        "pattern": "literal",
        "host": "*",
    }
    return {**fields, **changed}


def test_acls_are_made_listed_and_deleted(emptied: Terminal) -> None:
    at = emptied
    assert at("acl", "list") == (0, "", "there are no ACLs\n")
    made = at.done("acl", "create", "alice", "read,describe", "topic:orders")
    assert made == (
        "User:alice: allow read on topic:orders: created\nUser:alice: allow describe on topic:orders: created\n"
    )
    denied = at.done("acl", "create", "User:*", "all", "cluster", "--deny", "--host", "10.0.0.9")
    assert denied == "User:*: deny all on cluster from 10.0.0.9: created\n"
    at.done("acl", "create", "bob", "write", "topic:ord", "--prefixed")
    assert at.json("acl", "list") == [
        row(principal="User:bob", operation="write", resource="topic:ord", pattern="prefixed"),
        row(),
        row(operation="describe"),
        row(principal="User:*", permission="deny", operation="all", resource="cluster", host="10.0.0.9"),
    ]
    assert at.done("acl", "list", "--principal", "bob").splitlines()[1].split() == [
        "User:bob",
        "allow",
        "write",
        "topic:ord",
        "prefixed",
        "*",
    ]
    assert len(at.json("acl", "list", "--resource", "topic:orders")) == 2
    assert len(at.json("acl", "list", "--resource", "topic:orders", "--matching")) == 3
    assert len(at.json("acl", "list", "--operation", "read,write")) == 2
    assert len(at.json("acl", "list", "--host", "10.0.0.9")) == 1
    would = at.json("acl", "delete", "--operation", "read,write", "--dry-run")
    assert [one["status"] for one in would] == ["would be deleted"] * 2
    gone = at.done("acl", "delete", "--operation", "read,write")
    assert gone == ("User:bob: allow write on topic:ord…: deleted\nUser:alice: allow read on topic:orders: deleted\n")
    assert at("acl", "delete", "--principal", "bob") == (0, "", "no ACL matches; nothing was changed\n")
    at.done("acl", "delete", "--all")
    assert at.json("acl", "list") == []


@pytest.mark.parametrize(
    "words",
    [
        ("create", "alice", "reed", "topic:orders"),
        ("create", "alice", "any", "topic:orders"),
        ("create", "alice", "read", "orders"),
        ("create", "alice", "read", "topic:"),
        ("create", "alice", "read", "cluster:mine"),
        ("create", ":alice", "read", "cluster"),
        ("create", "alice", "read", "topic:orders", "--host", ""),
        ("list", "--matching"),
        ("delete",),
        ("delete", "--all", "--principal", "alice"),
    ],
)
def test_what_is_no_acl_is_refused_in_a_sentence(at_directory: Terminal, words: tuple[str, ...]) -> None:
    code, out, err = at_directory("acl", *words)
    assert (code, out) == (exit_codes.USAGE, "")
    assert err
    assert at_directory.json("acl", "list") == []


def test_a_broker_without_an_authorizer_says_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(str(tmp_path / "data"), *ANY_PORT) as broker:
        host, port = broker.address
        assert main(["acl", "list", "-b", f"{host}:{port}"]) == exit_codes.FAILED
        assert "authorizer.class.name=foldlog" in capsys.readouterr().err
        assert broker.end() == 0
