"""Records to standard output: in chunks into a pipe or a file, at once to a terminal or while following."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from foldlog.cli.output import naming_output
from foldlog.cli.parsing import Arguments
from foldlog.cli.records.format import Printer, RecordColumn, format_printer, row_printer
from foldlog.cli.tables import has_colours
from foldlog.errors import InvalidArgument
from foldlog.records.decoding import HEX, REGISTRY, How, document_of, readable
from foldlog.records.json_lines import record_lines, record_lines_for_terminal
from foldlog.records.loops import Record

if TYPE_CHECKING:
    from foldlog.client.log import Log
    from foldlog.client.schemas.lookups import RegisteredSchema

CHUNK_RECORDS: Final = 128
"""Records per write: enough to make its cost small, and few enough that large records do not pile up."""


class RecordOutput:
    """Prints records and counts them. BrokenPipeError once the reader is gone."""

    def __init__(self, printer: Printer, *, is_live: bool) -> None:
        self._print = printer
        self._is_live = is_live or _is_terminal()
        self._log: Log | None = None
        self.count = 0

    def of(self, log: Log) -> None:
        """Say whose records they are, before the first is written: their schemas may be in the log."""
        self._log = log

    def decode_as(self, decoder: How) -> None:
        """Print values decoded from now on."""
        self._print = decoding_printer(self._print, decoder)

    def decode_with_schemas(self, url: str | None) -> None:
        """Print keys and values decoded by the schemas that they name: of the registry at `url`, or of the log."""
        from foldlog.client.schemas.lookups import SchemaRegistry
        from foldlog.client.schemas.values import TopicSchemas, ValueDecoder

        if url is not None:
            self.decode_as(ValueDecoder(SchemaRegistry(url).schema))
            return
        found: list[TopicSchemas] = []

        def lookup(schema_id: int) -> RegisteredSchema | None:
            if not found and self._log is not None:
                found.append(TopicSchemas(self._log))
            return found[0].schema(schema_id) if found else None

        self.decode_as(ValueDecoder(lookup))

    def write(self, records: Sequence[Record]) -> None:
        data = self._print(records)
        if sys.stdout is not None:  # it can be closed from the start
            with naming_output():
                sys.stdout.buffer.write(data)
                if self._is_live:
                    sys.stdout.buffer.flush()
        self.count += len(records)

    def write_all(self, records: Iterable[Record]) -> None:
        for chunk in _chunks(records):
            self.write(chunk)


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    rest = iter(records)
    while chunk := list(islice(rest, CHUNK_RECORDS)):
        yield chunk


def output_for(
    arguments: Arguments, columns: Sequence[RecordColumn] | None = None, *, is_live: bool = False
) -> RecordOutput:
    """The output for a verb's options; `columns` are those of its plain text, if it has any."""
    printer = _printer_for(arguments, columns)
    if arguments.registry is not None and arguments.decode != REGISTRY:
        raise InvalidArgument("--registry says where schemas are; add --decode registry to decode with them")
    output = RecordOutput(printer, is_live=is_live)
    if arguments.decode == REGISTRY:
        output.decode_with_schemas(arguments.registry)
    elif arguments.decode is not None:
        output.decode_as(arguments.decode)
    return output


def decoding_printer(printer: Printer, decoder: How) -> Printer:
    """Print records with their values decoded, and by a decoder that has schemas their keys too: most keys are text,
    but a key that names a schema is not. What is not of that kind is printed as it is."""

    def print_decoded(records: Iterable[Record]) -> bytes:
        return printer([_decoded(record, decoder) for record in records])

    return print_decoded


def _decoded(record: Record, decoder: How) -> Record:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key if isinstance(decoder, str) else _decoded_bytes(record.key, decoder),
        _decoded_bytes(record.value, decoder),
        record.headers,
    )


def _decoded_bytes(data: bytes | None, decoder: How) -> bytes | None:
    if data is None or (decoder != HEX and document_of(data, decoder) is None):
        return data
    return readable(data, decoder).encode(errors="surrogateescape")


def _printer_for(arguments: Arguments, columns: Sequence[RecordColumn] | None) -> Printer:
    null = b"NULL" if arguments.show_null else b""
    if arguments.record_format is not None:
        return format_printer(arguments.record_format, null=null, on_terminal=_is_terminal())
    if arguments.format == "json":
        return record_lines_for_terminal if _is_terminal() else record_lines
    if arguments.format == "wide":
        return row_printer(is_bold=has_colours(sys.stdout))
    if columns is not None:
        return row_printer(columns, is_bold=has_colours(sys.stdout))
    return format_printer("%v\\n", null=null, on_terminal=_is_terminal())
