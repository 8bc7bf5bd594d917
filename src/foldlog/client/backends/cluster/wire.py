"""Our own connections to the cluster, for all but the records of producers and of members of groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from foldlog.client.backends.cluster.url import CALL_PROPERTY, KafkaUrl
from foldlog.client.wire.links import ClusterLinks
from foldlog.client.wire.properties import ClusterProperties
from foldlog.client.wire.property_names import OnlyLibrdkafka
from foldlog.errors import BrokerUnreachable, FoldlogError
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
    way to say whom to trust. Without them there are producers, and consumers with a group."""
    try:
        wire_properties(url)
    except OnlyLibrdkafka:
        return False
    return True


class Wire:
    """Connections that are lent to one call at a time, and kept for the next. Any thread.

    Takes no lock: a reader that nobody holds any more gives back what it has in the middle of anything.
    """

    def __init__(self, url: KafkaUrl) -> None:
        self._url = url
        self._idle: deque[ClusterLinks] = deque()
        self._is_closed = False

    @contextmanager
    def lent(self, *, has_answered: bool = True, committed: bool | None = None) -> Iterator[ClusterLinks]:
        """For the caller's thread alone; what was known of leaders is forgotten. InvalidConfig if there can be none.

        `has_answered`: the addresses are known to be right. `committed`: whether only committed records are read; None
        leaves it to the URL's isolation.level.
        """
        try:
            links = self._idle.pop()
            links.forget_leaders()
        except IndexError:
            links = self._opened(has_answered)
        links.properties = self._properties(committed)
        try:
            yield links
        except BrokerUnreachable:
            links.close()  # whoever comes next begins with the addresses of the URL
            raise
        except BaseException:
            self._take_back(links)
            raise
        self._take_back(links)

    def _take_back(self, links: ClusterLinks) -> None:
        self._idle.append(links)
        if self._is_closed:  # looked at last: whoever closes meanwhile has not seen it
            self.close()

    def _opened(self, has_answered: bool) -> ClusterLinks:
        links = ClusterLinks(self._url.addresses, wire_properties(self._url))
        try:
            links.open(has_answered=has_answered)
        except BaseException:
            links.close()
            raise
        return links

    def _properties(self, committed: bool | None) -> ClusterProperties:
        properties = wire_properties(self._url)
        return properties if committed is None else replace(properties, isolation_level=int(committed))

    def is_answered(self, within_ms: int) -> bool:
        """Whether a broker answers in that time."""
        properties = replace(wire_properties(self._url), default_api_timeout_ms=within_ms)
        links = ClusterLinks(self._url.addresses, properties)
        try:
            links.open(has_answered=True)
        except FoldlogError:
            return False
        finally:
            links.close()
        return True

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            with suppress(IndexError):  # another thread was as quick
                self._idle.pop().close()
