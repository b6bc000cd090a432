"""Rules through the API: decided once, explained, and moved only to where topics find a place."""

from __future__ import annotations

import asyncio
import uuid

import grpc
import pytest

from mesh.rpc import admin, events, routing
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import WITHIN, World, create_topic, refused, topics_of

NOBODY = "127.0.0.1:1"


async def test_a_rule_is_set_explained_and_listed(mesh_of_two: World, kafka_c1: KafkaCluster, topic: str) -> None:
    create_topic(kafka_c1.bootstrap, topic, 3)
    await mesh_of_two.set("other", "c2", reason="because")
    changed = await mesh_of_two.set(topic, "c1")
    why = await mesh_of_two.explain(topic)
    assert (why.cluster, why.visit, why.partitions, why.revision) == ("c1", 1, 3, changed.revision)
    assert [(tried.matched, tried.reason) for tried in why.tried] == [
        (False, "the topic is not 'other'"),
        (True, f"the topic is '{topic}'"),
    ]
    listed = await mesh_of_two.rules.ListRules(admin.ListRulesRequest())
    assert [(rule.spec.target_cluster, rule.place) for rule in listed.rules] == [("c2", 1), ("c1", 2)]
    assert listed.revision == changed.revision
    newest, before, *_ = await mesh_of_two.history()
    assert (newest.position, before.reason) == (changed.revision, "because")


async def test_the_log_says_who_and_in_which_trace(mesh_of_two: World) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    request = admin.SetRuleRequest(match=routing.RuleMatch(topic="apples"), target_cluster="c1")
    metadata = (("x-mesh-actor", "ada"), ("traceparent", f"00-{trace}-00f067aa0ba902b7-01"))
    changed = await mesh_of_two.rules.SetRule(request, metadata=metadata)
    assert changed.rules[0].actor == "ada"
    newest = (await mesh_of_two.history(page_size=1))[0]
    assert (newest.actor, newest.trace_id) == ("ada", trace)


async def test_unrouted_topics_are_explained(mesh_of_two: World) -> None:
    why = await mesh_of_two.explain("nowhere")
    assert (why.cluster, why.visit) == ("", 0)
    assert "no rule matches" in why.notes[0]


async def test_what_is_no_topic_name_is_not_explained(mesh_of_two: World) -> None:
    await refused(mesh_of_two.explain("two words"), grpc.StatusCode.INVALID_ARGUMENT, "'two words' is no topic name")


async def test_the_same_request_id_gives_the_same_answer(mesh_of_two: World) -> None:
    request_id = str(uuid.uuid4())
    first = await mesh_of_two.set("apples", "c1", request_id=request_id)
    await mesh_of_two.rules.RemoveRule(admin.RemoveRuleRequest(name="rules/apples"))
    again = await mesh_of_two.set("apples", "c1", request_id=request_id)
    assert again == first
    assert not (await mesh_of_two.explain("apples")).cluster
    await refused(
        mesh_of_two.set("apples", "c2", request_id=request_id), grpc.StatusCode.INVALID_ARGUMENT, "different request"
    )


async def test_the_same_request_at_the_same_time_decides_once(mesh_of_two: World) -> None:
    request_id = str(uuid.uuid4())
    answers = await asyncio.gather(*(mesh_of_two.set("apples", "c1", request_id=request_id) for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
    assert len(await mesh_of_two.history(stream="rules")) == 1


async def test_expected_revision_and_validate_only(mesh_of_two: World) -> None:
    first = await mesh_of_two.set("apples", "c1")
    plan = await mesh_of_two.set("apples", "c2", validate_only=True)
    assert [rule.spec.target_cluster for rule in plan.rules] == ["c2"]
    assert (await mesh_of_two.explain("apples")).cluster == "c1"
    second = await mesh_of_two.set("apples", "c2", expected_revision=first.revision)
    await refused(
        mesh_of_two.set("apples", "c1", expected_revision=first.revision),
        grpc.StatusCode.ABORTED,
        f"at revision {second.revision}, not {first.revision}",
    )


async def test_a_move_needs_the_topic_on_its_target(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_c1.bootstrap, topic, 3)
    await mesh_of_two.set(topic, "c1")
    await refused(
        mesh_of_two.set(topic, "c2"),
        grpc.StatusCode.FAILED_PRECONDITION,
        f"'{topic}' has 3 partitions on 'c1' and does not exist on 'c2'",
    )
    create_topic(kafka_c2.bootstrap, topic, 2)
    await refused(
        mesh_of_two.set(topic, "c2"), grpc.StatusCode.FAILED_PRECONDITION, "3 partitions on 'c1', but 2 on 'c2'"
    )
    assert (await mesh_of_two.explain(topic)).cluster == "c1"


async def test_a_move_to_a_target_with_the_topic_is_reported(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_c1.bootstrap, topic, 2)
    create_topic(kafka_c2.bootstrap, topic, 3)
    await mesh_of_two.set(topic, "c1")
    moved = await mesh_of_two.set(topic, "c2")
    assert list(moved.moves) == [move_of(topic, "c1", "c2", 2)]
    back = await refused(mesh_of_two.set(topic, "c1"), grpc.StatusCode.FAILED_PRECONDITION, "but 2 on 'c1'")
    assert back.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_missing_topics_are_created_like_the_old_ones(
    mesh_of_two: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_c1.bootstrap, topic, 3, **{"cleanup.policy": "compact", "retention.ms": "86400000"})
    await mesh_of_two.set(topic, "c1")
    moved = await mesh_of_two.set(topic, "c2", create_missing_topics=True)
    assert list(moved.created_topics) == [topic]
    assert topics_of(kafka_c2.bootstrap)[topic] == 3
    settings = await mesh_of_two.control.connections.topic_settings(
        mesh_of_two.control.journal.view.state.effective.clusters["c2"], [topic]
    )
    assert settings[topic] == {"cleanup.policy": "compact", "retention.ms": "86400000"}


async def test_a_move_away_from_a_cluster_that_is_down_is_refused(mesh_of_two: World) -> None:
    await mesh_of_two.register("down", NOBODY, allow_unreachable=True)
    await mesh_of_two.set("apples", "down")
    await refused(mesh_of_two.set("apples", "c1"), grpc.StatusCode.UNAVAILABLE, "'down'", NOBODY, "stay as they are")
    await mesh_of_two.set("bananas", "c2")
    await mesh_of_two.set("bananas", "c1")  # what does not concern it goes on


async def test_topics_leave_a_cluster_that_is_lost_when_told_to_go_unchecked(mesh_of_two: World) -> None:
    await mesh_of_two.register("down", NOBODY, allow_unreachable=True)
    await mesh_of_two.set("apples", "down")
    await mesh_of_two.set("cherries", "down")
    moved = await mesh_of_two.set("apples", "c1", allow_unreachable=True)
    assert [rule.spec.target_cluster for rule in moved.rules] == ["c1"]
    remove = admin.RemoveRuleRequest(name="rules/cherries")
    await refused(mesh_of_two.rules.RemoveRule(remove), grpc.StatusCode.UNAVAILABLE, "set allow_unreachable")
    remove.options.allow_unreachable = True
    await mesh_of_two.rules.RemoveRule(remove)
    await mesh_of_two.clusters.RemoveCluster(admin.RemoveClusterRequest(name="clusters/down"))


async def test_a_topic_goes_to_a_cluster_that_is_down_when_told_to_go_unchecked(
    mesh_of_two: World, kafka_c1: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_c1.bootstrap, topic, 2)
    await mesh_of_two.register("down", NOBODY, allow_unreachable=True)
    await mesh_of_two.set(topic, "c1")
    await refused(mesh_of_two.set(topic, "down"), grpc.StatusCode.UNAVAILABLE, "topics that move to it")
    moved = await mesh_of_two.set(topic, "down", allow_unreachable=True)
    assert list(moved.moves) == [move_of(topic, "c1", "down", 2)]
    assert not moved.created_topics


@pytest.mark.parametrize("create", [False, True])
async def test_an_unknown_target_is_named_with_the_known_ones(mesh_of_two: World, create: bool) -> None:
    call = mesh_of_two.set("apples", "c9", create_missing_topics=create)
    await refused(call, grpc.StatusCode.FAILED_PRECONDITION, "'c9' is not registered (known: c1, c2)")


async def test_replace_makes_it_the_whole_set_in_one_step(mesh_of_two: World) -> None:
    await mesh_of_two.set("apples", "c1")
    await mesh_of_two.set("pears", "c1")
    wanted = [
        routing.RuleSpec(match=routing.RuleMatch(topic_prefix="bananas"), target_cluster="c2"),
        routing.RuleSpec(match=routing.RuleMatch(topic="apples"), target_cluster="c1"),
    ]
    changed = await mesh_of_two.rules.ReplaceRules(admin.ReplaceRulesRequest(rules=wanted))
    assert list(changed.removed) == ["rules/pears"]
    listed = await mesh_of_two.rules.ListRules(admin.ListRulesRequest())
    assert [rule.name for rule in listed.rules] == ["rules/bananas-prefix", "rules/apples"]
    newest = next(event for event in await mesh_of_two.history() if event.WhichOneof("payload") == "rule_set_changed")
    assert newest.position == changed.revision


async def test_pages_of_the_log(mesh_of_two: World) -> None:
    await mesh_of_two.set("apples", "c1")
    first = await mesh_of_two.decisions.ListEvents(admin.ListEventsRequest(page_size=2))
    rest = await mesh_of_two.decisions.ListEvents(
        admin.ListEventsRequest(page_size=2, page_token=first.next_page_token)
    )
    assert [event.position for event in (*first.events, *rest.events)] == [3, 2, 1]


async def test_watching_the_log_from_the_past_into_the_present(mesh_of_two: World) -> None:
    watch = mesh_of_two.decisions.WatchEvents(admin.WatchEventsRequest(from_position=2))
    assert (await next_event(watch)).position == 2
    await mesh_of_two.set("apples", "c1")
    assert (await next_event(watch)).WhichOneof("payload") == "rule_set_changed"
    watch.cancel()


def move_of(topic: str, source: str, target: str, partitions: int) -> admin.TopicMove:
    return admin.TopicMove(
        topic=topic,
        from_cluster=source,
        to_cluster=target,
        partitions=partitions,
        from_topic=topic,
        to_topic=topic,
    )


async def next_event(watch: grpc.aio.UnaryStreamCall[admin.WatchEventsRequest, events.Event]) -> events.Event:
    event = await asyncio.wait_for(watch.read(), WITHIN)
    assert isinstance(event, events.Event)
    return event
