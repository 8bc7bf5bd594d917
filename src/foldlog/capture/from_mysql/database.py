"""MySQL and MariaDB as a source: the binlog in row format tells every change, a replica's connection reads it.

A snapshot is a transaction, and the place in the binlog at which it began: MariaDB tells it with the transaction. For
MySQL the tables are locked for the moment in which both are asked for. What the binlog has before that place is in the
snapshot, all else is in the stream.

The server keeps its binlog for a time of its own choice, whoever reads it. So a position can be purged, and is looked
for before each run.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event as StopEvent
from typing import TYPE_CHECKING, Any, Final

from foldlog.capture.database import (
    DatabaseStatus,
    Event,
    Fragments,
    NothingNew,
    RowChanged,
    RowLayout,
    SchemaMoved,
    SnapshotRows,
    Table,
    TableReplaced,
    TablesTruncated,
    TransactionBegins,
    TransactionEnds,
)
from foldlog.capture.from_mysql import binlog_events
from foldlog.capture.from_mysql.binlog_events import TableMap, table_map
from foldlog.capture.from_mysql.catalog import DeclaredColumns, MySqlCatalog, SnapshotColumns
from foldlog.capture.from_mysql.connecting import DENIED, MySqlConnector, number_of
from foldlog.capture.from_mysql.replication import FIRST_PLACE, BinlogConnection, BinlogPlace, PlacedEvent, file_number
from foldlog.capture.from_mysql.settings import BinlogSettings, check_settings
from foldlog.capture.from_mysql.statements import Effect, effect_of
from foldlog.capture.from_mysql.values import Read, reader_of
from foldlog.errors import CaptureError, CaptureRunning, ChangesLost, DatabaseRefused, InvalidArgument
from foldlog.views.sql.mysql import backquoted, load_pymysql

if TYPE_CHECKING:
    from foldlog.capture.declaration import Capture

BUSY_S: Final = 15.0
"""How long a killed reader may still be listed: the server notices when it sends the next heartbeat."""

_LOOK_S: Final = 0.02
_LEAVE_S: Final = 2.0
_LOCK_WAIT_S: Final = 60
_NOT_THERE: Final = "1236"
"""The server's error for a place in the binlog that it cannot send from."""
_MOVED: Final = 1412
"""A table was altered under a snapshot."""


@dataclass(frozen=True, slots=True)
class _MappedTable:
    """A captured table as the binlog describes it, and what reads its rows. `kept` are the columns of the layout."""

    table: str
    layout: RowLayout
    readers: list[Read | None]
    kept: tuple[int, ...]


class CapturedMySql:
    """See `CapturedDatabase`. Two connections: one that asks, and one that reads the binlog."""

    kind = "mysql"
    position_name = "pos"

    def __init__(self, capture: Capture, tell: Callable[[str], None], stop: StopEvent) -> None:
        self._capture = capture
        self._server = MySqlConnector(capture.url, tell)
        self._stop = stop
        self._server_id = _server_id(self._server.options.get("server_id"), capture.name)
        self._asking: Any = None
        self._known_settings: BinlogSettings | None = None
        self._known_catalog: MySqlCatalog | None = None
        self._replicating: BinlogConnection | None = None
        self._tables: dict[str, Table] = {}
        self._declared: dict[str, DeclaredColumns] = {}
        self._maps: dict[int, _MappedTable | None] = {}
        self._described: dict[bytes, _MappedTable | None] = {}
        self._gtid: str | None = None
        self._origin_server = 0
        self.place = self._server.place
        self.database = self._server.database

    # --- asking ---------------------------------------------------------------------------------------------------

    @property
    def _connection(self) -> Any:
        if self._asking is None:
            self._asking = self._server.connect()
        return self._asking

    @property
    def _settings(self) -> BinlogSettings:
        if self._known_settings is None:
            found = BinlogSettings.asked(self._ask)
            check_settings(found, self.place, self._server_id)
            self._known_settings = found
        return self._known_settings

    @property
    def _catalog(self) -> MySqlCatalog:
        if self._known_catalog is None:
            self._known_catalog = MySqlCatalog(
                lambda text, arguments: self._ask(text, arguments, step="reading the catalog"),
                self.database,
                is_mariadb=self._settings.is_mariadb,
                has_quiet_cascades=self._settings.has_quiet_cascades,
            )
        return self._known_catalog

    def _ask(self, text: str, arguments: Sequence[object] = (), *, step: str) -> list[tuple[Any, ...]]:
        return self._server.ask(self._connection, text, arguments, step=step)

    def identity(self) -> str:
        return f"{self._settings.identity}/{self.database}"

    def why_another(self) -> str:
        return f"{self.place} is another server than the one that was captured before, or has another binlog"

    def tables(self) -> list[Table]:
        found, left_out = self._catalog.tables(self._capture.tables)
        for reason in left_out:
            self._server.tell(f"left out: {reason}")
        if not found:
            raise DatabaseRefused(f"{self.place} has no table to capture; make one, or say which: --table NAME")
        self._tables = {table.name: table for table in found}
        return found

    def _readers(self) -> list[int] | None:
        """The ids of the replicas that read this server now; None if this user may not know."""
        show = self._settings.show_replicas
        try:
            rows = self._ask(show, step="listing replicas")
        except DatabaseRefused:
            return None
        return [int(row[0]) for row in rows]

    def wait_until_free(self) -> None:
        until = time.monotonic() + BUSY_S
        while self._server_id in (self._readers() or ()):
            if time.monotonic() > until or self._stop.wait(_LOOK_S):
                raise CaptureRunning(
                    f"{self.place}: a replica with server id {self._server_id} reads the binlog, so the capture runs"
                    " elsewhere; stop it there first, or give this one an id of its own: ?server_id=NUMBER in its URL"
                )

    def check_unused(self) -> None:
        pass  # nothing is made in the database

    def consent(self) -> str | None:
        return None

    def stale(self, tables: Sequence[Table]) -> frozenset[str]:
        return frozenset()  # the stream describes tables as they were

    # --- positions ------------------------------------------------------------------------------------------------

    def _now(self) -> BinlogPlace:
        rows = self._ask(self._settings.show_status, step="asking for the binlog's end")
        if not rows:
            raise DatabaseRefused(f"{self.place} does not say where its binlog ends; is log_bin on?")
        file, place, only, ignored = rows[0][:4]
        if (only and self.database not in only.split(",")) or self.database in (ignored or "").split(","):
            raise DatabaseRefused(
                f"{self.place} leaves database {self.database!r} out of its binlog (binlog_do_db, binlog_ignore_db);"
                " change that, and restart the server"
            )
        return BinlogPlace(file_number(file), int(place), 0)

    def _files(self) -> dict[int, tuple[str, int]]:
        """The files that the server has, by number: name and size."""
        rows = self._ask("SHOW BINARY LOGS", step="listing the binlog's files")
        return {file_number(row[0]): (row[0], int(row[1])) for row in rows}

    def prepare(self, tables: Sequence[Table], position: int | None, *, anew: bool) -> int:
        end = self._now()
        if position is None or anew:
            return end.position
        self._check_kept(BinlogPlace.of(position), end)
        return position

    def _check_kept(self, at: BinlogPlace, end: BinlogPlace) -> None:
        """ChangesLost unless the server still has everything since then."""
        files, name = self._files(), self._capture.name
        if at.file < min(files, default=0):
            raise ChangesLost(
                name,
                f"the server has purged its binlog before {files[min(files)][0]}, and our bookmark is at"
                f" {self.position_text(at.position)}; a longer binlog_expire_logs_seconds keeps it longer",
            )
        if (at.file, at.place) > (end.file, end.place):
            raise ChangesLost(
                name,
                f"the server's binlog ends at {self.position_text(end.position)}, and was at"
                f" {self.position_text(at.position)} before: it was reset, or the server is an older copy",
            )

    def end(self) -> int:
        return self._now().position

    def position_text(self, position: int) -> str:
        at = BinlogPlace.of(position)
        return f"{self._settings.file_prefix}.{at.file:06}:{at.place}"

    # --- rows -----------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self, tables: Sequence[Table]) -> Iterator[SnapshotRows]:
        pymysql = load_pymysql("capturing MySQL")
        # The catalog is asked before the transaction: a table that changes in between is an error of the server's.
        columns = {
            table.id: self._catalog.snapshot_columns(table, is_numeric_text=self._capture.numeric == "string")
            for table in tables
        }
        reading = self._server.connect(read_s=None)
        try:
            position = self._consistent(reading, tables)
            yield SnapshotRows(position, lambda table: self._rows(reading, columns[table.id]))
        except pymysql.Error as error:
            if number_of(error) == _MOVED:
                raise SchemaMoved("a table was altered while its snapshot was read") from error
            raise self._server.refusal("reading the snapshot", error) from error
        finally:
            reading._force_close()

    def _consistent(self, reading: Any, tables: Sequence[Table]) -> int:
        """Begin the transaction that is the snapshot; the position of its moment."""
        begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
        step = "beginning the snapshot"
        self._server.ask(reading, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", step=step)
        if self._settings.is_mariadb:
            self._server.ask(reading, begin, step=step)
            told = dict(self._server.ask(reading, "SHOW STATUS LIKE 'binlog_snapshot%%'", step=step))
            found = {name.lower(): value for name, value in told.items()}
            return BinlogPlace(
                file_number(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"]), 0
            ).position
        with self._locked(tables):
            self._server.ask(reading, begin, step=step)
            return self._now().position

    @contextmanager
    def _locked(self, tables: Sequence[Table]) -> Iterator[None]:
        """Nothing commits to these tables meanwhile: all are locked, or where the user may not do that, these."""
        locking = self._server.connect(read_s=_LOCK_WAIT_S + 10)
        names = ", ".join(f"{backquoted(self.database)}.{backquoted(table.name)} READ" for table in tables)
        try:
            step = "locking tables for a moment"
            self._server.ask(locking, f"SET SESSION lock_wait_timeout = {_LOCK_WAIT_S}", step=step)
            try:
                self._server.ask(locking, "FLUSH TABLES WITH READ LOCK", step=step)
            except DatabaseRefused as error:
                if error.sqlstate not in {str(code) for code in DENIED}:
                    raise
                self._server.ask(locking, f"LOCK TABLES {names}", step=step)
            yield
        finally:
            locking._force_close()  # which unlocks them

    def _rows(self, reading: Any, columns: SnapshotColumns) -> Generator[tuple[RowLayout, Fragments], None, None]:
        pymysql = load_pymysql("capturing MySQL")
        layout, selected, encoders = columns
        table = f"{backquoted(self.database)}.{backquoted(layout.table)}"
        # Unbuffered: a table may be larger than memory.
        with reading.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute(f"SELECT {', '.join(selected)} FROM {table}")
            while some := cursor.fetchmany(1000):
                for row in some:
                    yield (
                        layout,
                        [
                            "null" if value is None else encode(value)
                            for encode, value in zip(encoders, row, strict=True)
                        ],
                    )

    # --- the stream -----------------------------------------------------------------------------------------------

    def stream(self, position: int, snapshots: Collection[int]) -> Generator[Event, None, None]:
        at = BinlogPlace.of(position)
        self._check_kept(at, self._now())
        files = self._files()
        self._leave()
        # A server that stopped right after a file's last event has no other file yet; one that is restarted has.
        file = files[at.file][0] if at.file in files else f"{self._settings.file_prefix}.{at.file:06}"
        self._replicating = BinlogConnection(self._server, self._server_id, has_checksum=self._settings.has_checksum)
        try:
            self._replicating.start(file, max(at.place, FIRST_PLACE))
            yield from self._events(self._replicating.events(file, max(at.place, FIRST_PLACE)), at)
        except DatabaseRefused as error:
            if error.sqlstate == _NOT_THERE:
                raise self._not_there(str(error)) from error
            raise
        except (ValueError, IndexError, KeyError) as error:
            raise DatabaseRefused(f"{self.place}: the binlog cannot be understood: {error}") from error

    def _not_there(self, said: str) -> Exception:
        if "server_id" in said or "server_uuid" in said:
            return CaptureRunning(
                f"{said}; another replica has the server id {self._server_id}: stop it, or give this capture an id of"
                " its own: ?server_id=NUMBER in its URL"
            )
        return ChangesLost(self._capture.name, said)

    def _events(self, placed: Iterator[PlacedEvent], expected: BinlogPlace) -> Iterator[Event]:
        group = _Group()
        for one in placed:
            event, kind = one.event, one.event.kind
            if kind == binlog_events.FORMAT:
                if one.end.file == expected.file and expected.began not in (0, one.end.began):
                    raise ChangesLost(self._capture.name, "the server's binlog was reset, and has begun anew")
                self._maps.clear()  # numbers of tables are a file's own
                if not group.is_open:
                    yield NothingNew(one.end.position)
            elif kind == binlog_events.TABLE_MAP:
                self._map(event.body)
            elif (changed := binlog_events.rows(event)) is not None:
                yield from self._changes(changed, group, one)
            elif kind in (
                binlog_events.GTID,
                binlog_events.ANONYMOUS_GTID,
                binlog_events.MARIADB_GTID,
                binlog_events.TAGGED_GTID,
            ):
                group = self._group(one)
            elif kind in (binlog_events.QUERY, binlog_events.MARIADB_QUERY_COMPRESSED):
                yield from self._query(group, one)
            elif kind == binlog_events.XID:
                yield from group.ends(one)
            elif kind == binlog_events.XA_PREPARE:
                if group.has_begun and event.body[0] == 0:
                    raise ChangesLost(self._capture.name, "an XA transaction has changed a captured table")
                yield from group.ends(one)
            elif kind in _NOT_READ:
                raise ChangesLost(self._capture.name, f"the binlog has {_NOT_READ[kind]}")
            elif not group.is_open and one.end.began:  # a position is stored with what tells its file from others
                yield NothingNew(one.end.position)

    def _group(self, one: PlacedEvent) -> _Group:
        """A transaction, or a statement that is one by itself."""
        self._gtid, is_alone = binlog_events.gtid(one.event)
        self._origin_server = one.event.server_id
        is_open = one.event.kind == binlog_events.MARIADB_GTID and not is_alone
        return _Group(one.start.position, binlog_events.committed_ms(one.event), is_open)

    def _query(self, group: _Group, one: PlacedEvent) -> Iterator[Event]:
        schema, text = binlog_events.query(one.event)
        effect, names = effect_of(text, schema)
        found = tuple(dict.fromkeys(name for where, name in names if where == self.database and name in self._tables))
        if effect is Effect.BEGINS:
            group.is_open = True
            group.position = group.position or one.start.position
            group.committed_ms = group.committed_ms or one.event.seconds * 1000
            return
        if effect is Effect.CHANGES_ROWS and (schema == self.database or self.database in text):
            raise ChangesLost(
                self._capture.name,
                "a change was logged as a statement, not as rows (binlog_format of its session is not ROW):"
                f" {text[:60]!r}",
            )
        if effect is Effect.ROLLS_BACK and group.has_begun:
            raise ChangesLost(self._capture.name, "a transaction was rolled back in part after it was logged")
        if found and effect in (Effect.TRUNCATES, Effect.REPLACES):
            yield from group.begins(one)
            yield TablesTruncated(found) if effect is Effect.TRUNCATES else TableReplaced(found)
        for name in found:
            self._declared.pop(name, None)
        is_created_with_rows = text.rstrip().upper().endswith("START TRANSACTION")
        if is_created_with_rows:
            group.is_open = True
        elif effect in (Effect.COMMITS, Effect.ROLLS_BACK) or not group.is_open:
            yield from group.ends(one)

    def _map(self, body: bytes) -> None:
        """Note a table's description. Most are the same as before, but for the number."""
        number, known = int.from_bytes(body[:6], "little"), body[6:]
        if known not in self._described:
            settings = self._settings
            schema, name = binlog_events.table_names(body)
            mapped = None
            if schema == self.database and name in self._tables:
                _, described = table_map(body, settings.charsets, is_mariadb=settings.is_mariadb)
                mapped = self._mapped(described)
            self._described[known] = mapped
        self._maps[number] = self._described[known]

    def _mapped(self, described: TableMap) -> _MappedTable:
        name = described.name
        if not described.is_described:
            raise ChangesLost(
                self._capture.name,
                f"a change of {name} was logged without the names of its columns (binlog_row_metadata was not FULL)",
            )
        declared = self._declared.get(name)
        if declared is None or not {column.name for column in described.columns} <= declared.types.keys():
            declared = self._declared[name] = self._catalog.declared(name)
        kept = tuple(index for index, column in enumerate(described.columns) if column.name not in declared.generated)
        layout = RowLayout("", name, [described.columns[index].name for index in kept], described.keys)
        is_text = self._capture.numeric == "string"
        readers: list[Read | None] = [
            reader_of(column, declared.types.get(column.name, ""), is_numeric_text=is_text)
            for column in described.columns
        ]
        return _MappedTable(name, layout, readers, kept)

    def _changes(self, changed: binlog_events.RowsEvent, group: _Group, one: PlacedEvent) -> Iterator[Event]:
        mapped = self._maps.get(changed.table_id)
        if mapped is None:
            return
        yield from group.begins(one)
        op, kept, place = changed.op, mapped.kept, one.start.place
        for before, after in binlog_events.images(changed, mapped.readers):
            old = [before[index] for index in kept] if op != "c" else None
            new = [after[index] for index in kept] if op != "d" else None
            if None in (old or ()) or None in (new or ()):
                raise ChangesLost(
                    self._capture.name,
                    f"a change of {mapped.table} was logged without all its columns (binlog_row_image was not FULL)",
                )
            yield RowChanged(op, mapped.table, mapped.layout, old, new, old is not None, place)

    def confirm(self, position: int) -> None:
        pass  # the server keeps its binlog for as long as it is set to

    def origin(self, layout: RowLayout, begun: TransactionBegins) -> Mapping[str, object]:
        file = self.position_text(begun.position).rpartition(":")[0]
        return {"table": layout.table, "server_id": self._origin_server, "gtid": self._gtid, "file": file}

    # --- for operators --------------------------------------------------------------------------------------------

    def status(self, position: int | None) -> DatabaseStatus:
        end, files = self._now(), self._files()
        is_read = self._server_id in (self._readers() or ())
        reader = f"replica {self._server_id}" if is_read else None
        kept = sum(size for _, size in files.values())
        if position is None:
            return DatabaseStatus("not begun", None, end.position, None, None, kept, reader)
        at = BinlogPlace.of(position)
        try:
            self._check_kept(at, end)
        except ChangesLost as error:
            return DatabaseStatus("binlog lost", position, end.position, None, None, kept, reader, str(error))
        later = sum(size for number, (_, size) in files.items() if at.file < number < end.file)
        lag = end.place - at.place
        if at.file != end.file:
            lag = max(0, files.get(at.file, ("", at.place))[1] - at.place) + later + end.place
        state = "running" if is_read else "stopped"
        return DatabaseStatus(state, position, end.position, lag, None, kept, reader, self._oldest(at, files, reader))

    def _oldest(self, at: BinlogPlace, files: Mapping[int, tuple[str, int]], reader: str | None) -> str | None:
        """A warning if the server purges what we need next."""
        if reader is not None or at.file != min(files) or len(files) < 2:
            return None
        return (
            f"{files[at.file][0]} is the oldest file of the binlog, and the next that the server purges: run the"
            " capture before it does"
        )

    def drop(self) -> list[str]:
        return []

    def _leave(self) -> None:
        """The server is told to end the stream: by itself it would notice when it sends the next heartbeat."""
        if self._replicating is None:
            return
        thread = self._replicating.thread
        self._replicating.close()
        self._replicating = None
        try:
            self._ask(f"KILL CONNECTION {thread}", step="ending the stream")
            until = time.monotonic() + _LEAVE_S
            while self._server_id in (self._readers() or ()) and time.monotonic() < until:
                self._stop.wait(_LOOK_S)
        except CaptureError:
            pass  # the server is gone, or has noticed before

    def close(self) -> None:
        self._leave()
        if self._asking is not None:
            self._asking._force_close()


_NOT_READ: Final = {
    binlog_events.PAYLOAD: "compressed transactions, which cannot be read (binlog_transaction_compression)",
    binlog_events.PARTIAL_UPDATE: "partial updates of JSON, which cannot be read (binlog_row_value_options)",
    binlog_events.INCIDENT: "an incident: the server itself says that changes are missing in it",
}


@dataclass(slots=True)
class _Group:
    """Events that commit together. `has_begun` once the log was told, with the first change of a captured table."""

    position: int = 0
    committed_ms: int = 0
    is_open: bool = False
    has_begun: bool = False

    def begins(self, one: PlacedEvent) -> Iterator[Event]:
        if not self.has_begun:
            self.has_begun = True
            yield TransactionBegins(self.position or one.start.position, 0, self.committed_ms)

    def ends(self, one: PlacedEvent) -> Iterator[Event]:
        self.position, self.is_open, self.has_begun = 0, False, False
        yield TransactionEnds(one.end.position)


def _server_id(given: str | None, name: str) -> int:
    """As given; else one that is the name's, far from what people number their servers with."""
    if given is None:
        return 0x7000_0000 + zlib.crc32(name.encode()) % 0x0FFF_FFFF
    if not given.isdecimal() or not 0 < int(given) < 1 << 32:
        raise InvalidArgument(f"server_id={given!r} is not a number from 1 to {(1 << 32) - 1}")
    return int(given)
