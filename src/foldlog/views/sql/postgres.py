"""PostgreSQL databases that hold views, through psycopg, which is imported on first use.

Every error of the engine becomes ViewUnavailable, in one sentence and without the password. Waiting for a lock ends
after VIEW_LOCK_WAIT_MS, with the processes that hold it. Rows hidden by row level security are an error: a fold that
does not see a row cannot delete it, nor tell that it exists. Settings are set per transaction, so that a connection
pooler may use another connection for each transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from foldlog.errors import InvalidArgument, MissingDependency, ViewUnavailable, brief_repr
from foldlog.limits import VIEW_CONNECT_MS, VIEW_LOCK_WAIT_MS
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.names import BOOKMARKS, TableName, quoted

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

URL_PREFIXES: Final = ("postgresql://", "postgres://")

_SECRETS: Final = ("password", "sslpassword", "passfile", "oauth_client_secret")

_SETTINGS: Final = """
    SELECT set_config('lock_timeout', %s, true), set_config('TimeZone', 'UTC', true),
           set_config('DateStyle', 'ISO, YMD', true), set_config('extra_float_digits', '1', true),
           set_config('bytea_output', 'hex', true), set_config('idle_in_transaction_session_timeout', '0', true),
           set_config('row_security', %s, true),
           set_config('synchronous_commit',
                      CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                      ELSE current_setting('synchronous_commit') END, true)
"""
"""Settings that the statements here rely on; and every commit has to be durable."""

_HOLDERS: Final = """
    SELECT DISTINCT activity.pid, coalesce(nullif(activity.application_name, ''), activity.usename), activity.state
    FROM pg_locks AS held JOIN pg_stat_activity AS activity USING (pid)
    WHERE held.granted AND held.pid <> pg_backend_pid() AND held.database = (
              SELECT oid FROM pg_database WHERE datname = current_database())
          AND held.relation = ANY (SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
    ORDER BY 1 LIMIT 5
"""

_HIDING: Final = """
    SELECT pg_class.oid::regclass::text, quote_ident(current_user), pg_has_role(current_user, relowner, 'USAGE')
    FROM pg_class WHERE relrowsecurity AND row_security_active(pg_class.oid) AND strpos(%s, relname) > 0
    ORDER BY length(relname) DESC LIMIT 1
"""
"""The table that the server's message mentions, in any language, and whose policies apply to this role."""


def is_postgres_url(text: object) -> bool:
    """Whether the text is a URL of this engine."""
    return isinstance(text, str) and text.startswith(URL_PREFIXES)


def public_url(url: str) -> str:
    """The URL without secrets, in a canonical form.

    >>> public_url("postgres://shop:secret@db:5432/shop?sslmode=require&password=x")
    'postgresql://shop@db:5432/shop?sslmode=require'
    """
    rest = url.partition("://")[2]
    before_query, _, query = rest.partition("?")
    authority, slash, database = before_query.partition("/")
    user, at, hosts = authority.rpartition("@")
    shown = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name not in _SECRETS]
    text = f"postgresql://{user.partition(':')[0]}{at}{hosts}{slash}{database}"
    return f"{text}?{urlencode(shown)}" if shown else text


def load_psycopg() -> Any:
    """The driver, or MissingDependency."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingDependency("a view in PostgreSQL", "psycopg", "views") from error
    return psycopg


class PostgresDatabase:
    """One connection to a database, made on first use and again after it was lost; one thread at a time.

    `location` is its name in errors. `tables` are those whose lock holders are named after a lock timeout.
    """

    def __init__(
        self, url: str, location: str, tables: tuple[TableName, ...], *, wait_ms: int = VIEW_LOCK_WAIT_MS
    ) -> None:
        if not is_postgres_url(url):
            raise InvalidArgument(f"{brief_repr(url)} is not a URL such as postgresql://user@host/database")
        self.url = url
        self.location = location
        self._tables = tables
        self._wait_ms = wait_ms
        self._connection: Connection | None = None

    @contextmanager
    def transaction(
        self, *, snapshot: bool = False, wait_ms: int | None = None, only_visible: bool = False
    ) -> Iterator[Connection]:
        """Committed, and durable, when the block ends; rolled back if it raises.

        With `snapshot` it only reads, from one state of the database. `wait_ms` shortens the wait for a lock. With
        `only_visible`, rows that row level security hides from this role are left out; otherwise they are an error.
        """
        lock_wait_ms = self._wait_ms if wait_ms is None else min(wait_ms, self._wait_ms)
        psycopg = load_psycopg()
        try:
            connection = self._connected(psycopg)
            # Not the database's default: a stricter level would fail where this one waits, and then compares.
            level = psycopg.IsolationLevel
            connection.isolation_level = level.REPEATABLE_READ if snapshot else level.READ_COMMITTED
            connection.read_only = True if snapshot else None
            with connection.transaction():
                connection.execute(_SETTINGS, (str(lock_wait_ms), "on" if only_visible else "off"))
                yield connection
        except psycopg.errors.LockNotAvailable as error:
            raise ViewUnavailable(self.location, self._who_holds_it(psycopg, lock_wait_ms)) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise ViewUnavailable(self.location, self._what_hides_rows(psycopg, error) or _one_line(error)) from error
        except psycopg.Error as error:
            raise ViewUnavailable(self.location, _one_line(error)) from error
        finally:
            if self._connection is not None and self._connection.broken:
                self.close()

    def outside_transaction(self, statement: str) -> None:
        """Run a statement that PostgreSQL refuses inside a transaction, such as VACUUM."""
        psycopg = load_psycopg()
        try:
            self._connected(psycopg).execute(statement.encode())
        except psycopg.Error as error:
            raise ViewUnavailable(self.location, _one_line(error)) from error

    def another(self) -> PostgresDatabase:
        """This database through a separate connection."""
        return PostgresDatabase(self.url, self.location, self._tables, wait_ms=self._wait_ms)

    def close(self) -> None:
        """Close the connection; the next transaction makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self, psycopg: Any) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        try:
            given = psycopg.conninfo.conninfo_to_dict(self.url)
        except psycopg.ProgrammingError as error:
            raise InvalidArgument(f"{public_url(self.url)} is not a URL that PostgreSQL understands") from error
        defaults: dict[str, object] = {
            "connect_timeout": VIEW_CONNECT_MS // 1000,
            "application_name": "foldlog",
            "client_encoding": "UTF8",
        }
        chosen = {name: value for name, value in defaults.items() if name not in given or name == "client_encoding"}
        # No prepared statements: poolers lose them, and a range takes few statements.
        connection: Connection = psycopg.connect(self.url, autocommit=True, prepare_threshold=None, **chosen)
        self._connection = connection
        return connection

    def _who_holds_it(self, psycopg: Any, waited_ms: int) -> str:
        waited = f"waited {waited_ms} ms for a lock"
        connection = self._connection
        if connection is None or connection.closed:
            return waited
        names = [table.sql for table in self._tables]
        try:
            holders = connection.execute(_HOLDERS, (names,)).fetchall()
        except psycopg.Error as error:
            return f"{waited}, and who holds it cannot be read ({_one_line(error)})"
        if not holders:
            return f"{waited} that has just been given back; run the fold again"
        who = ", ".join(f"process {pid} ({application}, {state})" for pid, application, state in holders)
        return f"{waited} that may be held by {who}; end that transaction"

    def _what_hides_rows(self, psycopg: Any, error: Exception) -> str | None:
        """What to do about row level security; None if the error is about something else."""
        connection = self._connection
        if connection is None or connection.closed:
            return None
        try:
            found = connection.execute(_HIDING, (str(error),)).fetchone()
        except psycopg.Error:
            return None
        if found is None:
            return None
        table, role, is_owner = found
        other = (
            f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY"
            if is_owner
            else f"fold as the owner of {table}, without FORCE ROW LEVEL SECURITY"
        )
        return (
            f"row level security of {table} hides rows from the role {role}, so a fold could neither delete them nor"
            f" tell that they are there; ALTER ROLE {role} BYPASSRLS, or {other}"
        )


def bookmark_table(schema: str | None) -> BookmarkTable:
    """The bookmark table in the schema of the views' tables."""
    return BookmarkTable(TableName(BOOKMARKS, schema), mark="%s", lock=" FOR UPDATE")


def runner(connection: Connection) -> Run:
    """A `bookmarks.Run`. In a statement without values, a percent sign has no special meaning."""

    def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []

    return run


def resolved(run: Run, table: TableName, location: str) -> TableName:
    """The table with its schema; by default the first existing one of the search path."""
    schema = table.schema
    if schema is None:
        schema = run("SELECT current_schema()")[0][0]
        if schema is None:
            raise ViewUnavailable(location, "no schema of the search path exists; name one, as in 'public.payments'")
    return TableName(table.name, schema)


def table_exists(run: Run, table: TableName) -> bool:
    """Whether a table, a view or a sequence of that name exists."""
    return bool(run("SELECT to_regclass(%s) IS NOT NULL", table.sql)[0][0])


def relation_bytes(run: Run, table: TableName) -> int | None:
    """The size of a table with its indexes; None if there is none."""
    found: int | None = run("SELECT pg_total_relation_size(to_regclass(%s))", table.sql)[0][0]
    return found


def lock_schema(run: Run, schema: str | None) -> None:
    """Until the transaction ends, no other process makes, swaps or drops views in this schema."""
    run("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", f"foldlog views in {quoted(schema or '')}")


def _one_line(error: Exception) -> str:
    """The server's message without its hints and positions, which are on further lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"PostgreSQL says: {lines[0].rstrip('.')}" if lines else f"PostgreSQL says: {type(error).__name__}"
