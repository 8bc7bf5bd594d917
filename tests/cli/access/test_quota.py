"""`foldlog quota`: at a directory, at a broker, and at a directory that a broker serves."""

from __future__ import annotations

import pytest

from cli.places import Terminal
from foldlog.cli import exit_codes


def test_quotas_are_set_listed_and_deleted(emptied: Terminal) -> None:
    at = emptied
    assert at("quota", "list") == (0, "", "there are no quotas\n")
    made = at.done("quota", "set", "--user", "alice", "producer_byte_rate=1MiB", "request_percentage=12.5")
    assert made == "user alice: producer_byte_rate=1048576 set\nuser alice: request_percentage=12.5 set\n"
    at.done("quota", "set", "--default-user", "--client-id", "app", "consumer_byte_rate=10")
    at.done("quota", "set", "--default-ip", "connection_creation_rate=5")
    assert at.json("quota", "list") == [
        {"user": None, "client_id": None, "ip": "(default)", "quota": "connection_creation_rate", "value": 5},
        {"user": "(default)", "client_id": "app", "ip": None, "quota": "consumer_byte_rate", "value": 10},
        {"user": "alice", "client_id": None, "ip": None, "quota": "producer_byte_rate", "value": 1_048_576},
        {"user": "alice", "client_id": None, "ip": None, "quota": "request_percentage", "value": 12.5},
    ]
    would = at.json("quota", "delete", "--user", "alice", "request_percentage", "--dry-run")
    assert [(one["quota"], one["status"]) for one in would] == [("request_percentage", "would be deleted")]
    assert at.done("quota", "delete", "--user", "alice", "request_percentage") == (
        "user alice: request_percentage=12.5 deleted\n"
    )
    assert at.done("quota", "delete", "--user", "alice") == "user alice: producer_byte_rate=1048576 deleted\n"
    assert at("quota", "delete", "--user", "alice") == (0, "", "user alice has no such quota; nothing was changed\n")
    assert len(at.json("quota", "list")) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("set", "producer_byte_rate=1"),
        ("set", "--user", "a"),
        ("set", "--user", "a", "producer_byte_rate"),
        ("set", "--user", "a", "speed=1"),
        ("set", "--user", "a", "producer_byte_rate=fast"),
        ("set", "--user", "a", "producer_byte_rate=0"),
        ("set", "--user", "a", "request_percentage=nan"),
        ("set", "--user", "a", "request_percentage=1", "request_percentage=2"),
        ("set", "--user", "a", "--default-user", "request_percentage=1"),
        ("set", "--user", "a", "--ip", "::1", "request_percentage=1"),
        ("set", "--ip", "localhost", "connection_creation_rate=1"),
        ("set", "--ip", "::1", "request_percentage=1"),
        ("delete", "request_percentage"),
        ("delete", "--user", "a", "speed"),
    ],
)
def test_what_is_no_quota_is_refused_in_a_sentence(at_directory: Terminal, words: tuple[str, ...]) -> None:
    code, out, err = at_directory("quota", *words)
    assert (code, out) == (exit_codes.USAGE, "")
    assert err
    assert at_directory.json("quota", "list") == []
