"""As whom clients reach a cluster is a decision of control's: checked, in the table, in the history, and reversible."""

from __future__ import annotations

import grpc
import pytest

from mesh.routing.codec import TABLE_FORMAT_OF_IDENTITIES
from mesh.routing.policies import QUOTA_POLICY
from mesh.rpc import admin, discovery, routing
from tests.integration.control.world import CALL, World, refused, until

FAILED = grpc.StatusCode.FAILED_PRECONDITION
WRONG = grpc.StatusCode.INVALID_ARGUMENT
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "mesh",
    "sasl.password": "${env:KAFKA_MESH_SECRET_C1}",
}
PASSWORD = {"sasl.username": "a", "sasl.password": "${env:KAFKA_MESH_SECRET_A}"}
MAPPED, MESH = routing.IDENTITY_MODE_MAPPED, routing.IDENTITY_MODE_MESH


@pytest.fixture
async def secured(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A mesh whose cluster asks who connects; nobody is there."""
    monkeypatch.setenv("KAFKA_MESH_SECRET_C1", "one")
    await world.register("c1", "127.0.0.1:1", producer_config=SASL, allow_unreachable=True)
    return world


def mapped(principal: str = "User:alice", **properties: str) -> routing.UpstreamIdentity:
    credential = routing.UpstreamCredential(principal=principal, properties=properties or PASSWORD)
    return routing.UpstreamIdentity(mode=MAPPED, credentials=[credential])


async def put(world: World, identity: routing.UpstreamIdentity, **more: object) -> admin.Cluster:
    request = admin.SetClusterIdentityRequest(name="clusters/c1", identity=identity, **more)  # type: ignore[arg-type]
    answer: admin.Cluster = await world.clusters.SetClusterIdentity(request, timeout=CALL)
    return answer


async def test_an_identity_is_set_kept_by_other_changes_shown_and_brought_back(secured: World) -> None:
    first = await put(secured, mapped(), reason="alice is herself there")
    assert (first.revision, first.identity.fallback) == (2, routing.IDENTITY_FALLBACK_REFUSE)
    assert (await put(secured, mapped())).revision == 2
    spec = routing.ClusterSpec(partition_count=3)
    update = admin.UpdateClusterRequest(name="clusters/c1", spec=spec, allow_unreachable=True)
    update.update_mask.paths.append("partition_count")
    updated = await secured.clusters.UpdateCluster(update, timeout=CALL)
    assert (updated.revision, updated.identity) == (3, first.identity)
    cleared = await put(secured, routing.UpstreamIdentity(mode=MESH))
    assert (cleared.revision, cleared.HasField("identity")) == (4, False)
    back = admin.SetClusterIdentityRequest(name="clusters/c1", as_of_revision=2)
    assert (await secured.clusters.SetClusterIdentity(back, timeout=CALL)).identity == first.identity
    found = await secured.clusters.GetCluster(admin.GetClusterRequest(name="clusters/c1"), timeout=CALL)
    assert found.identity == first.identity
    table = secured.control.journal.view.state.effective
    assert table.clusters["c1"].identity is not None
    history = await secured.decisions.ListHistory(admin.ListHistoryRequest(name="clusters/c1"), timeout=CALL)
    told = [" ".join(entry.changes) for entry in history.entries]
    assert any("identity mesh -> mapped, credential of User:alice set" in each for each in told)
    assert any("identity mapped -> mesh, credential of User:alice removed" in each for each in told)


async def test_credentials_that_gateways_could_not_serve_are_refused(secured: World) -> None:
    await refused(put(secured, routing.UpstreamIdentity()), WRONG, "identity.mode")
    await refused(put(secured, mapped("alice")), WRONG, "'alice' is not User:NAME or Group:NAME")
    literal = mapped(**{"sasl.username": "a", "sasl.password": "wrong-horse"})
    error = await refused(put(secured, literal), WRONG, "a secret is not stored here")
    assert "wrong-horse" not in (error.details() or "")
    elsewhere = mapped(**{"sasl.username": "a", "sasl.password": "${file:/etc/shadow}"})
    await refused(put(secured, elsewhere), WRONG, "is not below")
    await refused(put(secured, mapped(acks="1")), WRONG, "is no part of a credential")
    await refused(put(secured, mapped(**{"ssl.key.pem": "${env:KAFKA_MESH_SECRET_A}"})), WRONG, "changes nothing")
    twice = mapped()
    twice.credentials.append(twice.credentials[0])
    await refused(put(secured, twice), WRONG, "has a credential already")
    tokens = mapped()
    tokens.mode = routing.IDENTITY_MODE_PASSTHROUGH
    await refused(put(secured, tokens), WRONG, "leave them out")
    await refused(put(secured, mapped(), expected_revision=9), grpc.StatusCode.ABORTED, "is at revision 1, not 9")
    assert (await put(secured, mapped(), validate_only=True)).revision == 0
    assert (await secured.status()).last_position == 1


async def test_a_cluster_that_asks_nobody_has_no_identities(world: World) -> None:
    await world.register("c1", "127.0.0.1:1", allow_unreachable=True)
    await refused(put(world, mapped()), FAILED, "reached by PLAINTEXT")


async def test_tokens_are_exchanged_where_the_cluster_has_an_issuer(secured: World) -> None:
    exchange = routing.UpstreamIdentity(mode=routing.IDENTITY_MODE_EXCHANGE, audience="c1")
    await refused(put(secured, exchange), FAILED, "has no issuer that could exchange tokens")
    await refused(put(secured, routing.UpstreamIdentity(mode=MAPPED, audience="c1")), WRONG, "exchanged tokens alone")
    names = ("token.endpoint.url", "client.id", "client.secret")
    values = ("https://127.0.0.1:1/token", "mesh", "${env:KAFKA_MESH_SECRET_C1}")
    issuer = {f"sasl.oauthbearer.{name}": value for name, value in zip(names, values, strict=True)}
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    update = admin.UpdateClusterRequest(name="clusters/c1", allow_unreachable=True)
    update.spec.producer_config.update(login | issuer)
    update.update_mask.paths.append("producer_config")
    await secured.clusters.UpdateCluster(update, timeout=CALL)
    assert (await put(secured, exchange)).identity.audience == "c1"


@pytest.mark.parametrize("kind", ["router", "gateway"])
async def test_a_member_that_passes_over_identities_prevents_them(secured: World, kind: str) -> None:
    is_router = kind == "router"
    router_reads = QUOTA_POLICY.table_format if is_router else TABLE_FORMAT_OF_IDENTITIES
    router = admin.Member(name="members/r1", kind=admin.MEMBER_KIND_ROUTER, version="0.9", table_format=router_reads)
    gateway = admin.Member(
        name="members/g1", kind=admin.MEMBER_KIND_GATEWAY, version="0.9", table_format=QUOTA_POLICY.table_format
    )
    report = secured.rollouts.Report()
    await report.write(discovery.RouterReport(router=router, members=() if is_router else [gateway]))
    await until(lambda: len(secured.control.members.all()) > (not is_router), "control hears of them")
    await refused(put(secured, mapped()), FAILED, f"{kind} '{'r1' if is_router else 'g1'}' is of release 0.9")
    assert (await put(secured, routing.UpstreamIdentity(mode=MESH))).revision == 1
    report.cancel()
