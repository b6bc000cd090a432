"""Listeners and policies from the messages of listeners.proto, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mesh.listeners.listener import Certificates, DecidedListener, Policy, Security
from mesh.rpc import listeners

SECURITIES: Final[Mapping[listeners.ListenerSecurity.ValueType, Security]] = {
    listeners.LISTENER_SECURITY_PLAINTEXT: Security.PLAINTEXT,
    listeners.LISTENER_SECURITY_SSL: Security.SSL,
    listeners.LISTENER_SECURITY_SASL_PLAINTEXT: Security.SASL_PLAINTEXT,
    listeners.LISTENER_SECURITY_SASL_SSL: Security.SASL_SSL,
}
CERTIFICATES: Final[Mapping[listeners.ListenerClientAuth.ValueType, Certificates]] = {
    listeners.LISTENER_CLIENT_AUTH_NONE: Certificates.NONE,
    listeners.LISTENER_CLIENT_AUTH_REQUESTED: Certificates.REQUESTED,
    listeners.LISTENER_CLIENT_AUTH_REQUIRED: Certificates.REQUIRED,
}
SECURITY_TO_PROTO: Final = {security: number for number, security in SECURITIES.items()}
CERTIFICATES_TO_PROTO: Final = {certificates: number for number, certificates in CERTIFICATES.items()}


def is_known(message: listeners.Listener) -> bool:
    """Whether this release knows what the message says. A newer one may say more."""
    is_secured = message.closed or message.security in SECURITIES
    return is_secured and message.tls_client_auth in CERTIFICATES


def listener_from_proto(message: listeners.Listener) -> DecidedListener:
    """The message is known."""
    return DecidedListener(
        message.name,
        None if message.closed else SECURITIES[message.security],
        tuple(message.sasl_mechanisms),
        CERTIFICATES[message.tls_client_auth],
        message.principal_mapping_rules,
        message.port,
        message.advertised,
    )


def listener_to_proto(listener: DecidedListener) -> listeners.Listener:
    return listeners.Listener(
        name=listener.name,
        closed=listener.security is None,
        security=listeners.LISTENER_SECURITY_UNSPECIFIED
        if listener.security is None
        else SECURITY_TO_PROTO[listener.security],
        sasl_mechanisms=listener.mechanisms,
        tls_client_auth=CERTIFICATES_TO_PROTO[listener.certificates],
        principal_mapping_rules=listener.mapping_rules,
        port=listener.port,
        advertised=listener.advertised,
    )


def policy_from_proto(message: listeners.ListenerPolicy | None) -> Policy:
    if message is None:
        return Policy()
    return Policy(tuple(map(listener_from_proto, message.listeners)), message.revision)
