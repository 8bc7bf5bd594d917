"""A directory with a subdirectory for each time a view was built, and symbolic links that name their roles.

    views/search/
      lock            held while links change (exclusive) and while a generation is written to (shared)
      current         -> g-000002   what readers open
      old             -> g-000001   what the last swap replaced, until it is dropped
      shadow-rebuild  -> g-000003   being built
      g-000001/ ...

A link is replaced by renaming another one over it: a reader finds the old generation or the new one, never none.
Links change in an order such that a crash leaves at worst a generation without a link, which the next change removes.
A reader that has the files of a removed generation open can still read them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.files.paths import LINK_DRAFT_SUFFIX, replace_link, sync_directory
from foldlog.limits import VIEW_LOCK_WAIT_MS

CURRENT: Final = "current"
OLD: Final = "old"
SHADOW_PREFIX: Final = "shadow-"

LOCK_POLL_MS: Final = 5
"""flock has no timeout, so it is polled."""

_LOCK: Final = "lock"
_GENERATION: Final = re.compile(r"g-([0-9]{6,})")
_LABEL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")


def shadow_link(label: str) -> str:
    """
    >>> shadow_link("rebuild")
    'shadow-rebuild'
    """
    if not _LABEL.fullmatch(label):
        raise InvalidArgument(f"a shadow's label is a few small letters, such as 'rebuild', not {label!r}")
    return SHADOW_PREFIX + label


class Generations:
    """The links and generations below `root`. Holds nothing open between calls; any number of processes may use it."""

    def __init__(self, root: str, location: str, wait_ms: int = VIEW_LOCK_WAIT_MS) -> None:
        self.root = root
        self._location = location
        self._wait_ms = wait_ms

    def find(self, link: str) -> str | None:
        """The path of the generation that a link names; None if there is none."""
        name = self._read(link)
        return None if name is None else os.path.join(self.root, name)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Inside, no link changes. ViewUnavailable if the directory does not exist."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Like `reading`, and excludes all others from both."""
        with self._locked(fcntl.LOCK_EX):
            yield

    def create(self, link: str, fill: Callable[[str], None]) -> bool:
        """Make a generation, let `fill` write into its directory, then link it; False if the link exists already."""
        self._make_root()
        with self._locked(fcntl.LOCK_EX):
            if self._read(link) is not None:
                return False
            self._sweep()
            name = f"g-{max(self._numbers(), default=0) + 1:06d}"
            path = os.path.join(self.root, name)
            os.mkdir(path)
            fill(path)
            # The directory is durable before a link names it; `fill` has synced the files themselves.
            sync_directory(path)
            self._link(link, name)
            return True

    def promote(self, link: str, before: Callable[[], None] | None = None, *, keeps_old: bool = True) -> None:
        """Make the generation that `link` names the current one, and the current one old, or remove it. `before` is
        called under the lock.
        """
        with self._locked(fcntl.LOCK_EX):
            if before is not None:
                before()
            name, current = self._read(link), self._read(CURRENT)
            if name is None:
                raise ViewUnavailable(self._location, f"there is no {link} to put in its place")
            # Old first: a crash after it leaves two links to one generation, a crash after `current` two to the other,
            # and in both cases every generation that is still needed has a link. In any other order a sweep could
            # remove the one just replaced, or the one about to be. Repeating the steps is harmless.
            if name != current:
                if current is not None and keeps_old:
                    self._link(OLD, current)
                self._link(CURRENT, name)
            self._unlink(link)
            self._sweep()

    def drop_old(self) -> bool:
        """Remove what the last `promote` replaced. Whether there was something."""
        return os.path.isdir(self.root) and self._drop(OLD)

    def drop(self, link: str) -> None:
        """Remove a link and its generation; with `current` also `old`. The last one removes the directory."""
        if not os.path.isdir(self.root):
            return
        if link == CURRENT:
            self._drop(OLD)
        self._drop(link)

    def _drop(self, link: str) -> bool:
        with self._locked(fcntl.LOCK_EX):
            was_there = self._read(link) is not None
            # A crash between two links of `promote` leaves both naming one generation: then only the link is removed.
            is_own = was_there and self._read(link) != self._read(CURRENT)
            self._unlink(link)
            self._sweep()
            if not self._numbers():
                # Under the lock: a process that waits for it finds another file, or none, and tries again.
                shutil.rmtree(self.root)
            return is_own

    def _make_root(self) -> None:
        if os.path.lexists(self.root) and not os.path.isdir(self.root):
            raise ViewUnavailable(self._location, "there is a file in its place; move it away, or choose another path")
        if not os.path.isdir(self.root):
            os.makedirs(self.root, exist_ok=True)
            sync_directory(os.path.dirname(self.root))
        strange = sorted(name for name in os.listdir(self.root) if not _is_ours(name))
        if strange:
            raise ViewUnavailable(
                self._location, f"the directory holds other files ({', '.join(strange[:3])}); choose an empty one"
            )

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        descriptor = self._lock(kind)
        try:
            yield
        finally:
            os.close(descriptor)

    def _lock(self, kind: int) -> int:
        path = os.path.join(self.root, _LOCK)
        deadline = time.monotonic() + self._wait_ms / 1000
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                raise ViewUnavailable(self._location, "it does not exist any more") from None
            try:
                # The lock is on the file, not on its name: if a `drop` has removed both, a waiting process has locked a
                # file that no other will ever open. Then it opens the new one.
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                if _is_same_file(descriptor, path):
                    return descriptor
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise ViewUnavailable(
                        self._location,
                        f"another process has been writing to it for {self._wait_ms / 1000:g} s; try again later",
                    ) from None
                time.sleep(LOCK_POLL_MS / 1000)
            os.close(descriptor)

    def _read(self, link: str) -> str | None:
        try:
            return os.readlink(os.path.join(self.root, link))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _link(self, link: str, name: str) -> None:
        replace_link(os.path.join(self.root, link), name)

    def _unlink(self, link: str) -> None:
        path = os.path.join(self.root, link)
        if os.path.lexists(path):
            os.unlink(path)
            sync_directory(self.root)

    def _numbers(self) -> list[int]:
        matches = map(_GENERATION.fullmatch, os.listdir(self.root))
        return [int(match[1]) for match in matches if match is not None]

    def _sweep(self) -> None:
        """Remove generations that no link names."""
        names = os.listdir(self.root)
        linked = {self._read(name) for name in names if os.path.islink(os.path.join(self.root, name))}
        for name in names:
            if _GENERATION.fullmatch(name) and name not in linked:
                shutil.rmtree(os.path.join(self.root, name))


def _is_same_file(descriptor: int, path: str) -> bool:
    """Whether the locked file still has that name, and was not removed by a `drop` meanwhile."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _is_ours(name: str) -> bool:
    link = name.removesuffix(LINK_DRAFT_SUFFIX)
    return (
        name == _LOCK or link in (CURRENT, OLD) or link.startswith(SHADOW_PREFIX) or bool(_GENERATION.fullmatch(name))
    )
