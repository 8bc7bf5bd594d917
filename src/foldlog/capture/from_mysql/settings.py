"""What a server is set to, and why that does not do: one sentence each, with what to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from foldlog.errors import DatabaseRefused

_VARIABLES: Final = """
    SHOW GLOBAL VARIABLES WHERE Variable_name IN (
        'version', 'server_id', 'server_uuid', 'log_bin', 'log_bin_basename',
        'binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'binlog_row_value_options', 'binlog_checksum',
        'binlog_transaction_compression', 'innodb_native_foreign_keys', 'gtid_domain_id')
"""

_COLLATIONS: Final = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
_MORE_COLLATIONS: Final = """
    SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL
"""
"""Of MariaDB 10.10 and later, which has collations that go with several character sets."""


class Ask(Protocol):
    """Runs a query with its arguments, and returns its rows; `step` is for errors."""

    def __call__(self, text: str, arguments: tuple[object, ...] = (), *, step: str) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True, slots=True)
class BinlogSettings:
    """A server's variables by name, in lower case, and its character sets by the number of a collation."""

    variables: dict[str, str]
    charsets: dict[int, str]

    @classmethod
    def asked(cls, ask: Ask) -> BinlogSettings:
        variables = {name.lower(): value for name, value in ask(_VARIABLES, step="asking for settings")}
        charsets = dict(ask(_COLLATIONS, step="asking for character sets"))
        if "mariadb" in variables.get("version", "").lower():
            try:
                charsets.update(ask(_MORE_COLLATIONS, step="asking for character sets"))
            except DatabaseRefused:
                pass  # before 10.10 there are none
        return cls(variables, {int(number): name for number, name in charsets.items()})

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.variables["version"].lower()

    @property
    def version(self) -> tuple[int, ...]:
        """
        >>> BinlogSettings({"version": "10.11.19-MariaDB-deb12u1"}, {}).version
        (10, 11, 19)
        """
        return tuple(int(part) for part in self.variables["version"].partition("-")[0].split(".")[:3])

    @property
    def identity(self) -> str:
        """MariaDB has no lasting id of its own: its server_uid changes with its address. There the binlog itself tells
        whether it is another one, by when its files were begun."""
        found = self.variables
        return found.get("server_uuid") or f"{found.get('gtid_domain_id')}-{found.get('server_id')}"

    @property
    def file_prefix(self) -> str:
        return self.variables.get("log_bin_basename", "").rpartition("/")[2]

    @property
    def has_checksum(self) -> bool:
        return self.variables.get("binlog_checksum", "NONE").upper() != "NONE"

    @property
    def has_quiet_cascades(self) -> bool:
        """Whether rows that a foreign key changes are InnoDB's business alone, and not in the binlog."""
        return self.is_mariadb or self.version < (9, 6) or self.variables.get("innodb_native_foreign_keys") == "ON"

    @property
    def show_status(self) -> str:
        return "SHOW MASTER STATUS" if self.is_mariadb or self.version < (8, 4) else "SHOW BINARY LOG STATUS"

    @property
    def show_replicas(self) -> str:
        return "SHOW SLAVE HOSTS" if self.is_mariadb or self.version < (8, 0, 22) else "SHOW REPLICAS"


def check_settings(settings: BinlogSettings, place: str, server_id: int) -> None:
    """DatabaseRefused, in one sentence, if changes cannot be read from such a server."""
    oldest = (10, 5) if settings.is_mariadb else (8, 0, 14)
    if settings.version < oldest:
        raise DatabaseRefused(
            f"{place} is {'MariaDB' if settings.is_mariadb else 'MySQL'} {settings.variables['version']}; captures need"
            f" {'.'.join(map(str, oldest))} or later, whose binlog can name columns"
        )
    if settings.variables.get("log_bin") != "ON":
        raise DatabaseRefused(
            f"{place} has no binlog (log_bin=OFF); set log_bin and server_id in the server's my.cnf, and restart it"
        )
    for name, wanted in (("binlog_format", "ROW"), ("binlog_row_image", "FULL"), ("binlog_row_metadata", "FULL")):
        found = settings.variables.get(name, wanted)
        if found.upper() != wanted:
            raise DatabaseRefused(
                f"{place} has {name}={found}, and changes can be read with {wanted} only; run SET GLOBAL"
                f" {name} = '{wanted}' (and put it into my.cnf), then let programs connect again"
            )
    if settings.variables.get("binlog_transaction_compression") == "ON":
        raise DatabaseRefused(
            f"{place} compresses its binlog; run SET GLOBAL binlog_transaction_compression = OFF, then let programs"
            " connect again"
        )
    if settings.variables.get("binlog_row_value_options"):
        raise DatabaseRefused(
            f"{place} writes partial JSON; run SET GLOBAL binlog_row_value_options = '', then let programs"
            " connect again"
        )
    if settings.variables.get("server_id") in ("0", str(server_id)):
        raise DatabaseRefused(
            f"{place} has server_id={settings.variables['server_id']}, and a replica needs another one than its server;"
            " give the server an id, or this capture another: ?server_id=NUMBER in its URL"
        )
