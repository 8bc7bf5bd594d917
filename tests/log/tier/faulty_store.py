"""A store that fails on request: at a step, for a while, with wrong bytes or with fewer of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from foldlog.errors import ObjectMissing, StoreError
from foldlog.files.base import Buffer
from foldlog.files.objects import ObjectStore


class Killed(BaseException):
    """The process ends here: nothing catches this."""


class FaultyStore:
    """`steps` counts changes of the store. `before` and `after` see each one, and may raise; `reads` may change what is
    read."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.url = inner.url
        self.steps: list[str] = []
        self.asked: list[str] = []
        self.before: Callable[[str, str], None] = lambda step, key: None
        self.after: Callable[[str, str], None] = lambda step, key: None
        self.reads: Callable[[str, bytes], bytes] = lambda key, data: data

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        self._begin("put", key)
        self._inner.put(key, parts)
        self.after("put", key)

    def create(self, key: str, data: bytes) -> bool:
        self._begin("create", key)
        made = self._inner.create(key, data)
        self.after("create", key)
        return made

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._begin("delete", key)
            self._inner.delete([key])
            self.after("delete", key)

    def _begin(self, step: str, key: str) -> None:
        self.steps.append(f"{step} {key}")
        self.before(step, key)

    def read(self, key: str, start: int, length: int) -> bytes:
        self.asked.append(key)
        self.before("read", key)
        return self.reads(key, self._inner.read(key, start, length))

    def get(self, key: str) -> bytes:
        self.asked.append(key)
        self.before("read", key)
        return self.reads(key, self._inner.get(key))

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        self.asked.append(f"list {prefix}")
        self.before("list", prefix)
        return self._inner.keys(prefix, after)

    def folders(self, prefix: str) -> list[str]:
        return self._inner.folders(prefix)

    def claim(self) -> None:
        self._inner.claim()

    def close(self) -> None:
        self._inner.close()

    # What to do

    def kill_at(self, number: int) -> None:
        """End the process before the change of that number, counted from 0."""

        def at(step: str, key: str) -> None:
            if step not in ("read", "list") and len(self.steps) == number + 1:
                raise Killed

        self.before = at

    def refuse(self, *steps: str, but: str = "\0") -> None:
        """Answer these with 503."""

        def refuse(step: str, key: str) -> None:
            if step in steps and but not in key:
                raise StoreError(f"{self.url}/{key}: 503 Slow Down")

        self.before = refuse

    def lose(self, part: str) -> None:
        """Objects with this in their names are gone."""

        def lost(step: str, key: str) -> None:
            if step == "read" and part in key:
                raise ObjectMissing(f"{self.url}/{key} is not in the store")

        self.before = lost

    def heal(self) -> None:
        self.before = self.after = lambda step, key: None
        self.reads = lambda key, data: data
