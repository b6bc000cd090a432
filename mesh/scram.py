"""Verifiers of passwords by SCRAM (RFC 5802, 7677): the part that a server keeps of a password, to check a log-in.

Nobody can log in by a verifier, and the password is found from it by guessing alone. The text of a verifier is the
text that Kafka's own tools write: `salt=...,stored_key=...,server_key=...,iterations=...`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

from mesh.connection_security import Mechanism

SCRAM_HASHES: Final = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}
MIN_ITERATIONS: Final = 4096
"""The least by RFC 7677, and of brokers."""
MAX_ITERATIONS: Final = 16_384
"""Most that brokers take from AlterUserScramCredentials."""
SALT_BYTES: Final = 24
MAX_SALT_BYTES: Final = 1024
CLIENT_KEY, SERVER_KEY = b"Client Key", b"Server Key"


class NotAVerifierError(ValueError):
    """A verifier that can't be used; the reason is fit for a log."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """The verifier of one user's password for one mechanism. NotAVerifierError if its parts can't be right."""

    mechanism: Mechanism
    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        size = hashlib.new(self.hash).digest_size
        if not MIN_ITERATIONS <= self.iterations <= MAX_ITERATIONS:
            raise NotAVerifierError(f"{self.iterations} iterations: expected {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        if not 0 < len(self.salt) <= MAX_SALT_BYTES:
            raise NotAVerifierError(f"a salt of {len(self.salt)} bytes: expected 1 to {MAX_SALT_BYTES}")
        if len(self.stored_key) != size or len(self.server_key) != size:
            raise NotAVerifierError(f"keys of {self.mechanism.value} have {size} bytes each")

    @classmethod
    def of_password(
        cls, mechanism: Mechanism, password: str, iterations: int = MIN_ITERATIONS, salt: bytes | None = None
    ) -> Verifier:
        """Takes milliseconds. The salt is random unless it is given."""
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        salted = salted_password(mechanism, password, salt, iterations)
        return cls.of_salted_password(mechanism, salted, salt, iterations)

    @classmethod
    def of_salted_password(cls, mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Verifier:
        name = SCRAM_HASHES[mechanism]
        stored_key = hashlib.new(name, hmac.digest(salted, CLIENT_KEY, name)).digest()
        return cls(mechanism, salt, iterations, stored_key, hmac.digest(salted, SERVER_KEY, name))

    @classmethod
    def parse(cls, mechanism: Mechanism, text: str) -> Verifier:
        """From the text of Kafka's tools. The error never shows the text."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        if sorted(parts) != ["iterations", "salt", "server_key", "stored_key"] or not parts["iterations"].isdecimal():
            raise NotAVerifierError("expected salt=...,stored_key=...,server_key=...,iterations=NUMBER")
        try:
            salt, stored_key, server_key = (
                base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
        except (ValueError, binascii.Error):
            raise NotAVerifierError("salt, stored_key and server_key must be base64") from None
        return cls(mechanism, salt, int(parts["iterations"][:9]), stored_key, server_key)

    @property
    def hash(self) -> str:
        return SCRAM_HASHES[self.mechanism]

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    def is_of(self, password: str) -> bool:
        """Whether this is the password. Takes milliseconds, and lets other threads run."""
        salted = salted_password(self.mechanism, password, self.salt, self.iterations)
        return self._has_client_key(hmac.digest(salted, CLIENT_KEY, self.hash))

    def is_proved_by(self, proof: bytes, exchanged: bytes) -> bool:
        """Whether the proof of a client is right for the messages that were exchanged (RFC 5802, AuthMessage)."""
        signature = hmac.digest(self.stored_key, exchanged, self.hash)
        if len(proof) != len(signature):
            return False
        return self._has_client_key(bytes(a ^ b for a, b in zip(proof, signature, strict=True)))

    def signature(self, exchanged: bytes) -> bytes:
        """The server's own proof for the same messages."""
        return hmac.digest(self.server_key, exchanged, self.hash)

    def _has_client_key(self, key: bytes) -> bool:
        return hmac.compare_digest(hashlib.new(self.hash, key).digest(), self.stored_key)


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The costly part of SCRAM. The password is not normalised, as Kafka does it."""
    return hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode("utf-8"), salt, iterations)
