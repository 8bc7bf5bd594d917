"""Says what a new version of a registered schema does to running folds, as soon as it is there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event, Thread

from foldlog.errors import FoldlogError
from foldlog.limits import REGISTRY_LOOK_EVERY_S, REGISTRY_TIMEOUT_S
from foldlog.spark.decoders.registered import FollowedSchema, followed_schema
from foldlog.spark.folds.feed import Feed
from foldlog.spark.origins.origin import Origin
from foldlog.spark.watch.watch import Watch

_log = logging.getLogger("foldlog.folds")


class SchemaWatch(Watch):
    """Asks on a thread of its own: a registry that does not answer must not keep folds waiting."""

    def __init__(self) -> None:
        self._over = Event()
        self._thread: Thread | None = None

    def began(self, feeds: Sequence[Feed], origin: Origin) -> None:
        found = {}
        for topic in (feed.fold.topic for feed in feeds):
            followed = followed_schema(topic.name)
            if followed is not None and followed.is_of(topic.schema, topic.format):
                found[topic.name] = followed
        if found:
            self._thread = Thread(
                target=self._look, args=(list(found.values()),), name="foldlog-schema-watch", daemon=True
            )
            self._thread.start()

    def ended(self, feeds: Sequence[Feed], error: BaseException | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(REGISTRY_TIMEOUT_S)

    def _look(self, followed: Sequence[FollowedSchema]) -> None:
        while True:
            for one in followed:
                try:
                    told = one.news()
                except FoldlogError as error:
                    _log.info("whether there is a newer schema is not known: %s", error)
                    continue
                if told is not None:
                    _log.warning("%s", told)
            if self._over.wait(REGISTRY_LOOK_EVERY_S):
                return
