"""The `foldlog` commands that a page gives to type, from its shell blocks."""

from __future__ import annotations

import re
import shlex


def foldlog_commands(page: str) -> list[str]:
    """Each as it stands there, without what surrounds it: pipes, redirections, comments, other programs."""
    blocks = re.findall(r"^ *```sh\n(.*?)```", page, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [found for line in lines for found in _foldlog_parts(line)]


def _foldlog_parts(line: str) -> list[str]:
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = "#"
    parts: list[list[str]] = [[]]
    for word in words:
        if word in ("|", "||", "&", "&&", ">", ";"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [shlex.join(part) for part in parts if part[:1] == ["foldlog"]]
