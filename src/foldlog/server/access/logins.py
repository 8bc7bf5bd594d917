"""Logins: who a connection of a SASL listener is, before it may ask for anything, and again when its time is over.

A client asks for a mechanism (SaslHandshake), then shows tokens (SaslAuthenticate) until it is known or refused. Until
then only these two and ApiVersions are answered, requests are small, and the connection has LOGIN_S. A refused client
is answered late and then closed. What an address shows that has failed in the last minute is looked at one after the
other, LOGIN_CHECKS_PER_S, right or wrong, so that guessing is slow however many connections guess.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.broker.access.scram import LoginRefused
from foldlog.limits import (
    FAILED_LOGIN_DELAY_MAX_MS,
    FAILED_LOGIN_HOSTS_MAX,
    FAILED_LOGIN_REMEMBERED_S,
    LOGIN_CHECKS_PER_S,
    LOGIN_HASHES_MAX,
    LOGIN_S,
    TOKEN_CHECKS_MAX,
)
from foldlog.server.access.mechanisms import (
    OAUTHBEARER,
    PLAIN,
    BearerExchange,
    PlainExchange,
    SaslExchange,
    SaslOutcome,
    ScramExchange,
)
from foldlog.server.access.signing_keys import UnknownKey
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.broker.access.store import AccessStore
    from foldlog.clock import Clock
    from foldlog.server.access.tokens import TokenChecker

HANDSHAKE_KEY: Final = 17
API_VERSIONS_KEY: Final = 18
AUTHENTICATE_KEY: Final = 36
_BEFORE_LOGIN: Final = frozenset({HANDSHAKE_KEY, API_VERSIONS_KEY, AUTHENTICATE_KEY})

_NEVER: Final = float("inf")
_UNFRAMED: Final = 0
"""The version of SaslHandshake after which tokens come as bare frames, without a request around them."""

REFUSED: Final = "authentication failed: the user is unknown, or what it showed is wrong"
"""What every refused client is told; the broker's log has the reason."""

Run = Callable[..., Awaitable[Any]]


class LoginSettings(NamedTuple):
    """The settings that logins have."""

    mechanisms: tuple[str, ...]
    max_receive_bytes: int
    failed_delay_ms: int
    reauthenticate_ms: int


class _Failures(NamedTuple):
    """Of one address: how many in a row, when the last was, and from when on the next check may be."""

    in_a_row: int
    last_s: float
    free_s: float


class FailedLogins:
    """What failed logins cost, by address. Event loop only.

    The answer to a failure waits, twice as long with each up to FAILED_LOGIN_DELAY_MAX_MS. All is forgotten when an
    address has not failed for a while. Addresses are bounded: the one that failed longest ago is forgotten first.
    """

    def __init__(self, first_ms: int, now_s: Callable[[], float]) -> None:
        self._first_ms = first_ms
        self._now_s = now_s
        self._failed: OrderedDict[str, _Failures] = OrderedDict()

    def turn_s(self, host: str) -> float | None:
        """How long the next check of this address has to wait; None if so many wait already that it is refused."""
        host = network_of(host)
        known, now_s = self._failed.get(host), self._now_s()
        if known is None or not self._first_ms or now_s - known.last_s > FAILED_LOGIN_REMEMBERED_S:
            return 0.0
        wait_s = max(0.0, known.free_s - now_s)
        if wait_s > LOGIN_S / 2:
            return None
        self._failed[host] = known._replace(free_s=now_s + wait_s + 1 / LOGIN_CHECKS_PER_S)
        return wait_s

    def failed(self, host: str) -> float:
        """Count a failure; the seconds that its answer waits."""
        host = network_of(host)
        now_s = self._now_s()
        count, last_s, free_s = self._failed.pop(host, _Failures(0, now_s, now_s))
        if now_s - last_s > FAILED_LOGIN_REMEMBERED_S:
            count = 0
        self._failed[host] = _Failures(count + 1, now_s, free_s)
        if len(self._failed) > FAILED_LOGIN_HOSTS_MAX:
            self._failed.popitem(last=False)
        return min(self._first_ms << min(count, 16), FAILED_LOGIN_DELAY_MAX_MS) / 1000


def network_of(host: str) -> str:
    """What counts as one address: with IPv6 its first half, since everybody there has 2**64 of the other.

    >>> network_of("2001:db8:1:2:3::4"), network_of("10.0.0.7"), network_of("::ffff:10.0.0.7")
    ('2001:db8:1:2::', '10.0.0.7', '10.0.0.7')
    """
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))


class Logins:
    """What the logins of all connections share. Event loop only."""

    def __init__(
        self,
        access: AccessStore,
        settings: LoginSettings,
        loop: asyncio.AbstractEventLoop,
        run: Run,
        clock: Clock,
        on_refused: Callable[[str, Exception], None],
        tokens: TokenChecker | None = None,
    ) -> None:
        """`on_refused` is told of each failure, with the address, before its answer waits."""
        self._on_refused = on_refused
        self.settings = settings
        self.clock = clock
        self.loop = loop
        self.failures = FailedLogins(settings.failed_delay_ms, loop.time)
        self._access = access
        self._run = run
        self._tokens = tokens
        # Hashing a password takes milliseconds of a core: many at once would leave none for who is known already.
        self._hashing = asyncio.Semaphore(LOGIN_HASHES_MAX)
        self._checking = asyncio.Semaphore(TOKEN_CHECKS_MAX)

    def exchange(self, mechanism: str) -> SaslExchange | None:
        """A new exchange; None if the mechanism is not offered."""
        if mechanism not in self.settings.mechanisms:
            return None
        if mechanism == PLAIN:
            return PlainExchange(self.knows)
        if mechanism == OAUTHBEARER:
            return None if self._tokens is None else BearerExchange(self.check_token)
        return ScramExchange(mechanism, self._access.current.users)

    async def knows(self, name: str, password: str) -> bool:
        """Whether that is the user's password."""
        async with self._hashing:
            return bool(await self._run(self._access.current.users.knows, name, password))

    async def check_token(self, token: str) -> tuple[str, int]:
        """Whose token it is, and until when it holds. LoginRefused if it is nobody's."""
        tokens = self._tokens
        if tokens is None:
            raise LoginRefused("no tokens are taken")
        try:
            return await self._checked(tokens, token)
        except UnknownKey:
            reading = tokens.keys.refresh()
            if reading is None:
                raise
        await asyncio.wait([asyncio.wrap_future(reading)], timeout=LOGIN_S / 2)
        return await self._checked(tokens, token)

    async def _checked(self, tokens: TokenChecker, token: str) -> tuple[str, int]:
        async with self._checking:
            name, until_ms = await self._run(tokens.check, token)
        return name, until_ms

    def sweep(self) -> None:
        """About once a second: what is due by itself."""
        if self._tokens is not None:
            self._tokens.keys.refresh_if_due()

    async def turn(self, host: str) -> None:
        """Wait until something that this address shows may be looked at. LoginRefused if too many wait."""
        wait_s = self.failures.turn_s(host)
        if wait_s is None:
            raise LoginRefused("too many logins from its address wait to be looked at")
        if wait_s:
            await asyncio.sleep(wait_s)

    async def refused(self, host: str, refusal: Exception) -> None:
        """Note a refusal, and wait as long as its answer does."""
        self._on_refused(host, refusal)
        await asyncio.sleep(self.failures.failed(host))


class Login:
    """The login of one connection. Event loop only.

    `on_known` is called each time the client has logged in: with its principal, the mechanism, and whether it had
    before. `takes_raw`: the next frame is a token
    without a request around it.
    """

    def __init__(self, logins: Logins, host: str, on_known: Callable[[str, str, bool], None]) -> None:
        self._logins = logins
        self._host = host
        self._on_known = on_known
        self._mechanism: str | None = None
        self._exchange: SaslExchange | None = None
        self.began = logins.loop.time()
        self._until = 0.0  # the loop's time until which everything may be asked
        self.principal: str | None = None
        self.is_refused = False
        self._has_cost = False  # the refusal that is to come was counted already
        self.takes_raw = False

    @property
    def max_receive_bytes(self) -> int | None:
        """The largest frame that is taken; None: as large as any, since the client is known."""
        return self._logins.settings.max_receive_bytes if self.principal is None else None

    def lets(self, api_key: int) -> bool:
        """Whether a request of that API is answered now."""
        if self._until == _NEVER or self._logins.loop.time() < self._until:
            return True
        return api_key in _BEFORE_LOGIN

    @property
    def is_late(self) -> bool:
        """Whether the client has taken too long to log in, or to log in again."""
        now = self._logins.loop.time()
        if self.principal is None:
            return now - self.began > LOGIN_S
        return now - self._until > LOGIN_S

    def handshake(self, mechanism: str, version: int) -> ErrorCode:
        """The client has chosen a mechanism."""
        # Whose login never ends has no reason to begin another one; Kafka refuses it, too.
        if self._exchange is not None or self.is_refused or self._until == _NEVER:
            return ErrorCode.ILLEGAL_SASL_STATE
        if self._mechanism not in (None, mechanism):
            return ErrorCode.ILLEGAL_SASL_STATE  # who logs in again does it as before
        self._exchange = self._logins.exchange(mechanism)
        if self._exchange is None:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism = mechanism
        self.takes_raw = version == _UNFRAMED
        return ErrorCode.NONE

    @property
    def is_under_way(self) -> bool:
        """Whether a mechanism was chosen, and tokens are to come."""
        return self._exchange is not None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self._logins.settings.mechanisms

    async def authenticate(self, token: bytes) -> tuple[bytes, int]:
        """The answer to a token, and once the client is known, for how many milliseconds it is (0: for ever).

        LoginRefused if it is not who it says, after the time that this costs.
        """
        exchange = self._exchange
        if exchange is None:
            raise LoginRefused("it shows a token before it names a mechanism")
        try:
            if not self._has_cost:
                await self._logins.turn(self._host)
            outcome = await exchange.respond(token)
            if outcome.refusal is not None:
                # Here, and not when the client has answered: one that leaves instead has guessed all the same.
                self._has_cost = True
                await self._logins.refused(self._host, outcome.refusal)
            if outcome.principal is None:
                return outcome.answer, 0
            return outcome.answer, self._known(outcome, outcome.principal)
        except LoginRefused as refusal:
            self.is_refused = True
            if not self._has_cost:
                await self._logins.refused(self._host, refusal)
            raise

    def _known(self, outcome: SaslOutcome, principal: str) -> int:
        if self.principal not in (None, principal):
            raise LoginRefused(f"{self.principal} logs in again as {principal}")
        self._exchange, self.takes_raw = None, False
        lifetime_ms = self._lifetime_ms(outcome.until_ms)
        self._until = _NEVER if lifetime_ms is None else self._logins.loop.time() + lifetime_ms / 1000
        is_again, self.principal = self.principal is not None, principal
        self._on_known(principal, self._mechanism or "", is_again)
        return lifetime_ms or 0

    def _lifetime_ms(self, until_ms: int | None) -> int | None:
        limits_ms = []
        if self._logins.settings.reauthenticate_ms > 0:
            limits_ms.append(self._logins.settings.reauthenticate_ms)
        if until_ms is not None:
            limits_ms.append(max(0, until_ms - self._logins.clock.now_ms()))
        return min(limits_ms, default=None)
