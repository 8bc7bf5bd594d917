"""Keys and certificates of listeners: every form that is taken, every mistake, and reading them again."""

from __future__ import annotations

import logging
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from certificates import DAY, Authority, Issued
from foldlog.errors import InvalidConfig
from foldlog.server.config.settings import ServerSettings
from foldlog.server.tls.settings import TlsSettings
from foldlog.server.tls.stores import LiveTls, load

AUTHORITY = Authority()
BROKER = AUTHORITY.broker()
PASSWORD = "correct horse battery staple"


@pytest.fixture
def keystore(tmp_path: Path) -> Path:
    return BROKER.write(tmp_path / "broker.pem")


def settings(**given: object) -> TlsSettings:
    properties = {f"ssl.{name.replace('_', '.')}": value for name, value in given.items()}
    return ServerSettings.parse({"listeners": "SSL://127.0.0.1:0", **properties}).tls["SSL"]


def refusal(**given: object) -> str:
    with pytest.raises(InvalidConfig) as refused:
        load(settings(**given))
    text = str(refused.value)
    assert "\n" not in text
    assert "PRIVATE KEY" not in text
    assert PASSWORD not in text
    return text


def test_a_file_has_key_and_certificates_in_any_order(keystore: Path, tmp_path: Path) -> None:
    assert load(settings(keystore_location=str(keystore))).certificate.subject == "CN=broker"
    reverse = tmp_path / "reverse.pem"
    reverse.write_text(f"comment\n{BROKER.certificate_pem}{AUTHORITY.pem}{BROKER.key_pem()}")
    reverse.chmod(0o600)
    loaded = load(settings(keystore_location=str(reverse), keystore_type="PEM"))
    assert loaded.warnings == ()


@pytest.mark.parametrize("line_end", ["\n", " ", "\r\n", ""], ids=["lines", "blanks", "both", "nothing"])
def test_pem_in_settings_is_taken_however_its_lines_were_joined(line_end: str) -> None:
    """A properties file joins lines that end with a backslash, and editors put blanks there."""
    chain, key = (
        text.strip().replace("\n", line_end) if line_end else text.replace("\n", "")
        for text in (BROKER.certificate_pem + AUTHORITY.pem, BROKER.key_pem(PASSWORD))
    )
    taken = settings(keystore_certificate_chain=chain, keystore_key=key, key_password=PASSWORD)
    assert load(taken).certificate.subject == "CN=broker"
    assert "PRIVATE" not in repr(taken)
    assert PASSWORD not in repr(taken)


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    path = str(BROKER.write(tmp_path / "encrypted.pem", PASSWORD))
    assert load(settings(keystore_location=path, key_password=PASSWORD)).certificate
    assert "is encrypted; set ssl.key.password" in refusal(keystore_location=path)
    for wrong in ("no", "x" * 5000):
        assert "ssl.key.password does not open the private key" in refusal(keystore_location=path, key_password=wrong)


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    other = AUTHORITY.broker("other")
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(other.key_pem() + BROKER.certificate_pem)
    assert "the private key is not that of the first certificate" in refusal(keystore_location=str(mixed))
    assert "No such file or directory" in refusal(keystore_location=str(tmp_path / "none"))
    assert "Is a directory" in refusal(keystore_location=str(tmp_path))
    assert "has nothing in PEM" in refusal(keystore_location="/dev/null")
    for text, why in (
        ("", "has nothing in PEM"),
        (BROKER.certificate_pem, "1 certificates and 0 private keys"),
        (BROKER.key_pem() + other.key_pem() + BROKER.certificate_pem, "2 private keys"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + BROKER.key_pem(), "cannot be used"),
    ):
        mixed.write_text(text)
        assert why in refusal(keystore_location=str(mixed))
    mixed.write_text("x" * (2 << 20))
    assert "has over 1048576 bytes" in refusal(keystore_location=str(mixed))


def test_two_places_for_one_thing_are_refused(keystore: Path) -> None:
    both = {"keystore_location": str(keystore), "keystore_key": BROKER.key_pem()}
    with pytest.raises(InvalidConfig, match=r"ssl.keystore.location and ssl.keystore.key are two places"):
        settings(**both)
    with pytest.raises(InvalidConfig, match="set both"):
        settings(keystore_key=BROKER.key_pem())
    with pytest.raises(InvalidConfig, match=r"ssl.truststore.location and ssl.truststore.certificates are two places"):
        settings(keystore_location="x", truststore_location="y", truststore_certificates=AUTHORITY.pem)
    with pytest.raises(InvalidConfig, match=r"ssl.client.auth=required needs authorities"):
        settings(keystore_location="x", client_auth="required")


def test_stores_of_java_are_refused_with_the_command_that_converts_them(tmp_path: Path, keystore: Path) -> None:
    packed = tmp_path / "broker.p12"
    encryption = serialization.BestAvailableEncryption(b"secret")
    packed.write_bytes(
        pkcs12.serialize_key_and_certificates(b"broker", BROKER.key, BROKER.certificate, None, encryption)
    )
    text = refusal(keystore_location=str(packed), keystore_type="PKCS12", keystore_password="secret")
    assert f"openssl pkcs12 -in {packed} -out {packed}.pem; then set ssl.keystore.type=PEM" in text
    assert "secret" not in text
    java = tmp_path / "broker.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    text = refusal(keystore_location=str(java))
    assert f"keytool -importkeystore -srckeystore {java} -destkeystore {java}.p12" in text
    assert "type JKS" in refusal(keystore_location=str(keystore), truststore_location=str(java), client_auth="required")
    if shutil.which("openssl"):  # what the command makes can be used
        convert = f"openssl pkcs12 -in {packed} -out {packed}.pem -passin pass:secret -passout pass:secret"
        subprocess.run(convert.split(), check=True)
        assert load(settings(keystore_location=f"{packed}.pem", key_password="secret")).certificate


@pytest.mark.parametrize(
    ("begins", "ends", "says"),
    [
        (-20 * DAY, -DAY, "expired on"),
        (DAY, 20 * DAY, "is valid from"),
        (-20 * DAY, 3 * DAY, "expires on"),
        (-20 * DAY, 300 * DAY, None),
    ],
)
def test_a_certificate_out_of_its_time_is_a_warning(
    begins: timedelta, ends: timedelta, says: str | None, tmp_path: Path
) -> None:
    path = AUTHORITY.broker(begins=begins, ends=ends).write(tmp_path / "broker.pem")
    warnings = load(settings(keystore_location=str(path))).warnings
    assert len(warnings) == (says is not None)
    assert says is None or says in warnings[0]


def test_a_key_that_others_can_read_is_named(keystore: Path) -> None:
    keystore.chmod(0o644)
    (warning,) = load(settings(keystore_location=str(keystore))).warnings
    assert warning == f"{keystore} has a private key and is open to others (mode 0644); chmod 600 {keystore}"


def test_versions_and_ciphers_are_those_of_the_settings(keystore: Path) -> None:
    def made(**given: object) -> tuple[set[str], set[str]]:
        taken = settings(keystore_location=str(keystore), **given)
        suites = {each["name"] for each in load(taken).context.get_ciphers()}
        return set(taken.versions), {name for name in suites if not name.startswith("TLS_")}

    both = {"TLSv1.2", "TLSv1.3"}
    assert made()[0] == both
    assert made(enabled_protocols="TLSv1.3")[0] == {"TLSv1.3"}
    assert made(protocol="TLSv1.2")[0] == {"TLSv1.2"}
    assert made(protocol="TLS")[0] == both
    java, openssl = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"
    assert made(cipher_suites=f"{java},{openssl}") == (
        {"TLSv1.2"},
        {"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"},
    )
    newest = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    assert made(cipher_suites=newest)[0] == {"TLSv1.3"}
    assert made(cipher_suites=f"{newest},{java}")[0] == both


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"enabled_protocols": "TLSv1.1,TLSv1.2"}, "'TLSv1.1' in ssl.enabled.protocols is not served"),
        ({"protocol": "SSLv3"}, "ssl.protocol is one of TLS, TLSv1.2, TLSv1.3"),
        ({"cipher_suites": "TLS_RSA_WITH_3DES_EDE_CBC_SHA"}, "unknown or too weak"),
        ({"cipher_suites": "NULL-SHA256"}, "unknown or too weak"),
        ({"cipher_suites": "ECDHE-RSA-AES256-GCM-SHA384", "enabled_protocols": "TLSv1.3"}, "none for TLSv1.3"),
        ({"client_auth": "maybe"}, "ssl.client.auth is one of none, requested, required"),
        ({"keystor_location": "x"}, "did you mean 'ssl.keystore.location'?"),
        ({"key_password": 5}, "the value of ssl.key.password is not allowed"),
    ],
)
def test_weak_and_unknown_values_are_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        settings(keystore_location="x", **given)
    assert why in str(refused.value)


# --- reading them again -----------------------------------------------------------------------------------------------


@pytest.fixture
def live(keystore: Path, caplog: pytest.LogCaptureFixture) -> LiveTls:
    caplog.set_level(logging.INFO)
    return LiveTls(settings(keystore_location=str(keystore)))


def replace(keystore: Path, issued: Issued) -> None:
    """In one step, as whoever renews certificates should."""
    issued.write(keystore.with_suffix(".new")).rename(keystore)


def test_a_look_takes_new_certificates_and_only_new_ones(
    live: LiveTls, keystore: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = live.context
    live.look()
    assert live.context is before
    replace(keystore, AUTHORITY.broker("renewed"))
    live.look()
    assert live.context is not before
    assert "its certificates were read again: CN=renewed, valid until" in caplog.text
    renewed = live.context
    live.look()
    assert live.context is renewed


def test_a_broken_file_keeps_the_old_certificate_and_warns_once(
    live: LiveTls, keystore: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = live.context
    keystore.write_text("half of a file")
    live.look()
    assert "cannot be used" not in caplog.text  # it may still be written
    for _ in range(3):
        live.look()
        assert live.context is before
    assert caplog.text.count("cannot be used, and the old ones are kept") == 1
    keystore.unlink()
    live.look()
    live.look()
    assert caplog.text.count("cannot be used, and the old ones are kept") == 2
    replace(keystore, AUTHORITY.broker("renewed"))
    live.look()
    assert live.context is not before


def test_asked_to_it_reads_them_even_if_they_are_the_same(
    live: LiveTls, keystore: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = live.context
    live.reload()
    assert live.context is not before
    keystore.write_text("")
    before = live.context
    live.reload()
    assert live.context is before
    assert caplog.text.count("cannot be used, and the old ones are kept") == 1
    live.look()
    assert caplog.text.count("cannot be used, and the old ones are kept") == 1
