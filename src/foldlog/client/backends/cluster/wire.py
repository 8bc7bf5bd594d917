"""Our own connections to the cluster that librdkafka talks to, for what it has no call for or would do slowly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Final

from foldlog.client.backends.cluster.url import CALL_PROPERTY, KafkaUrl
from foldlog.client.wire.links import ClusterLinks
from foldlog.client.wire.properties import ClusterProperties, with_one_name
from foldlog.errors import InvalidConfig
from foldlog.limits import KAFKA_CALL_MS, KAFKA_DELIVERY_MS

_NOT_SPOKEN: Final = frozenset(
    {"ssl.certificate.pem", "ssl.key.pem", "ssl.engine.location", "ssl.ca.certificate.stores", "ssl.crl.location"}
)
"""How librdkafka can be told who is who, and our connections cannot."""

_FILES: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
)
_PROBE: Final = "probe"
"""What librdkafka takes for: look where systems have their authorities."""


def wire_properties(url: KafkaUrl) -> ClusterProperties:
    """The settings of our connections. InvalidConfig if they cannot connect in the way that librdkafka does."""
    given = {CALL_PROPERTY: str(KAFKA_CALL_MS), **with_one_name(url.properties)}
    given.setdefault("delivery.timeout.ms", str(KAFKA_DELIVERY_MS))
    for name in _NOT_SPOKEN & given.keys():
        raise InvalidConfig(f"{name} is not taken by the connections that are not librdkafka's; name files instead")
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise InvalidConfig("connections that are not librdkafka's always verify certificates; set ssl.ca.location")
    return ClusterProperties.parse(given)


def check_files(url: KafkaUrl) -> None:
    """InvalidConfig if a file that TLS needs is not there: librdkafka's own words leave out which."""
    if not url.properties.get("security.protocol", "").upper().endswith("SSL"):
        return
    for name in _FILES:
        path = url.properties.get(name)
        if path and not (name == "ssl.ca.location" and path == _PROBE) and not os.path.exists(path):
            raise InvalidConfig(f"{name} names {path}, and there is no such file; check the path")


def speaks_wire(url: KafkaUrl) -> bool:
    """Whether our connections can be made as librdkafka's are: they know every way to log in but GSSAPI, and not every
    way to say whom to trust. Without them there are producers, consumers and topics, and neither groups nor tables."""
    try:
        wire_properties(url)
    except InvalidConfig:
        return False
    return True


class Wire:
    """Connections that are lent to one call at a time, and kept for the next. Any thread."""

    def __init__(self, url: KafkaUrl) -> None:
        self._url = url
        self._lock = Lock()
        self._idle: list[ClusterLinks] = []
        self._is_closed = False

    @contextmanager
    def lent(self, call_ms: int) -> Iterator[ClusterLinks]:
        """For the caller's thread alone; what was known of leaders is forgotten. InvalidConfig if there can be none."""
        with self._lock:
            links = self._idle.pop() if self._idle else None
        try:
            if links is None:
                properties = replace(wire_properties(self._url), default_api_timeout_ms=call_ms)
                links = ClusterLinks(self._url.addresses, properties)
                links.open(has_answered=True)
            links.forget_leaders()
            yield links
        except BaseException:
            if links is not None:
                links.close()
            raise
        with self._lock:
            if not self._is_closed:
                self._idle.append(links)
                return
        links.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._is_closed = self._idle, [], True
        for links in idle:
            links.close()
