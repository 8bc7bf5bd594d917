"""A connection to the process that serves a directory."""

from __future__ import annotations

import socket

from foldlog.client.wire.connection import WireConnection
from foldlog.files.holder import WriterInfo
from foldlog.wire.messages.metadata import MetadataRequest, MetadataResponse


class Connection(WireConnection):
    """One connection to the process that `holder` names; see `WireConnection`."""

    def __init__(self, sock: socket.socket, holder: WriterInfo) -> None:
        """Use `Connection.open`."""
        super().__init__(sock, holder.address or "")
        self.holder = holder

    @classmethod
    def open(cls, holder: WriterInfo, directory_id: str, timeout_s: float) -> Connection:
        """Connect, and make sure that it is this directory that is served there: the lock file of a killed process
        may name a port that another one uses now.
        """
        host, _, port = (holder.address or "").rpartition(":")
        connection = cls(cls.dial(host.strip("[]"), int(port), timeout_s), holder)
        try:
            connection.negotiate(timeout_s)
            served = connection.call(MetadataRequest(allow_auto_topic_creation=False), MetadataResponse, timeout_s)
            if served.cluster_id != directory_id:
                raise ConnectionError(f"{holder.address} serves another directory")
        except BaseException:
            connection.close()
            raise
        return connection
