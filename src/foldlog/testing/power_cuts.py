"""Cut the power after every operation of a workload, in every way worth trying, and check what is left.

At each cut: everything unsynced dropped; everything kept; for each unsynced change, only it torn, only it missing, only
it kept; and seeded random mixes. An image equal to one already checked under the same promises is skipped and not
counted. All of it follows from the seed: a failure names the seed, the operation and the image, and `PowerCuts(...,
only=(operation, image))` replays only that one. For a short run, `every=4` takes a fourth of them at each cut, beside
the first two.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator

from foldlog.files.base import Files
from foldlog.testing.disk_image import DiskImage
from foldlog.testing.power_loss import Fate, PowerLossFiles

_SINGLED_OUT_MAX = 10  # unsynced changes with their own images at one cut; more are left to the mixes
_ALWAYS = 2  # everything dropped, everything kept
_MIX = (Fate.KEPT, Fate.KEPT, Fate.KEPT, Fate.DROPPED, Fate.DROPPED, Fate.EARLIER, Fate.TORN)


class Violation(AssertionError):
    """A promise of the log is broken on an image."""


class PowerCuts:
    """Checks every image of a running workload with `check`, which raises if a promise is broken.

    `promises` identifies the promises so far: an image seen under other promises is checked again. If `recover` is
    given, every `recover_every`-th image is also recovered on a disk that is cut in turn, after every operation of the
    recovery; what is left then is checked like any other image.
    """

    def __init__(
        self,
        check: Callable[[DiskImage], None],
        *,
        seed: int,
        mixes: int = 4,
        promises: Callable[[], Hashable] = lambda: 0,
        recover: Callable[[Files], None] | None = None,
        recover_every: int = 40,
        every: int = 1,
        only: tuple[int, int] | None = None,
    ) -> None:
        self.images = 0
        self.failure: Violation | None = None
        self._check = check
        self._seed = seed
        self._mixes = mixes
        self._promises = promises
        self._recover = recover
        self._recover_every = recover_every
        self._every = every
        self._only = only
        self._seen: set[Hashable] = set()

    def attach(self, files: PowerLossFiles) -> PowerLossFiles:
        """Cut after every operation on `files` from now on."""
        files.on_operation = lambda: self._cut(files)
        return files

    def finish(self) -> int:
        """The number of images checked. Raises the first failure: the code under test may have swallowed it."""
        if self.failure is not None:
            raise self.failure
        return self.images

    def _cut(self, files: PowerLossFiles) -> None:
        if self.failure is not None or (self._only is not None and self._only[0] != files.operation):
            return
        promises = self._promises()
        for number, fates in enumerate(self._recipes(files)):
            if not self._is_wanted(files.operation, number):
                continue
            image = files.image(fates, self._rng(files.operation, number))
            key = (image.fingerprint(), promises)
            if key in self._seen:
                continue
            self._seen.add(key)
            self.images += 1
            try:
                self._check(image)
                if self._recover is not None and self.images % self._recover_every == 0:
                    self.images += self._cut_recovery(image)
            except Exception as error:  # noqa: BLE001 - any exception is a finding
                self.failure = self._report(files, number, fates, error)
                return

    def _is_wanted(self, operation: int, number: int) -> bool:
        if self._only is not None:
            return self._only == (operation, number)
        # At each cut others: what is unsynced stays so over many operations, and each change has its turn.
        return number < _ALWAYS or (number + operation) % self._every == 0

    def _cut_recovery(self, image: DiskImage) -> int:
        assert self._recover is not None
        inner = PowerCuts(self._check, seed=self._seed, mixes=2, every=self._every)
        self._recover(inner.attach(PowerLossFiles(image)))
        return inner.finish()

    def _rng(self, operation: int, number: int) -> random.Random:
        return random.Random((self._seed * 1_000_003 + operation) * 1_000_003 + number)

    def _recipes(self, files: PowerLossFiles) -> Iterator[list[Fate]]:
        count = len(files.unsynced())
        yield [Fate.DROPPED] * count
        if not count:
            return
        yield [Fate.KEPT] * count
        step = -(-count // _SINGLED_OUT_MAX)
        for at in range(0, count, step):
            for one, rest in ((Fate.TORN, Fate.KEPT), (Fate.DROPPED, Fate.KEPT), (Fate.KEPT, Fate.DROPPED)):
                fates = [rest] * count
                fates[at] = one
                yield fates
        for number in range(self._mixes):
            yield self._rng(-files.operation, number).choices(_MIX, k=count)

    def _report(self, files: PowerLossFiles, number: int, fates: list[Fate], error: Exception) -> Violation:
        choices = [
            f"\n  {files.describe(unit)}: {fate.value}" for unit, fate in zip(files.unsynced(), fates, strict=True)
        ]
        report = Violation(
            f"power cut after operation {files.operation} ({files.last_operation}), image {number},"
            f" seed {self._seed}; replay with only=({files.operation}, {number})"
            f"\n{type(error).__name__}: {error}\nunsynced at the cut:{''.join(choices) or ' nothing'}"
        )
        report.__cause__ = error
        return report
