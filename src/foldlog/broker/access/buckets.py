"""Token buckets: how much of a quota is left, and how long to wait once it is used up. No I/O, no clock.

A bucket fills at the quota's rate and holds at most `burst_s` seconds of it: Kafka's quota.window.num - 1 windows, so a
client that was silent may use that much at once. A use is never refused here: what goes beyond is a debt, and whoever
owes waits until it is paid. So over time nobody gets more than the rate, whatever the sizes of single requests.
"""

from __future__ import annotations

from typing import Final

DEBT_S_MAX: Final = 3600.0
"""The longest that anybody owes. A rate of a byte a second and a request of 100 MB would be a debt of years."""


class TokenBucket:
    """What is left of one quota, for all who share it. Not synchronised: one thread."""

    __slots__ = ("_burst_s", "_debt_s_max", "_left", "_rate", "_updated")

    def __init__(self, rate: float, burst_s: float, now: float, debt_s_max: float = DEBT_S_MAX) -> None:
        """Full. `rate` is a second's, `now` in seconds of any clock that does not go back."""
        self._rate = rate
        self._burst_s = burst_s
        self._debt_s_max = debt_s_max
        self._left = self.burst
        self._updated = now

    @property
    def burst(self) -> float:
        """The most that can be used at once without a debt."""
        return self._rate * self._burst_s

    @property
    def rate(self) -> float:
        return self._rate

    def change_rate(self, rate: float, now: float) -> None:
        """Go on with another rate. A debt is as many seconds as before, and so is what is left."""
        self._fill(now)
        self._left *= rate / self._rate
        self._rate = rate

    def use(self, amount: float, now: float) -> None:
        self._fill(now)
        self._left = max(self._left - amount, -self._rate * self._debt_s_max)

    def wait_s(self, now: float) -> float:
        """How long until nothing is owed; 0 if nothing is.

        >>> bucket = TokenBucket(rate=100, burst_s=10, now=0)
        >>> bucket.use(1500, now=0)
        >>> bucket.wait_s(now=0), bucket.wait_s(now=4), bucket.wait_s(now=5)
        (5.0, 1.0, 0.0)
        """
        self._fill(now)
        return max(0.0, -self._left / self._rate)

    def is_full(self, now: float) -> bool:
        """Whether nothing of it is in use: a new one would be equal."""
        self._fill(now)
        return self._left >= self.burst

    def _fill(self, now: float) -> None:
        if now > self._updated:
            self._left = min(self.burst, self._left + (now - self._updated) * self._rate)
            self._updated = now
