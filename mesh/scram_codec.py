"""Verifiers between services: `mesh.scram` to the messages of users.proto and back."""

from __future__ import annotations

from typing import Final

from mesh.connection_security import Mechanism
from mesh.rpc import users
from mesh.scram import NotAVerifierError, Verifier

MECHANISMS: Final = {
    users.SCRAM_MECHANISM_SHA_256: Mechanism.SCRAM_SHA_256,
    users.SCRAM_MECHANISM_SHA_512: Mechanism.SCRAM_SHA_512,
}
NUMBERS: Final = {mechanism: number for number, mechanism in MECHANISMS.items()}
"""The mechanisms by their numbers in messages, which are Kafka's numbers."""


def verifier_to_proto(verifier: Verifier) -> users.ScramVerifier:
    return users.ScramVerifier(
        mechanism=NUMBERS[verifier.mechanism],
        iterations=verifier.iterations,
        salt=verifier.salt,
        stored_key=verifier.stored_key,
        server_key=verifier.server_key,
    )


def verifier_from_proto(message: users.ScramVerifier) -> Verifier:
    """NotAVerifierError, without any part of the verifier, if the message holds none."""
    mechanism = MECHANISMS.get(message.mechanism)
    if mechanism is None:
        known = " or ".join(each.value for each in MECHANISMS.values())
        raise NotAVerifierError(f"{message.mechanism} is no mechanism with verifiers: expected {known}")
    return Verifier(mechanism, message.salt, message.iterations, message.stored_key, message.server_key)


def mechanism_word(mechanism: users.ScramMechanism.ValueType) -> str:
    """ "SCRAM-SHA-512"; the number of a mechanism that this release does not know."""
    known = MECHANISMS.get(mechanism)
    return str(mechanism) if known is None else known.value
