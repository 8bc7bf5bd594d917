"""How a consumer of a cluster that waits is told to stop."""

from __future__ import annotations

from threading import Event


class Bell:
    """What wakes a waiting poll: only its end, as librdkafka wakes it for records."""

    def __init__(self) -> None:
        self._over = Event()

    @property
    def is_closed(self) -> bool:
        return self._over.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Whether it was closed meanwhile."""
        return self._over.wait(timeout_s)

    def ring(self) -> None:
        """Resuming: librdkafka fetches again by itself."""

    def close(self) -> None:
        self._over.set()
