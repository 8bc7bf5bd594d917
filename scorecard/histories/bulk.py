"""Judges millions of records that numbered senders wrote: nothing of it knows the log, only numbers.

Sender s sends its n-th record, with the value (s, n), to partition n modulo the number of partitions. So each partition
has to hold of each sender the numbers that belong there, once, in order, up to what was sent; and what was acknowledged
has to be where it was acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """All records of a partition, in the order in which they were read."""

    offsets: Numbers
    senders: Numbers
    numbers: Numbers


def judge(
    found: Mapping[int, PartitionRead],
    sent: Mapping[int, int],
    acknowledged: Mapping[tuple[int, int], Numbers],
    partitions: int,
) -> Iterator[tuple[str, str]]:
    """(kind, what) of everything wrong. `sent`: how many each sender sent; `acknowledged`: of (sender, partition) the
    offsets that it was told, in the order of sending."""
    for partition, read in found.items():
        where = f"partition {partition}"
        if len(read.offsets) and not np.array_equal(read.offsets, np.arange(read.offsets[0], read.offsets[-1] + 1)):
            yield "reordered", f"{where}: offsets do not follow one another"
        strangers = ~np.isin(read.senders, list(sent))
        if strangers.any():
            yield "invented", f"{where}: {int(strangers.sum())} records of nobody"
        for sender, count in sent.items():
            mine = read.senders == sender
            yield from _of_sender(
                f"{where}, sender {sender}",
                read.numbers[mine],
                read.offsets[mine],
                np.arange(partition, count, partitions),
                acknowledged.get((sender, partition), np.empty(0, np.int64)),
            )


def _of_sender(
    where: str, numbers: Numbers, offsets: Numbers, sent: Numbers, told: Numbers
) -> Iterator[tuple[str, str]]:
    if np.array_equal(numbers, sent[: len(numbers)]):
        if len(told) > len(offsets):
            yield "lost", f"{where}: {len(told)} were acknowledged, and {len(offsets)} are there"
        elif not np.array_equal(told, offsets[: len(told)]):
            yield "lost", f"{where}: records are elsewhere than they were acknowledged"
        return
    unique = np.unique(numbers)
    if len(unique) < len(numbers):
        yield "doubled", f"{where}: {len(numbers) - len(unique)} records are there twice"
    unsent = np.setdiff1d(unique, sent)
    if len(unsent):
        yield "invented", f"{where}: {len(unsent)} were never sent, such as {unsent[:3].tolist()}"
    missing = np.setdiff1d(sent[: len(told)], unique)
    if len(missing):
        yield "lost", f"{where}: {len(missing)} acknowledged records, such as {missing[:3].tolist()}, are not there"
    if (np.diff(numbers) < 0).any():
        yield "reordered", f"{where}: {int((np.diff(numbers) < 0).sum())} records come before an older one"
