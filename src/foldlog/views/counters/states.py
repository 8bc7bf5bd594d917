"""The states of measures that one number cannot hold: how they are made of values, and what value they show.

All of them are sets that are merged by a union, so they are exactly equal for any split and order of the same rows:

- `values`: the different values themselves, sorted.
- `registers`: a HyperLogLog. Of each register that is not zero, its number and its rank, packed in four bytes and
  sorted; a union keeps the largest rank. The estimate is Ertl's improved one, which needs no table of corrections.
- `buckets`: a DDSketch whose buckets divide each span from a power of two to the next evenly, so that a bucket follows
  from the bits of a number without a logarithm, whose last digit is not the same everywhere. Of each bucket that is not
  empty, its number (four bytes) and its count (eight), sorted; a union adds the counts.
- `top`: the largest pairs of what a value is ordered by, and the value.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

RANK_BITS: Final = 6
"""Of a packed register: a rank is at most 61."""

HASH_BITS: Final = 64

EXPONENT_SHIFT: Final = 1075
"""Makes the exponent of the smallest number that is not zero, 2**-1074, positive."""

_INFINITE: Final = 1024
"""The exponent that infinity is given: after every number's."""


def bucket_fields() -> Any:
    """The layout of a bucket in a state."""
    import numpy as np

    return np.dtype([("bucket", "<i4"), ("count", "<i8")])


# --- of one value each ------------------------------------------------------------------------------------------------


def registers_of(hashes: pa.Array, bits: int) -> pa.Array:
    """A state for each 64-bit hash of a value; an empty one for a null."""
    import numpy as np

    valid = hashes.is_valid().to_numpy(zero_copy_only=False)
    words = hashes.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)[valid]
    numbers = words >> np.uint64(HASH_BITS - bits)
    ranks = np.minimum(_leading_zeros(words << np.uint64(bits)) + 1, HASH_BITS - bits + 1)
    packed = (numbers << np.uint64(RANK_BITS)) | ranks.astype(np.uint64)
    return binaries(packed.astype("<u4"), valid.astype(np.int64))


def _leading_zeros(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    # The exponent of a float tells the length of a number exactly, if that has at most 53 bits.
    high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
    of_high, of_low = (np.frexp(half.astype(np.float64))[1] for half in (high, low))
    found: np.ndarray[Any, Any] = np.where(high > 0, 32 - of_high, 64 - of_low)
    return found


def buckets_of(numbers: pa.Array, bits: int) -> pa.Array:
    """A state for each number; an empty one for a null and for NaN."""
    import numpy as np

    floats = numbers.fill_null(math.nan).to_numpy(zero_copy_only=False).astype(np.float64)
    valid = ~np.isnan(floats)
    floats = floats[valid]
    items = np.zeros(len(floats), bucket_fields())
    items["bucket"], items["count"] = bucket_numbers(floats, bits), 1
    return binaries(items, valid.astype(np.int64))


def bucket_numbers(floats: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """The bucket of each number: 0 for zero, negative for negative ones, and larger for larger ones."""
    import numpy as np

    size = np.abs(floats)
    finite = np.isfinite(size)
    mantissas, exponents = np.frexp(np.where(finite, size, 1.0))  # a mantissa is from 1/2 to 1
    parts = np.where(finite, np.floor((mantissas * 2 - 1) * (1 << bits)), 0).astype(np.int64)
    exponents = np.where(finite, exponents.astype(np.int64) - 1, _INFINITE)
    numbers = ((exponents + EXPONENT_SHIFT) << bits) + parts + 1
    found: np.ndarray[Any, Any] = np.where(size == 0, 0, np.where(floats < 0, -numbers, numbers))
    return found


def binaries(items: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> pa.Array:
    """States of packed items, of which each has as many as `lengths` says."""
    import numpy as np
    import pyarrow as pa

    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths * items.dtype.itemsize, out=ends[1:])
    data = pa.py_buffer(np.ascontiguousarray(items).tobytes())
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), [None, pa.py_buffer(ends.tobytes()), data])


def items_of(states: pa.Array, layout: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The packed items of all states, and how many each has."""
    import numpy as np
    import pyarrow as pa

    states = states.cast(pa.large_binary()).fill_null(b"")
    _, ends, data = states.buffers()
    at = np.frombuffer(ends, np.int64)[states.offset : states.offset + len(states) + 1]
    kind = np.dtype(layout)
    if not len(states) or at[0] == at[-1]:
        return np.zeros(0, kind), np.zeros(len(states), np.int64)
    items = np.frombuffer(memoryview(data)[at[0] : at[-1]], kind)
    return items, np.diff(at) // kind.itemsize


# --- what they show ---------------------------------------------------------------------------------------------------


def estimates(states: pa.Array, bits: int) -> list[int]:
    """The number of different values in each HyperLogLog, rounded."""
    import numpy as np

    items, lengths = items_of(states, "<u4")
    ranks = (items & ((1 << RANK_BITS) - 1)).astype(np.int64)
    levels = HASH_BITS - bits + 2
    owners = np.repeat(np.arange(len(lengths)), lengths)
    counts = np.bincount(owners * levels + ranks, minlength=len(lengths) * levels).reshape(len(lengths), levels)
    counts[:, 0] = (1 << bits) - lengths
    return [_estimate(one, 1 << bits) for one in counts.tolist()]


def _estimate(counts: list[int], registers: int) -> int:
    """Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), the improved raw estimate.
    `counts` says how many registers have each rank.
    """
    total = registers * _tau(1 - counts[-1] / registers)
    for number in reversed(counts[1:-1]):
        total = 0.5 * (total + number)
    total += registers * _sigma(counts[0] / registers)
    return round(registers * registers / (2 * math.log(2) * total)) if math.isfinite(total) else 0


def _sigma(share: float) -> float:
    if share == 1:
        return math.inf
    power, weight, total, before = share, 1.0, share, -1.0
    while total != before:
        before, power = total, power * power
        total, weight = total + power * weight, weight * 2
    return total


def _tau(share: float) -> float:
    if share in (0.0, 1.0):
        return 0.0
    root, weight, total, before = share, 1.0, 1 - share, -1.0
    while total != before:
        before, root, weight = total, math.sqrt(root), weight / 2
        total -= (1 - root) ** 2 * weight
    return total / 3


def quantiles(states: pa.Array, rank: float, bits: int) -> list[float | None]:
    """The quantile of each DDSketch: the middle of the bucket with the value at floor(rank * (n - 1)) in order."""
    import numpy as np

    items, lengths = items_of(states, bucket_fields())
    exact = Fraction(str(rank))  # as it was written: 0.3 * 10 is not 3 in floating point
    found: list[float | None] = []
    start = 0
    for length in lengths.tolist():
        own = items[start : start + length]
        start += length
        sums = np.cumsum(own["count"])
        if not length:
            found.append(None)
            continue
        at = exact.numerator * (int(sums[-1]) - 1) // exact.denominator
        found.append(bucket_middle(int(own["bucket"][np.searchsorted(sums, at, side="right")]), bits))
    return found


def bucket_middle(number: int, bits: int) -> float:
    """The number in the middle of a bucket, which is never off by more than 2**-(bits + 1) of a value in it.

    >>> import numpy as np
    >>> bucket_middle(int(bucket_numbers(np.array([-99.0]), 6)[0]), 6)
    -99.5
    """
    if number == 0:
        return 0.0
    exponent, part = divmod(abs(number) - 1, 1 << bits)
    exponent -= EXPONENT_SHIFT
    if exponent >= _INFINITE:
        return math.copysign(math.inf, number)
    return math.copysign(math.ldexp(1 + (part + 0.5) / (1 << bits), exponent), number)
