"""ssl.principal.mapping.rules: Kafka's own examples, and every rule that cannot be used."""

from __future__ import annotations

import pytest

from foldlog.errors import InvalidConfig
from foldlog.server.tls.principals import NoPrincipal, PrincipalMapper

KAFKAS = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems,C=US", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_examples_of_kafkas_own_tests(name: str, principal: str) -> None:
    assert PrincipalMapper(KAFKAS).name_of(name) == principal


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a", "CN=a"),
        ("  RULE:CN=(.*)/$1/  ,  DEFAULT ", "CN=a", "a"),
        (", ,DEFAULT", "CN=a", "CN=a"),
        ("RULE:CN=(.*)/$1@$2/", "CN=a", "a@$2"),  # there is no second group: it is literal
        ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
        ("RULE:CN=(?P<who>.*)/${who}!/", "CN=a", "a!"),
        (r"RULE:CN=(.*)/\$$1/", "CN=a", "$a"),
        ("RULE:CN=(a)(b)?/[$2]/", "CN=a", "[]"),
        (r"RULE:CN=(\w+)\/(.*)/$2/", "CN=x/y", "y"),
        ("RULE:.*/x/", "CN=a", "xx"),  # Java replaces the empty match at the end, too
    ],
)
def test_a_replacement_means_what_it_means_in_java(rules: str, name: str, principal: str) -> None:
    assert PrincipalMapper(rules).name_of(name) == principal


def test_a_name_that_no_rule_takes_is_nobody() -> None:
    with pytest.raises(NoPrincipal, match=r"no rule of ssl.principal.mapping.rules applies to 'OU=x'"):
        PrincipalMapper("RULE:CN=(.*)/$1/").name_of("OU=x")
    # The whole name has to match: a rule for one cannot be met by a longer one.
    with pytest.raises(NoPrincipal):
        PrincipalMapper("RULE:CN=admin/admin/").name_of("CN=admin,O=elsewhere")


def test_a_rule_takes_a_quoted_name_for_one_name() -> None:
    r"""`CN=nobody\,CN\=admin` is one value: what is behind the comma is no name of its own."""
    mapper = PrincipalMapper(r"RULE:^CN=([a-z]+)$/$1/,RULE:^CN=([a-z]+),.*$/$1/,DEFAULT")
    assert mapper.name_of(r"CN=nobody\,CN\=admin") == r"CN=nobody\,CN\=admin"


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("default", "is no rule"),
        ("RULE:CN=(.*)/$1", "is no rule"),
        ("RULE:CN=(.*/$1/", "is not a regular expression of RE2: missing )"),
        ("RULE:CN=(?=x)/$1/", "is not a regular expression of RE2"),
        ("RULE:CN=.*/$1/", "the replacement '$1'"),
        ("RULE:CN=(.*)/$/", "the replacement '$'"),
        ("RULE:CN=(.*)/${who}/", "the replacement '${who}'"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_at_the_start(rules: str, why: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        PrincipalMapper(rules)
    assert why in str(refused.value)
    assert "ssl.principal.mapping.rules" in str(refused.value)


def test_names_that_strangers_chose_cost_time_in_proportion_to_them() -> None:
    """A backtracking engine would need longer than the universe has been there."""
    with pytest.raises(NoPrincipal):
        PrincipalMapper(r"RULE:^CN=((a+)+)+b$/$1/").name_of("CN=" + "a" * 5000)
