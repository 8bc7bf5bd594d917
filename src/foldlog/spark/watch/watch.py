"""The interface of those who watch a pipeline. The pipeline calls them on its own thread, between ranges."""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.spark.folds.feed import Feed
from foldlog.spark.origins.origin import Origin


class Watch:
    """Told what the folds of a pipeline do. What it does with it must neither fail nor wait: folds come first."""

    def began(self, feeds: Sequence[Feed], origin: Origin) -> None:
        """The run begins; nothing was read yet."""

    def progressed(self, feed: Feed) -> None:
        """A range was stored, a feed has failed, or its state has changed."""

    def looked(self, feeds: Sequence[Feed], origin: Origin) -> None:
        """Called about once a second while folds move, and every five seconds while they do not."""

    def ended(self, feeds: Sequence[Feed], error: BaseException | None) -> None:
        """The run is over: with this error, or as it should."""

    def close(self) -> None:
        """Called once, after everything else."""
