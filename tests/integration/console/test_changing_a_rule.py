"""A rule is edited, tried, confirmed, lands on each gateway, and is undone: as a person does it on the pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mesh.rpc import admin
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import OPERATOR, Consoled, Visitor, hidden_fields
from tests.integration.control.world import create_topic, router, until


async def test_a_topic_moves_and_comes_back(
    console: Consoled, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("apples")
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster.bootstrap, topic, 2)
    await console.world.set(topic, "c1")
    await console.grant("ada", OPERATOR)
    [rule] = (await console.world.rules.ListRules(admin.ListRulesRequest())).rules
    async with console.person("ada") as ada, router(console.world, "gateway-1", "gateway-2") as played:
        obeying = asyncio.create_task(played.obeys("gateway-1", "gateway-2", every_s=2.0))
        assert "Change it" in await ada.sees(f"/{rule.name}")
        tried = f"/rules/check?action=update&rule={rule.spec.rule_id}&target_cluster=c2"
        page = await ada.sees(tried)
        assert f"{topic} c1 c2 2" in page
        assert "Nothing has changed yet." in page
        assert (await console.world.explain(topic)).cluster == "c1"

        answer = await ada.sends(tried, "/rules/change", reason="bigger disks")
        assert answer.status_code == 303, answer.text
        assert (await console.world.explain(topic)).cluster == "c2"
        landed = answer.headers["location"]
        await until(lambda: has_landed(ada, landed), "both gateways run the change")
        page = await ada.sees(landed)
        assert "oidc:ada" in page
        assert "bigger disks" in page

        undo = landed.replace("?", "/undo?")
        assert f"topic {topic} -> c2 topic {topic} -> c1" in await ada.sees(undo)
        answer = await ada.sends(undo, undo.partition("?")[0], accept_skip="1")
        assert answer.status_code == 303, answer.text
        assert (await console.world.explain(topic)).cluster == "c1"
        obeying.cancel()


async def test_a_rule_is_made_and_removed(console: Consoled, unique_name: Callable[[str], str]) -> None:
    topic = unique_name("pears")
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        tried = f"/rules/check?action=create&kind=topic&name={topic}&target_cluster=c2"
        assert (await ada.sends(tried, "/rules/change")).status_code == 303
        assert (await console.world.explain(topic)).cluster == "c2"
        [rule] = (await console.world.rules.ListRules(admin.ListRulesRequest())).rules
        gone = f"/rules/check?action=remove&rule={rule.spec.rule_id}"
        assert (await ada.sends(gone, "/rules/change")).status_code == 303
        assert (await console.world.explain(topic)).cluster == ""


async def test_somebody_elses_change_in_between_is_not_overwritten(
    console: Consoled, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("pears")
    await console.world.set(topic, "c1")
    await console.grant("ada", OPERATOR)
    [rule] = (await console.world.rules.ListRules(admin.ListRulesRequest())).rules
    async with console.person("ada") as ada:
        tried = f"/rules/check?action=update&rule={rule.spec.rule_id}&target_cluster=c2"
        form = await ada.form(tried, "/rules/change")
        await console.world.set(unique_name("others"), "c2")
        answer = await ada.client.post("/rules/change", data=form)
        assert answer.status_code == 409
        assert "Control refused this" in answer.text
    assert (await console.world.explain(topic)).cluster == "c1"


async def test_an_answer_that_does_not_come_is_an_unknown_outcome_and_can_be_asked_for(
    console: Consoled, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says neither failure nor success. To ask again makes the change once, however often it was sent."""
    topic = unique_name("pears")
    await console.grant("ada", OPERATOR)
    monkeypatch.setattr("services.console.views.rules.CHANGE_TIMEOUT_S", 2.0)
    async with console.person("ada") as ada:
        tried = f"/rules/check?action=create&kind=topic&name={topic}&target_cluster=c2"
        form = await ada.form(tried, "/rules/change")
        async with console.cable.stalled():
            answer = await ada.client.post("/rules/change", data=form)
        assert answer.status_code == 504
        assert "The outcome is unknown" in answer.text
        assert "The change may have been made" in answer.text
        again = hidden_fields(answer.text, "/rules/change")
        assert again["request_id"] == form["request_id"]
        monkeypatch.undo()
        for _ in range(2):
            assert (await ada.client.post("/rules/change", data=again)).status_code == 303
    made = [each for each in await console.world.history() if each.HasField("rule_set_changed")]
    assert len(made) == 1, "control made the change once"


async def test_a_page_without_an_answer_has_no_figures(console: Consoled, monkeypatch: pytest.MonkeyPatch) -> None:
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        async with console.cable.severed():
            page = await ada.sees("/rules", 503)
            assert "Control does not answer" in page
            form = await ada.client.post("/freeze", data={"key": await key_of(ada), "reason": "x"})
            assert form.status_code == 503, "nothing was sent, so the outcome is known"
        await until(lambda: answers(ada), "the console reaches control again")


async def has_landed(visitor: Visitor, path: str) -> bool:
    page = await visitor.sees(path)
    return all(f"{name} landed applied" in page for name in ("gateway-1", "gateway-2"))


async def answers(visitor: Visitor) -> bool:
    return (await visitor.client.get("/rules")).status_code == 200


async def key_of(visitor: Visitor) -> str:
    return hidden_fields((await visitor.client.get("/login")).text, "/logout")["key"]
