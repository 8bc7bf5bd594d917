"""What the authorizer remembers is never older than the ACLs: its answers are those of the rules, asked anew each time.

The rules are those of `test_acls`, which looks through a list from top to bottom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access.test_acls import ACLS, plainly_allows
from foldlog.broker.access.acls import Acl, AclOperation, Acls, Identity, ResourceType, Verdicts
from foldlog.broker.access.store import AccessStore
from foldlog.files.memory import MemoryFiles
from foldlog.limits import TOPIC_NAME_CHARS_MAX
from foldlog.server import authorizer as module
from foldlog.server.authorizer import AclAuthorizer

WHO = st.sampled_from([Identity(f"User:{name}", host) for name in "abc" for host in ("10.0.0.1", "10.0.0.2")])
QUESTIONS = st.tuples(
    WHO,
    st.sampled_from([AclOperation(number) for number in range(3, 13)]),
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from(["o", "ord", "orders", "orders.eu", "pay"]),
)
STEPS = st.lists(st.one_of(QUESTIONS, st.lists(ACLS, max_size=8)), min_size=1, max_size=30)


def store_of(acls: Sequence[Acl] = ()) -> AccessStore:
    files = MemoryFiles()
    files.make_directory("/data")
    made = AccessStore(files, "/data", lambda: None)
    change(made, acls)
    return made


def change(store: AccessStore, acls: Sequence[Acl]) -> None:
    store.change(lambda access: replace(access, acls=Acls(acls)))


@given(STEPS, st.booleans())
def test_answers_are_those_of_the_rules_before_and_after_each_change(
    steps: list[tuple[Identity, AclOperation, ResourceType, str] | list[Acl]], if_none: bool
) -> None:
    """Each question so far is asked again after each change, so that every answer can be a remembered one."""
    store = store_of()
    asked_of = AclAuthorizer(store, Verdicts(allow_if_no_acl=if_none))
    acls: list[Acl] = []
    questions = []
    for step in steps:
        if isinstance(step, list):
            acls = step
            change(store, acls)
        else:
            questions.append(step)
        for question in questions:
            for _ in range(2):
                assert asked_of.allows(*question) == plainly_allows(acls, *question, if_none)


@pytest.mark.parametrize("questions", ["of one client", "of a client each"])
def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch, questions: str) -> None:
    monkeypatch.setattr(module, "DECISIONS_MAX", 200)
    asked_of = AclAuthorizer(store_of(), Verdicts(allow_if_no_acl=True))
    for number in range(1000):
        who = Identity("User:a" if questions == "of one client" else f"User:{number}", "10.0.0.1")
        assert asked_of.allows(who, AclOperation.READ, ResourceType.GROUP, f"group-{number}")
        assert remembered(asked_of) <= 200
    assert remembered(asked_of) > 0


def test_names_that_are_longer_than_a_topics_are_decided_and_not_remembered() -> None:
    asked_of = AclAuthorizer(store_of(), Verdicts(allow_if_no_acl=True))
    who = Identity("User:a", "10.0.0.1")
    for size, is_kept in ((TOPIC_NAME_CHARS_MAX + 1, False), (32_000, False), (TOPIC_NAME_CHARS_MAX, True)):
        assert asked_of.allows(who, AclOperation.READ, ResourceType.GROUP, "g" * size)
        assert (remembered(asked_of) > 0) == is_kept


def remembered(asked_of: AclAuthorizer) -> int:
    kinds = [kind for known in asked_of._decisions.known.values() for kind in known.values()]
    return sum(len(names) for operations in kinds for names in operations.values())
