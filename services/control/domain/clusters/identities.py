"""Decisions about the identity by which clients' requests reach a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mesh.connection_security import (
    CREDENTIAL_NAMES,
    ConnectionSecurity,
    IssuedTokenLogin,
    Protocol,
    UnservedSecurityError,
    connection_properties,
    credential_properties,
)
from mesh.routing import UpstreamCluster
from mesh.routing.codec import cluster_to_proto
from mesh.rpc import events, routing
from services.control.domain.clusters.properties import check_properties
from services.control.domain.errors import InvalidField, NotAllowed

MOST_CREDENTIALS: Final = 1_000
"""The most of one cluster: each decision about the cluster repeats them in the log, some 0.1 MB."""
LONGEST_PRINCIPAL: Final = 512
TYPES: Final = ("User:", "Group:")
TOKEN_MODES: Final = (routing.IDENTITY_MODE_PASSTHROUGH, routing.IDENTITY_MODE_EXCHANGE)
MODES: Final = (routing.IDENTITY_MODE_MESH, routing.IDENTITY_MODE_MAPPED, *TOKEN_MODES)
LONGEST_AUDIENCE: Final = 500
CheckPlaces = Callable[[str, Mapping[str, str]], None]
"""Refuses secrets at other places than the permitted ones."""


def set_identity(
    known: UpstreamCluster, wanted: routing.UpstreamIdentity, check_places: CheckPlaces
) -> events.ClusterUpdated | None:
    """The event that gives the cluster this identity; None when it has that already."""
    identity = checked(known, wanted, check_places)
    before = cluster_to_proto(known)
    after = routing.UpstreamCluster()
    after.CopyFrom(before)
    after.ClearField("identity")
    if identity is not None:
        after.identity.CopyFrom(identity)
    return None if after == before else events.ClusterUpdated(cluster=after)


def checked(
    cluster: UpstreamCluster, wanted: routing.UpstreamIdentity, check_places: CheckPlaces
) -> routing.UpstreamIdentity | None:
    """The identity as it is stored; None for the mesh's own. Refuses what gateways could not serve."""
    if wanted.mode not in MODES:
        raise InvalidField("identity.mode", "is not said: one of MESH, MAPPED, PASSTHROUGH and EXCHANGE is needed")
    if wanted.fallback not in routing.IdentityFallback.values():
        raise InvalidField("identity.fallback", f"{wanted.fallback} is not known here")
    if wanted.mode == routing.IDENTITY_MODE_MESH:
        return None
    properties = connection_properties(cluster.producer_config, cluster.consumer_config)
    protocol = properties.get("security.protocol", "").lower()
    if protocol not in {each.value for each in Protocol if each is not Protocol.PLAINTEXT}:
        raise NotAllowed(
            "CLUSTER_ASKS_NOBODY",
            f"clusters/{cluster.name}",
            f"cluster {cluster.name!r} is reached by PLAINTEXT, where clients have no identity; set its "
            "security.protocol first",
        )
    if wanted.audience and (wanted.mode != routing.IDENTITY_MODE_EXCHANGE or len(wanted.audience) > LONGEST_AUDIENCE):
        raise InvalidField(
            "identity.audience",
            f"is for exchanged tokens alone (mode EXCHANGE), of {LONGEST_AUDIENCE} characters at most",
        )
    if wanted.mode in TOKEN_MODES:
        _check_tokens(cluster.name, protocol, wanted, properties)
    elif len(wanted.credentials) > MOST_CREDENTIALS:
        raise InvalidField(
            "identity.credentials",
            f"{len(wanted.credentials)} are more than {MOST_CREDENTIALS}: use groups of tokens, or prefixes",
        )
    identity = routing.UpstreamIdentity(
        mode=wanted.mode,
        fallback=wanted.fallback or routing.IDENTITY_FALLBACK_REFUSE,
        credentials=wanted.credentials,
        audience=wanted.audience,
    )
    seen: set[tuple[str, str]] = set()
    for number, credential in enumerate(identity.credentials):
        field = f"identity.credentials[{number}]"
        who = _checked_who(credential, field)
        if who in seen:
            raise InvalidField(field, f"{who[1]!r} has a credential already, earlier in the list")
        seen.add(who)
        _check_credential(properties, dict(credential.properties), f"{field}.properties", check_places)
    return identity


def _check_tokens(name: str, protocol: str, wanted: routing.UpstreamIdentity, properties: Mapping[str, str]) -> None:
    if wanted.credentials:
        raise InvalidField("identity.credentials", "have no use where clients' own tokens decide: leave them out")
    if protocol not in {each.value for each in Protocol if each.authenticates}:
        raise NotAllowed(
            "CLUSTER_TAKES_NO_TOKENS",
            f"clusters/{name}",
            f"cluster {name!r} is reached without SASL, so it takes no tokens; set its security.protocol first",
        )
    exchanges = wanted.mode == routing.IDENTITY_MODE_EXCHANGE
    if exchanges and not isinstance(ConnectionSecurity.of(properties).login, IssuedTokenLogin):
        raise NotAllowed(
            "CLUSTER_HAS_NO_ISSUER",
            f"clusters/{name}",
            f"cluster {name!r} has no issuer that could exchange tokens: set sasl.mechanism=OAUTHBEARER, "
            "sasl.oauthbearer.method=oidc, and the issuer's address, client id and secret first",
        )


def _checked_who(credential: routing.UpstreamCredential, field: str) -> tuple[str, str]:
    kind = credential.WhichOneof("who")
    if kind is None:
        raise InvalidField(field, "says nothing of its clients: one of principal and principal_prefix is needed")
    who: str = getattr(credential, kind)
    is_prefix = kind == "principal_prefix"
    types = ("User:",) if is_prefix else TYPES
    if not who.startswith(types) or (who in types and not is_prefix) or len(who) > LONGEST_PRINCIPAL:
        said = " or ".join(f"{each}NAME" for each in types)
        raise InvalidField(f"{field}.{kind}", f"{who[:LONGEST_PRINCIPAL]!r} is not {said}")
    return kind, who


def _check_credential(
    own: Mapping[str, str], properties: dict[str, str], field: str, check_places: CheckPlaces
) -> None:
    if not properties:
        raise InvalidField(field, "is empty: say sasl.username and sasl.password, or a certificate and its key")
    for name in sorted(properties):
        if name not in CREDENTIAL_NAMES:
            raise InvalidField(
                f"{field}[{name}]", f"is no part of a credential ({', '.join(sorted(CREDENTIAL_NAMES))})"
            )
    check_properties(field, properties)
    check_places(field, properties)
    try:
        merged = ConnectionSecurity.of(credential_properties(own, properties))
    except UnservedSecurityError as error:
        raise InvalidField(f"{field}[{error.name}]", error.reason) from None
    if merged == ConnectionSecurity.of(own):
        raise InvalidField(
            field, "changes nothing of how the gateway logs in to the cluster: see the cluster's security.protocol"
        )
