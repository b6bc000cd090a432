"""Questions about the past: history in words, the mesh as of a revision or a time, and what differs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer

from mesh.rpc import admin, routing
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.test_reverting import change, create, remove, set_rule
from tests.integration.control.world import CALL, WITHIN, World, create_topic, refused, router

NOBODY = "127.0.0.1:1"


async def history(world: World, **about: Any) -> list[admin.HistoryEntry]:
    response = await world.decisions.ListHistory(admin.ListHistoryRequest(**about), timeout=CALL)
    assert not response.next_page_token
    return list(response.entries)


async def as_of(world: World, revision: int) -> admin.MeshAsOf:
    return await world.decisions.GetAsOf(admin.GetAsOfRequest(revision=revision), timeout=CALL)


async def as_of_time(world: World, time: datetime) -> admin.MeshAsOf:
    request = admin.GetAsOfRequest()
    request.time.FromDatetime(time)
    return await world.decisions.GetAsOf(request, timeout=CALL)


async def diff(world: World, before: int, after: int = 0) -> admin.DiffResponse:
    request = admin.DiffRequest(from_revision=before, to_revision=after)
    return await world.decisions.Diff(request, timeout=CALL)


async def test_history_says_in_words_what_was_decided_by_whom_and_why(mesh_of_two: World) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    await change(mesh_of_two, create("apples", "c1"), create("pears", "c1"))
    request = admin.SetRuleRequest(match=routing.RuleMatch(topic="pears"), target_cluster="c2")
    request.options.reason, request.options.request_id = "nearer", "9c0f2d9e-7a0f-4b7f-a3bb-0d9d4f1f7f11"
    metadata = (("x-mesh-actor", "ada"), ("traceparent", f"00-{trace}-00f067aa0ba902b7-01"))
    moved = await mesh_of_two.rules.SetRule(request, metadata=metadata, timeout=CALL)
    place = admin.RulePlace(first=True)
    await mesh_of_two.rules.ReorderRule(admin.ReorderRuleRequest(name="rules/pears", place=place), timeout=CALL)
    entries = await history(mesh_of_two)
    assert [list(each.changes) for each in entries[:3]] == [
        ["rule pears: place 2 -> 1"],
        ["rule pears: target_cluster c1 -> c2"],
        ["rule apples added: topic apples -> c1", "rule pears added: topic pears -> c1"],
    ]
    assert [each.changes[0].split(" at ")[0] for each in entries[3:]] == [
        "cluster c2 registered",
        "cluster c1 registered",
    ]
    told = entries[1]
    assert (told.revision, told.actor, told.reason, told.trace_id) == (moved.revision, "ada", "nearer", trace)
    assert (told.request_id, told.outcome) == (request.options.request_id, "switched")
    assert told.time.ToDatetime(UTC) <= datetime.now(UTC)


async def test_history_of_a_rule_tells_only_of_it(mesh_of_two: World) -> None:
    await change(mesh_of_two, create("apples", "c1"), create("pears", "c1"))
    await mesh_of_two.set("apples", "c2")
    await change(mesh_of_two, remove("apples"), set_rule("pears", "c2"))
    await mesh_of_two.set("apples", "c1")
    assert [list(each.changes) for each in await history(mesh_of_two, name="rules/apples")] == [
        ["rule apples added: topic apples -> c1"],
        ["rule apples removed: topic apples -> c2"],
        ["rule apples: target_cluster c1 -> c2"],
        ["rule apples added: topic apples -> c1"],
    ]
    assert await history(mesh_of_two, name="rules/nobody") == []


async def test_history_of_a_cluster_tells_what_differed(mesh_of_two: World, kafka_c2: KafkaCluster) -> None:
    spec = routing.ClusterSpec(cluster_name="c2", bootstrap_servers=[kafka_c2.bootstrap], partition_count=5)
    await mesh_of_two.clusters.UpdateCluster(admin.UpdateClusterRequest(name="clusters/c2", spec=spec), timeout=CALL)
    newest, first = await history(mesh_of_two, name="clusters/c2")
    assert list(newest.changes) == ["cluster c2: partition_count 0 -> 5"]
    assert first.changes[0] == f"cluster c2 registered at {kafka_c2.bootstrap}"
    await refused(history(mesh_of_two, name="nothing"), grpc.StatusCode.INVALID_ARGUMENT, "rules/ID")


async def test_history_of_a_topic_is_where_it_lived(mesh_of_two: World) -> None:
    await mesh_of_two.set_rule({"topic_prefix": "or"}, {"target_cluster": "c1"})
    await mesh_of_two.set("pears", "c2")
    taken = admin.CreateRuleRequest(
        rule=routing.RuleSpec(
            match=routing.RuleMatch(topic="orders"), target_cluster="c2", upstream_topic="shop.{topic}"
        ),
        place=admin.RulePlace(first=True),
    )
    await mesh_of_two.rules.CreateRule(taken, timeout=CALL)
    await mesh_of_two.set_rule(
        {"topic_regex": "orders?"}, {"target_cluster": "c1"}
    )  # stands behind: no decision about it
    await mesh_of_two.rules.RemoveRule(admin.RemoveRuleRequest(name="rules/orders"), timeout=CALL)
    entries = await history(mesh_of_two, topic="orders")
    assert [(each.place, list(each.changes)) for each in entries] == [
        ("c1", ["rule orders removed: topic orders -> c2 as shop.{topic}"]),
        ("c2/shop.orders", ["rule orders added: topic orders -> c2 as shop.{topic}"]),
        ("c1", ["rule or-prefix added: topic prefix or -> c1"]),
    ]
    await refused(history(mesh_of_two, topic="two words"), grpc.StatusCode.INVALID_ARGUMENT, "no topic name")


async def test_history_tells_what_became_of_changes_that_were_held(
    database: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic, hold_ms=int(CALL * 1000)) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.register("c2", kafka_c2.bootstrap)
        await world.set("apples", "c1")
        async with router(world, "g1") as played:
            call = asyncio.create_task(world.set("apples", "c2"))
            await played.answers("g1", await world.held(), admin.MEMBER_PHASE_REFUSED, "no room")
            await refused(call, grpc.StatusCode.ABORTED, "g1")
            call = asyncio.create_task(world.set("apples", "c2"))
            revision = await world.held()
            pending = (await history(world, topic="apples"))[0]
            assert (pending.revision, pending.outcome, pending.place) == (revision, "pending", "c1")
            obeying = asyncio.create_task(played.obeys("g1"))
            await call
            obeying.cancel()
        for entries in (await history(world, topic="apples"), await history(world, name="rules/apples")):
            assert [each.outcome for each in entries] == ["switched", "aborted: g1 refused: no room", ""]
        assert [each.place for each in await history(world, topic="apples")] == ["c2", "c1", "c1"]


@pytest.mark.parametrize("about", [{}, {"name": "rules/apples"}, {"topic": "apples"}])
async def test_history_in_pages_is_the_same_history(mesh_of_two: World, about: dict[str, str]) -> None:
    for number in range(5):
        await mesh_of_two.set("apples", f"c{1 + number % 2}")
    whole = await history(mesh_of_two, **about)
    found: list[admin.HistoryEntry] = []
    request = admin.ListHistoryRequest(page_size=2, **about)
    while True:
        page = await mesh_of_two.decisions.ListHistory(request, timeout=CALL)
        assert len(page.entries) <= 2
        found += page.entries
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == whole
    assert len(whole) >= 5


async def test_the_mesh_as_of_a_revision_is_the_fold_of_its_log(mesh_of_two: World) -> None:
    await mesh_of_two.register("c3", NOBODY, allow_unreachable=True)
    await change(mesh_of_two, create("apples", "c1"), create("pears", "c2"), create("plums", "c3"))
    await change(mesh_of_two, remove("plums"), set_rule("pears", "c1"), allow_unreachable=True)
    await mesh_of_two.clusters.RemoveCluster(admin.RemoveClusterRequest(name="clusters/c3"), timeout=CALL)
    await mesh_of_two.set_rule({"group_prefix": "shop-"}, {"target_cluster": "c2"})
    journal = mesh_of_two.control.journal
    for revision in range(1, journal.view.position + 1):
        folded, found = await journal.view_at(revision), await as_of(mesh_of_two, revision)
        table = folded.state.pending or folded.state.effective  # what was held has switched since
        assert [rule.spec.rule_id for rule in found.rules] == [rule.rule_id for rule in table.rules]
        assert [rule.spec.target_cluster for rule in found.rules] == [rule.target_cluster for rule in table.rules]
        assert [rule.revision for rule in found.rules] == [version.from_revision for version in table.living]
        assert [each.spec.cluster_name for each in found.clusters] == list(table.clusters)
        assert [each.revision for each in found.clusters] == [folded.cluster_revisions[name] for name in table.clusters]
        assert found.revision == revision


async def test_the_mesh_as_of_a_time(mesh_of_two: World) -> None:
    first = await mesh_of_two.set("apples", "c1")
    between = datetime.now(UTC)
    await mesh_of_two.set("apples", "c2")
    then, now = (
        await as_of_time(mesh_of_two, between),
        await as_of_time(mesh_of_two, datetime.now(UTC) + timedelta(days=1)),
    )
    assert then.revision == first.revision
    assert then.time.ToDatetime(UTC) <= between
    assert [each.rules[0].spec.target_cluster for each in (then, now)] == ["c1", "c2"]
    early = as_of_time(mesh_of_two, between - timedelta(days=1))
    await refused(early, grpc.StatusCode.INVALID_ARGUMENT, "before all that is known", "the first decision is of")


async def test_what_is_no_moment_of_the_mesh_is_refused(mesh_of_two: World) -> None:
    await refused(as_of(mesh_of_two, 0), grpc.StatusCode.INVALID_ARGUMENT, "counted from 1")
    await refused(as_of(mesh_of_two, 99), grpc.StatusCode.INVALID_ARGUMENT, "still to come: the log ends at 2")
    nothing: Any = mesh_of_two.decisions.GetAsOf(admin.GetAsOfRequest())
    await refused(nothing, grpc.StatusCode.INVALID_ARGUMENT, "a revision or a time")
    await refused(diff(mesh_of_two, 1, 99), grpc.StatusCode.INVALID_ARGUMENT, "to_revision", "still to come")


async def test_what_differs_between_two_revisions_and_which_topics_it_moved(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_c1.bootstrap, topic, 3)
    before = await change(mesh_of_two, set_rule("apples", "c1"), set_rule(topic, "c1"), set_rule("pears", "c1"))
    await mesh_of_two.register("c3", NOBODY, allow_unreachable=True)
    after = await change(
        mesh_of_two, set_rule(topic, "c2"), remove("pears"), create("plums", "c3"), create_missing_topics=True
    )
    found = await diff(mesh_of_two, before.revision)
    rules = [(each.before.spec.target_cluster, each.after.spec.target_cluster) for each in found.rules]
    assert rules == [("c1", "c2"), ("", "c3"), ("c1", "")]
    assert [each.after.spec.cluster_name for each in found.clusters] == ["c3"]
    assert not found.clusters[0].HasField("before")
    assert [(each.topic, each.from_cluster, each.to_cluster, each.partitions) for each in found.moves] == [
        (topic, "c1", "c2", 3)
    ]
    assert list(found.unreachable) == ["c3"]
    back = await diff(mesh_of_two, after.revision, before.revision)
    assert [(each.from_cluster, each.to_cluster) for each in back.moves] == [("c2", "c1")]
    same = await diff(mesh_of_two, after.revision, after.revision)
    assert (len(same.rules), len(same.clusters), len(same.moves)) == (0, 0, 0)


async def test_moved_rules_differ_and_those_they_passed_do_not(mesh_of_two: World) -> None:
    before = await change(mesh_of_two, create("a", "c1"), create("b", "c1"), create("c", "c1"))
    place = admin.RulePlace(first=True)
    await mesh_of_two.rules.ReorderRule(admin.ReorderRuleRequest(name="rules/c", place=place), timeout=CALL)
    found = await diff(mesh_of_two, before.revision)
    assert [(each.before.name, each.before.place, each.after.place) for each in found.rules] == [("rules/c", 3, 1)]


async def test_explain_tells_leaders_and_offsets_as_they_are_now(
    mesh_of_two: World, kafka_c1: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_c1.bootstrap, topic, 2)
    await mesh_of_two.set(topic, "c1")
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap})
    for _ in range(5):
        producer.produce(topic, b"x", partition=1)
    assert producer.flush(WITHIN) == 0
    why = await mesh_of_two.explain(topic)
    assert [(each.partition, each.start, each.end) for each in why.live_partitions] == [(0, 0, 0), (1, 0, 5)]
    assert all(each.leader >= 0 for each in why.live_partitions)
    assert why.tried[0].rule.actor
    await mesh_of_two.register("down", NOBODY, allow_unreachable=True)
    await mesh_of_two.set("apples", "down")
    away = await mesh_of_two.explain("apples")
    assert (away.cluster, list(away.live_partitions)) == ("down", [])
    assert any("not known" in note for note in away.notes)
