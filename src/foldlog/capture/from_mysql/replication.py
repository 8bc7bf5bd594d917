"""A connection that reads the binlog as a replica does: it registers, asks for a file and a place in it, and gets
events for as long as it stays. PyMySQL has no replication, but hands on its packets.

A position is one number: the file's, the place in it, and the second at which the file was begun. The last tells a file
from another of its name, which RESET MASTER makes; it is 0 where it is not known yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

from foldlog.capture.from_mysql import binlog_events
from foldlog.capture.from_mysql.binlog_events import BinlogEvent, parse_event
from foldlog.capture.from_mysql.connecting import MySqlConnector
from foldlog.errors import DatabaseUnavailable
from foldlog.views.sql.mysql import load_pymysql

HEARTBEAT_NS: Final = 250_000_000
"""How often a server without news says so: whoever asks us to stop is heard then."""

_REGISTER: Final = 0x15
_DUMP: Final = 0x12
_DUMP_HEAD: Final = Struct("<IHI")
_NAME: Final = b"foldlog"

_PLACE_BITS: Final = 40
_TIME_BITS: Final = 32

FIRST_PLACE: Final = 4
"""Where the first event of a file is."""

MARIADB_CAPABILITY: Final = 4
"""That of a replica that knows MariaDB's transaction ids. Others get events in their place that mean nothing."""


class BinlogPlace(NamedTuple):
    """A position in parts: the number at the end of the file's name, the place, and when the file was begun."""

    file: int
    place: int
    began: int

    @property
    def position(self) -> int:
        """
        >>> BinlogPlace.of(BinlogPlace(3, 4, 1_700_000_000).position)
        BinlogPlace(file=3, place=4, began=1700000000)
        """
        return (self.file << (_PLACE_BITS + _TIME_BITS)) | (self.place << _TIME_BITS) | self.began

    @classmethod
    def of(cls, position: int) -> BinlogPlace:
        place = (position >> _TIME_BITS) & ((1 << _PLACE_BITS) - 1)
        return cls(position >> (_PLACE_BITS + _TIME_BITS), place, position & ((1 << _TIME_BITS) - 1))


def file_number(name: str) -> int:
    """
    >>> file_number("mysql-bin.000042")
    42
    """
    return int(name.rpartition(".")[2])


class PlacedEvent(NamedTuple):
    """An event, where it begins, and where the next one does."""

    event: BinlogEvent
    start: BinlogPlace
    end: BinlogPlace


class BinlogConnection:
    """One thread. Errors are CaptureErrors, in one sentence."""

    def __init__(self, server: MySqlConnector, server_id: int, *, has_checksum: bool) -> None:
        self._server = server
        self._server_id = server_id
        self._has_checksum = has_checksum
        self._connection: Any = server.connect()

    def start(self, file: str, place: int) -> None:
        """Events from there on are sent."""
        pymysql = load_pymysql("capturing MySQL")
        checksum = "CRC32" if self._has_checksum else "NONE"
        for statement in (
            f"SET @master_binlog_checksum = '{checksum}', @source_binlog_checksum = '{checksum}'",
            f"SET @master_heartbeat_period = {HEARTBEAT_NS}, @source_heartbeat_period = {HEARTBEAT_NS}",
            f"SET @mariadb_slave_capability = {MARIADB_CAPABILITY}",
        ):
            self._server.ask(self._connection, statement, step="preparing to read the binlog")
        number = self._server_id.to_bytes(4, "little")
        name = bytes((len(_NAME),)) + _NAME
        try:
            # The server lists it then, for SHOW REPLICAS and for us.
            self._connection._execute_command(_REGISTER, number + name + bytes(2) + bytes(2) + bytes(8))
            self._connection._read_packet()
            self._connection._execute_command(_DUMP, _DUMP_HEAD.pack(place, 0, self._server_id) + file.encode())
        except pymysql.Error as error:
            raise self._server.refusal("reading the binlog as a replica", error) from error

    def events(self, file: str, place: int) -> Iterator[PlacedEvent]:
        """Each event. The server's own, such as heartbeats, begin and end where the last one ended."""
        pymysql = load_pymysql("capturing MySQL")
        at = BinlogPlace(file_number(file), place, 0)
        while True:
            try:
                packet = self._connection._read_packet()
            except pymysql.Error as error:
                raise self._server.refusal("reading the binlog", error) from error
            data: bytes = packet.get_all_data()
            if data[0] == 0xFE:
                raise DatabaseUnavailable(self._server.place, "the server has ended the stream")
            kind = data[5]
            is_format = kind == binlog_events.FORMAT
            event = parse_event(data, has_checksum=self._has_checksum and not is_format)
            start = at
            if is_format:
                self._has_checksum = binlog_events.checksum_of_format(event.body)
                start = at = at._replace(began=event.seconds)
            if kind == binlog_events.ROTATE:
                name, place = binlog_events.rotation(event.body)
                number = file_number(name)
                # The server repeats it at the begin of a stream, with the place that was asked for.
                at = BinlogPlace(number, place, at.began if number == at.file else 0)
            elif event.end and kind not in (binlog_events.HEARTBEAT, binlog_events.HEARTBEAT_V2):
                at = at._replace(place=event.end)
            yield PlacedEvent(event, start, at)

    @property
    def thread(self) -> int:
        """The server's number for the connection."""
        return int(self._connection.thread_id())

    def close(self) -> None:
        # Not politely: the server sends on, and would not hear it.
        self._connection._force_close()
