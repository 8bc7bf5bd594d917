"""The scripts of bash, zsh and fish. Each finds how far the line has come, then offers what can stand there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from foldlog.cli.completion_words import LinePlace, Option, Value

_BASH: Final = """\
# bash completion of foldlog; written by: foldlog completion bash

_foldlog_names() {
    # The topics or groups of the log that the line names, or that the environment does.
    foldlog "$1" list --quiet "${_foldlog_place[@]}" 2>/dev/null
}

_foldlog() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}" at="" word last="" words
    local -a _foldlog_place=()
    COMPREPLY=()
    # Cut at spaces: bash itself also cuts at colons, and HOST:PORT has one.
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    for word in "${words[@]:1}"; do
        case "$last" in
            -d | --dir | -b | --bootstrap-server | -X | --property | --command-config)
                _foldlog_place+=("$last" "$word") ;;
        esac
        last="$word"
    done
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$at $word" in
            @PATHS@) at="$at $word" ;;
        esac
    done
    case "$at|$previous" in
@VALUES@
    esac
    if [[ "$current" == -* ]]; then
        case "$at" in
@OPTIONS@
        esac
        return
    fi
    case "$at" in
@ARGUMENTS@
    esac
}

complete -F _foldlog foldlog
"""

_ZSH: Final = """\
#compdef foldlog
# zsh completion of foldlog; written by: foldlog completion zsh

_foldlog_names() {
    # The topics or groups of the log that the line names, or that the environment does.
    local -a found
    found=(${(f)"$(foldlog $1 list --quiet $_foldlog_place 2>/dev/null)"})
    compadd -a found
}

_foldlog() {
    local at="" word last=""
    local -a _foldlog_place offered
    for word in "${(@)words[2,CURRENT-1]}"; do
        case "$last" in
            (-d|--dir|-b|--bootstrap-server|-X|--property|--command-config) _foldlog_place+=("$last" "$word") ;;
        esac
        case "$at $word" in
            (@PATHS@) at="$at $word" ;;
        esac
        last="$word"
    done
    case "$at|$last" in
@VALUES@
    esac
    if [[ "$words[CURRENT]" == -* ]]; then
        case "$at" in
@OPTIONS@
        esac
        return
    fi
    case "$at" in
@ARGUMENTS@
    esac
}

if [[ "$funcstack[1]" == _foldlog ]]; then
    _foldlog "$@"
else
    compdef _foldlog foldlog
fi
"""

_FISH: Final = """\
# fish completion of foldlog; written by: foldlog completion fish

function __foldlog_at
    # Whether the line has come to these words, and no further.
    set -l at
    for word in (commandline -opc)[2..]
        switch "$at $word"
            case @PATHS@
                set at "$at $word"
        end
    end
    test "$at" = "$argv[1]"
end

function __foldlog_names
    # The topics or groups of the log that the line names, or that the environment does.
    set -l place
    set -l last ""
    for word in (commandline -opc)
        switch "$last"
            case -d --dir -b --bootstrap-server -X --property --command-config
                set place $place $last $word
        end
        set last $word
    end
    foldlog $argv[1] list --quiet $place 2>/dev/null
end

complete -c foldlog -f
"""


def bash_script(places: Sequence[LinePlace]) -> str:
    values: list[str] = []
    options: list[str] = []
    arguments: list[str] = []
    for place in places:
        for option in _valued(place):
            where = "|".join(f'"{_at(place)}|{name}"' for name in option.names)
            values.append(f"        {where}) {_bash_value(option.value)}; return ;;")
        names = " ".join(name for option in place.options for name in option.names)
        options.append(f'            "{_at(place)}") COMPREPLY=($(compgen -W "{names}" -- "$current")) ;;')
        offered = Value("words", tuple(name for name, _ in place.verbs)) if place.verbs else place.argument
        arguments.append(f'        "{_at(place)}") {_bash_value(offered)} ;;')
    return _filled(_BASH, _paths(places, " | "), values, options, arguments)


def _bash_value(value: Value | None) -> str:
    if value is None or value.kind == "nothing":
        return ":"
    if value.kind == "words":
        return f'COMPREPLY=($(compgen -W "{" ".join(value.words)}" -- "$current"))'
    if value.kind in ("files", "directories"):
        flag = "-f" if value.kind == "files" else "-d"
        return f'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen {flag} -- "$current"))'
    return f'COMPREPLY=($(compgen -W "$(_foldlog_names {value.kind[:-1]})" -- "$current"))'


def zsh_script(places: Sequence[LinePlace]) -> str:
    values: list[str] = []
    options: list[str] = []
    arguments: list[str] = []
    for place in places:
        for option in _valued(place):
            where = "|".join(f'"{_at(place)}|{name}"' for name in option.names)
            values.append(f"        ({where}) {_zsh_value(option.value)}; return ;;")
        described = [(name, option.about) for option in place.options for name in option.names]
        options.append(f'            ("{_at(place)}") {_zsh_described("option", described)} ;;')
        offered = _zsh_described("verb", place.verbs) if place.verbs else _zsh_value(place.argument)
        arguments.append(f'        ("{_at(place)}") {offered} ;;')
    return _filled(_ZSH, _paths(places, "|"), values, options, arguments)


def _zsh_value(value: Value | None) -> str:
    if value is None or value.kind == "nothing":
        return ":"
    if value.kind == "words":
        return f"compadd -- {' '.join(value.words)}"
    if value.kind in ("files", "directories"):
        return "_files" if value.kind == "files" else "_files -/"
    return f"_foldlog_names {value.kind[:-1]}"


def _zsh_described(kind: str, words: Iterable[tuple[str, str]]) -> str:
    offered = " ".join(_zsh_quoted(f"{word}:{about}") for word, about in words)
    return f"offered=({offered}); _describe {kind} offered"


def fish_script(places: Sequence[LinePlace]) -> str:
    lines = [_FISH.replace("@PATHS@", _paths(places, " "))]
    for place in places:
        here = f"complete -c foldlog -n '__foldlog_at \"{_at(place)}\"'"
        lines += [f"{here} -a {_fish_quoted(verb)} -d {_fish_quoted(about)}\n" for verb, about in place.verbs]
        for option in place.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            lines.append(f"{here} {names}{_fish_value(option.value, ' -x')} -d {_fish_quoted(option.about)}\n")
        if place.argument.kind not in ("nothing", "words"):
            lines.append(f"{here}{_fish_value(place.argument, '')}\n")
        lines += [f"{here} -a {_fish_quoted(word)}\n" for word in place.argument.words]
    return "".join(lines)


def _fish_value(value: Value | None, exclusive: str) -> str:
    if value is None:
        return ""
    if value.kind == "nothing":
        return exclusive
    if value.kind == "words":
        return f"{exclusive} -a {_fish_quoted(' '.join(value.words))}"
    if value.kind == "files":
        return " -r -F" if exclusive else " -F"
    if value.kind == "directories":
        return f"{exclusive} -a '(__fish_complete_directories)'"
    return f"{exclusive} -a '(__foldlog_names {value.kind[:-1]})'"


def _valued(place: LinePlace) -> list[Option]:
    return [option for option in place.options if option.value is not None]


def _at(place: LinePlace) -> str:
    """How far the line has come, as the scripts keep it: a space before each word."""
    return "".join(f" {word}" for word in place.path)


def _paths(places: Sequence[LinePlace], between: str) -> str:
    return between.join(f'"{_at(place)}"' for place in places if place.path)


def _filled(script: str, paths: str, values: list[str], options: list[str], arguments: list[str]) -> str:
    for mark, text in (
        ("@PATHS@", paths),
        ("@VALUES@", "\n".join(values)),
        ("@OPTIONS@", "\n".join(options)),
        ("@ARGUMENTS@", "\n".join(arguments)),
    ):
        script = script.replace(mark, text)
    return script


def _zsh_quoted(text: str) -> str:
    """
    >>> print(_zsh_quoted("the log's"))
    'the log'\\''s'
    """
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    """
    >>> print(_fish_quoted("the log's"))
    'the log\\'s'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: Final[dict[str, Callable[[Sequence[LinePlace]], str]]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
