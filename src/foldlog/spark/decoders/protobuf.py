"""Protobuf values to columns, with google.protobuf; with or without Confluent's wire format in front."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from foldlog.errors import InvalidArgument, MissingDependency, brief_repr
from foldlog.files.paths import PathLike, read_bytes
from foldlog.records.schema_ids import read_header, read_message_path
from foldlog.spark.decoders.columns_by_name import pick_columns
from foldlog.spark.decoders.protobuf_types import column
from foldlog.spark.decoders.row_columns import Row, Unreadable, decode_rows


class ProtobufDecoder:
    """Each value is one message; its fields become columns. See `Decoder`.

    `descriptors` is a descriptor set (`protoc --include_imports --descriptor_set_out=FILE`) as a path or as bytes, or a
    generated message class; `message` is the message's full name, optional for a class. With `confluent`, values begin
    with a schema id and the path to the message type: the path has to lead to this message; the id is not looked up,
    since Protobuf's own rules make old and new messages readable. A value of 0 bytes is a message with no field set.
    `schema` selects columns by name.
    """

    def __init__(
        self,
        descriptors: Any = None,
        message: str | None = None,
        *,
        confluent: bool = False,
        schema: pa.Schema | None = None,
    ) -> None:
        if descriptors is None:
            raise InvalidArgument("format 'protobuf' needs descriptors: a descriptor set's path or bytes, or a class")
        files, full_name = _descriptor_set(descriptors, message)
        self._arguments = (files, full_name, confluent, schema)
        descriptor, self._message_class = _message_class(files, full_name)
        wanted = None if schema is None else set(schema.names)
        fields: list[pa.Field] = []
        getters: dict[str, Callable[[Any], Any]] = {}
        for field in descriptor.fields:
            if wanted is None or field.name in wanted:
                of, getters[field.name] = column(field)
                fields.append(pa.field(field.name, of))
        self._schema = pick_columns(pa.schema(fields), schema, f"Protobuf message {full_name!r}")
        if not len(self._schema):
            raise InvalidArgument(f"Protobuf message {full_name!r} has no fields")
        self._getters = [(name, getters[name]) for name in self._schema.names]
        self._full_name = full_name
        self._paths = _paths_to(descriptor) if confluent else None
        # Imported here, as protobuf is an extra; _descriptor_set has already reported it if missing.
        from google.protobuf.message import DecodeError

        self._broken = DecodeError

    def __reduce__(self) -> tuple[Callable[..., ProtobufDecoder], tuple[Any, ...]]:
        return _rebuilt, self._arguments

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray | None]:
        return decode_rows(self._schema, values, self._row)

    def _row(self, value: bytes) -> Row:
        if self._paths is not None:
            path, start = read_message_path(value, read_header(value).start)
            if path not in self._paths:
                raise Unreadable(f"message {list(path)} of its file, not {self._full_name}")
            value = value[start:]
        try:
            message = self._message_class.FromString(value)
        except self._broken as error:
            raise Unreadable(f"not a {self._full_name}: {str(error)[:80]}") from None
        if not message.IsInitialized():
            raise Unreadable(f"required fields are missing: {', '.join(message.FindInitializationErrors())[:80]}")
        cells: list[Any] = []
        for name, get in self._getters:
            try:
                cells.append(get(message))
            except Unreadable as error:
                raise Unreadable(f"{name}: {error}") from None
            except UnicodeDecodeError:
                raise Unreadable(f"{name}: not UTF-8") from None
        return tuple(cells)


def _rebuilt(files: bytes, full_name: str, confluent: bool, schema: pa.Schema | None) -> ProtobufDecoder:
    return ProtobufDecoder(files, full_name, confluent=confluent, schema=schema)


def _descriptor_set(descriptors: Any, message: str | None) -> tuple[bytes, str]:
    """The bytes of a FileDescriptorSet, and the message's name: these can be pickled, a class cannot."""
    try:
        from google.protobuf import descriptor_pb2
    except ImportError as error:
        raise MissingDependency("decoding Protobuf", "protobuf", "decoders") from error
    generated = getattr(descriptors, "DESCRIPTOR", None)
    if generated is not None:
        files = descriptor_pb2.FileDescriptorSet()
        for file in _with_dependencies(generated.file, set()):
            file.CopyToProto(files.file.add())
        return files.SerializeToString(), message or generated.full_name
    if not message:
        raise InvalidArgument("name the message, with its package: message='shop.Payment'")
    if isinstance(descriptors, bytes):
        return descriptors, message
    if not isinstance(descriptors, str | PathLike):
        raise InvalidArgument(f"descriptors are a path, bytes or a message class, not {brief_repr(descriptors)}")
    try:
        return read_bytes(descriptors), message
    except OSError as error:
        raise InvalidArgument(f"the descriptor set {str(descriptors)!r} cannot be read: {error.strerror}") from error


def _with_dependencies(file: Any, seen: set[str]) -> Iterator[Any]:
    if file.name in seen:
        return
    seen.add(file.name)
    for dependency in file.dependencies:
        yield from _with_dependencies(dependency, seen)
    yield file


def _message_class(files: bytes, full_name: str) -> tuple[Any, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(files)
    except DecodeError:
        raise InvalidArgument("this is not a descriptor set; make one with protoc --descriptor_set_out") from None
    pool = descriptor_pool.DescriptorPool()
    given = {file.name: file for file in found.file}
    added: set[str] = set()
    try:
        for name in given:
            _add_file(pool, name, given, added)
        descriptor = pool.FindMessageTypeByName(full_name)
    except KeyError:
        names = [f"{file.package}.{one.name}".lstrip(".") for file in found.file for one in file.message_type]
        raise InvalidArgument(
            f"there is no message {full_name!r} in the descriptor set; there are {', '.join(names[:20])}"
        ) from None
    except TypeError as error:
        raise InvalidArgument(f"the descriptor set is not consistent: {str(error)[:200]}") from None
    return descriptor, message_factory.GetMessageClass(descriptor)


def _add_file(pool: Any, name: str, given: dict[str, Any], added: set[str]) -> None:
    """Add a file after its dependencies, whatever their order in the set; well-known types may be missing in it."""
    if name in added:
        return
    added.add(name)
    proto = given.get(name) or _well_known(name)
    for dependency in proto.dependency:
        _add_file(pool, dependency, given, added)
    pool.Add(proto)


def _well_known(name: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    found = descriptor_pb2.FileDescriptorProto()
    if name.startswith("google/protobuf/"):
        # Importing them adds them to the pool.
        from google.protobuf import any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

        if any(
            name == one.DESCRIPTOR.name
            for one in (any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
        ):
            descriptor_pool.Default().FindFileByName(name).CopyToProto(found)
            return found
    raise InvalidArgument(f"the descriptor set lacks {name!r}; make it with protoc --include_imports")


def _paths_to(descriptor: Any) -> set[tuple[int, ...]]:
    """The index paths to a message in its file. Some producers count the entry types of maps, others do not."""
    outer = descriptor.containing_type
    siblings = list(descriptor.file.message_types_by_name.values() if outer is None else outer.nested_types)
    declared = [one for one in siblings if not one.GetOptions().map_entry]
    names = [[one.full_name for one in found] for found in (siblings, declared)]
    indexes = {found.index(descriptor.full_name) for found in names}
    parents = [()] if outer is None else _paths_to(outer)
    return {(*parent, index) for parent in parents for index in indexes}
