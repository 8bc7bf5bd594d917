"""Every option may come from the environment: what counts when the line says something too, and what is refused.

The commands are the real ones; only the environment is made up.
"""

from __future__ import annotations

import os
from unittest import mock

import pytest

from cli.command import parsed as parsed_words
from foldlog.cli.commands import root_context, run_command
from foldlog.cli.parsing import Arguments, Option, all_contexts


def parsed(line: str, **variables: str) -> Arguments:
    return parsed_words(line.split(), **variables)


def refused(capsys: pytest.CaptureFixture[str], line: str, **variables: str) -> str:
    with mock.patch.dict(os.environ, variables):
        assert run_command(line.split()) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


def test_an_option_comes_from_its_variable_and_the_line_goes_before_it() -> None:
    assert parsed("topic list", FOLDLOG_FORMAT="json").format == "json"
    assert parsed("topic list --format wide", FOLDLOG_FORMAT="json").format == "wide"
    assert parsed("topic list", FOLDLOG_FORMAT="").format == "text", "an empty variable is not set"


def test_a_value_is_converted_and_checked_as_on_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed("topic create orders", FOLDLOG_PARTITIONS="3").partitions == 3
    told = refused(capsys, "topic create orders", FOLDLOG_PARTITIONS="many")
    assert "the environment variable FOLDLOG_PARTITIONS: 'many' is not a number of 1 or more" in told
    told = refused(capsys, "topic list", FOLDLOG_FORMAT="jsn")
    assert told == (
        "foldlog: the environment variable FOLDLOG_FORMAT: not 'jsn'; did you mean 'json'? see: foldlog topic list"
        " --help\n"
    )


@pytest.mark.parametrize(("text", "is_on"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("no", False)])
def test_a_switch_is_on_or_off(text: str, is_on: bool) -> None:
    assert parsed("topic delete orders", FOLDLOG_DRY_RUN=text).dry_run is is_on


def test_a_switch_that_is_neither_is_refused_with_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "topic delete orders", FOLDLOG_YES="maybe")
    assert "the environment variable FOLDLOG_YES: not 'maybe'; it is 1 or 0" in told


def test_an_option_that_may_be_repeated_takes_several_quoted_as_in_a_shell() -> None:
    assert parsed("topic list", FOLDLOG_PROPERTY="a=1 'b=two words'").properties == ["a=1", "b=two words"]
    assert parsed("topic list -X c=3", FOLDLOG_PROPERTY="a=1").properties == ["c=3"]


def test_an_option_that_has_to_be_there_may_come_from_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed("group seek fraud", FOLDLOG_TO="start").to == "start"
    assert "--to" in refused(capsys, "group seek fraud")


def test_a_broker_on_the_line_passes_over_a_directory_of_the_environment() -> None:
    found = parsed("topic list -b here:1", FOLDLOG_DIR="data")
    assert (found.bootstrap, found.directory) == ("here:1", None)
    found = parsed("topic list -d data", FOLDLOG_BOOTSTRAP_SERVER="here:1")
    assert (found.bootstrap, found.directory) == (None, "data")
    found = parsed("topic list", FOLDLOG_DIR="data")
    assert (found.bootstrap, found.directory) == (None, "data")
    found = parsed("fold status --source data", FOLDLOG_DIR="other", FOLDLOG_BOOTSTRAP_SERVER="here:1")
    assert (found.source, found.bootstrap, found.directory) == ("data", None, None)


def test_two_places_in_the_environment_are_refused_unless_the_line_decides(capsys: pytest.CaptureFixture[str]) -> None:
    both = {"FOLDLOG_DIR": "data", "FOLDLOG_BOOTSTRAP_SERVER": "here:1"}
    told = refused(capsys, "topic list", **both)
    assert "FOLDLOG_DIR and FOLDLOG_BOOTSTRAP_SERVER are set, and only one of them can be" in told
    assert parsed("topic list -d other", **both).directory == "other"
    assert parsed("topic list -d other", **both).bootstrap is None


def test_two_places_on_the_line_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not allowed with argument -d/--dir" in refused(capsys, "topic list -d data -b here:1")


def test_options_of_a_verb_that_is_not_called_do_not_matter() -> None:
    assert not hasattr(parsed("topic list", FOLDLOG_PARTITIONS="many"), "partitions")


def test_a_broker_reads_its_variables_itself() -> None:
    assert parsed("serve data", FOLDLOG_LISTEN="127.0.0.1:1").listen is None


def test_every_option_of_every_command_has_a_variable() -> None:
    """One without a long name could not have one."""
    bare = [
        f"{ctx.command_path} {param.opts[0]}"
        for ctx in all_contexts(root_context())
        for param in ctx.command.params
        if isinstance(param, Option)
        and param.envvar is None
        and not {"--help", "--version"} & set(param.opts)
        and ctx.command_path != "foldlog serve"
    ]
    assert not bare
