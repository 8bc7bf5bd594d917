"""Payments that are sent all the time, to a directory or a cluster alike, and what was acknowledged of them."""

from __future__ import annotations

import json
import random
from threading import Event, Thread
from typing import Final

from foldlog import Log, RecordMetadata, SendFuture
from folds_model import NUMBER

TOPIC: Final = "payments"

_PAUSE_S: Final = 0.1
"""Between a few and the next few: what is written has to be folded, recomputed and compared."""


class PaymentWriter:
    """Sends payments, a few at a time, until the block ends; then all of them have been acknowledged."""

    def __init__(self, log: Log, seed: int) -> None:
        self._log = log
        self._rng = random.Random(seed)
        self._sent: list[SendFuture] = []
        self._settled = 0
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self._raised: list[BaseException] = []

    def __enter__(self) -> PaymentWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._raised:
            raise self._raised[0]

    def acknowledged(self) -> int:
        """How many, counted from the first on: one that failed is none, and ends the count."""
        while self._settled < len(self._sent) and self._sent[self._settled].done():
            self._sent[self._settled].result()
            self._settled += 1
        assert not self._raised, self._raised
        return self._settled

    def places(self) -> dict[int, RecordMetadata]:
        """Where the log keeps each, as it was acknowledged, by its number."""
        return {number: future.result() for number, future in enumerate(self._sent)}

    def _run(self) -> None:
        try:
            with self._log.producer() as producer:  # which waits, at the end, until all are acknowledged
                while not self._stop.wait(_PAUSE_S):
                    for _ in range(self._rng.randrange(1, 12)):
                        number = len(self._sent)
                        key, value = self._payment(number)
                        headers = [(NUMBER, str(number).encode())]
                        self._sent.append(producer.send(TOPIC, value=value, key=key, headers=headers))
        except BaseException as error:  # noqa: BLE001 for the test's own thread
            self._raised.append(error)

    def _payment(self, number: int) -> tuple[str, bytes | None]:
        rng = self._rng
        key = f"tx{rng.randrange(200)}"
        if rng.random() < 0.1:
            return key, None
        content = {
            "merchant": rng.choice(["Chai Point", "Café ☕", None]),
            "amount_paise": rng.randrange(-10, 1000),
            "note": f"paid in part {number}",
            "at": f"2026-01-15T10:{rng.randrange(5):02d}:00+00:00",
        }
        return key, json.dumps(content).encode()
