"""What a certificate says: its subject as Java prints it, and from when to when it is valid.

Only the few fields that are needed, straight from the DER bytes. A certificate of a client was verified by OpenSSL
before it comes here, but anybody may have had it signed: lengths are checked, and whatever else is there is passed
over.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from foldlog.errors import MalformedBytes

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_ID: Final = 0x06
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8, Printable, T61, IA5, General and BMP strings: the types whose values Java prints as text."""

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 has a word for; all others are printed as numbers, and their values as hex digits."""

_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANK: Final = " \r"
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


class Element(NamedTuple):
    """One value of DER: its tag, its content, and all its bytes."""

    tag: int
    content: memoryview
    whole: memoryview


class Certificate(NamedTuple):
    """`subject` is the distinguished name as in RFC 2253; both ends of its validity in UTC."""

    subject: str
    not_before: datetime
    not_after: datetime


def parse_certificate(der: bytes) -> Certificate:
    """Raises MalformedBytes if it is no certificate."""
    certificate = _only(_elements(memoryview(der)), _SEQUENCE)
    body = _elements(_only(_elements(certificate), _SEQUENCE, is_last=False))
    first = _next(body)
    if first.tag == _VERSION:
        first = _next(body)
    _next(body)  # the signature's algorithm, behind the serial number that was read last
    _next(body)  # the issuer
    validity, subject = _next(body), _next(body)
    times = [_time(each) for each in _elements(validity.content)]
    if validity.tag != _SEQUENCE or subject.tag != _SEQUENCE or len(times) != 2:
        raise MalformedBytes("certificate", "its validity or its subject is not where it belongs", 0)
    return Certificate(distinguished_name(subject.content), *times)


def certificates_of(pem: str) -> list[bytes]:
    """The certificates in a text, as DER. Raises MalformedBytes if one is not base64."""
    try:
        return [base64.b64decode("".join(body.split()), validate=True) for body in _PEM.findall(pem)]
    except ValueError:
        raise MalformedBytes("certificate", "it is not base64", 0) from None


def distinguished_name(name: memoryview) -> str:
    """A name as Java's X500Principal.getName() prints it: RFC 2253, the most particular part first."""
    parts = [_relative_name(each) for each in _elements(name)]
    return ",".join(reversed(parts))


def _relative_name(element: Element) -> str:
    if element.tag != _SET:
        raise MalformedBytes("certificate", "a part of its subject is no set", 0)
    return "+".join(_attribute(each) for each in _elements(element.content))


def _attribute(element: Element) -> str:
    parts = _elements(element.content)
    kind, value = _next(parts), _next(parts)
    if element.tag != _SEQUENCE or kind.tag != _OBJECT_ID:
        raise MalformedBytes("certificate", "an attribute of its subject has no type", 0)
    number = _object_id(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    # Java takes the bytes of every type of string for UTF-8, and so does whoever compares names with its.
    return f"{keyword}={escaped(bytes(value.content).decode('utf-8', 'replace'))}"


def escaped(text: str) -> str:
    r"""A value as it stands in a name: what could end it, or begin another, is escaped.

    >>> print(escaped('Sue, Grabbit "and" Runn '), escaped("a\0b"), escaped("# é"))
    Sue\, Grabbit \"and\" Runn\  a\00b \# é
    """
    characters = [f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text]
    inner = text.strip(_BLANK)
    lead = len(text) - len(text.lstrip(_BLANK))
    trail = lead + len(inner)
    return "".join(f"\\{each}" if not lead <= number < trail else each for number, each in enumerate(characters))


def _object_id(content: memoryview) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise MalformedBytes("certificate", "a type of its subject is empty", 0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _time(element: Element) -> datetime:
    text = bytes(element.content).decode("ascii", "replace")
    try:
        if element.tag == _UTC_TIME:
            century = "19" if text[:2] >= "50" else "20"
            text = century + text
        elif element.tag != _GENERALIZED_TIME:
            raise ValueError
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise MalformedBytes("certificate", "its validity is no time", 0) from None


def _only(elements: Iterator[Element], tag: int, *, is_last: bool = True) -> memoryview:
    element = _next(elements)
    if element.tag != tag or (is_last and next(elements, None) is not None):
        raise MalformedBytes("certificate", "it does not begin as one", 0)
    return element.content


def _next(elements: Iterator[Element]) -> Element:
    element = next(elements, None)
    if element is None:
        raise MalformedBytes("certificate", "it ends too early", 0)
    return element


def _elements(data: memoryview) -> Iterator[Element]:
    position = 0
    while position < len(data):
        header = data[position : position + 6]
        if len(header) < 2:
            raise MalformedBytes("certificate", "it ends too early", position)
        size, body = header[1], position + 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or len(header) < 2 + count:
                raise MalformedBytes("certificate", "a length cannot be read", position)
            size, body = int.from_bytes(header[2 : 2 + count], "big"), body + count
        if size > len(data) - body:
            raise MalformedBytes("certificate", "a length is beyond its end", position)
        yield Element(header[0], data[body : body + size], data[position : body + size])
        position = body + size
