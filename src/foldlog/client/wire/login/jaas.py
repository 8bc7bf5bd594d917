"""sasl.jaas.config, Java's way to say who one is: a login module, a flag, and name=value pairs. Pure.

Errors never show the text: a password is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from foldlog.errors import InvalidConfig

PROPERTY: Final = "sasl.jaas.config"

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_FORM: Final = 'org.apache.kafka…ScramLoginModule required username="…" password="…";'
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<blank>//[^\n]*|/\*.*?\*/)|(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<sign>[=;])"""
    r"""|(?P<word>[^\s"'=;/]+))\s*""",
    re.DOTALL,
)
"""As Kafka's own parser cuts it: words, quoted strings with C's escapes, '=' and ';', comments."""

_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasLogin(NamedTuple):
    """The one entry of a sasl.jaas.config: the module's class without its package, and its options."""

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> JaasLogin:
    """InvalidConfig if it is not one whole entry.

    >>> parse_jaas('org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a;b";')
    JaasLogin(module='PlainLoginModule', options={'username': 'ann', 'password': 'a;b'})
    """
    tokens = list(_tokens(text))
    if len(tokens) < 2 or tokens[0][0] != "word" or tokens[1][1].lower() not in _FLAGS:
        raise InvalidConfig(f"{PROPERTY} does not begin with a login module and 'required'; it is like {_FORM}")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and tokens[position] != ("sign", ";"):
        entry = tokens[position : position + 3]
        if len(entry) < 3 or entry[0][0] != "word" or entry[1] != ("sign", "=") or entry[2][0] == "sign":
            raise InvalidConfig(f"{PROPERTY} has something behind its flag that is not name=value; it is like {_FORM}")
        options[entry[0][1]] = entry[2][1]
        position += 3
    if position >= len(tokens):
        raise InvalidConfig(f"{PROPERTY} does not end with ';'; it is like {_FORM}")
    if position != len(tokens) - 1:
        raise InvalidConfig(f"{PROPERTY} has more behind its ';'; one login module is what it can name")
    return JaasLogin(tokens[0][1].rpartition(".")[2], options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            if not text[position:].strip():
                return
            raise InvalidConfig(
                f"{PROPERTY} has a quote that does not end, or a '/' outside quotes; it is like {_FORM}"
            )
        position = found.end()
        kind = found.lastgroup or ""
        if kind == "quoted":
            yield "text", _ESCAPE.sub(_unescaped, found["quoted"][1:-1])
        elif kind != "blank":
            yield kind, found[kind]


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)
