"""What a certificate says, read from its bytes: names as Java prints them, and nothing that a name can do to that."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certificates import Authority
from foldlog.errors import MalformedBytes
from foldlog.server.tls.certificates import certificates_of, escaped, parse_certificate
from server.tls.subjects import SUBJECTS

AUTHORITY = Authority()
ISSUED = AUTHORITY.client("somebody")


@pytest.mark.parametrize("case", SUBJECTS)
def test_a_subject_is_printed_as_java_prints_it(case: str) -> None:
    name, expected = SUBJECTS[case]
    assert parse_certificate(AUTHORITY.client(name).der).subject == expected


@given(st.text(min_size=1))
def test_a_value_never_leaves_its_quoting(text: str) -> None:
    """Undo the escapes: what comes out is the value, and no separator stood there without one."""
    found: list[str] = []
    position, shown = 0, escaped(text)
    while position < len(shown):
        if shown[position] == "\\":
            is_null = shown.startswith("\\00", position) and text[len(found)] == "\0"
            found.append("\0" if is_null else shown[position + 1])
            position += 3 if is_null else 2
        else:
            assert shown[position] not in ',=+<>#;"\0'
            found.append(shown[position])
            position += 1
    assert "".join(found) == text


def test_validity_is_read_in_both_forms_of_time() -> None:
    far = AUTHORITY.broker(ends=timedelta(days=365 * 40))  # beyond 2049 certificates have another form of time
    for issued in (ISSUED, far):
        found = parse_certificate(issued.der)
        assert found.not_before == issued.certificate.not_valid_before_utc
        assert found.not_after == issued.certificate.not_valid_after_utc


@given(st.integers(0, len(ISSUED.der) - 1))
def test_a_certificate_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(MalformedBytes):
        parse_certificate(ISSUED.der[:size])


@given(st.data())
def test_a_changed_byte_is_read_or_refused_and_never_anything_else(data: st.DataObject) -> None:
    damaged = bytearray(ISSUED.der)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedBytes):
        parse_certificate(bytes(damaged))


def test_certificates_are_found_in_a_text_with_other_things_in_it() -> None:
    text = f"subject=CN = x\n{AUTHORITY.pem}\nother\n{ISSUED.key_pem()}{ISSUED.certificate_pem}"
    assert certificates_of(text) == [AUTHORITY.issued.der, ISSUED.der]
    with pytest.raises(MalformedBytes, match="base64"):
        certificates_of("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----")
