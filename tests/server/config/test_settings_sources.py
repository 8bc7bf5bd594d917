"""Where settings come from: flags before the environment before a file, and every error names its place.

The syntax of .properties is held against generated pairs, written the way Java's own class escapes them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidConfig
from foldlog.server.config.broker_settings import BROKER_SETTINGS
from foldlog.server.config.configuration import (
    Given,
    environment_variable,
    gather,
    parse_assignments,
    read_environment,
    read_file,
)
from foldlog.server.config.properties_file import parse_properties
from foldlog.server.config.settings import ServerSettings


def settings_of(
    flags: dict[str, object] | None = None, environment: dict[str, str] | None = None, path: Path | None = None
) -> ServerSettings:
    given_flags = {name: Given(value, f"--{name}") for name, value in (flags or {}).items()}
    return gather(given_flags, environment or {}, None if path is None else str(path)).settings()


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "broker.toml"


def values(path: Path) -> dict[str, object]:
    return {name: given.value for name, given in read_file(str(path)).items()}


def test_flags_go_before_the_environment_and_that_before_the_file(toml: Path) -> None:
    toml.write_text("num.partitions = 1\nnode.id = 1\ngroup.max.size = 1\nfetch.max.bytes = 2000\n")
    environment = {"FOLDLOG_NUM_PARTITIONS": "2", "FOLDLOG_NODE_ID": "2", "FOLDLOG_MAX_CONNECTIONS": "2"}
    settings = settings_of({"num.partitions": "3"}, environment, toml)
    assert settings.num_partitions == 3
    assert settings.node_id == 2
    assert settings.max_connections == 2
    assert settings.group_max_size == 1
    assert settings.fetch_max_bytes == 2000
    assert settings.offset_metadata_max_bytes == 4096


def test_another_name_of_a_setting_is_replaced_too(toml: Path) -> None:
    toml.write_text('listeners = "127.0.0.1:1"\nbroker.id = 5\n')
    settings = settings_of({"listen": ["127.0.0.1:2"]}, {"FOLDLOG_NODE_ID": "6"}, toml)
    assert [listener.port for listener in settings.listeners] == [2]
    assert settings.node_id == 6


def test_no_value_is_in_the_repr_of_a_configuration() -> None:
    secret = "correct horse battery"
    found = gather({"ssl.key.password": Given(secret, "-X")}, {"FOLDLOG_CONSOLE_TOKEN": secret.replace(" ", "-")}, None)
    assert "horse" not in repr(found) + str(found) + repr(found.given)
    assert "horse" not in repr(found.settings())


def test_a_larger_unit_in_a_higher_place_goes_before_a_smaller_one_below_it(toml: Path) -> None:
    toml.write_text("log.retention.ms = 5\nlog.roll.ms = 5\n")
    settings = settings_of({"log.retention.hours": 1}, {}, toml)
    assert settings.topic_defaults == {"retention.ms": "3600000", "segment.ms": "5"}


def test_names_in_a_file_are_flat_quoted_or_in_tables(toml: Path) -> None:
    toml.write_text(
        """
        listen = ["127.0.0.1:0", "[::1]:0"]
        num.partitions = 3
        "max.connections.per.ip" = 10
        max.connections = 20

        [foldlog]
        log.format = "json"

        [log.retention]
        hours = 1

        [auto.create]
        topics.enable = false
        """
    )
    settings = settings_of(path=toml)
    assert [listener.host for listener in settings.listeners] == ["127.0.0.1", "::1"]
    assert (settings.num_partitions, settings.max_connections_per_ip, settings.max_connections) == (3, 10, 20)
    assert settings.log_format == "json"
    assert settings.topic_defaults == {"retention.ms": "3600000"}
    assert settings.auto_create_topics_enable is False


def test_the_example_in_the_documentation_is_a_file_that_is_read(toml: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "broker.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    toml.write_text(example)
    settings = settings_of(path=toml)
    assert settings.max_connections_per_ip == 100
    assert settings.topic_defaults == {"retention.ms": "86400000"}
    assert settings.metrics is not None


def test_a_file_that_cannot_be_read_is_one_sentence(toml: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"broker\.toml cannot be read: No such file"):
        read_file(str(toml))
    with pytest.raises(InvalidConfig, match="cannot be read: Is a directory"):
        read_file(str(tmp_path))
    toml.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match="is not text in UTF-8"):
        read_file(str(toml))
    toml.write_text("num.partitions = \n")
    with pytest.raises(InvalidConfig, match=r"broker\.toml is not TOML: .*line 1"):
        read_file(str(toml))
    toml.write_text("max.connections = 1\nmax.connections.per.ip = 2\n")
    with pytest.raises(InvalidConfig, match="goes in quotes"):
        read_file(str(toml))
    toml.write_text('"num.partitions" = 1\nnum.partitions = 2\n')
    with pytest.raises(InvalidConfig, match=r"sets num\.partitions twice"):
        read_file(str(toml))


def test_an_error_names_the_flag_the_variable_or_the_file(toml: Path) -> None:
    toml.write_text("num.partitions = 0\n")
    with pytest.raises(InvalidConfig, match=rf"\(set by {toml}\)"):
        settings_of(path=toml)
    with pytest.raises(InvalidConfig, match=r"\(set by the environment variable FOLDLOG_NUM_PARTITIONS\)"):
        settings_of(environment={"FOLDLOG_NUM_PARTITIONS": "0"}, path=toml)
    with pytest.raises(InvalidConfig, match=r"\(set by --num\.partitions\)"):
        settings_of({"num.partitions": 0}, {"FOLDLOG_NUM_PARTITIONS": "0"}, toml)


def test_the_environment_can_name_the_file(toml: Path, tmp_path: Path) -> None:
    toml.write_text("num.partitions = 4\n")
    assert settings_of(environment={"FOLDLOG_CONFIG": str(toml)}).num_partitions == 4
    other = tmp_path / "other.toml"
    other.write_text("num.partitions = 5\n")
    assert settings_of(environment={"FOLDLOG_CONFIG": str(toml)}, path=other).num_partitions == 5
    assert settings_of(environment={"FOLDLOG_CONFIG": ""}).num_partitions == 1


def test_every_setting_has_a_variable_of_its_own() -> None:
    variables = [environment_variable(name) for name in BROKER_SETTINGS]
    assert len(set(variables)) == len(variables)
    given_values, warnings = read_environment(dict.fromkeys(variables, "x"))
    assert given_values.keys() == BROKER_SETTINGS.keys()
    assert not warnings


def test_the_variables_of_the_flags_work_as_people_guess_them() -> None:
    settings = settings_of(
        environment={
            "FOLDLOG_LISTEN": "0.0.0.0:0,127.0.0.1:0",
            "FOLDLOG_ADVERTISE": "kafka:9092",
            "FOLDLOG_INSECURE": "1",
            "FOLDLOG_METRICS": "127.0.0.1:0",
            "FOLDLOG_LOG_FORMAT": "json",
            "FOLDLOG_LOG_LEVEL": "debug",
            "FOLDLOG_CREATE_TOPICS": "orders:3",
            "FOLDLOG_NUM_PARTITIONS": "",
        }
    )
    assert [listener.host for listener in settings.listeners] == ["0.0.0.0", "127.0.0.1"]
    assert settings.advertised_listeners[0].address == "kafka:9092"
    assert (settings.insecure, settings.log_format, settings.log_level) == (True, "json", "debug")
    assert settings.metrics is not None
    assert settings.create_topics[0] == ("orders", 3)
    assert settings.num_partitions == 1, "an empty variable is one that is not set"


def test_a_variable_that_is_no_setting_is_mentioned_and_passed_over() -> None:
    environment = {
        "FOLDLOG_PORT": "tcp://10.0.0.1:9092",
        "FOLDLOG_NUM_PARTITION": "3",
        "FOLDLOG_PURE_PYTHON": "0",
        "KAFKA_NUM_PARTITIONS": "3",
    }
    given_values, warnings = read_environment(environment)
    assert not given_values
    assert len(warnings) == 2
    assert warnings[0].endswith(
        "FOLDLOG_NUM_PARTITION is no setting, and has no effect; did you mean FOLDLOG_NUM_PARTITIONS?"
    )
    assert warnings[1].endswith("FOLDLOG_PORT is no setting, and has no effect")


def test_assignments_are_names_and_values_and_the_last_counts() -> None:
    given_values = parse_assignments(["num.partitions=1", " listeners = PLAINTEXT://127.0.0.1:0 ", "num.partitions=2"])
    assert given_values["num.partitions"].value == "2"
    assert given_values["listeners"].origin == "-X listeners"
    assert parse_assignments(["a=b=c"])["a"].value == "b=c"
    for text in ("num.partitions", "=3", ""):
        with pytest.raises(InvalidConfig, match="is not -X name=value"):
            parse_assignments([text])


def test_a_properties_file_is_known_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "\ufeff# The id of the broker\nbroker.id=3\n\n! old\nlisteners=PLAINTEXT://127.0.0.1:0,\\\n   E://127.0.0.1:0\n"
        "listener.security.protocol.map : E:PLAINTEXT\nlog.retention.hours 1\nzookeeper.connect=\n"
    )
    settings = settings_of(path=path)
    assert settings.node_id == 3
    assert [listener.name for listener in settings.listeners] == ["PLAINTEXT", "E"]
    assert settings.topic_defaults == {"retention.ms": "3600000"}
    assert settings.without_effect == ("zookeeper.connect",)
    path.write_text("a=\\u12\n")
    with pytest.raises(InvalidConfig, match=r"server\.properties is not a properties file: .*four hexadecimal digits"):
        read_file(str(path))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("# ours\na=1\nsasl.password=hunter2\\until", "line 3 has"),
        ("a=1,\\\n  2\nsasl.password=\\\n  hunter2\\until\n", "line 3 has"),
        ("hunter2\\until", "line 1 has"),
    ],
)
def test_a_wrong_escape_is_named_by_its_line_and_never_by_a_value(text: str, place: str) -> None:
    """What stands there may be a password, on whichever side of '=' it was typed."""
    with pytest.raises(InvalidConfig, match=rf"^{place} \\u without four hexadecimal digits") as caught:
        parse_properties(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("name", {"name": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a = 1 ", {"a": "1 "}),
        ("a=1\na=2", {"a": "2"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a==b", {"a": "=b"}),
        ("a=b\\\\", {"a": "b\\"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=\\u00e9\\t\\q", {"a": "é\tq"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def escaped(text: str, *, is_name: bool) -> str:
    """As java.util.Properties.store writes it."""
    parts: list[str] = []
    for position, character in enumerate(text):
        if character == " ":
            parts.append("\\ " if is_name or position == 0 else " ")
        elif character in "\t\n\r\f":
            parts.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[character])
        elif character in "=:#!\\":
            parts.append("\\" + character)
        elif " " <= character <= "~":
            parts.append(character)
        else:
            parts.append(f"\\u{ord(character):04X}")
    return "".join(parts)


TEXTS = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=12)


@given(st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=5))
def test_what_java_writes_is_read_back(pairs: dict[str, str]) -> None:
    lines = [f"{escaped(name, is_name=True)}={escaped(value, is_name=False)}" for name, value in pairs.items()]
    assert parse_properties("#a comment\n" + "\n".join(lines)) == pairs


@given(st.text(max_size=40).filter(lambda text: "\\u" not in text))
def test_any_text_is_pairs_of_something(text: str) -> None:
    pairs = parse_properties(text)
    assert sum(len(name) + len(value) for name, value in pairs.items()) <= len(text)


def test_of_two_places_the_higher_decides_whatever_they_set() -> None:
    """Every pair of settings of one thing: what the flag says is in force, whatever the environment says."""
    things = [("log.retention.ms", "7", "retention.ms", "7"), ("log.retention.minutes", "1", "retention.ms", "60000"),
              ("log.retention.hours", "1", "retention.ms", "3600000")]  # fmt: skip
    for flag, flag_value, topic_setting, expected in things:
        for variable, variable_value, _, _ in things:
            environment = {environment_variable(variable): variable_value}
            assert settings_of({flag: flag_value}, environment).topic_defaults[topic_setting] == expected
