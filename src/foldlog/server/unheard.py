"""How much of what was sent has not reached the other side's system: asked before a broker that leaves closes."""

from __future__ import annotations

import array
import fcntl
import sys
import termios
from typing import Protocol


class HasFileno(Protocol):
    """A socket, or what an event loop shows of one."""

    def fileno(self) -> int: ...


def unheard_bytes(connected: HasFileno | None) -> int:
    """Sent, and not acknowledged yet; 0 where the system does not tell, and of a socket that is closed.

    A socket that is closed while something has come that nobody read is reset, and the system throws away what it has
    not sent. So answers that the loop has written can be lost, unless this is 0.
    """
    if connected is None or sys.platform != "linux":
        return 0
    count = array.array("i", [0])
    try:
        fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, count)
    except (OSError, ValueError):  # it was closed meanwhile
        return 0
    return count[0]
