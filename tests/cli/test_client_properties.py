"""Properties of Kafka clients come from a file, from -X and from variables; none of their values is in an error."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from foldlog.cli.client_properties import client_properties
from foldlog.cli.copy.copy import is_broker
from foldlog.cli.fold.fold import chosen_source
from foldlog.cli.main import main
from foldlog.cli.parsing import Arguments
from foldlog.errors import InvalidArgument

FOLDS = """
import foldlog.spark as fl

orders = fl.topic("orders", key="tx_id", schema="amount BIGINT")

@fl.fold(orders, into=fl.table("{place}/orders.db", "orders"))
def mirror(rows): return rows
"""
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="hunter2";'

MISSPELLED = "there is no Kafka client property 'sasl.pasword'; did you mean sasl.password?"


def test_a_file_with_a_password_that_others_can_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\n")
    file.chmod(0o644)
    client_properties(None, str(file))
    assert capsys.readouterr().err == ""
    file.write_text("sasl.password=hunter2\n")
    client_properties(None, str(file))
    told = capsys.readouterr().err
    assert f"others can read sasl.password in {file}: its mode is 0644" in told
    assert "hunter2" not in told
    file.chmod(0o600)
    client_properties(None, str(file))
    assert capsys.readouterr().err == ""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """As it lies beside Kafka's tools: continued lines, a cluster of its own, Java's way to say who one is."""
    file = tmp_path / "client.properties"
    lines = [
        "# ours",
        "bootstrap.servers=elsewhere:9092",
        "sasl.mechanism=PLAIN",
        "client.id = from the file",
        "sasl.jaas.config=" + JAAS.replace(" required", " \\\n    required"),
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_the_line_goes_before_the_file_and_says_which_cluster_it_is(config: Path) -> None:
    given = client_properties(["client.id=from the line", "a.b=c=d"], str(config))
    assert given == {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS,
        "client.id": "from the line",
        "a.b": "c=d",
    }
    assert client_properties(None, None) == {}


def arguments(**given: object) -> Arguments:
    nothing = dict.fromkeys(("source", "directory", "bootstrap", "properties", "command_config"))
    return Arguments(**{**nothing, **given})


@pytest.mark.parametrize("place", [{"bootstrap": "one:9093"}, {"source": "kafka://one:9093?client.id=x%2By"}])
def test_a_fold_takes_them_with_every_way_to_name_a_cluster(config: Path, place: dict[str, str]) -> None:
    spec = chosen_source(arguments(**place, properties=["request.timeout.ms=5"], command_config=str(config)))
    assert spec.bootstrap == "one:9093"
    assert spec.properties == {
        "client.id": "from the file",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "hunter2",
        "request.timeout.ms": "5",
    }
    assert "hunter2" not in repr(spec)


def test_a_plus_in_a_url_is_a_plus() -> None:
    """As in foldlog.connect: a query is not a form."""
    assert chosen_source(arguments(source="kafka://one:9093?sasl.password=a+b")).properties == {"sasl.password": "a+b"}


def test_a_directory_has_no_use_for_them(tmp_path: Path, config: Path) -> None:
    assert chosen_source(arguments(directory=str(tmp_path), command_config=str(config))).path == str(tmp_path)
    with pytest.raises(InvalidArgument, match=r"^-X sasl\.password is for clients of a broker") as caught:
        chosen_source(arguments(directory=str(tmp_path), properties=["sasl.password=hunter2"]))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topic list -b 127.0.0.1:1 -X sasl.mechanism=PLAIN -X hunter2", "-X, the 2. of 2, is not NAME=VALUE"),
        ("topic list -b 127.0.0.1:1 -X hunter2", "-X is not NAME=VALUE"),
        ("topic list -d {place} -X sasl.password=hunter2", "-X sasl.password is for clients of a broker"),
        ("topic list -b 127.0.0.1:1 --command-config {place}/hunter", "hunter cannot be read: No such file"),
        ("topic list -b 127.0.0.1:1 --command-config {place}", "cannot be read: Is a directory"),
        ("topic list -b 127.0.0.1:1 --command-config {place}/latin1", "latin1 cannot be read: it is not UTF-8"),
        ("topic list -b 127.0.0.1:1 --command-config {place}/escape", "escape cannot be read: line 2 has \\u without"),
        ("fold status -f {place}/folds.py --source kafka:/h:1?sasl.password=hunter2", "is not the URL of a cluster"),
        ("copy --all --from kafka:/h:1?sasl.password=hunter2 --to {place}", "is not a broker's address"),
        ("copy --all --from kafka://ann:hunter2@h:1 --to {place}", "users as properties"),
        ("topic list -b 127.0.0.1:1 -X sasl.pasword=hunter2", MISSPELLED),
        ("topic list -b 127.0.0.1:1 --command-config {place}/typo", MISSPELLED),
        ("group list -b 127.0.0.1:1 --command-config {place}/typo", MISSPELLED),
        ("fold status -f {place}/folds.py -b 127.0.0.1:1 -X sasl.pasword=hunter2", MISSPELLED),
        ("fold status -f {place}/folds.py -b 127.0.0.1:1 --command-config {place}/typo", MISSPELLED),
        ("copy --all --from 127.0.0.1:1 --from-property sasl.pasword=hunter2 --to {place}", MISSPELLED),
        ("copy --all --from 127.0.0.1:1 --from-config {place}/typo --to {place}", MISSPELLED),
    ],
)
def test_what_is_wrong_with_them_is_told_without_a_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    (tmp_path / "latin1").write_bytes(b"sasl.password=\xfcber")
    (tmp_path / "typo").write_text("sasl.mechanism=PLAIN\nsasl.pasword=hunter2")
    (tmp_path / "escape").write_text("a=1\nsasl.password=hunter2\\until")
    (tmp_path / "folds.py").write_text(FOLDS.format(place=tmp_path))
    assert main(line.format(place=tmp_path).split()) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert "hunter2" not in printed.out + printed.err


def test_a_url_with_a_slash_too_few_is_no_directory() -> None:
    assert is_broker("kafka:/h:1?sasl.password=hunter2")


CLUSTERS = ["kafka://127.0.0.1:9092", "kafka://ann:hunter2@127.0.0.1:9092?sasl.password=hunter2", "KAFKA://h:1"]


@pytest.mark.parametrize("url", CLUSTERS)
def test_a_clusters_url_is_no_directory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither for the library nor for -d: nothing is made, nothing is acknowledged, no password is shown."""
    monkeypatch.chdir(tmp_path)
    for place in (url, Path(url)):
        for mode in ("w", "r"):
            with pytest.raises(InvalidArgument, match=r"is a cluster's; use foldlog.connect\(") as caught:
                foldlog.open(place, mode=mode)
            assert "hunter2" not in str(caught.value)
    for words in (["topic", "create", "lost"], ["topic", "list"], ["group", "list"]):
        assert main([*words, "-d", url]) == 2
        said = capsys.readouterr().err
        assert "is a cluster's" in said
        assert "hunter2" not in said
    with pytest.raises(InvalidArgument, match="is a cluster's"):
        chosen_source(arguments(directory=url))
    with pytest.raises(InvalidArgument, match="is a URL and no directory"):
        foldlog.open("ftp://host/log")
    assert list(tmp_path.iterdir()) == []


def test_b_is_never_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever directories there are."""
    monkeypatch.chdir(tmp_path)
    Path("kafka:/127.0.0.1:9092").mkdir(parents=True)
    Path("127.0.0.1:9092").mkdir()
    for said in ("127.0.0.1:9092", "kafka://127.0.0.1:9092"):
        assert chosen_source(arguments(bootstrap=said)).bootstrap == "127.0.0.1:9092"
    assert chosen_source(arguments(source="kafka://127.0.0.1:9092")).bootstrap == "127.0.0.1:9092"


def test_an_address_that_is_none_is_told_as_it_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "-b", "http://host:9092"]) == 2
    said = capsys.readouterr().err
    assert "'http://host:9092' is not a broker's address, which is HOST:PORT or kafka://HOST:PORT" in said
    assert "kafka://http" not in said


def test_replicas_of_a_directory_are_refused_before_it_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "data")
    assert main(["topic", "create", "orders", "--replication-factor", "3", "-d", place]) == 2
    assert "a replication factor of 3 needs a cluster" in capsys.readouterr().err
    assert not Path(place).exists()
    assert main(["topic", "create", "orders", "--replication-factor", "1", "-d", place]) == 0
