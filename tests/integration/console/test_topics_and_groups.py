"""Topics and groups on pages: lists in pages, why and where, resets with the plan first and undo after; by role."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from services.control.decisions.topics import looking
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled, Visitor
from tests.fixtures.readers import Readers
from tests.integration.control.world import create_topic, until


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question goes to the clusters."""
    monkeypatch.setattr(looking, "TOPICS_KEPT_S", 0.0)
    monkeypatch.setattr(looking, "GROUPS_KEPT_S", 0.0)


@pytest.fixture
async def readers(
    console: Consoled, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> Readers:
    """A group that has read 3 of 10 apples on c1; bananas are on c2."""
    prefix = unique_name("shop")
    made = Readers(f"{prefix}/readers", f"{prefix}.apples", f"{prefix}.bananas", kafka_c1.bootstrap, kafka_c2.bootstrap)
    create_topic(kafka_c1.bootstrap, made.apples, 2, **{"retention.ms": "3600000"})
    create_topic(kafka_c2.bootstrap, made.bananas, 3)
    await console.world.set_rule({"topic": made.bananas}, {"target_cluster": "c2"})
    await console.world.set_rule({"topic_prefix": prefix}, {"target_cluster": "c1"}, reason="the fruit shop")
    await made.write(made.apples, 10)
    await made.commit(made.apples, 3, 0)
    return made


async def test_topics_of_all_clusters_in_one_list(console: Consoled, readers: Readers) -> None:
    prefix = readers.apples.removesuffix("apples")
    async with console.visitor() as visitor:
        page = await visitor.sees(f"/topics?prefix={prefix}&order=cluster")
        assert f"{readers.apples} c1 the same 2" in page
        assert f"{readers.bananas} c2 the same 3" in page
        assert "2 of 2 topics" in page
        row = re.search(rf"{re.escape(readers.apples)} c1 the same 2 ([\d.]+ \w+) \S+ 1 7\b", page)
        assert row is not None, "it has a size; one group is 7 records behind"
        assert row[1] != "0 bytes"
        assert readers.bananas not in await visitor.sees(f"/topics?prefix={prefix}&cluster=c1")
        assert "order: 'x' is none of name" in await visitor.sees("/topics?order=x", 409)


async def test_a_long_list_comes_in_pages(console: Consoled, readers: Readers, kafka_c1: KafkaCluster) -> None:
    prefix = readers.apples.removesuffix("apples")
    for number in range(55):
        create_topic(kafka_c1.bootstrap, f"{prefix}pears-{number:02}", 1)
    async with console.visitor() as visitor:
        first = (await visitor.client.get(f"/topics?prefix={prefix}&groups=no")).text
        assert "50 of 57 topics" in first
        more = first.partition('<p><a class="button" href="')[2].partition('"')[0].replace("&amp;", "&")
        assert "7 of 57 topics" in await visitor.sees(more)


async def test_a_topic_says_why_it_is_there_who_reads_it_and_where_it_was(console: Consoled, readers: Readers) -> None:
    async with console.visitor() as visitor:
        page = await visitor.sees(f"/topics/{readers.apples}")
        assert f"Cluster c1 Name there {readers.apples}" in page
        assert "on disk, without the copies of other replicas" in page
        assert f"{readers.group} 2 7" in page
        assert "retention.ms 3600000 the topic" in page
        assert "cleanup.policy delete the cluster" in page
        assert "the fruit shop" in page
        assert "Producers and consumers in the last hour No traffic was reported." in page, "no pipeline counts it here"
        page = await visitor.sees(f"/topics/{readers.apples}-none")
        assert "does not exist on cluster 'c1'" in page


async def test_a_group_has_members_and_positions(console: Consoled, readers: Readers) -> None:
    async with console.visitor() as visitor, readers.member("billing-1"):
        page = await visitor.sees(f"/groups?part={readers.group}")
        assert f"{readers.group} stable classic c1 1 7" in page
        page = await visitor.sees(f"/groups/{readers.group}")
        assert f"{readers.apples} 0 c1 3 10 7" in page
        assert "billing-1" in page
        assert "There is no such group." in await visitor.sees(f"/groups?part={readers.group}&state=empty")
        await visitor.sees("/groups/nobody-at-all", 404)


async def test_a_group_has_its_lag_over_time(console: Consoled, readers: Readers) -> None:
    async with console.visitor() as visitor:
        pages: list[str] = []

        async def is_sampled() -> bool:
            pages.append(await visitor.sees(f"/groups/{readers.group}"))
            return f"{readers.apples} 0 7 > " in pages[-1]

        await until(is_sampled, "control has sampled the group, whose records are older than the samples")
        assert "Partitions that are behind" in pages[-1]
        assert "Lag in the last six hours" in pages[-1]


async def test_a_group_is_reset_by_a_plan_and_the_reset_undone(console: Consoled, readers: Readers) -> None:
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        plan = f"/resets/check?group={readers.group}&topic={readers.apples}&partition=0&to=end"
        page = await ada.sees(plan)
        assert f"{readers.apples} 0 3 10 10 skips 7 offsets" in page
        assert (await readers.committed(readers.apples))[0] == 3, "a plan sets nothing"
        answer = await ada.sends(plan, "/resets/start", reason="start afresh")
        assert answer.status_code == 303, answer.text
        replay = answer.headers["location"]
        await until(lambda: says(ada, replay, "State done"), "the reset is done")
        assert (await readers.committed(readers.apples))[0] == 10

        undo = f"/resets/check?group={readers.group}&undoes={replay.rpartition('/')[2]}"
        assert undo.replace("&", "&amp;").replace("/readers", "%2Freaders") in (await ada.client.get(replay)).text
        assert f"{readers.apples} 0 10 3 10 reads 7 offsets again" in await ada.sees(undo)
        back = (await ada.sends(undo, "/resets/start")).headers["location"]
        await until(lambda: says(ada, back, "State done"), "the undo is done")
        assert (await readers.committed(readers.apples))[0] == 3


async def test_a_viewer_sees_groups_and_resets_none(console: Consoled, readers: Readers) -> None:
    await console.grant("vera", VIEWER)
    plan = f"/resets/check?group={readers.group}&topic={readers.apples}&to=end"
    async with console.person("vera") as vera:
        await vera.sees(f"/groups/{readers.group}")
        assert "needs the role operator" in await vera.sees(plan, 403)
    async with console.visitor() as visitor:
        assert "Reset its offsets" not in await visitor.sees(f"/groups/{readers.group}")
        await visitor.sees(plan, 401)


async def test_a_narrowed_viewer_sees_its_topics_and_no_others(console: Consoled, readers: Readers) -> None:
    await console.grant("vera", VIEWER, topic_prefixes=[readers.apples])
    async with console.person("vera") as vera:
        page = await vera.sees(f"/topics?prefix={readers.apples}")
        assert readers.apples in page
        for path in ("/topics", f"/topics/{readers.bananas}", "/groups", f"/groups/{readers.group}", "/moves"):
            page = await vera.sees(path, 403)
            assert "oidc:vera has viewer for topics" in page
            assert not re.search(r"\bc2\b", page)  # a name of a test may have these letters in it


async def says(visitor: Visitor, path: str, text: str) -> bool:
    return text in await visitor.sees(path)
