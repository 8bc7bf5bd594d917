"""A queue, to set beside the log in the scene "Log or queue?": reading takes the item out. In memory, and pure.

It does what a queue does that acknowledges on delivery. Brokers that wait for an acknowledgement give the item to
somebody else after a crash, but what one reader has had is gone for every other reader all the same.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Item = TypeVar("Item")


class Queue(Generic[Item]):
    """First in, first out, and out for everybody. Not thread-safe: whoever shares it holds a lock.

    >>> queue = Queue[str]()
    >>> queue.enqueue("tea")
    >>> queue.dequeue(), queue.dequeue()
    ('tea', None)
    """

    def __init__(self) -> None:
        self._items: list[Item] = []

    def __len__(self) -> int:
        return len(self._items)

    def enqueue(self, item: Item) -> None:
        self._items.append(item)

    # The page shows this method as it stands.
    def dequeue(self) -> Item | None:
        if not self._items:
            return None  # nothing is left for a second reader
        return self._items.pop(0)  # out of the queue, for everybody

    def waiting(self) -> tuple[Item, ...]:
        """What nobody has taken yet, head first."""
        return tuple(self._items)
