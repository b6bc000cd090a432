"""Topic ids of the mesh: what they are, and how names are found again."""

import base64
from collections.abc import Generator
from typing import Any

import pytest

from services.gateway.requests import topic_ids
from services.gateway.requests.plan import Ask, Command
from services.gateway.requests.topic_ids import mesh_topic_id, topic_name, topic_names
from services.gateway.wire.messages import MetadataRequest, MetadataResponse
from services.gateway.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from services.gateway.wire.schema import NO_UUID
from tests.unit.gateway.requests.playbook import World

MESH = "mesh-id"


def metadata(*topics: str) -> MetadataResponse:
    partitions = [MetadataResponsePartition(partition_index=0, leader_id=1)]
    return MetadataResponse(topics=[MetadataResponseTopic(0, name, b"c" * 16, False, partitions) for name in topics])


def asked_all(plan: Generator[Command, Any, dict[bytes, str]]) -> list[str]:
    """The clusters that are asked for all their topics."""
    command = next(plan)
    assert isinstance(command, Ask)
    for call in command.calls:
        assert isinstance(call.message, MetadataRequest)
        assert (call.message.topics, call.message.allow_auto_topic_creation) == (None, False)
    return [call.cluster for call in command.calls]


def result(plan: Generator[Command, Any, dict[bytes, str]], *answers: MetadataResponse) -> dict[bytes, str]:
    try:
        plan.send(answers or None)
    except StopIteration as stop:
        found: dict[bytes, str] = stop.value
        return found
    raise AssertionError("the plan goes on asking")


def test_an_id_depends_on_mesh_and_topic_alone_and_never_changes() -> None:
    assert mesh_topic_id(MESH, "apples").hex() == "bfd47d83eca85997b47edc763cf304d4"
    assert mesh_topic_id(MESH, "apples") != mesh_topic_id(MESH, "bananas")
    assert mesh_topic_id(MESH, "apples") != mesh_topic_id("another", "apples")


def test_ids_are_distinct_and_such_as_command_lines_take() -> None:
    ids = {mesh_topic_id(MESH, f"topic-{n}") for n in range(2000)}
    assert len(ids) == 2000
    assert NO_UUID not in ids
    assert not any(base64.urlsafe_b64encode(each).startswith(b"-") for each in ids)


def test_names_are_found_among_all_that_any_cluster_has_shown_also_after_a_move() -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    assert topic_name(world.view(), mesh_topic_id(MESH, "apples")) == "apples"
    world.move("apples", "c2")
    assert topic_name(world.view(), mesh_topic_id(MESH, "apples")) == "apples"
    assert topic_name(world.view(), b"apples".ljust(16)) is None, "the id that the cluster gave"
    assert topic_name(world.view(), NO_UUID) is None


def test_known_ids_cost_no_question() -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    ids = [mesh_topic_id(MESH, "bananas"), mesh_topic_id(MESH, "apples")]
    assert result(topic_names(world.view(), ids)) == {ids[0]: "bananas", ids[1]: "apples"}
    assert result(topic_names(world.view(), [NO_UUID])) == {}


def test_a_gateway_that_knows_nothing_yet_asks_every_cluster_that_is_there() -> None:
    world = World({"c1": ["apples*"], "c2": ["bananas*"], "c3": []})
    world.clusters["c3"].down = "connection refused"
    ids = [mesh_topic_id(MESH, "apples-1"), b"?" * 16]
    plan = topic_names(world.view(), ids)
    assert asked_all(plan) == ["c1", "c2"]
    world.clusters["c1"].learn(metadata("apples-1"))  # as the way upstream does when an answer passes
    assert result(plan, metadata("apples-1"), metadata()) == {ids[0]: "apples-1"}


def test_for_an_id_that_nobody_knew_clusters_are_not_asked_again_at_once() -> None:
    world = World({"c1": ["apples*"]})
    strange = [b"?" * 16]
    plan = topic_names(world.view(), strange)
    asked_all(plan)
    assert result(plan, metadata()) == {}
    assert result(topic_names(world.view(), strange)) == {}
    world.now += 10
    assert asked_all(topic_names(world.view(), strange)) == ["c1"]


def test_a_topic_that_appears_meanwhile_is_found_without_asking() -> None:
    world = World({"c1": ["apples*"]})
    topic_id = mesh_topic_id(MESH, "apples-1")
    plan = topic_names(world.view(), [topic_id])
    asked_all(plan)
    result(plan, metadata())
    world.clusters["c1"].learn(metadata("apples-1"))
    assert result(topic_names(world.view(), [topic_id])) == {topic_id: "apples-1"}


def test_topics_are_looked_through_once_however_many_strange_ids_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of a cluster that has been away since this gateway started ask again and again."""
    made: list[str] = []

    def make(mesh_id: str, topic: str) -> bytes:
        made.append(topic)
        return mesh_topic_id(mesh_id, topic)

    monkeypatch.setattr(topic_ids, "mesh_topic_id", make)
    world = World({"c1": ["apples", "pears"]})
    for _ in range(3):
        for number in range(3):
            assert topic_name(world.view(), bytes([number]) * 16) is None
    assert made == ["apples", "pears"]
    world.clusters["c1"].learn(metadata("plums"))
    assert topic_name(world.view(), mesh_topic_id(MESH, "plums")) == "plums"
    assert len(made) == 5
