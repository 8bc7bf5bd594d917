"""From the name in a client's certificate to its principal: Kafka's ssl.principal.mapping.rules.

    RULE:pattern/replacement/[LU]   if the whole name matches: the replacement, in lower or upper case if asked for
    DEFAULT                         the name as it is

The first rule that applies counts; if none does, the connection is refused, as Kafka refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.regular_expressions import compile_regex
from foldlog.errors import InvalidArgument, InvalidConfig, brief_repr

if TYPE_CHECKING:
    from foldlog.server.tls.certificates import Certificate

DEFAULT_RULES: Final = "DEFAULT"
RULES_SETTING: Final = "ssl.principal.mapping.rules"

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLIT: Final = re.compile(rf"\s*(?:{_RULE})\s*(?:,\s*|$)")
_TOKEN: Final = re.compile(r"\\(.)|\$(\d+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|([^\\$]+)", re.DOTALL)

Rule = Callable[[str], str | None]
"""The principal's name for a distinguished name; None if the rule does not apply."""


class NoPrincipal(Exception):
    """No rule applies to a name: whoever has it cannot be let in. The text is for the log."""


class PrincipalMapper:
    """The rules, in their order. Immutable, any thread."""

    def __init__(self, text: str = DEFAULT_RULES) -> None:
        """InvalidConfig for a rule that cannot be read."""
        self._text = text
        self._rules = list(_rules_of(text.strip()))

    def principal_of(self, certificate: Certificate) -> str:
        """Raises NoPrincipal."""
        if not certificate.subject:
            raise NoPrincipal("its certificate has no subject, so it is nobody's")
        return f"User:{self.name_of(certificate.subject)}"

    def name_of(self, distinguished_name: str) -> str:
        r"""The name of a principal. Raises NoPrincipal.

        >>> mapper = PrincipalMapper(r"RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L,DEFAULT")
        >>> mapper.name_of("CN=Billing,OU=Shop"), mapper.name_of("CN=admin")
        ('billing@shop', 'CN=admin')
        """
        for rule in self._rules:
            name = rule(distinguished_name)
            if name is not None:
                return name
        raise NoPrincipal(f"no rule of {RULES_SETTING} applies to {brief_repr(distinguished_name)}")


def _rules_of(text: str) -> list[Rule]:
    rules: list[Rule] = []
    position = 0
    while position < len(text):
        found = _SPLIT.match(text, position)
        if found is None or found.end() == position:
            break
        is_default, pattern, replacement, case, rest = found.groups()
        position = found.end()
        if is_default is not None:
            rules.append(lambda name: name)
        elif pattern is not None:
            rules.append(_rule(pattern, replacement, case))
        elif rest:
            raise InvalidConfig(
                f"{brief_repr(rest)} in {RULES_SETTING} is no rule; one is RULE:pattern/replacement/, with L or U"
                " behind it if wanted, or DEFAULT"
            )
    return rules


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    # RE2's: patterns meet names that strangers chose, and take time linear in these.
    try:
        compiled = compile_regex(pattern)
    except InvalidArgument as error:
        raise InvalidConfig(f"a pattern in {RULES_SETTING} cannot be used: {error}") from None
    expand = _expansion(replacement, compiled.groups, dict(compiled.groupindex))

    def apply(name: str) -> str | None:
        if compiled.fullmatch(name) is None:
            return None
        result = _replace_all(compiled, expand, name)
        return result.lower() if case == "L" else result.upper() if case == "U" else result

    return apply


def _replace_all(pattern: Any, expand: Callable[[Any], str], text: str) -> str:
    """As Java's String.replaceAll: also where a second, empty match follows the first."""
    parts: list[str] = []
    position = 0
    start = 0
    while start <= len(text):
        found = pattern.search(text, start)
        if found is None:
            break
        parts += (text[position : found.start()], expand(found))
        position = found.end()
        start = position + 1 if found.end() == found.start() else position
    return "".join((*parts, text[position:]))


def _expansion(replacement: str, groups: int, names: dict[str, int]) -> Callable[[Any], str]:
    """A function from a match to its replacement, in Java's syntax: $1, ${name}, and \\x for x itself.

    A number that no group has is taken literally, as Kafka does.
    """
    parts: list[str | int] = []
    position = 0
    while position < len(replacement):
        found = _TOKEN.match(replacement, position)
        if found is None or (found[3] is not None and found[3] not in names) or (found[2] is not None and not groups):
            raise InvalidConfig(
                f"the replacement {brief_repr(replacement)} in {RULES_SETTING} cannot be used; it is text in which $1"
                " stands for the first group of the pattern, and \\$ for a dollar"
            )
        position = found.end()
        literal, number, name, text = found.groups()
        if number is not None:
            parts += _group_of(number, groups)
        else:
            parts.append(names[name] if name is not None else literal if literal is not None else text)
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


def _group_of(digits: str, groups: int) -> tuple[str | int, ...]:
    """The group that these digits name, and the digits behind it: of two groups, $12 is the first one and a 2."""
    if int(digits[0]) > groups:
        return (f"${digits}",)
    length = 1
    while length < len(digits) and int(digits[: length + 1]) <= groups:
        length += 1
    return (int(digits[:length]), digits[length:])
