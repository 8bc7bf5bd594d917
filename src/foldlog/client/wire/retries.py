"""When to ask a cluster again: what passes, how long to wait, and what to say in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from foldlog.client.wire.listener_mistakes import addresses_in, find_mistake
from foldlog.client.wire.properties import Address, ClusterProperties
from foldlog.client.wire.refusals import Passing
from foldlog.errors import BrokerUnreachable, FoldlogError, MalformedBytes
from foldlog.limits import CLUSTER_ODD_ANSWERS_MAX


class LinkLost(ConnectionError):
    """A connection could not be made, or was lost, or timed out; says which broker. `is_odd`: it answered garbage, or
    is not who it should be, and will hardly be another soon. `is_cut_short`: the call's own time was over, which says
    nothing of the broker.
    """

    def __init__(self, address: Address, why: str, *, is_odd: bool = False, is_cut_short: bool = False) -> None:
        super().__init__(f"{address}: {why}")
        self.is_odd = is_odd
        self.is_cut_short = is_cut_short


class Backoff:
    """Counts the tries of one call: waits longer after each, up to a bound, and raises when its time is over.

    Used once, by one thread. Waits in real time: it waits for other processes.
    """

    def __init__(
        self, properties: ClusterProperties, addresses: Callable[[], Sequence[Address]], limit_ms: float
    ) -> None:
        self._properties = properties
        self._addresses = addresses
        self._until_s = time.monotonic() + limit_ms / 1000
        self._pause_ms = properties.retry_backoff_ms
        self._odd_answers = 0

    def wait(self, error: Exception) -> None:
        """Before the next try. Raises what the caller is told, if there shall be none."""
        time.sleep(self.pause_s(error))

    def pause_s(self, error: Exception) -> float:
        """`wait` for who has something else to do meanwhile: how long to leave it alone."""
        self._odd_answers += isinstance(error, MalformedBytes) or (isinstance(error, LinkLost) and error.is_odd)
        pause_s = self._pause_ms / 1000
        if self._odd_answers >= CLUSTER_ODD_ANSWERS_MAX or time.monotonic() + pause_s >= self._until_s:
            raise self._told(error) from error
        self._pause_ms = min(2 * self._pause_ms, self._properties.retry_backoff_max_ms)
        return pause_s

    def _told(self, error: Exception) -> FoldlogError:
        if isinstance(error, Passing):
            return error.error
        if isinstance(error, FoldlogError):
            return error
        known, protocol = self._addresses(), self._properties.security_protocol
        addresses = [str(address) for address in known]
        mistake = find_mistake([*addresses_in(str(error)), *known], self._properties)
        if mistake is not None:
            return BrokerUnreachable(addresses, mistake.why, protocol, mistake.advice)
        return BrokerUnreachable(addresses, str(error), protocol)
