"""Rows by group, in whole Arrow columns: a number for each group, and what merging does with its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, Any]

SUM_TOO_LARGE: Final = (
    "a sum has grown beyond its type; sum a larger unit, or cast the column to DECIMAL(38, s) and rebuild"
)


def group_codes(columns: Sequence[Any], length: int) -> Numbers:
    """A number for each row from 0 on, the same for rows that agree in all columns; null is a value."""
    import numpy as np

    codes = np.zeros(length, np.int64)
    for column in columns:
        encoded = whole(column).dictionary_encode(null_encoding="encode")
        both = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(both, return_inverse=True)[1]
    return codes


class Groups:
    """Rows by code, from 0 to `count` - 1, each of which some row has."""

    def __init__(self, codes: Numbers) -> None:
        import numpy as np
        import pyarrow as pa

        self.codes = codes
        self.order = np.argsort(codes, kind="stable")
        self.starts = np.flatnonzero(np.diff(codes[self.order], prepend=-1))
        self.count = len(self.starts)
        self._column = pa.array(codes)

    def first(self, column: Any) -> Any:
        """The value of the first row of each code."""
        import pyarrow as pa

        return column.take(pa.array(self.order[self.starts]))

    def total(self, column: Any) -> Any:
        """The sums, exactly: in the meantime wider than any sum that is kept."""
        import pyarrow as pa
        from pyarrow import types

        kind = column.type
        digits = pa.decimal256(76, 0 if types.is_integer(kind) else kind.scale)
        wide = column.cast(pa.decimal128(19, 0)) if types.is_integer(kind) else column
        table = pa.table({"code": self._column, "value": wide.cast(digits)}).group_by("code", use_threads=False)
        sums = table.aggregate([("value", "sum")]).sort_by("code")["value_sum"]
        try:
            return sums.cast(kind)
        except pa.ArrowInvalid:
            raise ArithmeticError(SUM_TOO_LARGE) from None

    def extreme(self, column: Any, *, largest: bool) -> Any:
        return column.take(self.at_extreme([column], largest=largest))

    def at_extreme(self, columns: Sequence[Any], *, largest: bool) -> Any:
        """The row of each code with the smallest or largest values in these columns, of which none counts if the first
        is null. NaN is the largest number.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        names = [f"value{number}" for number in range(len(columns))]
        table = pa.table([self._column, *columns], names=["code", *names])
        keys = [(name, "ascending") for name in ("code", *names)]
        order = pc.sort_indices(table, sort_keys=keys).to_numpy()  # nulls come last
        at = self.starts
        if largest:
            valid = columns[0].is_valid().to_numpy()[order].astype(np.int64)
            at = at + np.maximum(np.add.reduceat(valid, self.starts) - 1, 0)
        return pa.array(order[at])


def whole(column: Any) -> Any:
    """The column in one piece."""
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
