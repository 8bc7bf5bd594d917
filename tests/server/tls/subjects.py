"""Subjects of certificates, among them those that try to be somebody else's, and what Java makes of them.

`tests/clusters/test_tls_apache.py` asks Java itself.
"""

from __future__ import annotations

from cryptography.x509 import Name, NameAttribute, ObjectIdentifier, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type as Asn1Type
from cryptography.x509.oid import NameOID

OWN_ATTRIBUTE = ObjectIdentifier("1.3.6.1.4.1.99999.1")


def common(text: str, kind: Asn1Type | None = None) -> Name:
    return Name([NameAttribute(NameOID.COMMON_NAME, text, kind)])


SUBJECTS: dict[str, tuple[Name, str]] = {
    "plain": (
        Name(
            [
                NameAttribute(NameOID.COUNTRY_NAME, "DE"),
                NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
                NameAttribute(NameOID.LOCALITY_NAME, "München"),
                NameAttribute(NameOID.ORGANIZATION_NAME, "Fold, Inc."),
                NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "R&D + ops"),
                NameAttribute(NameOID.COMMON_NAME, "billing"),
            ]
        ),
        r"CN=billing,OU=R&D \+ ops,O=Fold\, Inc.,L=München,ST=Bayern,C=DE",
    ),
    "all that is escaped": (common('"<c>;#=\\'), r"CN=\"\<c\>\;\#\=\\"),
    "another name inside": (common("nobody,CN=admin"), r"CN=nobody\,CN\=admin"),
    "an escape inside": (common("a\\2Cb\\,CN=admin"), r"CN=a\\2Cb\\\,CN\=admin"),
    "blanks around": (common("  admin "), r"CN=\ \ admin\ "),
    "a blank alone": (common(" "), r"CN=\ "),
    "a null": (common("admin\0.example.com"), r"CN=admin\00.example.com"),
    "a tab": (common("line\tbreak"), "CN=line\tbreak"),
    "unicode": (common("日本 😀"), "CN=日本 😀"),
    "text of two bytes a character": (common("ab", Asn1Type.BMPString), r"CN=\00a\00b"),
    "text of four bytes a character": (common("a", Asn1Type.UniversalString), "CN=#1c0400000061"),
    "an address": (
        Name([NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.example"), NameAttribute(NameOID.COMMON_NAME, "mail")]),
        "CN=mail,1.2.840.113549.1.9.1=#160b6140622e6578616d706c65",
    ),
    "an attribute of one's own": (
        Name([NameAttribute(OWN_ATTRIBUTE, "odd"), NameAttribute(NameOID.COMMON_NAME, "x")]),
        "CN=x,1.3.6.1.4.1.99999.1=#0c036f6464",
    ),
    "domains": (
        Name(
            [
                NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
                NameAttribute(NameOID.DOMAIN_COMPONENT, "com"),
                NameAttribute(NameOID.USER_ID, "u1"),
                NameAttribute(NameOID.STREET_ADDRESS, "Way 1"),
                NameAttribute(NameOID.SERIAL_NUMBER, "77"),
            ]
        ),
        "2.5.4.5=#13023737,STREET=Way 1,UID=u1,DC=com,DC=example",
    ),
    "two values in one part": (
        Name(
            [
                RelativeDistinguishedName(
                    [
                        NameAttribute(NameOID.COMMON_NAME, "multi"),
                        NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "part"),
                    ]
                ),
                RelativeDistinguishedName([NameAttribute(NameOID.ORGANIZATION_NAME, "o")]),
            ]
        ),
        "O=o,OU=part+CN=multi",
    ),
}
