"""Users and ACLs in the console: who there is, and who may do what. Passwords come in, and never go out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.access.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from foldlog.client.access import AccessAdmin, HereAccess
from foldlog.files.posix import PosixFiles
from foldlog.server.access.audit import note
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.parameters import JsonBody, bad_request
from foldlog.server.console.rights import DESCRIBE, identity_of, of_cluster
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute
from foldlog.server.topic_admin import refuse_if_leaving

if TYPE_CHECKING:
    from foldlog.server.node import BrokerNode

_WORDS: Final = {
    "resource": (ResourceType, ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")),
    "pattern": (PatternType, ("LITERAL", "PREFIXED")),
    "operation": (
        AclOperation,
        tuple(one.name for one in AclOperation if one not in (AclOperation.UNKNOWN, AclOperation.ANY)),
    ),
    "permission": (Permission, ("ALLOW", "DENY")),
}


class AccessPages:
    """The handlers for users and ACLs of one console. Event loop only. `is_private`: nobody between the browser and the
    console can read along."""

    def __init__(self, node: BrokerNode, workers: Executor, *, is_private: bool) -> None:
        self._node = node
        self._workers = workers
        self._is_private = is_private

    def routes(self) -> list[HttpRoute]:
        look, change = of_cluster(DESCRIBE), of_cluster(AclOperation.ALTER)
        return [
            HttpRoute("GET", "/api/access", self.access, look),
            HttpRoute("POST", "/api/users/{user}/password", self.set_password, change),
            HttpRoute("POST", "/api/users/{user}/delete", self.delete_user, change),
            HttpRoute("POST", "/api/acls", self.create_acl, change),
            HttpRoute("POST", "/api/acls/delete", self.delete_acl, change),
        ]

    @property
    def _admin(self) -> AccessAdmin:
        return AccessAdmin(HereAccess(self._node.broker, PosixFiles()))

    async def _run(self, function: Callable[[], Any]) -> HttpResponse:
        response: HttpResponse = await self._node.loop.run_in_executor(
            self._workers, lambda: HttpResponse.json(function())
        )
        return response

    async def access(self, _: HttpRequest) -> HttpResponse:
        def look() -> dict[str, Any]:
            return {
                "has_logins": self._node.settings.has_logins,
                "has_acls": self._node.has_authorizer,
                "users": [
                    {"user": one.name, "mechanisms": dict(one.iterations)}
                    for one in sorted(self._admin.users(), key=lambda one: one.name)
                ],
                "acls": [_acl_shown(one) for one in sorted(self._admin.acls(AclFilter()))],
            }

        return await self._run(look)

    async def set_password(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        password = body.text("password")
        body.end()
        refuse_if_leaving(self._node)
        if not self._is_private:
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                "this console has no TLS, so a password could be read on its way; use foldlog user create, or serve the"
                " console with --console https://HOST:PORT",
            )
        name = request.named["user"]

        def change() -> dict[str, Any]:
            is_new = all(one.name != name for one in self._admin.users())
            self._admin.set_password(name, password)
            return {"user": name, "is_new": is_new}

        return await self._run(change)

    async def delete_user(self, request: HttpRequest) -> HttpResponse:
        JsonBody(request).end()
        refuse_if_leaving(self._node)
        name = request.named["user"]

        def change() -> dict[str, Any]:
            self._admin.delete_user(name)
            return {"user": name}

        return await self._run(change)

    async def create_acl(self, request: HttpRequest) -> HttpResponse:
        acl = _acl_of(request)
        refuse_if_leaving(self._node)
        if not self._node.has_authorizer:
            raise ApiError(
                HTTPStatus.CONFLICT,
                "this broker uses no ACLs; serve it with authorizer.class.name=foldlog",
            )

        def change() -> dict[str, Any]:
            self._admin.create_acls([acl])
            return _acl_shown(acl)

        response = await self._run(change)
        self._note(request, "create ACL", acl)
        return response

    async def delete_acl(self, request: HttpRequest) -> HttpResponse:
        acl = _acl_of(request)
        refuse_if_leaving(self._node)

        def change() -> dict[str, Any]:
            if not self._admin.acls(AclFilter(*acl)):
                raise ApiError(HTTPStatus.NOT_FOUND, "there is no such ACL any more")
            self._admin.delete_acls(AclFilter(*acl))
            return _acl_shown(acl)

        response = await self._run(change)
        self._note(request, "delete ACL", acl)
        return response

    def _note(self, request: HttpRequest, action: str, acl: Acl) -> None:
        """The path does not say which ACL: its line of the audit does."""
        if self._node.is_audited:
            shown = _acl_shown(acl)
            note(identity_of(request), f"console {action}", [" ".join(shown.values())])


def _acl_shown(acl: Acl) -> dict[str, str]:
    return {
        "permission": acl.permission.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "resource": acl.kind.name,
        "name": acl.name,
        "pattern": acl.pattern.name,
    }


def _acl_of(request: HttpRequest) -> Acl:
    body = JsonBody(request)
    words: dict[str, Any] = {}
    for field, (kind, allowed) in _WORDS.items():
        word = body.text(field, default="LITERAL" if field == "pattern" else None).upper()
        if word not in allowed:
            raise bad_request(f"{field}={word!r} is not allowed; it is one of {', '.join(allowed)}")
        words[field] = kind[word]
    name, principal, host = body.text("name"), body.text("principal"), body.text("host", default="*")
    body.end()
    return Acl(words["resource"], name, words["pattern"], principal, host, words["operation"], words["permission"])
