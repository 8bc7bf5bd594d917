"""Types of the compiled twin: the same names as handles_py."""

from foldlog.client.handles_py import BatchAck as BatchAck
from foldlog.client.handles_py import OpenBatches as OpenBatches
from foldlog.client.handles_py import RecordMetadata as RecordMetadata
from foldlog.client.handles_py import SendFuture as SendFuture
from foldlog.client.handles_py import queue_for as queue_for
from foldlog.client.handles_py import wall_ms as wall_ms
