"""Conversations about users, quotas, ACLs and logins, where nobody logs in and nobody asks for ACLs.

What ACLs decide is compared in `tests/clusters/test_access_apache.py`, between brokers that have an authorizer.
"""

from __future__ import annotations

from typing import Any

from conversations.running import conversation
from conversations.talk import Talk

ACL = {"operation": 3, "permission_type": 3, "principal": "User:ann", "host": "*"}
ANYTHING: dict[str, Any] = {
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    "principal_filter": None,
    "host_filter": None,
}


@conversation("DescribeAcls")
def acls_are_described_without_an_authorizer(talk: Talk) -> None:
    talk.ask("DescribeAcls", "all", resource_type_filter=1, resource_name_filter=None, **ANYTHING)


@conversation("CreateAcls")
def acls_are_made_without_an_authorizer(talk: Talk) -> None:
    resource = {"resource_type": 2, "resource_name": talk.name("topic"), "resource_pattern_type": 3}
    talk.ask("CreateAcls", "one", creations=[{**resource, **ACL}])
    talk.ask("CreateAcls", "none", creations=[])


@conversation("DeleteAcls")
def acls_are_deleted_without_an_authorizer(talk: Talk) -> None:
    talk.ask("DeleteAcls", "all", filters=[{"resource_type_filter": 1, "resource_name_filter": None, **ANYTHING}])


@conversation("DescribeClientQuotas", "AlterClientQuotas")
def quotas_are_set_and_described(talk: Talk) -> None:
    user = talk.name("ann")

    def alter(step: str, key: str, value: float, *, remove: bool = False, kind: str = "user") -> None:
        entity = [{"entity_type": kind, "entity_name": user}]
        ops = [{"key": key, "value": value, "remove": remove}]
        talk.ask("AlterClientQuotas", step, entries=[{"entity": entity, "ops": ops}], validate_only=False)

    def described(step: str, kind: str = "user") -> None:
        component = {"entity_type": kind, "match_type": 0, "match": user}
        talk.ask("DescribeClientQuotas", step, settling=True, components=[component], strict=False)

    described("before")
    alter("set", "producer_byte_rate", 1000.0)
    described("set")
    alter("removed", "producer_byte_rate", 0.0, remove=True)
    described("removed")
    alter("no such quota", "colour", 1.0)
    alter("no such kind", "producer_byte_rate", 1.0, kind="planet")
    described("of no such kind", "planet")


@conversation("DescribeUserScramCredentials", "AlterUserScramCredentials")
def users_are_made_and_described(talk: Talk) -> None:
    user = talk.name("ann")

    def upserted(step: str, iterations: int, mechanism: int = 1, name: str = user) -> None:
        made = {
            "name": name,
            "mechanism": mechanism,
            "iterations": iterations,
            "salt": b"salt",
            "salted_password": b"x" * 32,
        }
        talk.ask("AlterUserScramCredentials", step, deletions=[], upsertions=[made])

    def described(step: str) -> None:
        talk.ask("DescribeUserScramCredentials", step, settling=True, users=[{"name": user}])

    described("nobody")
    upserted("too few iterations", 1)
    upserted("too many iterations", 20_000)
    upserted("no such mechanism", 4096, 9)
    upserted("no name", 4096, name="")
    upserted("made", 4096)
    described("made")
    deletion = [{"name": user, "mechanism": 1}]
    talk.ask("AlterUserScramCredentials", "deleted", deletions=deletion, upsertions=[])
    talk.ask("AlterUserScramCredentials", "deleted again", deletions=deletion, upsertions=[], settling=True)


@conversation("SaslHandshake")
def a_handshake_where_nobody_logs_in(talk: Talk) -> None:
    talk.ask("SaslHandshake", "asked", mechanism="PLAIN")


@conversation("SaslAuthenticate")
def a_password_where_nobody_logs_in(talk: Talk) -> None:
    talk.ask("SaslAuthenticate", "asked", auth_bytes=b"\0ann\0secret")
