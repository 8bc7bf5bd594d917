"""Connections to a captured PostgreSQL, and its errors as sentences that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from foldlog.capture.from_postgres.values import SESSION
from foldlog.errors import (
    CaptureError,
    CaptureRunning,
    DatabaseRefused,
    DatabaseUnavailable,
    InvalidArgument,
    MissingDependency,
    brief_repr,
)
from foldlog.views.sql.postgres import is_postgres_url, public_url

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_S: Final = 10

_APPLICATION: Final = "foldlog capture"

PRIVILEGE: Final = "42501"
_IN_USE: Final = "55006"
_FULL: Final = "53400"
"""SQLSTATEs."""


class Database:
    """Where it is, and how to reach it. `tell` gets sentences for people."""

    def __init__(self, url: str, tell: Callable[[str], None]) -> None:
        if not is_postgres_url(url):
            raise InvalidArgument(f"{brief_repr(url)} is not a URL such as postgresql://user@host/database")
        self.url = url
        self.place = public_url(url)
        self.tell = tell

    def connect(self, *, replication: bool = False) -> Connection:
        psycopg = load_psycopg()
        try:
            given = psycopg.conninfo.conninfo_to_dict(self.url)
        except psycopg.ProgrammingError as error:
            raise InvalidArgument(f"{self.place} is not a URL of PostgreSQL's: {_line(error)}") from error
        settings = {
            "application_name": _APPLICATION,
            "connect_timeout": CONNECT_S,
            "client_encoding": "UTF8",
            **given,
            "options": f"{given.get('options', '')} {SESSION}".strip(),
        }
        if replication:
            settings["replication"] = "database"
        try:
            connection: Connection = psycopg.connect(**settings, autocommit=True)
        except psycopg.OperationalError as error:
            said = _line(error)
            if "replication role" in said or "permission denied to start WAL sender" in said:
                raise DatabaseRefused(
                    f"{self.place}: this role may not replicate; let an administrator run: ALTER ROLE"
                    f" {given.get('user') or 'NAME'} REPLICATION"
                ) from error
            raise DatabaseUnavailable(self.place, said) from error
        return connection


def load_psycopg() -> Any:
    """The driver, or MissingDependency."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingDependency("capturing PostgreSQL", "psycopg", "capture") from error
    return psycopg


def refusal(database: Database, step: str, code: bytes | str | None, said: str) -> CaptureError:
    """The error for what a server answered with an SQLSTATE."""
    state = code.decode() if isinstance(code, bytes) else code or ""
    place, said = database.place, said.strip().partition("\n")[0]
    if state == _IN_USE:
        return CaptureRunning(f"{place}: {said}; the capture runs elsewhere: stop it there, or wait until it has ended")
    if state == PRIVILEGE:
        return DatabaseRefused(
            f"{place}: this role may not do that ({step}: {said}); docs/capture.md lists what it needs", state
        )
    if state == _FULL:
        return DatabaseRefused(
            f"{place}: {said}; drop a slot that nobody uses, or raise max_replication_slots and restart the server",
            state,
        )
    if state.startswith(("57", "08")):
        return DatabaseUnavailable(place, said)
    return DatabaseRefused(f"{place}: {step} failed: {said}", state)


def _line(error: Exception) -> str:
    return str(error).strip().replace("\n", " ").replace("\t", " ")
