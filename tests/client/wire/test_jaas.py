"""sasl.jaas.config as Kafka's own clients take it, and errors that never show what is in it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.client.wire.login.jaas import JaasLogin, parse_jaas
from foldlog.errors import InvalidConfig

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET = "hunter2"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{SCRAM} required username="ann" password="{SECRET}";', {"username": "ann", "password": SECRET}),
        (f"{SCRAM}  REQUIRED\n  username = 'ann'\tpassword='a b' ;\n", {"username": "ann", "password": "a b"}),
        (f"kafkashaded.{SCRAM} required username=ann password=b-c_d%;", {"username": "ann", "password": "b-c_d%"}),
        (f'{SCRAM} required password="a\\"b\\\\c\\x";', {"password": 'a"b\\cx'}),
        (f'{SCRAM} required password="a=b;c//d";', {"password": "a=b;c//d"}),
        (f'{SCRAM} required password="\\101\\t";', {"password": "A\t"}),
        (f"{SCRAM} required /* who */ tokenauth=true // really\n;", {"tokenauth": "true"}),
        (f"{SCRAM} optional;", {}),
    ],
)
def test_a_login_module_and_its_options_are_read(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == JaasLogin("ScramLoginModule", options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin with a login module"),
        ("   ", "does not begin with a login module"),
        (SCRAM, "does not begin with a login module"),
        (f"{SCRAM} username=ann password={SECRET};", "does not begin with a login module"),
        (f"{SCRAM} required username=ann password={SECRET}", "does not end with ';'"),
        (f"{SCRAM} required username=ann {SECRET};", "that is not name=value"),
        (f"{SCRAM} required username=;", "that is not name=value"),
        (f'{SCRAM} required password="{SECRET};', "a quote that does not end"),
        (f"{SCRAM} required password={SECRET}/x;", "a '/' outside quotes"),
        (f'{SCRAM} required password="{SECRET}"; another.Module required;', "has more behind its ';'"),
    ],
)
def test_what_is_no_jaas_is_told_without_showing_it(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said) as caught:
        parse_jaas(text)
    assert SECRET not in str(caught.value)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_every_password_can_be_quoted(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'{SCRAM} required password="{quoted}";').options == {"password": password}


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidConfig):
        assert parse_jaas(text).module
