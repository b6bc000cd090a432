"""The users who log in by PLAIN or SCRAM: their verifiers, from a file that is read again when it changes.

The file is YAML; `meshctl users set --file` writes it:

    users:
      alice:
        SCRAM-SHA-512: salt=...,stored_key=...,server_key=...,iterations=4096
    decoy_secret: BASE64

An unknown user appears to have a decoy of a verifier, whose salt follows from the name and `decoy_secret`. So the salt
is the same at each try and at each gateway, as the salt of a user who exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from mesh.connection_security import Mechanism
from mesh.scram import MIN_ITERATIONS, SALT_BYTES, SCRAM_HASHES, NotAVerifierError, Verifier

LARGEST_FILE: Final = 64 * 1024 * 1024
"""Bytes; a user with two verifiers takes about 500."""
SECRET_BYTES: Final = 32


class UsersFileError(ValueError):
    """The file of users can't be used: the place and the reason, without any verifier."""


@dataclass(frozen=True)
class Users:
    """Verifiers by user and mechanism."""

    by_name: Mapping[str, Mapping[Mechanism, Verifier]] = field(default_factory=dict)
    decoy_secret: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES), repr=False)

    def find(self, name: str, mechanism: Mechanism) -> Verifier | None:
        return self.by_name.get(name, {}).get(mechanism)

    def decoy(self, name: str, mechanism: Mechanism) -> Verifier:
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        salt, stored_key, server_key = (
            hmac.digest(self.decoy_secret, f"{part} {mechanism.value} {name}".encode(), "sha512")
            for part in ("salt", "stored key", "server key")
        )
        usual = self._usual_iterations.get(mechanism, MIN_ITERATIONS)
        return Verifier(mechanism, salt[:SALT_BYTES], usual, stored_key[:size], server_key[:size])

    @cached_property
    def _usual_iterations(self) -> Mapping[Mechanism, int]:
        """The most common iterations of each mechanism: a decoy has those."""
        counts: dict[Mechanism, Counter[int]] = {}
        for verifiers in self.by_name.values():
            for mechanism, verifier in verifiers.items():
                counts.setdefault(mechanism, Counter())[verifier.iterations] += 1
        return {mechanism: count.most_common(1)[0][0] for mechanism, count in counts.items()}

    def changed_since(self, earlier: Users) -> frozenset[str]:
        """The earlier users who are gone, or have another verifier now."""
        return frozenset(name for name, had in earlier.by_name.items() if self.by_name.get(name) != had)


def read_users(path: Path) -> Users:
    """Raises UsersFileError."""
    import yaml  # 18 modules, which a gateway without such a file never needs

    try:
        if path.stat().st_size > LARGEST_FILE:
            raise UsersFileError(f"{path} has more than {LARGEST_FILE} bytes")
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise UsersFileError(f"{path} can't be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UsersFileError(f"{path} is not YAML") from None
    if not isinstance(content, dict) or not content.keys() <= {"users", "decoy_secret"}:
        raise UsersFileError(f"{path}: expected `users` and `decoy_secret`, and nothing else")
    listed = content.get("users") or {}
    if not isinstance(listed, dict):
        raise UsersFileError(f"{path}: `users` must have the names of users with their verifiers below")
    secret = _secret(path, content.get("decoy_secret"))
    return Users({str(name): _verifiers(path, str(name), told) for name, told in listed.items()}, secret)


def _secret(path: Path, text: object) -> bytes:
    try:
        secret = base64.b64decode(str(text or ""), validate=True)
    except (ValueError, binascii.Error):
        secret = b""
    if len(secret) < SECRET_BYTES:
        raise UsersFileError(f"{path}: `decoy_secret` must be {SECRET_BYTES} random bytes or more, in base64")
    return secret


def _verifiers(path: Path, name: str, told: object) -> dict[Mechanism, Verifier]:
    mechanisms = {mechanism.value: mechanism for mechanism in SCRAM_HASHES}
    if not isinstance(told, dict) or not told or not told.keys() <= mechanisms.keys():
        raise UsersFileError(f"{path}: user {name!r} needs verifiers for {' or '.join(mechanisms)}, and nothing else")
    try:
        return {mechanisms[each]: Verifier.parse(mechanisms[each], str(text)) for each, text in told.items()}
    except NotAVerifierError as error:
        raise UsersFileError(f"{path}: user {name!r}: {error}") from None


def written(users: Users) -> bytes:
    """The content of a file with these users."""
    import yaml

    content = {
        "users": {
            name: {mechanism.value: str(found[mechanism]) for mechanism in SCRAM_HASHES if mechanism in found}
            for name, found in sorted(users.by_name.items())
        },
        "decoy_secret": base64.b64encode(users.decoy_secret).decode(),
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000).encode()
