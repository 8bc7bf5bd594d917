"""Certificates that `serve --secure` makes: renewed in time by the authority that clients know, and by no other."""

from __future__ import annotations

import logging
import os
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certificates import Authority
from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.errors import InvalidConfig
from foldlog.server import server
from foldlog.server.access.own_certificates import (
    BROKER_DAYS,
    RENEWED_DAYS,
    OwnCertificates,
    SecureFiles,
    renew_certificates,
)
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server

NAMES = ["localhost", "127.0.0.1"]
START = datetime.now(UTC)


def after(days: float) -> datetime:
    return START + timedelta(days=days)


def own(path: Path, *names: str) -> OwnCertificates:
    return OwnCertificates(SecureFiles(str(path)), names or NAMES)


def is_taken(path: Path, name: str = "localhost", authority: bytes | None = None) -> bool:
    """Whether a client that verifies strictly takes the broker's certificate, by Python's own TLS on both sides."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path / "broker.pem")
    client = ssl.create_default_context(cadata=(authority or (path / "ca.pem").read_bytes()).decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    pairs = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        client.wrap_bio(pairs[0], pairs[1], server_hostname=name),
        server.wrap_bio(pairs[1], pairs[0], server_side=True),
    ]
    done: set[int] = set()
    while len(done) < 2:
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True


def test_what_is_made_is_taken_by_strict_clients_and_for_its_names_only(tmp_path: Path) -> None:
    own(tmp_path).look()
    assert is_taken(tmp_path)
    assert is_taken(tmp_path, "127.0.0.1")
    assert not is_taken(tmp_path, "elsewhere.example")
    assert not is_taken(tmp_path, authority=Authority().pem.encode())
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("broker.pem", "ca-key.pem")}
    assert modes == {"broker.pem": 0o600, "ca-key.pem": 0o600}
    assert b"PRIVATE" not in (tmp_path / "ca.pem").read_bytes()


def test_the_broker_s_is_renewed_in_time_and_the_authority_stays(tmp_path: Path) -> None:
    kept = own(tmp_path)
    kept.look(START)
    ca, first = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "broker.pem").read_bytes()
    kept.look(after(BROKER_DAYS - RENEWED_DAYS - 1))
    assert (tmp_path / "broker.pem").read_bytes() == first
    kept.look(after(BROKER_DAYS - RENEWED_DAYS + 1))
    second = (tmp_path / "broker.pem").read_bytes()
    assert second != first
    kept.look(after(BROKER_DAYS + 1))
    assert (tmp_path / "broker.pem").read_bytes() == second
    assert (tmp_path / "ca.pem").read_bytes() == ca
    assert stat.S_IMODE((tmp_path / "broker.pem").stat().st_mode) == 0o600


def test_another_name_of_the_broker_is_put_into_its_certificate(tmp_path: Path) -> None:
    own(tmp_path).look()
    ca = (tmp_path / "ca.pem").read_bytes()
    own(tmp_path, "broker.example.com").look()
    assert is_taken(tmp_path, "broker.example.com", ca)
    assert is_taken(tmp_path, "localhost", ca)  # who knows it by the old name goes on


@pytest.mark.parametrize("lost", ["ca.pem", "broker.pem"])
def test_a_power_cut_between_two_files_is_mended(tmp_path: Path, lost: str) -> None:
    """As if it had come right after the key of a new authority was written."""
    own(tmp_path).look()
    renew_certificates(SecureFiles(str(tmp_path)), with_authority=True)
    wanted = (tmp_path / "ca.pem").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    own(other).look()
    (tmp_path / lost).write_bytes((other / lost).read_bytes())
    own(tmp_path).look()
    assert (tmp_path / "ca.pem").read_bytes() == wanted
    assert is_taken(tmp_path)
    os.unlink(tmp_path / lost)
    own(tmp_path).look()
    assert (tmp_path / "ca.pem").read_bytes() == wanted
    assert is_taken(tmp_path)


def test_a_new_authority_is_made_only_when_asked_for(tmp_path: Path) -> None:
    own(tmp_path).look()
    before = (tmp_path / "ca.pem").read_bytes()
    until, names = renew_certificates(SecureFiles(str(tmp_path)))
    assert is_taken(tmp_path, authority=before)
    assert names == NAMES
    assert until > START + timedelta(days=BROKER_DAYS - 1)
    renew_certificates(SecureFiles(str(tmp_path)), with_authority=True)
    assert not is_taken(tmp_path, authority=before)
    assert is_taken(tmp_path)


def test_without_the_authority_s_key_the_certificate_stays_and_one_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = own(tmp_path)
    kept.look(START)
    (tmp_path / "ca-key.pem").unlink()
    before = (tmp_path / "broker.pem").read_bytes()
    with caplog.at_level(logging.WARNING):
        for hour in range(5):
            kept.look(after(BROKER_DAYS - RENEWED_DAYS + 1 + hour / 24))
    assert (tmp_path / "broker.pem").read_bytes() == before
    assert len(caplog.records) == 1
    assert f"foldlog certificate renew {tmp_path} --authority" in caplog.text


def test_a_directory_without_certificates_gets_none_by_renewing(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="--secure makes one"):
        renew_certificates(SecureFiles(str(tmp_path)), with_authority=True)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_said_and_not_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own(tmp_path).look()
    (tmp_path / "ca-key.pem").write_bytes(b"-----BEGIN NONSENSE-----")
    before = (tmp_path / "broker.pem").read_bytes()
    own(tmp_path).look()
    assert (tmp_path / "broker.pem").read_bytes() == before
    assert "has no key of an authority that foldlog made" in caplog.text


def test_a_broker_that_runs_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HOUR_S", 0.0)
    looked = threading.Event()
    with (
        Broker.open(MEMORY_PATH) as broker,
        Server.start(broker, ServerSettings.parse({"listen": "127.0.0.1:0"})) as one,
    ):
        one.each_hour = looked.set
        assert looked.wait(60)


def test_a_certificate_is_for_one_use(tmp_path: Path) -> None:
    """The authority's signs certificates, the broker's signs handshakes, and neither is for anything else."""
    own(tmp_path).look()
    for name, uses in (("ca", {"key_cert_sign", "crl_sign"}), ("broker", {"digital_signature"})):
        found = x509.load_pem_x509_certificate((tmp_path / f"{name}.pem").read_bytes())
        usage = found.extensions.get_extension_for_class(x509.KeyUsage).value
        assert {one.removeprefix("_") for one, is_allowed in vars(usage).items() if is_allowed} == uses
