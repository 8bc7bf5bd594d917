# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True, auto_pickle=False
"""The loops over batches, compiled. `kernels_py` has the same names in Python and is compared with this in the tests.

Nothing here trusts a length or a count: each is compared with the bytes left before it is used. Numbers are read
byte by byte where they are (batches are not aligned). Loops without Python objects run without the interpreter's
lock where a batch is large enough for that to pay.
"""

import json as _json
import secrets as _secrets

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                          uint32_t, uint64_t)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from crc32c import crc32c as _crc32c_of

from foldlog.errors import InvalidArgument, InvalidBatch, RecordTooLarge, SerializationError
from foldlog.limits import ARROW_KEPT_BYTES as _ARROW_KEPT_BYTES
from foldlog.limits import BATCH_BYTES_MAX as _BATCH_BYTES_MAX
from foldlog.records.batch import FAULTS as _FAULTS
from foldlog.records.columns import Gathered as _Gathered
from foldlog.records.columns import GatheredBinary as _GatheredBinary
from foldlog.records.columns import GatheredHeaders as _GatheredHeaders
from foldlog.records.columns import PackedBatch as _PackedBatch
from foldlog.records.compression import check_codec as _check_codec
from foldlog.records.compression import compress as _compress
from foldlog.records.compression import READ_DECOMPRESSED_BYTES as _READ_DECOMPRESSED_BYTES
from foldlog.records.compression import decompress as _decompress
from foldlog.records.pickles import rebuild as _rebuild

_new_tuple = tuple.__new__

include "compiled/format.pxi"
include "compiled/memory.pxi"
include "compiled/headers.pxi"
include "compiled/fetched.pxi"
include "compiled/reading.pxi"
include "compiled/produced.pxi"
include "compiled/writing.pxi"
include "compiled/compaction.pxi"
include "compiled/compaction_check.pxi"
include "compiled/column_memory.pxi"
include "compiled/columns.pxi"
include "compiled/packing.pxi"

__all__ = [
    "BatchBuilder",
    "BatchHeader",
    "CompactStats",
    "DroppedSample",
    "KeyMap",
    "Record",
    "Walk",
    "assign_offsets",
    "beginnings",
    "check_compacted",
    "check_epochs",
    "compact",
    "control_batch",
    "decode",
    "empty_batch",
    "gather",
    "key_at",
    "murmur2",
    "offset_at_time",
    "pack",
    "pack_columns",
    "recompress",
    "route_rows",
    "validate",
    "walk",
]
