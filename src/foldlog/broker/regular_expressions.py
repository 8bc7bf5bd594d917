"""Regular expressions that clients send, in RE2's syntax as in Kafka: none of them can keep the broker busy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from foldlog.errors import InvalidArgument, brief_repr

REGEX_BYTES_MAX: Final = 4096
"""Far longer than any that people write; topic names have at most 249 characters."""

_REGEX_MEMORY_BYTES: Final = 1 << 20
"""What one compiled expression may use; RE2 refuses those that need more."""


@lru_cache(maxsize=256)
def compile_regex(regex: str) -> Any:
    """The expression in RE2's syntax, as Kafka's brokers have it: matching takes time in proportion to the name.

    Raises InvalidArgument if it is not one, or if google-re2 is not installed.
    """
    try:
        import re2
    except ImportError:
        raise InvalidArgument(
            "a regular expression cannot be matched here: google-re2 is not installed beside the broker;"
            " install it, or give names"
        ) from None
    if len(regex.encode("utf-8", "replace")) > REGEX_BYTES_MAX:
        raise InvalidArgument(f"the regular expression has over {REGEX_BYTES_MAX} bytes; use a shorter one")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _REGEX_MEMORY_BYTES
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be compiled"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidArgument(f"{brief_repr(regex)} is not a regular expression of RE2: {text}") from None
