"""Record headers to columns. A header's value is read like a key: text, or what is parsed from text; BINARY as it is.

If a record has several headers of one name, the last one counts, as in Kafka's `lastHeader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldlog.errors import InvalidArgument
from foldlog.spark.decoders.decoder import KeyDecoder, key_decoder

if TYPE_CHECKING:
    import pyarrow as pa


class HeaderColumns:
    """Decodes the headers that the columns of a schema are named after. Pickled to the workers."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._decoders = {one.name: _decoder(one.name, one.type) for one in schema}

    def decode(self, headers: pa.ListArray) -> tuple[dict[str, pa.Array], pa.StringArray | None]:
        """The columns by name, null for records without that header; and the reasons, as in `Decoder.decode`."""
        import pyarrow.compute as pc

        columns: dict[str, Any] = {}
        reasons = None
        for name, decoder in self._decoders.items():
            column, why = decoder.decode(last_header(headers, name))
            columns[name] = column
            if why is not None:
                told = pc.binary_join_element_wise(f"header {name}: ", why, "")
                reasons = told if reasons is None else pc.coalesce(reasons, told)
        return columns, reasons


def _decoder(name: str, kind: pa.DataType) -> KeyDecoder:
    try:
        return key_decoder(kind)
    except InvalidArgument as error:
        raise InvalidArgument(f"the column of header {name!r}: {str(error).replace('a key', 'it')}") from error


def last_header(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """The value of each record's last header of this name; null without one."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    flat = headers.flatten()
    is_named = pc.equal(flat.field("key"), name)
    values = flat.field("value").filter(is_named)
    parents = pc.list_parent_indices(headers).filter(is_named).to_numpy(zero_copy_only=False)
    last = np.full(len(headers), -1, np.int64)
    last[parents] = np.arange(len(parents))  # of an index that is there twice, the last assignment stays
    return values.take(pa.array(last, mask=last < 0))
