"""Why a broker that runs does not answer: mostly one side speaks TLS and the other does not, or a certificate is wrong.

Neither what a socket says ("Connection reset by peer") nor what librdkafka says (nothing) tells that. So once a call
has failed the listeners are asked: a connection or two each, to see what they speak, and in vain if nobody is there.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final, NamedTuple

from foldlog.client.wire.connection import WireConnection
from foldlog.client.wire.properties import Address, ClusterProperties, parse_addresses
from foldlog.errors import InvalidArgument, InvalidConfig, MalformedBytes, RefusedByBroker
from foldlog.limits import LISTENER_PROBE_MS, LISTENER_PROBES_MAX, LISTENER_SILENCE_MS
from foldlog.wire.messages.metadata import MetadataRequest, MetadataResponse

_NAMED: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):\d{1,5}(?![\d.:])")
_EXPIRED: Final = frozenset({9, 10})  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_OTHER_NAME: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_ALERT: Final = "_ALERT_"
_SILENT: Final = (OSError, MalformedBytes, UnicodeError, OverflowError)


class Mistake(NamedTuple):
    """What is wrong between this client and a listener, and what to set."""

    why: str
    advice: str


def addresses_in(text: str) -> list[Address]:
    """Those that a client's complaint names: the broker that is wrong may be one that another has advertised.

    >>> [str(one) for one in addresses_in("ssl://one:9093/1: SSL handshake failed")]
    ['one:9093']
    """
    found: list[Address] = []
    for named in _NAMED.findall(text):
        try:
            found += parse_addresses(named)
        except (InvalidArgument, InvalidConfig):
            continue
    return found


def find_mistake(addresses: Iterable[Address], properties: ClusterProperties) -> Mistake | None:
    """The first that one of these listeners shows; None if all speak as this client does, or do not speak."""
    look = _tls_mistake if properties.tls else _plain_mistake
    with suppress(TimeoutError):  # nobody can tell what one speaks that hangs
        for address in list(dict.fromkeys(addresses))[:LISTENER_PROBES_MAX]:
            found = look(address, properties)
            if found is not None:
                return found
    return None


def _plain_mistake(address: Address, properties: ClusterProperties) -> Mistake | None:
    try:
        with _greeted(address, None, _timeout_ms(properties)) as connection:
            return _login_mistake(connection, properties)
    except TimeoutError:
        raise
    except _SILENT:
        pass
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        WireConnection.dial(address.host, address.port, _timeout_ms(properties) / 1000, anybody).close()
    except ssl.SSLError as error:
        if _ALERT not in (error.reason or ""):  # it has answered in the words of TLS, if only to refuse
            return None
    except TimeoutError:
        raise
    except _SILENT:
        return None
    protocol = properties.security_protocol
    wanted = "SASL_SSL" if protocol.startswith("SASL") else "SSL, or SASL_SSL where clients log in"
    return Mistake(
        f"{address} speaks TLS, and security.protocol is {protocol}",
        f"set security.protocol={wanted}, and ssl.ca.location to the file of the authority that signed its certificate",
    )


def _tls_mistake(address: Address, properties: ClusterProperties) -> Mistake | None:
    try:
        with _greeted(address, properties.tls, _timeout_ms(properties)) as connection:
            return _login_mistake(connection, properties)
    except ssl.SSLCertVerificationError as error:
        return _distrust(address, error)
    except ssl.SSLError as error:
        if _ALERT in (error.reason or ""):
            return _refusal(address, error)
    except TimeoutError:
        raise
    except _SILENT:
        pass
    try:
        with _greeted(address, None, _timeout_ms(properties)):
            pass
    except TimeoutError:
        raise
    except _SILENT:
        return None
    protocol = properties.security_protocol
    return Mistake(
        f"{address} speaks no TLS, and security.protocol is {protocol}",
        f"set security.protocol={'SASL_PLAINTEXT' if protocol.startswith('SASL') else 'PLAINTEXT'}, or name the port on"
        " which it speaks TLS",
    )


def _login_mistake(connection: WireConnection, properties: ClusterProperties) -> Mistake | None:
    """What brokers let everybody ask they answer; then they hang up on who has not logged in, and say nothing."""
    protocol = properties.security_protocol
    if protocol.startswith("SASL"):
        return None
    try:
        connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)
    except ConnectionError:
        return Mistake(
            f"{connection.address} closes the connection, as a listener does if the client has to log in",
            f"set security.protocol={'SASL_SSL' if properties.tls else 'SASL_PLAINTEXT'} instead of {protocol},"
            " sasl.mechanism, sasl.username and sasl.password",
        )
    except (OSError, MalformedBytes, RefusedByBroker):
        pass
    return None


def _timeout_ms(properties: ClusterProperties) -> int:
    """No longer than the client waits in other calls."""
    return min(
        LISTENER_PROBE_MS,
        properties.default_api_timeout_ms,
        properties.request_timeout_ms,
        properties.socket_connection_setup_timeout_ms,
    )


@contextmanager
def _greeted(address: Address, tls: ssl.SSLContext | None, timeout_ms: int) -> Iterator[WireConnection]:
    """A connection after the handshake and the first question."""
    sock = WireConnection.dial(address.host, address.port, timeout_ms / 1000, tls)
    with closing(WireConnection(sock, str(address), timeout_ms=timeout_ms, is_tls=tls is not None)) as connection:
        if tls is not None:
            # With TLS 1.3 a broker refuses a client's certificate after the handshake. Who sends before that is heard
            # may hear of a reset instead.
            sock.settimeout(LISTENER_SILENCE_MS / 1000)
            with suppress(TimeoutError):
                sock.recv(1)
        connection.negotiate(timeout_ms / 1000)
        yield connection


def _distrust(address: Address, error: ssl.SSLCertVerificationError) -> Mistake:
    reason = error.verify_message.rstrip(".")
    if error.verify_code in _OTHER_NAME:
        return Mistake(
            f"{address} shows a certificate for another name ({reason})",
            "name the broker as its certificate does, or set ssl.endpoint.identification.algorithm=none",
        )
    if error.verify_code in _EXPIRED:
        return Mistake(f"{address} shows a certificate that is out of date ({reason})", "renew it at the broker")
    return Mistake(
        f"{address} shows a certificate that is not trusted here ({reason})",
        "set ssl.ca.location to the file of the authority that signed it",
    )


def _refusal(address: Address, error: ssl.SSLError) -> Mistake:
    reason = (error.reason or "").rpartition(_ALERT)[2].replace("_", " ").lower()
    if "certificate" in reason or "unknown ca" in reason or "handshake failure" in reason:
        return Mistake(
            f"{address} does not take the certificate of this client, or misses one ({reason})",
            "set ssl.certificate.location and ssl.key.location to one that it knows",
        )
    return Mistake(f"{address} refuses this client's TLS ({reason})", "let both ends speak TLS 1.2 or 1.3")
