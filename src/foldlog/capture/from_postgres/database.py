"""PostgreSQL as a source: a publication says which tables, a slot keeps their changes, pgoutput tells them.

The slot is made before the snapshot is read, and exports the snapshot of that very moment: what committed before the
slot's position is in the snapshot, all else is in the stream. A table that comes later, or whose snapshot was cut
short, gets one of a temporary slot.

The slot may forget only what is behind our bookmark, and we tell it so only after a commit. So a slot that stands
before us was moved, or made anew, by somebody else: then changes are missing, and we say so.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event as StopEvent
from typing import TYPE_CHECKING, Any, Final

from foldlog.capture.database import (
    DELETE,
    INSERT,
    UPDATE,
    DatabaseStatus,
    Event,
    Fragments,
    NothingNew,
    RowChanged,
    RowLayout,
    SnapshotRows,
    Table,
    TablesTruncated,
    TransactionBegins,
    TransactionEnds,
)
from foldlog.capture.from_postgres.catalog import Columns, TableCatalog
from foldlog.capture.from_postgres.connecting import PRIVILEGE, Database, load_psycopg, refusal
from foldlog.capture.from_postgres.pgoutput import (
    MISSING,
    BeginMessage,
    CommitMessage,
    RelationMessage,
    RowMessage,
    TruncateMessage,
    Values,
    parse,
)
from foldlog.capture.from_postgres.replication import ReplicationConnection
from foldlog.errors import CaptureError, CaptureRunning, ChangesLost, DatabaseRefused, DatabaseUnavailable
from foldlog.views.sql.names import quoted

if TYPE_CHECKING:
    from foldlog.capture.declaration import Capture
    from foldlog.capture.from_postgres.connecting import Connection

OLDEST_VERSION: Final = 13
"""The first with publish_via_partition_root and wal_status."""

BUSY_S: Final = 30.0
"""How long a slot may be another reader's: the server notices a killed one when it writes to it."""

STUCK_BYTES: Final = 1 << 30
"""A slot that nobody reads, and that keeps so much, is worth a warning."""

_LOST: Final = frozenset({"42704", "55000", "58P01"})
"""SQLSTATEs of a stream that cannot go on: no such slot or publication, an invalidated slot, WAL that is gone."""

_OPERATIONS: Final = {"I": INSERT, "U": UPDATE, "D": DELETE}
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPED: Final = re.compile(r"\\(.)")

_SLOT: Final = """
    SELECT plugin, database, active_pid, wal_status,
           (restart_lsn - '0/0')::bigint, (confirmed_flush_lsn - '0/0')::bigint,
           (pg_current_wal_lsn() - '0/0')::bigint
    FROM pg_replication_slots WHERE slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A row of pg_replication_slots, and where the server's log ends."""

    plugin: str
    database: str
    reader: int | None
    wal_status: str | None
    kept_from: int | None
    confirmed: int | None
    end: int


def lsn_text(position: int) -> str:
    """
    >>> lsn_text(0x1_0000_00AB)
    '1/AB'
    """
    return f"{position >> 32:X}/{position & 0xFFFF_FFFF:X}"


def parse_lsn(text: str) -> int:
    """
    >>> hex(parse_lsn("1/AB"))
    '0x1000000ab'
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


class CapturedPostgres:
    """See `CapturedDatabase`. Two connections: one that asks, and one that replicates."""

    kind = "postgresql"
    position_name = "lsn"

    def __init__(self, capture: Capture, tell: Callable[[str], None], stop: StopEvent) -> None:
        self._capture = capture
        self._database = Database(capture.url, tell)
        self._stop = stop
        self._slot_name = self._publication = f"foldlog_{capture.name}"
        self._asking: Connection | None = None
        self._known_catalog: TableCatalog | None = None
        self._replicating: ReplicationConnection | None = None
        self._exported: tuple[int, str] | None = None
        """Position and name of the snapshot that the replicating connection has exported."""
        self._keys: dict[int, tuple[str, ...]] = {}
        self._relations: dict[int, Columns] = {}
        self._confirmed = 0
        self.place = self._database.place
        self.database = ""

    # --- asking ---------------------------------------------------------------------------------------------------

    @property
    def _connection(self) -> Connection:
        if self._asking is None:
            self._asking = self._database.connect()
            self.database = self._asking.info.dbname
            self._check_server(self._asking)
        return self._asking

    @property
    def _catalog(self) -> TableCatalog:
        if self._known_catalog is None:
            self._known_catalog = TableCatalog(
                lambda text, arguments: self._ask(text, arguments, step="reading the catalog"),
                is_numeric_text=self._capture.numeric == "string",
            )
        return self._known_catalog

    def _check_server(self, connection: Connection) -> None:
        version = connection.info.server_version // 10_000
        if version < OLDEST_VERSION:
            raise DatabaseRefused(f"{self.place} is PostgreSQL {version}; captures need {OLDEST_VERSION} or later")
        row = connection.execute("SELECT current_setting('wal_level'), pg_is_in_recovery()").fetchone()
        level, is_standby = row or ("", False)
        if is_standby:
            raise DatabaseRefused(f"{self.place} is a standby; capture the primary, where the publication can be made")
        if level != "logical":
            raise DatabaseRefused(
                f"{self.place} has wal_level={level}, and changes can be read with wal_level=logical only; run ALTER"
                " SYSTEM SET wal_level = logical, and restart the server"
            )

    def _ask(
        self, text: str, arguments: Sequence[object] | Mapping[str, object] = (), *, step: str
    ) -> list[tuple[Any, ...]]:
        psycopg = load_psycopg()
        try:
            cursor = self._connection.execute(text.encode(), arguments or None)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise self._refused(step, error) from error

    def _refused(self, step: str, error: Any) -> CaptureError:
        if error.sqlstate is None:
            return DatabaseUnavailable(self.place, str(error).strip().partition("\n")[0])
        return refusal(self._database, step, error.sqlstate, str(error))

    def identity(self) -> str:
        rows = self._ask(
            "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database())"
            " FROM pg_control_system()",
            step="asking for the server's identity",
        )
        return "/".join(str(part) for part in rows[0])

    def why_another(self) -> str:
        return f"{self.place} is another database than the one that was captured before"

    def tables(self) -> list[Table]:
        found, left_out = self._catalog.tables(self._capture.tables)
        for reason in left_out:
            self._database.tell(f"left out: {reason}")
        if not found:
            raise DatabaseRefused(f"{self.place} has no table to capture; make one, or say which: --table NAME")
        self._keys = {int(table.id): table.keys for table in found}
        return found

    # --- publication and slot -------------------------------------------------------------------------------------

    def _slot(self) -> _Slot | None:
        rows = self._ask(_SLOT, (self._slot_name,), step="looking for the slot")
        return _Slot(*rows[0]) if rows else None

    def wait_until_free(self) -> None:
        until = time.monotonic() + BUSY_S
        while (slot := self._slot()) is not None and slot.reader is not None:
            if time.monotonic() > until or self._stop.wait(0.2):
                raise CaptureRunning(
                    f"{self.place}: slot {self._slot_name!r} is read by process {slot.reader} of the server, so the"
                    " capture runs elsewhere; stop it there first"
                )

    def check_unused(self) -> None:
        if self._slot() is not None:
            raise DatabaseRefused(
                f"{self.place} has a replication slot {self._slot_name!r}, and this log knows nothing of it: the"
                " capture of another log may read it; give this one another name with --name, or remove the slot with"
                " 'foldlog capture drop'"
            )

    def consent(self) -> str | None:
        return None  # a slot and a publication touch no table

    def stale(self, tables: Sequence[Table]) -> frozenset[str]:
        return frozenset()  # the stream describes tables as they were

    def prepare(self, tables: Sequence[Table], position: int | None, *, anew: bool) -> int:
        self._publish(tables)
        if position is not None and not anew:
            self._check_slot(position)
            return position
        self._drop_slot()
        self._replicating = ReplicationConnection(self._database, self._stop)
        self._exported = self._made_slot(self._slot_name, "")
        return self._exported[0]

    def _publish(self, tables: Sequence[Table]) -> None:
        """The publication has these tables. It comes before the slot: the stream looks it up as of then."""
        names = ", ".join(f"ONLY {quoted(table.schema)}.{quoted(table.name)}" for table in tables)
        step = "looking for the publication"
        is_there = self._ask("SELECT 1 FROM pg_publication WHERE pubname = %s", (self._publication,), step=step)
        published = set(
            self._ask(
                "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s",
                (self._publication,),
                step=step,
            )
        )
        wanted = {(table.schema, table.name) for table in tables}
        if wanted == published:
            return
        text = f"CREATE PUBLICATION {self._publication} FOR TABLE {names} WITH (publish_via_partition_root = true)"
        if is_there:
            text = f"ALTER PUBLICATION {self._publication} SET TABLE {names}"
        psycopg = load_psycopg()
        try:
            self._connection.execute(text.encode())
        except psycopg.Error as error:
            if wanted <= published:
                return  # somebody else's, for all tables or more than these
            if error.sqlstate != PRIVILEGE:
                raise self._refused("making the publication", error) from error
            raise DatabaseRefused(
                f"{self.place}: this role may not publish these tables; let their owner, who needs CREATE on the"
                f" database, run: {text}"
            ) from error

    def _made_slot(self, name: str, kind: str) -> tuple[int, str]:
        if self._replicating is None:
            self._replicating = ReplicationConnection(self._database, self._stop)
        (made,) = self._replicating.command(
            f'CREATE_REPLICATION_SLOT "{name}"{kind} LOGICAL pgoutput EXPORT_SNAPSHOT',
            "making a replication slot",
            "the server makes the slot when every transaction has ended that is open now",
        )
        return parse_lsn(made["consistent_point"] or ""), made["snapshot_name"] or ""

    def _drop_slot(self) -> bool:
        self.wait_until_free()
        if self._slot() is None:
            return False
        self._ask("SELECT pg_drop_replication_slot(%s)", (self._slot_name,), step="dropping the slot")
        return True

    def _check_slot(self, position: int) -> _Slot:
        """ChangesLost unless the slot has everything since our bookmark."""
        slot, name = self._slot(), self._capture.name
        if slot is None:
            raise ChangesLost(name, f"its replication slot {self._slot_name!r} is gone")
        if slot.plugin != "pgoutput" or slot.database != self.database:
            raise DatabaseRefused(
                f"{self.place}: slot {self._slot_name!r} is one of database {slot.database!r} with plugin"
                f" {slot.plugin!r}; give this capture another name"
            )
        if slot.wal_status == "lost":
            raise ChangesLost(
                name,
                f"the server has invalidated slot {self._slot_name!r}, which kept more than max_slot_wal_keep_size"
                " while nobody read it",
            )
        if slot.confirmed is not None and slot.confirmed > position:
            raise ChangesLost(
                name,
                f"slot {self._slot_name!r} stands at {lsn_text(slot.confirmed)}, behind our {lsn_text(position)}:"
                " somebody else has read it, or made it anew",
            )
        if slot.end < position:
            raise ChangesLost(
                name,
                f"the server is at {lsn_text(slot.end)}, and was at {lsn_text(position)} before: it is an older copy",
            )
        return slot

    # --- rows -----------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self, tables: Sequence[Table]) -> Iterator[SnapshotRows]:
        psycopg = load_psycopg()
        if self._exported is None:
            self._exported = self._made_slot(f"{self._slot_name}_{secrets.token_hex(4)}", " TEMPORARY")
        position, name = self._exported
        reading = self._database.connect()
        try:
            reading.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            reading.execute(f"SET TRANSACTION SNAPSHOT '{name}'".encode())
            # Rows that a policy hides are an error: the stream has them.
            reading.execute("SET LOCAL row_security = off")
            catalog = TableCatalog(
                lambda text, arguments: reading.execute(text.encode(), arguments).fetchall(),
                is_numeric_text=self._capture.numeric == "string",
            )
            yield SnapshotRows(position, lambda table: self._rows(reading, catalog.columns(table)))
        except psycopg.Error as error:
            raise self._refused("reading the snapshot", error) from error
        finally:
            reading.close()
            self._exported = None
            self._leave()  # a temporary slot ends with its connection

    def _rows(self, reading: Connection, columns: Columns) -> Generator[tuple[RowLayout, Fragments], None, None]:
        layout, encoders = columns
        names = ", ".join(map(quoted, layout.columns))
        table = f"{quoted(layout.schema)}.{quoted(layout.table)}"
        is_partitioned = reading.execute(
            b"SELECT relkind = 'p' FROM pg_class WHERE oid = %s::regclass", (table,)
        ).fetchone() == (True,)
        # Rows of tables that inherit from this one are theirs, also in the stream; those of partitions are this one's.
        only = "" if is_partitioned else "ONLY "
        with (
            reading.cursor() as cursor,
            cursor.copy(f"COPY (SELECT {names} FROM {only}{table}) TO STDOUT".encode()) as rows,
        ):
            for data in rows:
                fields = bytes(data).decode().removesuffix("\n").split("\t")
                yield (
                    layout,
                    [
                        "null" if text == "\\N" else encode(_ESCAPED.sub(_unescaped, text) if "\\" in text else text)
                        for encode, text in zip(encoders, fields, strict=True)
                    ],
                )

    # --- the stream -----------------------------------------------------------------------------------------------

    def end(self) -> int:
        # Something of ours, so that the server's log grows, and the stream comes to its end.
        rows = self._ask(
            "SELECT (pg_logical_emit_message(true, 'foldlog', '') - '0/0')::bigint", step="asking for the log's end"
        )
        return int(rows[0][0])

    def stream(self, position: int, snapshots: Collection[int]) -> Generator[Event, None, None]:
        until = time.monotonic() + BUSY_S
        while True:
            self._leave()
            self._replicating = ReplicationConnection(self._database, self._stop)
            try:
                self._replicating.start(self._slot_name, lsn_text(position), self._publication)
                break
            except CaptureRunning:
                if time.monotonic() > until or self._stop.wait(0.2):
                    raise
        self._confirmed = position
        try:
            yield from self._events(self._replicating)
        except DatabaseRefused as error:
            self._check_slot(self._confirmed)
            if error.sqlstate in _LOST:
                raise ChangesLost(self._capture.name, str(error)) from error
            raise

    def _events(self, replicating: ReplicationConnection) -> Iterator[Event]:
        is_within = False
        for position, data in replicating.messages():
            if data is None:
                if not is_within:
                    yield NothingNew(position)
                continue
            message = parse(data)
            if isinstance(message, RowMessage):
                yield self._change(message, position)
            elif isinstance(message, BeginMessage):
                is_within = True
                yield TransactionBegins(message.position, message.number, message.committed_ms)
            elif isinstance(message, CommitMessage):
                is_within = False
                yield TransactionEnds(message.end)
            elif isinstance(message, RelationMessage):
                self._relations[message.oid] = self._columns(message)
            elif isinstance(message, TruncateMessage):
                yield TablesTruncated(tuple(map(str, message.oids)))

    def _columns(self, relation: RelationMessage) -> Columns:
        """As the stream describes a table, which may not be how it is by now."""
        names = [column.name for column in relation.columns]
        keys = self._keys.get(relation.oid, ())
        told = [column.name for column in relation.columns if column.is_identity]
        if relation.identity == "f":
            keys = keys if set(keys) <= set(names) else ()
        elif set(told) != set(keys):
            keys = tuple(told)
        layout = RowLayout(relation.schema, relation.name, names, keys)
        return Columns(layout, tuple(self._catalog.encoder(column.type_oid) for column in relation.columns))

    def _change(self, row: RowMessage, position: int) -> RowChanged:
        layout, encoders = self._relations[row.oid]
        return RowChanged(
            _OPERATIONS[row.kind],
            str(row.oid),
            layout,
            None if row.old is None else _fragments(row.old, encoders),
            None if row.new is None else _fragments(row.new, encoders),
            row.is_old_whole,
            position,
        )

    def confirm(self, position: int) -> None:
        self._confirmed = position
        if self._replicating is not None:
            self._replicating.confirm(position)

    def position_text(self, position: int) -> str:
        return lsn_text(position)

    def origin(self, layout: RowLayout, begun: TransactionBegins) -> Mapping[str, object]:
        return {"schema": layout.schema, "table": layout.table, "txId": begun.number}

    # --- for operators --------------------------------------------------------------------------------------------

    def status(self, position: int | None) -> DatabaseStatus:
        slot = self._slot()
        if slot is None:
            return DatabaseStatus("not begun" if position is None else "slot lost", position)
        kept = None if slot.kept_from is None else max(0, slot.end - slot.kept_from)
        lag = None if position is None else max(0, slot.end - position)
        warning = None
        state = "running" if slot.reader is not None else "stopped"
        if slot.wal_status == "lost":
            state, warning = (
                "slot lost",
                f"the server has invalidated slot {self._slot_name}: run with --snapshot again",
            )
        elif slot.reader is None and (slot.wal_status in ("extended", "unreserved") or (kept or 0) >= STUCK_BYTES):
            warning = (
                f"slot {self._slot_name} keeps {(kept or 0) >> 20} MiB of the server's log and nobody reads it: run the"
                " capture, or give it up with 'foldlog capture drop'"
            )
        reader = None if slot.reader is None else f"process {slot.reader}"
        return DatabaseStatus(state, position, slot.end, lag, None, kept, reader, warning)

    def drop(self) -> list[str]:
        done = []
        if self._drop_slot():
            done.append(f"replication slot {self._slot_name}")
        if self._ask("SELECT 1 FROM pg_publication WHERE pubname = %s", (self._publication,), step="looking"):
            self._ask(f"DROP PUBLICATION {self._publication}", step="dropping the publication")
            done.append(f"publication {self._publication}")
        return done

    def _leave(self) -> None:
        if self._replicating is not None:
            self._replicating.close()
            self._replicating = None

    def close(self) -> None:
        self._leave()
        if self._asking is not None:
            self._asking.close()


def _fragments(values: Values, encoders: Sequence[Callable[[str], str]]) -> list[str | None]:
    return [
        "null" if value is None else None if value is MISSING else encode(value.decode())
        for encode, value in zip(encoders, values, strict=True)
    ]


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])
