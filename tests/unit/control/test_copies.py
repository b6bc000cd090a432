"""Copies and profiles: what can be refused at once, where their topics are, and how they are told."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.routing import Place
from mesh.rpc import events, record_rules, replays
from services.control.domain.errors import InvalidField
from services.control.domain.replays.checks import checked
from services.control.domain.replays.places import ReplayPlaces, check_there, places_of
from services.control.presentation.sentences import Known, sentences
from tests.unit.control.worlds import table

Range = replays.ReplayRange
BY_KEY, ONLY = replays.REPLAY_PARTITIONING_BY_KEY, replays.REPLAY_ARCHIVE_ONLY
ROUTES = table("orders->c1", "again->c2", "returns->c1")


def copy(*topics: str, **said: Any) -> replays.ReplaySpec:
    """Of orders, to "again", unless said otherwise."""
    ranges = [Range(topic=topic) for topic in topics or ("orders",)]
    return replays.ReplaySpec(ranges=ranges, topic=replays.ReplayToTopic(**{"topic": "again", **said}))


def profile(*topics: str, **said: Any) -> replays.ReplaySpec:
    ranges = [Range(topic=topic) for topic in topics or ("orders",)]
    return replays.ReplaySpec(ranges=ranges, profile=replays.ReplayToProfile(), **said)


def places(spec: replays.ReplaySpec) -> ReplayPlaces:
    return places_of(checked(spec, "3f"), ROUTES)


def test_what_is_left_unsaid_is_in_the_log() -> None:
    said = checked(copy(topic="", cluster="c2"), "3f9a").topic
    assert (said.topic, said.group) == ("{topic}", "mesh-replay-3f9a")
    assert (said.timestamps, said.partitioning, said.archive) == (
        replays.REPLAY_TIMESTAMPS_KEEP,
        replays.REPLAY_PARTITIONING_SAME,
        replays.REPLAY_ARCHIVE_AUTO,
    )
    own = checked(copy(group="g", archive=ONLY), "3f9a").topic
    assert (own.topic, own.group, own.archive) == ("again", "g", ONLY)


def transforms(**kind: Any) -> list[record_rules.Transform]:
    return [record_rules.Transform(**kind)]


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        (copy(topic=""), "spec.topic.topic", "copies of 'orders' in which topic, or on which cluster?"),
        (copy(topic="", cluster="c1", source_cluster="c1"), "spec.topic.topic", "is required on the cluster"),
        (copy(topic="orders"), "spec.topic.topic", "'orders' is what is read, and would get its own records again"),
        (
            copy("a", "b"),
            "spec.topic.topic",
            "would get the records of 2 topics, and partitions of one number would mix",
        ),
        (copy("a", "a-b", topic="{topic}-b"), "spec.topic.topic", "'a-b' is what is read"),
        (copy(topic="old.{partition}"), "spec.topic.topic", "only {topic} is replaced in it"),
        (copy(topic="mesh.events"), "spec.topic.topic", "'mesh.events' is no topic of the mesh's clients"),
        (copy(topic="__consumer_offsets", cluster="c2"), "spec.topic.topic", "is kept by Kafka for itself"),
        (copy("__consumer_offsets"), "spec.ranges", "is kept by Kafka for itself; it can't be copied"),
        (copy("mesh.audit"), "spec.ranges[0].topic", "is no topic of the mesh's clients"),
        (copy(filter="price > 3"), "spec.topic.filter", "undeclared reference"),
        (copy(filter="'a'"), "spec.topic.filter", "it must be true or not"),
        (copy(transforms=transforms(drop_header="mesh-trace")), "spec.topic.transforms[0].drop_header", "mesh's own"),
        (copy(transforms=transforms(redact_json_field="a..b")), "spec.topic.transforms[0]", "at character 2"),
        (copy(timestamps=7), "spec.topic.timestamps", "7 is nothing that this release knows"),
        (copy(group="g" * 300), "spec.topic.group", "has at most"),
        (profile("a", "a"), "spec.ranges[1]", "stands in a range before"),
        (profile(*(f"t{number}" for number in range(21))), "spec.ranges", "21 topics are more than 20"),
        (profile(dry_run=True), "spec.dry_run", "a profile writes nothing"),
        (profile(dead_letters=True), "spec.dead_letters", "name their topic itself in the ranges"),
        (profile(filter={"keys": ["k"]}), "spec.filter", "is about dead letters"),
    ],
)
def test_what_can_not_be_is_refused_by_its_field(spec: replays.ReplaySpec, field: str, why: str) -> None:
    with pytest.raises(InvalidField) as refused:
        checked(spec, "1")
    assert refused.value.field.startswith(field)
    assert why in refused.value.description


def test_a_filter_of_dead_letters_is_none_of_a_copy() -> None:
    spec = copy()
    spec.filter.keys.append("k")
    with pytest.raises(InvalidField, match=r"what of other records is copied, topic\.filter says"):
        checked(spec, "1")
    negative = profile()
    negative.profile.sample = -1
    with pytest.raises(InvalidField, match=r"spec.profile.sample: -1 is not from 0 \(all\)"):
        checked(negative, "1")


def test_topics_are_where_the_mesh_has_them_unless_their_cluster_is_named() -> None:
    told = [(each.topic, each.cluster, each.upstream_topic) for each in places(copy()).to_proto()]
    assert told == [("orders", "c1", "orders"), ("again", "c2", "again")]
    named = places(copy(topic="", cluster="c2"))
    assert (named.sources, named.targets) == ({"orders": Place("c1", "orders")}, {"orders": Place("c2", "orders")})
    assert [each.topic for each in named.to_proto()] == ["orders"]
    both = places(copy("elsewhere", topic="", cluster="c2", source_cluster="c1"))
    assert list(both.to_proto()) == []
    assert both.clusters == {"c1", "c2"}
    assert [each.topic for each in places(profile("orders", "returns")).to_proto()] == ["orders", "returns"]


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        (copy("plums"), "spec.ranges[0].topic", "lives nowhere: no rule leads to a cluster"),
        (copy("plums"), "spec.ranges[0].topic", "set topic.source_cluster to read it from a cluster all the same"),
        (copy(topic="plums"), "spec.topic.topic", "set topic.cluster to write it on a cluster all the same"),
        (profile("orders", "plums"), "spec.ranges[1].topic", "`meshctl explain` says more"),
        (copy(cluster="c9"), "spec.topic.cluster", "cluster 'c9' is not registered (known: c1, c2, c3)"),
        (copy(source_cluster="c9"), "spec.topic.source_cluster", "cluster 'c9' is not registered"),
        (copy(topic="", cluster="c1"), "spec.topic.topic", "'orders' is 'orders' on 'c1', which is read"),
    ],
)
def test_a_topic_that_has_no_place_is_refused_with_the_way_out(spec: replays.ReplaySpec, field: str, why: str) -> None:
    with pytest.raises(InvalidField) as refused:
        places(spec)
    assert (refused.value.field, why in refused.value.description) == (field, True), refused.value


def look(spec: replays.ReplaySpec, **topics: dict[str, int]) -> None:
    check_there(checked(spec, "3f"), places(spec), topics)


def test_what_clusters_say_is_looked_at_and_silence_refuses_nothing() -> None:
    look(copy(), c1={"orders": 3}, c2={"again": 3})
    look(copy())
    with pytest.raises(
        InvalidField, match=r"spec.topic.topic: topic 'again' does not exist on cluster 'c2'; create it"
    ):
        look(copy(), c1={"orders": 3}, c2={})
    with pytest.raises(InvalidField) as narrow:
        look(copy(), c1={"orders": 3}, c2={"again": 2})
    assert str(narrow.value) == (
        "spec.topic.partitioning: topic 'again' on cluster 'c2' has no partition 2: its partitions are 0 to 1; add "
        "some, or set partitioning to BY_KEY"
    )
    look(copy(partitioning=BY_KEY), c1={"orders": 3}, c2={"again": 2})
    first = copy()
    first.ranges[0].partition = 0
    look(first, c1={"orders": 3}, c2={"again": 1})
    first.ranges[0].partition = 3
    with pytest.raises(
        InvalidField, match=r"spec.ranges\[0\].partition: topic 'orders' on cluster 'c1' has no partition"
    ):
        look(first, c1={"orders": 3}, c2={"again": 9})


def test_the_archive_may_have_what_kafka_has_not() -> None:
    look(copy(), c1={}, c2={"again": 3})
    with pytest.raises(InvalidField, match=r"spec.ranges\[0\].topic: topic 'orders' does not exist on cluster 'c1'"):
        look(copy(archive=replays.REPLAY_ARCHIVE_NEVER), c1={}, c2={"again": 3})
    with pytest.raises(InvalidField, match="'orders' does not exist"):
        look(profile(), c1={})


def test_copies_and_profiles_are_told_in_sentences() -> None:
    sampled = profile("orders", "returns", rate=50)
    sampled.profile.sample = 100
    everything = copy(
        cluster="c2", source_cluster="c1", filter="key == 'a'", transforms=transforms(drop_header="x"),
        timestamps=replays.REPLAY_TIMESTAMPS_NOW, partitioning=BY_KEY, force=True, archive=ONLY,
    )  # fmt: skip
    cases = {
        "orders from the first record copied to topic again": copy(),
        "orders from the first record copied to the topic of the same name on c2": copy(topic="", cluster="c2"),
        "orders from the first record on c1 of the archive copied to topic again on c2, only where key == 'a', with 1 "
        "change, with the times of the copies, partitions by key, whatever the retention there": everything,
        "the records of orders from the first record, returns from the first record are looked at (the last 100 of "
        "each partition) at 50 records a second": sampled,
    }
    for sentence, spec in cases.items():
        started = events.ReplayStarted(replay=replays.Replay(name="replays/3f", spec=spec))
        assert sentences(events.Event(replay_started=started), Known()) == [f"replay 3f: {sentence}"]
