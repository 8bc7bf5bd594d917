"""While records are waited for: a cluster that went away is told of, once, and that it is back."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING

from foldlog.cli.output import remark

if TYPE_CHECKING:
    from foldlog.cli.places import AnyLog
    from foldlog.client.consumer import Consumer


class Outages:
    """What a person is told of the brokers while nothing arrives. The reading goes on by itself."""

    def __init__(self, log: AnyLog, consumer: Consumer) -> None:
        self._where = log.bootstrap
        self._consumer = consumer
        self._is_cut_off = False

    def look(self, polled: Sized) -> None:
        """After each poll: where records came from, somebody answers."""
        is_cut_off = not polled and self._consumer.is_cut_off()
        if is_cut_off == self._is_cut_off:
            return
        self._is_cut_off = is_cut_off
        if is_cut_off:
            remark(
                f"note: nobody answers at {self._where} any more; reading goes on when somebody does, Ctrl-C ends it"
            )
        else:
            remark(f"note: {self._where} answers again")
