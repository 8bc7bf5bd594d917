"""A socket that listens on an address, or one sentence that says why it cannot."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from foldlog.errors import AddressUnavailable
from foldlog.server.listeners import Listener

_BACKLOG: Final = 1024


def bind(listener: Listener) -> socket.socket:
    """AddressUnavailable if the address is taken or not this machine's."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    try:
        where = socket.getaddrinfo(listener.host or "0.0.0.0", listener.port, family, socket.SOCK_STREAM)[0][4]
    except socket.gaierror as error:
        raise AddressUnavailable(
            listener.address, f"there is no such host ({error.strerror}); check the name, or give an address"
        ) from None
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise AddressUnavailable(listener.address, _why_not(error)) from None
    return bound


def check_free(listeners: Iterable[Listener]) -> None:
    """AddressUnavailable if one of them could not be bound now. Nothing is kept: somebody else may still be faster."""
    with ExitStack() as bound:
        for listener in listeners:
            bound.enter_context(bind(listener))


def _why_not(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process listens there; stop it, choose another port, or let port 0 choose one"
    if error.errno == errno.EADDRNOTAVAIL:
        return "it is not an address of this machine; listen on one that is, such as 127.0.0.1"
    if error.errno == errno.EACCES:
        return "this user may not listen there; choose a port above 1023"
    return error.strerror or str(error)
