"""What the other side's system has not got yet is counted: with a peer that has no room, on real sockets."""

from __future__ import annotations

import socket
import sys

import pytest

from foldlog.server.net.connection import unacknowledged_bytes
from server.raw_client import TIMEOUT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is not acknowledged")


def test_what_the_peer_has_no_room_for_is_unheard_until_it_reads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(TIMEOUT_S)
        peer.connect(listening.getsockname())
        sender, _ = listening.accept()
        with sender:
            assert unacknowledged_bytes(sender) == 0
            sender.setblocking(False)
            sent = sender.send(bytes(1 << 20))
            unheard = unacknowledged_bytes(sender)
            assert 0 < unheard <= sent
            while unacknowledged_bytes(sender):
                assert peer.recv(1 << 16)
    assert unacknowledged_bytes(sender) == 0, "a closed socket has nothing on its way"


def test_without_a_socket_nothing_is_unheard() -> None:
    assert unacknowledged_bytes(None) == 0
