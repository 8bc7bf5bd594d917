"""Quotas in force: whose bucket a request empties, the throttle time in its answer, and connections that are not read.

What a request uses is counted for all who share its quota (`broker/access/quotas.py`). Once that is used up, the answer
says for how long (`throttle_time_ms`), as Kafka's does, and the connection's socket is not read until then, so that a
client that does not obey gains nothing. One more than Kafka: a request that meets a debt of others who share its quota
waits, too, before it is begun; another connection gains nothing either.

Without quotas all this costs the test of one attribute, `NodeQuotas.is_on`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.broker.access.acls import USER_PREFIX, Identity
from foldlog.broker.access.buckets import TokenBucket
from foldlog.broker.access.quotas import (
    CLIENT_KEYS,
    CONNECTIONS,
    FETCH_BYTES,
    IP,
    MUTATIONS,
    PRODUCE_BYTES,
    REQUEST_TIME,
    Quota,
)
from foldlog.broker.access.store import Access, AccessStore
from foldlog.limits import HELD_CONNECTIONS_MAX, QUOTA_BUCKETS_MAX, QUOTA_CLIENT_IDS_MAX
from foldlog.records.batch import MAX_INT32
from foldlog.server.topic_admin import refuse
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.server.call import Call
    from foldlog.server.config.settings import ServerSettings
    from foldlog.server.metrics.metrics import Metrics

_PRODUCE_KEY: Final = 0
_FETCH_KEYS: Final = frozenset({1, 78})
_INT16: Final = struct.Struct(">h")
_KEY_AND_VERSION: Final = struct.Struct(">hh")
_CLIENT_ID_AT: Final = 8
_MS: Final = 1000.0
_THREAD_PERCENT: Final = 100.0

_STREAM_STEP_S: Final = 0.5
_STREAM_SIGN_S: Final = 10.0
_STREAM_SIGN: Final = b": waiting\n\n"
"""A comment of server-sent events."""


STRICT_FROM: Final = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics and CreatePartitions: the version from which on clients understand that a topic is refused
for its quota (KIP-599)."""


class Limits(NamedTuple):
    """The buckets of one client, None where no quota is for it. Named as their quotas."""

    producer_byte_rate: TokenBucket | None
    consumer_byte_rate: TokenBucket | None
    request_percentage: TokenBucket | None
    controller_mutation_rate: TokenBucket | None

    def of_api(self, api_key: int) -> list[tuple[str, TokenBucket]]:
        """The quotas that requests of an API use, with their names."""
        found = [(REQUEST_TIME, self.request_percentage)]
        if api_key == _PRODUCE_KEY:
            found.append((PRODUCE_BYTES, self.producer_byte_rate))
        elif api_key in _FETCH_KEYS:
            found.append((FETCH_BYTES, self.consumer_byte_rate))
        return [(key, bucket) for key, bucket in found if bucket is not None]


class NodeQuotas:
    """The quotas of a broker, and what is left of them. Event loop only, but for changes of the quotas themselves.

    `changed` is called on the thread of a change.
    """

    def __init__(
        self,
        access: AccessStore,
        settings: ServerSettings,
        metrics: Metrics,
        time: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._access = access
        self._metrics = metrics
        self.time = time
        self._on_change = changed
        self._burst_s = float((settings.quota_window_num - 1) * settings.quota_window_size_seconds)
        self._window_s = float(settings.quota_window_size_seconds)
        # Kafka's bucket of mutations holds one window more than its rates do.
        self._mutations_burst_s = float(
            settings.controller_quota_window_num * settings.controller_quota_window_size_seconds
        )
        self._buckets: dict[tuple[str, tuple[str, ...]], TokenBucket] = {}
        self.held = 0
        self._use(access.current)
        access.watchers.append(self._changed)

    def close(self) -> None:
        """Hear of no more changes."""
        if self._changed in self._access.watchers:
            self._access.watchers.remove(self._changed)

    def _changed(self, access: Access) -> None:
        if access.quotas != self._quotas:
            self._use(access)
            self._on_change()

    def _use(self, access: Access) -> None:
        self._quotas = access.quotas
        kinds = {kind for one in access.quotas for kind, _ in one}
        self.limits_connections = IP in kinds
        self.epoch = access.epoch
        self.is_on = bool(kinds - {IP})

    def limits(self, who: Identity, client_id: str) -> Limits | None:
        """The client's buckets; None if no quota is for it. Quotas are for users: processes that open the directory
        are none, as brokers of a cluster are none in Kafka."""
        kind, user = who.principal[: len(USER_PREFIX)], who.principal[len(USER_PREFIX) :]
        if kind != USER_PREFIX:
            return None
        buckets = [self._bucket(key, self._quotas.for_client(key, user, client_id)) for key in CLIENT_KEYS]
        return Limits(*buckets) if any(bucket is not None for bucket in buckets) else None

    def _bucket(self, key: str, quota: Quota | None) -> TokenBucket | None:
        if quota is None:
            return None
        now, rate = self.time(), quota.rate / (_THREAD_PERCENT if key == REQUEST_TIME else 1)
        name = (key, quota.shared_by)
        bucket = self._buckets.get(name)
        if bucket is None:
            self._make_room(now)
            bucket = self._buckets[name] = self._new_bucket(key, rate, now)
        elif bucket.rate != rate:
            bucket.change_rate(rate, now)
        return bucket

    def _new_bucket(self, key: str, rate: float, now: float) -> TokenBucket:
        if key == MUTATIONS:
            return TokenBucket(rate, self._mutations_burst_s, now)
        if key == REQUEST_TIME:
            # Kafka's bound, too: one slow request must not cost a consumer its membership.
            return TokenBucket(rate, self._burst_s, now, debt_s_max=self._window_s)
        return TokenBucket(rate, self._burst_s, now)

    def _make_room(self, now: float) -> None:
        """Forget buckets if there are very many: first full ones, which a new one equals; then the oldest."""
        if len(self._buckets) < QUOTA_BUCKETS_MAX:
            return
        kept = {name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)}
        while len(kept) > QUOTA_BUCKETS_MAX // 2:
            del kept[next(iter(kept))]
        self._buckets = kept

    def throttled(self, quota: str, seconds: float) -> None:
        self._metrics.throttled(quota, seconds)

    # --- what handlers ask ------------------------------------------------------------------------------------------

    def mutations(self, call: Call, *, strict_from: int) -> MutationQuota:
        """The quota of partitions that one request makes and deletes; see there for `strict_from`."""
        limits = self._limits_of(call)
        bucket = None if limits is None else limits.controller_mutation_rate
        return MutationQuota(bucket, self.time, is_strict=call.version >= strict_from)

    def console_mutations(self, who: Identity) -> MutationQuota:
        """The quota of partitions that a user makes and deletes in the console."""
        limits = self.limits(who, "") if self.is_on else None
        return MutationQuota(None if limits is None else limits.controller_mutation_rate, self.time, is_strict=True)

    def _limits_of(self, call: Call) -> Limits | None:
        return self.limits(call.caller.who, call.client_id or "") if self.is_on else None

    def fetch_bytes_max(self, call: Call) -> int:
        """What one Fetch may carry: more would be a debt, however long the client was silent."""
        limits = self._limits_of(call)
        bucket = None if limits is None else limits.consumer_byte_rate
        return MAX_INT32 if bucket is None else min(MAX_INT32, max(1, int(bucket.burst)))

    # --- the console ------------------------------------------------------------------------------------------------

    def http_wait_s(self, who: Identity, *, is_write: bool) -> float:
        """How long the user's requests over HTTP are refused: what they read and write there is of the same quotas."""
        limits = self.limits(who, "") if self.is_on else None
        if limits is None:
            return 0.0
        bytes_of = limits.producer_byte_rate if is_write else limits.consumer_byte_rate
        now = self.time()
        waits = [bucket.wait_s(now) for bucket in (bytes_of, limits.request_percentage) if bucket is not None]
        return max(waits, default=0.0)

    def http_used(self, who: Identity, *, is_write: bool, used_bytes: int) -> None:
        """A write was received, or the answer to a read is sent."""
        limits = self.limits(who, "") if self.is_on else None
        bucket = None if limits is None else limits.producer_byte_rate if is_write else limits.consumer_byte_rate
        if bucket is not None:
            bucket.use(used_bytes, self.time())

    def http_worked(self, who: Identity, seconds: float) -> None:
        """So long the broker has worked for one of the user's requests."""
        limits = self.limits(who, "") if self.is_on else None
        if limits is not None and limits.request_percentage is not None:
            limits.request_percentage.use(seconds, self.time())

    async def http_paced(self, who: Identity, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """A stream without an end: as long as its user is in debt, it waits. Events are gathered meanwhile."""
        async with aclosing(events):
            async for piece in events:
                self.http_used(who, is_write=False, used_bytes=len(piece))
                yield piece
                waited_s = 0.0
                while (wait_s := self.http_wait_s(who, is_write=False)) > 0:
                    # In small steps: other quotas count at once.
                    await asyncio.sleep(min(wait_s, _STREAM_STEP_S))
                    waited_s += _STREAM_STEP_S
                    if waited_s % _STREAM_SIGN_S == 0:
                        yield _STREAM_SIGN  # only a write detects that the client is gone

    # --- new connections --------------------------------------------------------------------------------------------

    def connection_delay_s(self, host: str) -> float | None:
        """None if a new connection from there is let in; otherwise how long it is kept, unread, before it is closed. A
        client that tries again at once then tries once in that time, as with Kafka."""
        bucket = self._bucket(CONNECTIONS, self._quotas.for_address(CONNECTIONS, host)) if host else None
        if bucket is None:
            return None
        now = self.time()
        wait_s = bucket.wait_s(now)
        if wait_s <= 0:
            bucket.use(1, now)
            return None
        self.throttled(CONNECTIONS, 0.0)
        return 0.0 if self.held >= HELD_CONNECTIONS_MAX else min(wait_s, self._window_s)


class MutationQuota:
    """The quota of mutations for one request. If it is strict, as for newer versions of the APIs (KIP-599), topics are
    refused while it is used up, and what was allowed is not throttled; otherwise the client is throttled only."""

    __slots__ = ("_bucket", "_is_strict", "_time", "throttle_time_ms")

    def __init__(self, bucket: TokenBucket | None, time: Callable[[], float], *, is_strict: bool) -> None:
        self._bucket = bucket
        self._time = time
        self._is_strict = is_strict
        self.throttle_time_ms = 0

    def take(self, partitions: int) -> None:
        """Count partitions that are made or deleted. Raises RefusedByBroker with THROTTLING_QUOTA_EXCEEDED."""
        if self._bucket is None:
            return
        now = self._time()
        if self._is_strict and self._bucket.wait_s(now) > 0:
            self.throttle_time_ms = _milliseconds(self._bucket.wait_s(now))
            refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._bucket.use(partitions, now)
        if not self._is_strict:
            self.throttle_time_ms = _milliseconds(self._bucket.wait_s(now))


class ConnectionThrottle:
    """One connection under quotas: what its requests use, and until when it is not read. Event loop only."""

    __slots__ = (
        "_epoch",
        "_go_on",
        "_known",
        "_loop",
        "_quotas",
        "_stop_reading",
        "_timer",
        "_until",
        "is_exempt",
        "is_muted",
    )

    def __init__(
        self,
        quotas: NodeQuotas,
        loop: asyncio.AbstractEventLoop,
        stop_reading: Callable[[], None],
        go_on: Callable[[], None],
    ) -> None:
        self._quotas = quotas
        self._loop = loop
        self._stop_reading = stop_reading
        self._go_on = go_on
        self.is_exempt = False  # before its login nobody knows whose quota it would use
        self.is_muted = False  # nothing may be read now
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._epoch = -1
        self._known: dict[tuple[str, str], Limits | None] = {}

    def must_wait(self, who: Identity, view: memoryview, start: int) -> bool:
        """Whether the request there has to wait before it may begin."""
        if self.is_muted:
            return True
        limits = self._limits(who, _client_id(view, start))
        if limits is None:
            return False
        now = self._quotas.time()
        api_key, version = _KEY_AND_VERSION.unpack_from(view, start)
        waits = [(bucket.wait_s(now), key) for key, bucket in limits.of_api(api_key)]
        if limits.controller_mutation_rate is not None and version < STRICT_FROM.get(api_key, 0):
            # Newer versions are refused. These would be served however large the debt, each on another connection.
            waits.append((limits.controller_mutation_rate.wait_s(now), MUTATIONS))
        wait_s, key = max(waits, default=(0.0, ""))
        if wait_s > 0:
            self._mute(key, wait_s)
        return wait_s > 0

    def begin(self, who: Identity, view: memoryview, start: int, end: int) -> Charge | None:
        """A request begins; None if no quota is for its client."""
        limits = self._limits(who, _client_id(view, start))
        if limits is None:
            return None
        api_key = _INT16.unpack_from(view, start)[0]
        if api_key == _PRODUCE_KEY and limits.producer_byte_rate is not None:
            limits.producer_byte_rate.use(end - start, self._quotas.time())
        return Charge(self, limits, api_key)

    def ended(self, charge: Charge, message: Any, answer_bytes: int) -> bool:
        """A request is answered; `message` is None where nothing is sent. Whether its throttle time was set."""
        now = self._quotas.time()
        bucket = charge.limits.consumer_byte_rate if charge.api_key in _FETCH_KEYS else None
        if bucket is not None:
            bucket.use(answer_bytes, now)
        waits = [(bucket.wait_s(now), key) for key, bucket in charge.limits.of_api(charge.api_key)]
        told_ms = getattr(message, "throttle_time_ms", None)
        if told_ms:
            waits.append((told_ms / _MS, MUTATIONS))
        wait_s, key = max(waits, default=(0.0, ""))
        if wait_s <= 0:
            return False
        self._mute(key, wait_s)
        if told_ms is None:
            return False
        message.throttle_time_ms = _milliseconds(wait_s)
        return True

    def used_time(self, limits: Limits, seconds: float) -> None:
        if limits.request_percentage is not None:
            limits.request_percentage.use(seconds, self._quotas.time())

    def changed(self) -> None:
        """There are other quotas: what was muted looks again."""
        if self._timer is not None:
            self._timer.cancel()
            self._over()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _limits(self, who: Identity, client_id: str) -> Limits | None:
        if self.is_exempt:
            return None
        if self._epoch != self._quotas.epoch or len(self._known) >= QUOTA_CLIENT_IDS_MAX:
            self._epoch = self._quotas.epoch
            self._known.clear()
        key = (who.principal, client_id)
        if key not in self._known:
            self._known[key] = self._quotas.limits(who, client_id)
        return self._known[key]

    def _mute(self, quota: str, wait_s: float) -> None:
        """Read nothing for that long. Of two throttle times the one that ends later counts."""
        until = self._loop.time() + wait_s
        if self._timer is not None and until <= self._until:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._quotas.throttled(quota, wait_s if self._timer is None else until - self._until)
        self._until = until
        self._timer = self._loop.call_at(until, self._over)
        self.is_muted = True
        self._stop_reading()

    def _over(self) -> None:
        self._timer = None
        self.is_muted = False
        self._go_on()


class Charge:
    """What one request uses. Its time is that in which the broker works for it: waiting for records, members and syncs
    is free."""

    __slots__ = ("_began", "_throttle", "api_key", "limits")

    def __init__(self, throttle: ConnectionThrottle, limits: Limits, api_key: int) -> None:
        self._throttle = throttle
        self.limits = limits
        self.api_key = api_key
        self._began: float | None = perf_counter()  # the loop's own time stands still within a turn

    def waits(self) -> None:
        """From here on nobody works for it."""
        if self._began is not None:
            self._throttle.used_time(self.limits, perf_counter() - self._began)
            self._began = None

    def ended(self, message: Any, answer_bytes: int = 0) -> bool:
        self.waits()
        return self._throttle.ended(self, message, answer_bytes)


_WORKED: ContextVar[list[float] | None] = ContextVar("_WORKED", default=None)


@contextmanager
def worked_seconds() -> Iterator[list[float]]:
    """What `CountedWorkers` work meanwhile for this task, in seconds: filled as it is done."""
    seconds: list[float] = []
    before = _WORKED.set(seconds)
    try:
        yield seconds
    finally:
        _WORKED.reset(before)


class CountedWorkers(ThreadPoolExecutor):
    """Threads that tell `worked_seconds` how long they worked; the time in their queue is free."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        seconds = _WORKED.get()
        if seconds is None:
            return super().submit(function, *arguments, **named)

        def counted() -> Any:
            began = perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                seconds.append(perf_counter() - began)

        return super().submit(counted)


def _client_id(view: memoryview, start: int) -> str:
    """The client id in a request's header, which every version of every API has at the same place; "" if it has none,
    or one that cannot be read: its handler refuses that."""
    at = start + _CLIENT_ID_AT
    if at + _INT16.size > len(view):
        return ""
    (size,) = _INT16.unpack_from(view, at)
    return bytes(view[at + _INT16.size : at + _INT16.size + max(0, size)]).decode(errors="replace")


def _milliseconds(seconds: float) -> int:
    return min(MAX_INT32, max(1, round(seconds * _MS))) if seconds > 0 else 0
