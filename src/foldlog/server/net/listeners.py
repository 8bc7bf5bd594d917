"""The addresses a broker listens on and advertises: Kafka's listener texts as values, and as sockets.

`host:port`, `:port`, `[::1]:port`, or any of them behind a name: `INTERNAL://10.0.0.5:9092`. A name stands for a
security protocol, by itself or by listener.security.protocol.map. What SSL needs is in `foldlog.server.tls`.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from foldlog.errors import AddressUnavailable, InvalidConfig, brief_repr
from foldlog.files.holder import LOCAL_SOCKET
from foldlog.files.paths import allow_writers_of, is_there, remove, short_path

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
"""Kafka's security protocols."""

LOOPBACK: Final = "127.0.0.1"
"""The address that is listened on, and advertised, for `localhost`: on many machines that name has two addresses, one
of which refuses. An explicitly advertised `localhost` stays as it is."""

REGISTRY_EXPOSES: Final = "read, register and delete schemas"
METRICS_EXPOSE: Final = "see the names of topics and groups, their sizes and how much they are used"

PORT_MAX: Final = 65535

_ADDRESS: Final = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_.-]+)://)?"
    r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[A-Za-z0-9_.-]*))"
    r":(?P<port>[0-9]{1,5})",
    re.ASCII,
)


class Listener(NamedTuple):
    """An address to listen on, or one that is advertised. Port 0 is any free port; host "" is every interface."""

    name: str
    host: str
    port: int
    protocol: str = PLAINTEXT

    @property
    def address(self) -> str:
        """
        >>> Listener("PLAINTEXT", "::1", 9092).address
        '[::1]:9092'
        """
        return address_text(self.host, self.port)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def has_tls(self) -> bool:
        return self.protocol in {SSL, SASL_SSL}

    @property
    def is_wildcard(self) -> bool:
        """Whether it listens on every interface: clients cannot connect to such an address."""
        return self.host in {"", "0.0.0.0", "::"}

    @property
    def local_host(self) -> str:
        """The host at which processes of the same machine reach it."""
        if not self.is_wildcard:
            return self.host
        return "::1" if self.host == "::" else LOOPBACK

    def __str__(self) -> str:
        return f"{self.name}://{self.address}" if self.name else self.address


def address_text(host: str, port: int) -> str:
    """
    >>> address_text("127.0.0.1", 9092)
    '127.0.0.1:9092'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listener(
    text: str, setting: str, protocols: Mapping[str, str] | None = None, *, as_given: bool = False
) -> Listener:
    """Parse one listener; the name is "" if the text has none. Raises InvalidConfig with what is wrong.

    Where there are no `protocols`, a listener has no name. `localhost` is an address to listen on; `as_given`, it is a
    name that clients are told.

    >>> parse_listener("localhost:9092", "listeners")
    Listener(name='', host='127.0.0.1', port=9092, protocol='PLAINTEXT')
    """
    match = _ADDRESS.fullmatch(text.strip())
    if (
        match is None
        or int(match["port"]) > PORT_MAX
        or not _is_host(match["host"], match["bracketed"])
        or (match["name"] and protocols is None)
    ):
        forms = "HOST:PORT or [IPV6]:PORT" if protocols is None else "HOST:PORT, [IPV6]:PORT or NAME://HOST:PORT"
        raise InvalidConfig(
            f"{brief_repr(text)} in {setting} is no address; it is {forms} with a port from 0 to {PORT_MAX}"
        )
    name = (match["name"] or "").upper()
    host = match["bracketed"] or match["host"]
    return Listener(
        name,
        LOOPBACK if host.lower() == "localhost" and not as_given else host,
        int(match["port"]),
        _protocol_of(name, protocols or {}, setting) if name else PLAINTEXT,
    )


def parse_http_listener(text: str, setting: str) -> Listener:
    """Parse an address of HTTP; with TLS if it is written as a URL of https.

    >>> str(parse_http_listener("https://localhost:8443", "foldlog.console"))
    'https://127.0.0.1:8443'
    """
    scheme, separator, address = text.strip().partition("://")
    if not separator or scheme.lower() not in {"http", "https"}:
        return parse_listener(text, setting)
    listener = parse_listener(address.removesuffix("/"), setting)
    return listener._replace(name="https", protocol=SSL) if scheme.lower() == "https" else listener


def parse_listeners(texts: Sequence[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners. One without a name is PLAINTEXT; the next such is PLAINTEXT_2, and so on."""
    listeners: list[Listener] = []
    for text in texts:
        listener = parse_listener(text, "listeners", protocols)
        if not listener.name:
            listener = listener._replace(name=_free_name({other.name for other in listeners}))
        for other in listeners:
            if other.name == listener.name:
                raise InvalidConfig(
                    f"listeners names {listener.name} twice; leave it out of the second, or give that one its own"
                )
            if listener.port and (other.host, other.port) == (listener.host, listener.port):
                raise InvalidConfig(f"listeners has {listener.address} twice; every listener has an address of its own")
        listeners.append(listener)
    if not listeners:
        raise InvalidConfig("listeners is empty; a broker listens on one address at least, such as 127.0.0.1:9092")
    return tuple(listeners)


def parse_advertised(texts: Sequence[str], listeners: Sequence[Listener]) -> tuple[Listener, ...]:
    """The advertised addresses by listener name; those without a name are assigned to the listeners in order."""
    named = {listener.name: listener for listener in listeners}
    advertised: dict[str, Listener] = {}
    unnamed = iter(listeners)
    for text in texts:
        protocols = {name: listener.protocol for name, listener in named.items()}
        wanted = parse_listener(text, "advertised.listeners", protocols, as_given=True)
        listener = named.get(wanted.name) if wanted.name else next(unnamed, None)
        if listener is None:
            raise InvalidConfig(
                f"advertised.listeners has {brief_repr(text)}, and there is no listener for it;"
                f" there {'are' if len(named) > 1 else 'is'} {', '.join(map(str, listeners))}"
            )
        if listener.name in advertised:
            raise InvalidConfig(f"advertised.listeners has two addresses for {listener}; clients are told one")
        if wanted.is_wildcard:
            raise InvalidConfig(
                f"advertised.listeners has {brief_repr(text)}, an address to listen on that no client can connect to;"
                " give the name or address at which clients reach this machine"
            )
        advertised[listener.name] = wanted._replace(name=listener.name, protocol=listener.protocol)
    return tuple(advertised.values())


def parse_protocol_map(pairs: Iterable[str]) -> dict[str, str]:
    """Parse listener.security.protocol.map: NAME:PROTOCOL each."""
    protocols: dict[str, str] = {}
    for pair in pairs:
        name, colon, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not (name and colon and protocol in PROTOCOLS):
            raise InvalidConfig(
                f"{brief_repr(pair)} in listener.security.protocol.map is not NAME:PROTOCOL;"
                f" a protocol is one of {', '.join(PROTOCOLS)}"
            )
        protocols[name] = protocol
    return protocols


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. Names other than localhost are not looked up, and count as reachable.

    >>> is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("127.example.com"), is_loopback("")
    (True, True, False, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    except OSError:
        pass
    try:
        packed = socket.inet_pton(socket.AF_INET6, host)
    except OSError:
        return False
    return packed == bytes(15) + b"\x01" or packed.startswith(bytes(10) + b"\xff\xff\x7f")


_LACKS: Final = {
    PLAINTEXT: "it has no authentication and no encryption: whoever reaches the port can {exposes}",
    SSL: "it does not ask who its clients are: whoever reaches the port can {exposes}",
    SASL_PLAINTEXT: "it has no encryption: passwords and records can be read on the way",
}
_REMEDIES: Final = {
    PLAINTEXT: "listen on 127.0.0.1, or with SSL and ssl.client.auth=required",
    SSL: "set ssl.client.auth=required, or listen on 127.0.0.1",
    SASL_PLAINTEXT: "listen with SASL_SSL",
}


def refuse_exposed(
    listener: Listener,
    what: str,
    exposes: str = "read, write and delete everything",
    allow: str = "add --insecure (foldlog.insecure=true)",
    *,
    needs_certificate: bool = False,
) -> None:
    """A listener that other machines reach, and that does not know who they are, has to be asked for in so many words.

    `exposes`: what whoever reaches the port can do. `allow`: how to ask for it. `needs_certificate`: it speaks TLS, and
    nobody is let in without a certificate.
    """
    if listener.is_loopback or is_safe(listener, needs_certificate=needs_certificate):
        return
    lacks = _LACKS[listener.protocol].format(exposes=exposes)
    raise InvalidConfig(
        f"{what} on {listener.address} can be reached from other machines, and {lacks};"
        f" {_REMEDIES[listener.protocol]}, or {allow} if the network is trusted"
    )


def is_safe(listener: Listener, *, needs_certificate: bool) -> bool:
    """Whether clients of other machines can be let in: encrypted, and they have to say who they are."""
    return listener.protocol == SASL_SSL or (listener.protocol == SSL and needs_certificate)


def _is_host(host: str | None, bracketed: str | None) -> bool:
    if bracketed is None:
        return host is not None and not host.startswith("-")
    try:
        socket.inet_pton(socket.AF_INET6, bracketed.partition("%")[0])
    except OSError:
        return False
    return True


def _protocol_of(name: str, protocols: Mapping[str, str], setting: str) -> str:
    protocol = protocols.get(name, name if name in PROTOCOLS else None)
    if protocol is None:
        raise InvalidConfig(
            f"{setting} names the listener {name}, and nothing says what that is;"
            f" add listener.security.protocol.map={name}:{PLAINTEXT}, or leave the name out"
        )
    return protocol


def _free_name(taken: set[str]) -> str:
    number = 1
    name = PLAINTEXT
    while name in taken:
        number += 1
        name = f"{PLAINTEXT}_{number}"
    return name


_BACKLOG: Final = 1024


def bind(listener: Listener) -> socket.socket:
    """A listening socket. Raises AddressUnavailable if the address is taken or not this machine's."""
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


def bind_local(directory: str) -> socket.socket:
    """A listening socket in a directory, for those who may write there. One that a killed process left is replaced."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(directory) as short:
            path = f"{short}/{LOCAL_SOCKET}"
            if is_there(path):
                remove(path)
            bound.bind(path)
            allow_writers_of(short, path)
        bound.listen(_BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def check_free(listeners: Iterable[Listener]) -> None:
    """Raises AddressUnavailable if one of them cannot be bound now. Keeps none: another process may still take it."""
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
