"""Whose credential counts for a client at a cluster, and how a table carries it."""

from __future__ import annotations

import pytest

from mesh.connection_security import (
    ConnectionSecurity,
    PasswordLogin,
    credential_properties,
    file_places,
)
from mesh.routing import (
    Credential,
    IdentityFallback,
    IdentityMode,
    InvalidRuleError,
    RoutingTable,
    UpstreamCluster,
    UpstreamIdentity,
)
from mesh.routing.codec import (
    TABLE_FORMAT_OF_IDENTITIES,
    cluster_from_proto,
    cluster_to_proto,
    format_needed,
    table_from_proto,
    table_to_proto,
)
from mesh.rpc import routing

ALICE = Credential("User:alice", properties={"sasl.username": "a", "sasl.password": "${file:/s/alice}"})
BILLING = Credential("Group:billing", properties={"sasl.username": "b"})
TEAM = Credential("User:team-", prefixed=True, properties={"sasl.username": "t"})
TEAM_ANN = Credential("User:team-a", prefixed=True, properties={"sasl.username": "ta"})
MAPPED = UpstreamIdentity(IdentityMode.MAPPED, (TEAM, ALICE, BILLING, TEAM_ANN), IdentityFallback.MESH)


@pytest.mark.parametrize(
    ("principal", "groups", "expected"),
    [
        ("User:alice", ("billing",), ALICE),
        ("User:bob", ("sales", "billing"), BILLING),
        ("User:team-bob", (), TEAM),
        ("User:team-ann", (), TEAM_ANN),
        ("User:team-ann", ("billing",), BILLING),
        ("User:bob", ("sales",), None),
        ("User:alice2", (), None),
        ("Group:billing", (), BILLING),
    ],
)
def test_the_principal_counts_before_groups_and_these_before_prefixes(
    principal: str, groups: tuple[str, ...], expected: Credential | None
) -> None:
    assert MAPPED.credential_of(principal, groups) is expected


def test_a_table_carries_identities_and_needs_readers_that_know_them() -> None:
    cluster = UpstreamCluster("c1", ("a:1",), 1, identity=MAPPED)
    table = RoutingTable(3, [cluster])
    assert table_from_proto(table_to_proto(table)).clusters["c1"] == cluster
    assert format_needed(table) == TABLE_FORMAT_OF_IDENTITIES
    assert format_needed(RoutingTable(3, [UpstreamCluster("c1", ("a:1",), 1)])) == 0


def test_what_is_not_known_here_is_refused() -> None:
    message = cluster_to_proto(UpstreamCluster("c1", ("a:1",), 1, identity=MAPPED))
    message.identity.mode = 17  # type: ignore[assignment]  # of a newer release
    with pytest.raises(InvalidRuleError, match="a newer release of the mesh says it"):
        cluster_from_proto(message)
    message.identity.mode = routing.IDENTITY_MODE_PASSTHROUGH
    message.identity.fallback = 17  # type: ignore[assignment]
    with pytest.raises(InvalidRuleError, match="a newer release of the mesh says it"):
        cluster_from_proto(message)


def test_the_mode_mesh_is_no_policy() -> None:
    message = routing.UpstreamCluster(identity=routing.UpstreamIdentity(mode=routing.IDENTITY_MODE_MESH))
    assert cluster_from_proto(message).identity is None


def test_a_credential_takes_the_place_of_the_clusters_own_login() -> None:
    own = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "mesh",
        "sasl.password": "${env:MESH}",
        "ssl.ca.location": "/s/ca.pem",
        "ssl.certificate.location": "/s/mesh.pem",
        "ssl.key.location": "/s/mesh.key",
    }
    plain = {"sasl.mechanism": "PLAIN", **ALICE.properties}
    security = ConnectionSecurity.of(credential_properties(own, plain))
    assert isinstance(security.login, PasswordLogin)
    assert (security.login.mechanism.value, security.login.username) == ("PLAIN", "a")
    assert file_places(security) == ("/s/ca.pem", "/s/mesh.pem", "/s/mesh.key", "/s/alice")
    signed = ConnectionSecurity.of(
        credential_properties(own, {"ssl.certificate.pem": "PEM", "ssl.key.pem": "${file:/s/alice.key}"})
    )
    assert signed.tls is not None
    assert (signed.tls.certificate_location, signed.tls.key_location) == ("", "")
    assert file_places(signed) == ("/s/ca.pem", "/s/alice.key")
