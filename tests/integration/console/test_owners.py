"""Owners of topics on pages: in the list, as a filter, and set by an operator alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import grpc
import pytest

from mesh.rpc import topics, topics_grpc
from services.control.decisions.topics import looking
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled
from tests.integration.control.world import CALL, create_topic, refused


async def test_an_owner_is_set_filtered_by_and_removed(
    console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "TOPICS_KEPT_S", 0.0)
    prefix = unique_name("shop")
    apples, pears = f"{prefix}.apples", f"{prefix}.pears"
    for name in (apples, pears):
        create_topic(kafka_c1.bootstrap, name, 1)
    await console.world.set_rule({"topic_prefix": prefix}, {"target_cluster": "c1"})
    await console.grant("ada", OPERATOR)
    await console.grant("narrow", OPERATOR, topic_prefixes=[pears])
    await console.grant("vera", VIEWER)
    there, form = f"/topics/{apples}", f"/topics/{apples}/owner"
    async with console.person("ada") as ada, console.person("vera") as vera, console.person("narrow") as narrow:
        assert (await ada.sends(there, form, owner="team-x", reason="the shop")).status_code == 303
        assert "Owner team-x" in await vera.sees(there)
        page = await vera.sees(f"/topics?prefix={prefix}&owner=team-x")
        assert "1 of 1 topic" in page
        assert pears not in page
        assert "There is no such topic." in await vera.sees(f"/topics?prefix={prefix}&owner=team-y")
        page = await vera.sees(f"/history?name=topicowners/{apples}")
        assert f"topic {apples} belongs to team-x" in page
        assert "the shop" in page

        answer = await ada.sends(there, form, owner="<b>")
        assert answer.status_code == 409
        assert "is no owner: 1 to 100" in answer.text
        assert (await vera.sends(there, form, owner="vera")).status_code == 403
        key = await narrow.form(f"/topics/{pears}", f"/topics/{pears}/owner")
        assert (await narrow.client.post(form, data={**key, "owner": "narrow"})).status_code == 403
        assert "Owner team-x" in await vera.sees(there)

        assert (await ada.sends(there, form, owner="")).status_code == 303
        assert "Owner - History" in await vera.sees(there)
    service = topics_grpc.TopicServiceStub(console.world.channel)
    nothing = topics.SetTopicOwnerRequest(name=f"topics/{prefix}.none", owner="team-x")
    await refused(service.SetTopicOwner(nothing, timeout=CALL), grpc.StatusCode.NOT_FOUND, "does not exist")
    twice = topics.SetTopicOwnerRequest(name=f"topics/{pears}", owner="team-x", request_id=str(uuid.uuid4()))
    made = [(await service.SetTopicOwner(twice, timeout=CALL)).revision for _ in range(2)]
    assert made[0] == made[1] > 0
