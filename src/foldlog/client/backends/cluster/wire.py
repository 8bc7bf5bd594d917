"""Our own connections to the cluster, for all but the records of producers and consumers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Final

from foldlog.client.backends.cluster.url import CALL_PROPERTY, KafkaUrl
from foldlog.client.wire.links import ClusterLinks
from foldlog.client.wire.properties import ClusterProperties
from foldlog.client.wire.property_names import OnlyLibrdkafka
from foldlog.errors import FoldlogError
from foldlog.limits import KAFKA_CALL_MS, KAFKA_DELIVERY_MS

_TRIES: Final = 3
_TRY_MS_MIN: Final = 1000


def wire_properties(url: KafkaUrl) -> ClusterProperties:
    """The settings of our connections; OnlyLibrdkafka if they cannot connect in the way that it does."""
    given = {CALL_PROPERTY: str(KAFKA_CALL_MS), **url.properties}
    given.setdefault("delivery.timeout.ms", str(KAFKA_DELIVERY_MS))
    if given[CALL_PROPERTY].isdecimal():
        # A broker that hangs without refusing leaves time to ask another within the call.
        given.setdefault("request.timeout.ms", str(max(_TRY_MS_MIN, int(given[CALL_PROPERTY]) // _TRIES)))
    return ClusterProperties.parse(given)


def speaks_wire(url: KafkaUrl) -> bool:
    """Whether our connections can be made as librdkafka's are: they know every way to log in but GSSAPI, and not every
    way to say whom to trust. Without them there are producers and consumers."""
    try:
        wire_properties(url)
    except OnlyLibrdkafka:
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
    def lent(self, call_ms: int, *, has_answered: bool = True) -> Iterator[ClusterLinks]:
        """For the caller's thread alone; what was known of leaders is forgotten. InvalidConfig if there can be none.

        `has_answered`: the addresses are known to be right.
        """
        with self._lock:
            links = self._idle.pop() if self._idle else None
        try:
            if links is None:
                links = self._new_links(call_ms)
                links.open(has_answered=has_answered)
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

    def _new_links(self, call_ms: int) -> ClusterLinks:
        properties = replace(wire_properties(self._url), default_api_timeout_ms=call_ms)
        return ClusterLinks(self._url.addresses, properties)

    def is_answered(self, within_ms: int) -> bool:
        """Whether a broker answers in that time."""
        links = self._new_links(within_ms)
        try:
            links.open(has_answered=True)
        except FoldlogError:
            return False
        finally:
            links.close()
        return True

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._is_closed = self._idle, [], True
        for links in idle:
            links.close()
