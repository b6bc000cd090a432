"""The public keys of an issuer, from its JWK set (RFC 7517). No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from mesh.tokens.addresses import NotKeysError

MAX_KEYS = 100
LEAST_RSA_BITS = 2048
"""The least length by NIST SP 800-131A; shorter keys can be broken, or soon will be."""
_OF_CURVE = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS = frozenset({*_OF_RSA, "ES256", "ES384", "ES512", "EdDSA"})
"""The allowed algorithms. Each has a public and a private key: never `none`, never a secret that both sides know."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key and the algorithms that it may be used with."""

    id: str
    algorithms: frozenset[str]
    public: Any = field(compare=False, repr=False)
    text: str = field(repr=False)
    """The text of the key, to detect a change."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """All keys of an issuer that serve to verify a signature."""

    keys: tuple[Key, ...] = ()

    @classmethod
    def parse(cls, document: object) -> KeySet:
        """The keys in the JSON of a JWK set. Keys of other kinds or for other uses are skipped. Raises NotKeysError."""
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise NotKeysError("its answer has no list 'keys'")
        if len(listed) > MAX_KEYS:
            raise NotKeysError(f"its answer has {len(listed)} keys, more than {MAX_KEYS}")
        keys = tuple(key for each in listed if isinstance(each, dict) and (key := _key(each)) is not None)
        if not keys:
            raise NotKeysError(f"none of its {len(listed)} keys is one for {', '.join(sorted(ALGORITHMS))}")
        return cls(keys)

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """The key with this id. A token without a key id gets the key of its algorithm, if there is only one."""
        fitting = [key for key in self.keys if algorithm in key.algorithms and key_id in (None, key.id)]
        return fitting[0] if len(fitting) == 1 else None


def _key(described: Mapping[str, Any]) -> Key | None:
    """The described key; None if it does not verify signatures, or has no allowed algorithm."""
    told = described.get("alg")
    if described.get("use", "sig") != "sig" or not (told is None or told in list(ALGORITHMS)):
        return None
    operations = described.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        public = jwt.PyJWK(dict(described)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms = _algorithms(public)
    if told is not None:
        algorithms &= {told}
    if not algorithms:
        return None
    return Key(str(described.get("kid", "")), algorithms, public, repr(sorted(described.items())))


def _algorithms(public: object) -> frozenset[str]:
    match public:
        case RSAPublicKey() if public.key_size >= LEAST_RSA_BITS:
            return frozenset(_OF_RSA)
        case EllipticCurvePublicKey():
            return frozenset({_OF_CURVE[public.curve.name]} if public.curve.name in _OF_CURVE else ())
        case Ed25519PublicKey():
            return frozenset({"EdDSA"})
        case _:  # a private key among public ones, a secret, another curve
            return frozenset()
