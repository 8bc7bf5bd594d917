"""Tokens for OAUTHBEARER, signed with a key of our own, and the settings of a broker that takes them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def token(until_s: float | None = None) -> str:
    """For ten minutes, or until then."""
    return str(
        jwt.encode({"sub": "service", "exp": until_s or time.time() + 600}, KEY, "RS256", headers={"kid": "one"})
    )


def token_settings(mechanisms: str, jwks: Path) -> dict[str, str]:
    """These mechanisms and tokens; the key to check them with is put into that file."""
    public = {**jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "one"}
    jwks.write_text(json.dumps({"keys": [public]}))
    return {
        "sasl.enabled.mechanisms": f"{mechanisms},OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": str(jwks),
    }
