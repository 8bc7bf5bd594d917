"""The columns that a record's key fills: one that is the key as it is, or several that a format parses it into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from foldlog.spark.decoders.decoder import Decoder, KeyDecoder

if TYPE_CHECKING:
    import pyarrow as pa

KEY: Final = "_key"
"""The key's own bytes, which rows of topics with a `key_format` have beside the columns parsed from it. Two keys of
the log may be parsed to the same columns (`{"a":1,"b":2}` and `{"b":2,"a":1}`), and then are still two."""


@dataclass(frozen=True)
class KeyColumns:
    """Decodes keys to columns, by name. Pickled to the workers."""

    name: str
    """The one column; or KEY."""
    plain: KeyDecoder | None
    parsed: Decoder | None = None

    def decode(self, keys: pa.BinaryArray) -> tuple[dict[str, pa.Array], pa.StringArray | None]:
        """The columns, and the reasons, as in `Decoder.decode`. A null key is null in all columns."""
        import pyarrow as pa

        if self.plain is not None:
            column, reasons = self.plain.decode(keys)
            return {self.name: column}, reasons
        if self.parsed is None:
            return {}, None
        arrays, reasons = self.parsed.decode(keys)
        return {**dict(zip(self.parsed.schema.names, arrays, strict=True)), KEY: keys.cast(pa.binary())}, reasons
