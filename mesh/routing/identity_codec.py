"""Upstream identities to protobuf and back.

A mode that is not known here would mean another identity than the operator wants, so the table is refused as a whole.
"""

from __future__ import annotations

from mesh.routing.errors import InvalidRuleError
from mesh.routing.identity import Credential, IdentityFallback, IdentityMode, UpstreamIdentity
from mesh.rpc import routing

_MODES = {
    routing.IDENTITY_MODE_MAPPED: IdentityMode.MAPPED,
    routing.IDENTITY_MODE_PASSTHROUGH: IdentityMode.PASSTHROUGH,
    routing.IDENTITY_MODE_EXCHANGE: IdentityMode.EXCHANGE,
}
_MODE_VALUES = {mode: value for value, mode in _MODES.items()}
_FALLBACKS = {
    routing.IDENTITY_FALLBACK_UNSPECIFIED: IdentityFallback.REFUSE,
    routing.IDENTITY_FALLBACK_REFUSE: IdentityFallback.REFUSE,
    routing.IDENTITY_FALLBACK_MESH: IdentityFallback.MESH,
}
_FALLBACK_VALUES = {
    IdentityFallback.REFUSE: routing.IDENTITY_FALLBACK_REFUSE,
    IdentityFallback.MESH: routing.IDENTITY_FALLBACK_MESH,
}


def identity_from_proto(message: routing.UpstreamIdentity) -> UpstreamIdentity | None:
    """None: the mesh's own, for all clients. Raises InvalidRuleError for what is not known here."""
    if message.mode == routing.IDENTITY_MODE_MESH:
        return None
    known = routing.UpstreamIdentity()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    mode, fallback = _MODES.get(message.mode), _FALLBACKS.get(message.fallback)
    if mode is None or fallback is None or known.ByteSize() != message.ByteSize():
        raise InvalidRuleError(
            "identity",
            "the identity of clients at a cluster says something that is not known here: a newer release of the mesh "
            "says it; run that one here, too",
        )
    return UpstreamIdentity(mode, tuple(map(_credential_from_proto, message.credentials)), fallback, message.audience)


def identity_to_proto(identity: UpstreamIdentity) -> routing.UpstreamIdentity:
    return routing.UpstreamIdentity(
        mode=_MODE_VALUES[identity.mode],
        credentials=map(_credential_to_proto, identity.credentials),
        fallback=_FALLBACK_VALUES[identity.fallback],
        audience=identity.audience,
    )


def _credential_from_proto(message: routing.UpstreamCredential) -> Credential:
    prefixed = message.WhichOneof("who") == "principal_prefix"
    who = message.principal_prefix if prefixed else message.principal
    return Credential(who, prefixed, dict(message.properties))


def _credential_to_proto(credential: Credential) -> routing.UpstreamCredential:
    who = {"principal_prefix" if credential.prefixed else "principal": credential.principal}
    return routing.UpstreamCredential(**who, properties=credential.properties)
