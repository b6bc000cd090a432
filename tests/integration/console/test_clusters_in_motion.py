"""Drains, standbys, rehearsals and forks on pages: what control says of them, and what an operator may do there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mesh.rpc import rehearsals, rehearsals_grpc, standbys, standbys_grpc
from services.control.decisions.rehearsals import commands
from services.control.domain.rehearsals.rehearsals import rehearsals_of
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled
from tests.fixtures.readers import Readers
from tests.integration.control.world import CALL, create_topic, until


@pytest.fixture
async def topic(console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]) -> str:
    """Two partitions on c1; ada is an operator, and vera may look."""
    topic = unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 2)
    await console.world.set(topic, "c1")
    await console.grant("ada", OPERATOR)
    await console.grant("vera", VIEWER)
    return topic


async def test_a_drain_is_planned_begun_paused_resumed_and_cancelled(console: Consoled, topic: str) -> None:
    async with console.person("ada") as ada, console.person("vera") as vera:
        assert "Drain a cluster" in await ada.sees("/moves")
        plan = f"/drains/check?source_cluster=c1&target_cluster=c2&topics={topic}&budget=500"
        page = await ada.sees(plan)
        assert "From c1 To c2" in page
        assert "Producers may wait 500 ms" in page
        assert f"{topic} waiting 2" in page
        assert (await vera.client.get(plan)).status_code == 403
        assert (await ada.client.get("/drains/check?source_cluster=c1")).status_code == 409
        assert "Drains of clusters" not in await ada.sees("/moves"), "a plan begins nothing"

        answer = await ada.sends(plan, "/drains/start", reason="old disks")
        assert answer.status_code == 303, answer.text
        drain = answer.headers["location"]
        page = await vera.sees(drain)
        assert "State running" in page
        assert "old disks" in page
        assert f'href="{drain}"' in (await vera.client.get("/moves")).text

        assert (await ada.sends(drain, f"{drain}/pause", reason="lunch")).status_code == 303
        assert "State paused" in await ada.sees(drain)
        assert (await ada.sends(drain, f"{drain}/resume")).status_code == 303
        assert "State running" in await ada.sees(drain)
        assert (await vera.sends(drain, f"{drain}/cancel")).status_code == 403
        assert (await ada.sends(drain, f"{drain}/cancel", reason="not today")).status_code == 303
        page = await ada.sees(drain)
        assert "State cancelling" in page or "State cancelled" in page
        assert "Cancel the drain" not in page


async def test_a_standby_is_shown_its_fail_over_refused_while_the_cluster_answers_and_ended(
    console: Consoled, topic: str, kafka_c2: KafkaCluster
) -> None:
    create_topic(kafka_c2.bootstrap, topic, 2)
    await console.world.set(topic, "c2", accept_skip=True)
    async with console.person("ada") as ada, console.person("vera") as vera:
        assert "No cluster has a standby" in await vera.sees("/standbys")
        assert (await vera.client.get("/standbys/c2")).status_code == 404
        spec = standbys.StandbySpec(source_cluster="c2", target_cluster="c1", topics=topic)
        stub = standbys_grpc.StandbyServiceStub(console.world.channel)
        await stub.StartStandby(standbys.StartStandbyRequest(spec=spec, reason="two halls"), timeout=CALL)
        known = console.world.control.journal
        await until(lambda: bool(known.view.standbys["standbys/c2"].topics), "control has found the topics")
        assert "c2 c1 following 1" in await vera.sees("/standbys")
        page = await vera.sees("/standbys/c2")
        assert "Copies on c1" in page
        assert "two halls" in page
        assert "No copy lacks a record that a router has seen the end of." in page
        assert (await vera.client.get("/standbys/c2/fail-over")).status_code == 403
        assert (await vera.sends("/standbys/c2", "/standbys/c2/end")).status_code == 403

        page = await ada.sees("/standbys/c2/fail-over")
        assert "Nothing has changed yet." in page
        assert f"{topic} {topic} 0" in page
        refused = await ada.sends("/standbys/c2/fail-over", "/standbys/c2/fail-over", reason="a drill")
        assert (refused.status_code, "answers control" in refused.text) == (409, True), refused.text
        assert (await ada.sends("/standbys/c2", "/standbys/c2/end", reason="one hall")).status_code == 303
        assert "No cluster has a standby" in await ada.sees("/standbys")


async def test_a_rehearsal_is_shown_and_ended(console: Consoled, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LAST_COPIES_S", 0.2)
    async with console.person("ada") as ada, console.person("vera") as vera:
        assert "No cluster is rehearsed" in await vera.sees("/rehearsals")
        request = rehearsals.StartRehearsalRequest(cluster_name="c2", topics=[topic], share=2_500)
        await rehearsals_grpc.RehearsalServiceStub(console.world.channel).StartRehearsal(request, timeout=CALL)
        assert "c2 running 1 25 %" in await vera.sees("/rehearsals")
        page = await vera.sees("/rehearsals/c2")
        assert f"Share of the batches 25 % Topics {topic}" in page
        assert "no gateway has written to c2 yet" in page
        assert (await vera.sends("/rehearsals/c2", "/rehearsals/c2/end")).status_code == 403
        assert (await ada.sends("/rehearsals/c2", "/rehearsals/c2/end", reason="enough")).status_code == 303

        def is_over() -> bool:
            return not rehearsals_of(console.world.control.journal.view.state.effective)

        await until(is_over, "the rehearsal has left the log")


async def test_a_topic_is_forked_and_both_pages_show_it(
    console: Consoled, topic: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> None:
    readers = Readers(f"{topic}-readers", topic, "none", kafka_c1.bootstrap, kafka_c2.bootstrap)
    await readers.write(topic, 4)
    fork = f"{topic}-staging"
    said = {"source_topic": topic, "topic": fork, "target_cluster": "c2"}
    console.world.control.members.ever_reported = True
    async with console.person("ada") as ada, console.person("vera") as vera:
        assert "No topic is a fork." in await vera.sees(f"/forks?of={topic}")
        assert "Parts of its log" not in await vera.sees(f"/topics/{topic}")
        two = await ada.sends("/forks", "/forks/start", **said, offset="1", time="2026-11-30T10:00")
        assert (two.status_code, "leave one out" in two.text) == (409, True)
        answer = await ada.sends("/forks", "/forks/start", **said, offset="3", reason="a trial")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/topics/{fork}"), answer.text
        assert f"{fork} {topic} c2 c1 2" in await vera.sees(f"/forks?of={topic}")
        assert (
            f"Its forks Fork Of Own records on Past on Partitions Past, bytes a second Made {fork}"
            in await vera.sees(f"/topics/{topic}")
        )
        page = await vera.sees(f"/topics/{fork}")
        assert "Parts of its log" in page
        assert f"past of {topic}" in page
