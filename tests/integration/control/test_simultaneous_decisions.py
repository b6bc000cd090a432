"""A decision loses to another one that has changed its ground meanwhile: PostgreSQL and clusters take their time."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from mesh.rpc import access, grants, grants_grpc, topic_moves, topic_moves_grpc
from services.control.domain.view import MeshView
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, World, create_topic


async def test_of_two_moves_of_a_topic_that_start_at_once_one_starts(
    mesh_of_two: World, topic: str, kafka_c1: KafkaCluster
) -> None:
    create_topic(kafka_c1.bootstrap, topic, 1)
    await mesh_of_two.set(topic, "c1")
    moves = topic_moves_grpc.TopicMoveServiceStub(mesh_of_two.channel)
    request = topic_moves.StartTopicMoveRequest(spec=topic_moves.TopicMoveSpec(topic=topic, target_cluster="c2"))
    started = [moves.StartTopicMove(request, timeout=CALL) for _ in range(2)]
    outcomes = await asyncio.gather(*started, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, grpc.aio.AioRpcError)]
    assert len(refused) == 1, outcomes
    # FAILED_PRECONDITION: on a busy machine the first one has started before the other is read
    assert refused[0].code() in (grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION)
    assert len(mesh_of_two.control.journal.view.topic_moves.open) == 1


async def test_a_revert_loses_to_a_grant_that_comes_while_it_reads_the_past(
    mesh_of_two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = grants_grpc.AccessServiceStub(mesh_of_two.channel)

    def granted(principal: str) -> grants.GrantRoleRequest:
        return grants.GrantRoleRequest(grant=grants.Grant(principal=principal, role=access.ROLE_VIEWER))

    then = (await stub.GrantRole(granted("ada"), timeout=CALL)).revision
    await stub.RevokeRole(grants.RevokeRoleRequest(principal="ada"), timeout=CALL)
    journal = mesh_of_two.control.journal
    view_at = journal.view_at

    async def overtaken(revision: int) -> MeshView:
        monkeypatch.undo()
        found = await view_at(revision)
        await stub.GrantRole(granted("bob"), timeout=CALL)
        return found

    monkeypatch.setattr(journal, "view_at", overtaken)
    revert = grants.RevertGrantsRequest(to_revision=then)
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await stub.RevertGrants(revert, timeout=CALL)
    assert refusal.value.code() is grpc.StatusCode.ABORTED
    await stub.RevertGrants(revert, timeout=CALL)
    found = await stub.ListGrants(grants.ListGrantsRequest(), timeout=CALL)
    assert [each.principal for each in found.grants] == ["ada"]
