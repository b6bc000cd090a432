"""Which topics a mirror takes, their names on the target, and what brings them in step."""

from __future__ import annotations

import pytest

from mesh.rpc import record_rules
from services.router.forwarding.topics import MirroredTopics, Step, TopicState, step


def topics(**fields: str) -> MirroredTopics:
    return MirroredTopics.of(record_rules.MirrorSpec(source_cluster="c1", **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("", "apples-red"),
        ("{source_cluster}.{topic}", "c1.apples-red"),
        ("fruit.{suffix}.v2", "fruit.red.v2"),
    ],
)
def test_names_follow_the_template(template: str, name: str) -> None:
    assert topics(topic_prefix="apples-", target_topic=template).target("apples-red") == name


def test_a_prefix_takes_no_topic_that_kafka_or_the_mesh_has_for_itself() -> None:
    everything = topics(topic_prefix="")
    names = ("apples", "__consumer_offsets", "mesh.events", "meshes")
    assert [name for name in names if everything.takes(name)] == ["apples", "meshes"]
    assert [name for name in names if topics(topic="apples").takes(name)] == ["apples"]


def test_an_absent_topic_is_created_but_for_what_is_its_clusters_own() -> None:
    settings = {"retention.ms": "1", "min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}
    assert step(TopicState(3, settings), None) == Step(create=TopicState(3, {"retention.ms": "1"}))


def test_only_what_differs_is_changed() -> None:
    source = TopicState(3, {"retention.ms": "1", "cleanup.policy": "compact"})
    target = TopicState(2, {"retention.ms": "2", "cleanup.policy": "compact", "segment.ms": "5"})
    assert step(source, target) == Step(partitions=3, put={"retention.ms": "1"}, drop=("segment.ms",))
    assert step(source, source) == Step()


def test_a_target_with_more_partitions_keeps_them() -> None:
    assert step(TopicState(2, {}), TopicState(3, {})) == Step()
