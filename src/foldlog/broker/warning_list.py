"""What the owner of a log should know and nobody asked for."""

from __future__ import annotations

import logging
import threading

from foldlog import limits

logger = logging.getLogger("foldlog.broker")


class WarningList:
    """The newest limits.WARNINGS_MAX different warnings, oldest first. Any thread. Each is logged when it is new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        with self._lock:
            if text in self._texts:
                return
            self._texts[text] = None
            if len(self._texts) > limits.WARNINGS_MAX:
                del self._texts[next(iter(self._texts))]
        logger.warning("%s", text)

    def report(self, doing: str, error: Exception) -> None:
        """Something failed that nobody waits for."""
        what = str(error) or type(error).__name__
        self.add(f"{doing} failed: {what}" if doing else what)

    def texts(self) -> list[str]:
        with self._lock:
            return list(self._texts)
