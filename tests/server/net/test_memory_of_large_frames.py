"""Many large frames at once take no more than the budget and one request: each asks before it grows.

Real connections send whole frames at the same time, so that each that is dealt with makes room for others that wait.
How much the broker held at most is what its own account said, and what the system says of a process that serves.
"""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path

import pytest

import foldlog
from faults.served import ServedDirectory
from foldlog.server.net.memory import HeldMemory, MemoryBudget
from server.conftest import Serve
from server.raw_client import RawClient, batch, produce, produced

MIB = 1 << 20
LIMIT = 24 * MIB
FRAME = 16 * MIB
CONNECTIONS = 16
SETTINGS = {"queued.max.request.bytes": LIMIT, "socket.request.max.bytes": FRAME}

UNREADABLE = struct.pack(">i", FRAME) + bytes(FRAME)
"""The broker closes the connection for it."""

MOST = LIMIT + FRAME + CONNECTIONS * MIB // 4
"""One request over the limit, and what each receives at once, before anybody can be asked."""


def send_together(address: tuple[str, int], frame: bytes) -> None:
    """Over many connections; each waits for its answer, or for its end."""
    senders = [RawClient(address) for _ in range(CONNECTIONS)]

    def send(client: RawClient) -> None:
        try:
            client.socket.sendall(frame)
            client.receive_frame()
        except OSError:
            pass

    threads = [threading.Thread(target=send, args=(client,)) for client in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in senders:
        client.close()


def test_frames_that_come_together_stay_within_the_budget_and_one_request(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    change = MemoryBudget.change

    def watched(budget: MemoryBudget, by_bytes: int, holder: HeldMemory | None = None) -> None:
        nonlocal most
        change(budget, by_bytes, holder)
        most = max(most, budget.used_bytes)

    monkeypatch.setattr(MemoryBudget, "change", watched)
    server = serve(SETTINGS)
    send_together(server.addresses[0], UNREADABLE)
    honest = RawClient(server.addresses[0])
    assert produced(honest.ask(produce(batch(b"one")), 9))[0] == 0
    honest.close()
    assert LIMIT // 2 < most <= MOST


@pytest.mark.parametrize("kind", ["unreadable", "refused", "stored"])
def test_what_is_held_is_what_the_process_takes(tmp_path: Path, kind: str) -> None:
    """No copies beside what is counted, and nothing that stays when it is over."""
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders", config={} if kind == "refused" else {"max.message.bytes": FRAME})
    settings = [word for name, value in SETTINGS.items() for word in ("-X", f"{name}={value}")]
    with ServedDirectory(tmp_path, *settings) as served:
        client = RawClient(served.address)
        frame = UNREADABLE
        if kind != "unreadable":
            frame = client.frame(produce(batch(os.urandom(FRAME - 1000)), acks=1), 9)
        idle_bytes = served.resident_bytes
        send_together(served.address, frame)
        assert produced(client.ask(produce(batch(b"one")), 9))[0] == 0
        client.close()
        # What the heap and the threads' stacks take beside it is small.
        assert LIMIT // 2 < served.peak_bytes - idle_bytes <= MOST + 12 * MIB
        assert served.resident_bytes - idle_bytes <= 16 * MIB
