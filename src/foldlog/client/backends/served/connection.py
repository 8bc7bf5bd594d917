"""A connection to the process that serves a directory."""

from __future__ import annotations

import socket

from foldlog.client.wire.connection import WireConnection
from foldlog.files.holder import LOCAL_SOCKET, WriterInfo
from foldlog.files.paths import short_path
from foldlog.wire.messages.metadata import MetadataRequest, MetadataResponse


class Connection(WireConnection):
    """One connection to the process that `holder` names; see `WireConnection`."""

    def __init__(self, sock: socket.socket, holder: WriterInfo) -> None:
        """Use `Connection.open`."""
        super().__init__(sock, holder.address or "")
        self.holder = holder

    @classmethod
    def open(cls, holder: WriterInfo, path: str, directory_id: str, timeout_s: float) -> Connection:
        """Connect, by the socket in the directory `path` if there is one, and make sure that it is this directory that
        is served there: the lock file of a killed process may name a port that another one uses now.
        """
        dialled = _dial_socket(path, timeout_s)
        if dialled is None:
            host, _, port = (holder.address or "").rpartition(":")
            dialled = cls.dial(host.strip("[]"), int(port), timeout_s)
        connection = cls(dialled, holder)
        try:
            connection.negotiate(timeout_s)
            served = connection.call(MetadataRequest(allow_auto_topic_creation=False), MetadataResponse, timeout_s)
            if served.cluster_id != directory_id:
                raise ConnectionError(f"{holder.address} serves another directory")
        except BaseException:
            connection.close()
            raise
        return connection


def _dial_socket(directory: str, timeout_s: float) -> socket.socket | None:
    """A connection to the socket in the directory; None if nobody listens there."""
    dialled = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        dialled.settimeout(timeout_s)
        with short_path(directory) as short:
            dialled.connect(f"{short}/{LOCAL_SOCKET}")
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        dialled.close()
        return None
    except BaseException:
        dialled.close()
        raise
    return dialled
