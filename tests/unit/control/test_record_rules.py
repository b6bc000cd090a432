"""What the aggregate of mirrors and content rules accepts, refuses and decides."""

from __future__ import annotations

from typing import Any

import pytest

from mesh import durations
from mesh.record_rules import RecordRules, fold_record_rules
from mesh.rpc import events, record_rules
from services.control.domain.errors import Conflict, Exists, InvalidField, NotAllowed, Unknown
from services.control.domain.records.needs import needs_of
from services.control.domain.records.rule_set import RecordRuleSet

CLUSTERS = ("c1", "c2", "c3")


def mirror(rule_id: str = "m", **fields: Any) -> record_rules.RecordRuleSpec:
    """From c1 to c2, topic apples, unless said otherwise."""
    said = {"source_cluster": "c1", "target_cluster": "c2", **fields}
    if "topic_prefix" not in said:
        said.setdefault("topic", "apples")
    return record_rules.RecordRuleSpec(record_rule_id=rule_id, mirror=record_rules.MirrorSpec(**said))


def content(rule_id: str = "c", to: str = "fruit", *, topic: str = "apples", **fields: Any) -> Any:
    """One branch from c1's apples to `to`, "TOPIC" or "CLUSTER/TOPIC"."""
    cluster, _, name = to.rpartition("/")
    branch = record_rules.ContentBranch(
        when="value.a == 1", target=record_rules.RecordTarget(cluster=cluster, topic=name)
    )
    said = {"source_cluster": "c1", "topic": topic, "branches": [branch], **fields}
    return record_rules.RecordRuleSpec(record_rule_id=rule_id, content=record_rules.ContentRuleSpec(**said))


def rules(*specs: record_rules.RecordRuleSpec) -> RecordRuleSet:
    """A mesh of c1, c2, c3 in which these were created, at positions 1, 2, ..."""
    known: RecordRules = {}
    for position, spec in enumerate(specs, 1):
        created = RecordRuleSet(known, CLUSTERS).create(spec)
        known = fold_record_rules(known, events.Event(position=position, record_rule_created=created))
    return RecordRuleSet(known, CLUSTERS)


def paused(spec: record_rules.RecordRuleSpec) -> RecordRuleSet:
    event = events.Event(position=2, record_rule_paused=events.RecordRulePaused(record_rule_id=spec.record_rule_id))
    return RecordRuleSet(fold_record_rules(rules(spec).rules, event), CLUSTERS)


def test_a_rule_begins_at_the_first_record_unless_something_else_is_said() -> None:
    assert rules().create(mirror()).rule.start.earliest
    spec = mirror()
    spec.start.latest = True
    assert rules().create(spec).rule.start.latest


def test_an_id_is_given_once() -> None:
    with pytest.raises(Exists, match="'m' exists since revision 1"):
        rules(mirror()).create(mirror(topic="pears"))


@pytest.mark.parametrize("rule_id", ["", "Upper", "with.dot", "x" * 64])
def test_ids_are_plain(rule_id: str) -> None:
    with pytest.raises(InvalidField, match="record_rule_id"):
        rules().create(mirror(rule_id))


def test_clusters_have_to_be_registered() -> None:
    with pytest.raises(InvalidField, match=r"target_cluster: cluster 'c9' is not registered \(known: c1, c2, c3\)"):
        rules().create(mirror(target_cluster="c9"))
    with pytest.raises(InvalidField, match=r"branches\[0\].target.cluster: cluster 'c9'"):
        rules().create(content(to="c9/fruit"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic_prefix": "a.", "target_topic": "all"}, "gives two topics one name"),
        ({"topic": "apples", "target_topic": "{suffix}"}, "takes {topic}"),
        ({"topic": "apples", "target_topic": "{cluster}.{topic}"}, "gives two topics one name"),
        ({"topic": "apples", "target_topic": "with space"}, "neither text of a topic name"),
        ({"topic": "no/topic"}, "is no topic name"),
        ({"topic": "__consumer_offsets"}, "kept by Kafka or by the mesh"),
        ({"topic": "mesh.events"}, "kept by Kafka or by the mesh"),
        ({"group_offsets": record_rules.GroupOffsets(group_regex="(")}, "is not an RE2 expression"),
        ({"group_offsets": record_rules.GroupOffsets(sync_interval=durations.of_ms(5))}, "5 ms is not between 100"),
        ({"transforms": [record_rules.Transform()]}, "say which"),
        ({"transforms": [record_rules.Transform(drop_header="")]}, r"transforms\[0\].drop_header: needs 1 to"),
        ({"filter": "headers.kind = 'order'"}, "mirror.filter: .*at character"),
    ],
)
def test_a_mirror_that_can_not_be_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidField, match=reason):
        rules().create(mirror(**fields))


@pytest.mark.parametrize("target", ["{source_cluster}.{topic}", "copy", ""])
def test_a_mirror_may_rename_its_topic(target: str) -> None:
    assert rules().create(mirror(target_topic=target)).rule.mirror.target_topic == target


def test_within_one_cluster_a_mirror_needs_another_name() -> None:
    with pytest.raises(NotAllowed, match="'m' would write to c1/apples, which it reads"):
        rules().create(mirror(target_cluster="c1"))
    renamed = rules().create(mirror(target_cluster="c1", target_topic="copy-of-{topic}"))
    assert renamed.rule.mirror.target_topic == "copy-of-{topic}"


@pytest.mark.parametrize(
    ("prefix", "target", "loops"),
    [("a.", "b.{suffix}", False), ("a.", "a.b.{suffix}", True), ("a.", "{suffix}", True), ("a.", "a.{topic}", True)],
)
def test_within_one_cluster_names_on_the_target_must_not_be_read_again(prefix: str, target: str, loops: bool) -> None:
    spec = mirror(target_cluster="c1", topic_prefix=prefix, target_topic=target)
    if not loops:
        assert rules().create(spec).rule.mirror == spec.mirror
        return
    with pytest.raises(NotAllowed, match="round for ever"):
        rules().create(spec)


def test_two_mirrors_may_face_each_other() -> None:
    there, back = mirror("there"), mirror("back", source_cluster="c2", target_cluster="c1")
    assert rules(there).create(back).rule.record_rule_id == "back"


def test_a_content_rule_does_not_feed_itself() -> None:
    with pytest.raises(NotAllowed, match="'c' would write to c1/apples, which it reads"):
        rules().create(content(to="apples"))


def test_a_circle_of_rules_is_refused_by_name() -> None:
    known = rules(content("first", "pears"), content("second", "c1/plums", topic="pears"))
    with pytest.raises(NotAllowed, match="for ever: third -> first -> second -> third"):
        known.create(content("third", "apples", topic="plums"))


def test_a_circle_over_dead_letters_is_one_too() -> None:
    with pytest.raises(NotAllowed, match="again -> c -> again"):
        rules(content()).create(content("again", "apples", topic="apples.dlq"))


def test_a_content_rule_needs_branches_that_say_something() -> None:
    with pytest.raises(InvalidField, match="needs 1 to 100, got 0"):
        rules().create(content(branches=[]))
    with pytest.raises(InvalidField, match=r"branches\[0\].when: is empty"):
        rules().create(content(branches=[record_rules.ContentBranch(target=record_rules.RecordTarget(topic="x"))]))


def test_an_update_keeps_kind_and_clusters() -> None:
    known = rules(mirror(), content())
    with pytest.raises(InvalidField, match="a mirror can't become a content rule"):
        known.update("m", content("m"))
    with pytest.raises(InvalidField, match=r"mirror.source_cluster: can't change from 'c1' to 'c3'"):
        known.update("m", mirror(source_cluster="c3"))
    with pytest.raises(InvalidField, match="writes to can't change from c1 to c1, c2"):
        known.update("c", content(to="c2/fruit"))
    with pytest.raises(InvalidField, match="an id can't change"):
        known.update("m", mirror("other"))


def test_an_update_that_says_the_same_changes_nothing() -> None:
    known = rules(mirror())
    assert known.update("m", mirror()) is None
    changed = known.update("m", mirror(topic="pears"))
    assert changed is not None
    assert changed.rule.mirror.topic == "pears"


def test_pausing_twice_is_pausing_once() -> None:
    assert rules(mirror()).pause("m") == events.RecordRulePaused(record_rule_id="m")
    assert rules(mirror()).resume("m") is None
    assert paused(mirror()).pause("m") is None
    assert paused(mirror()).resume("m") == events.RecordRuleResumed(record_rule_id="m")


def test_a_rewind_says_where_to() -> None:
    known = rules(mirror())
    assert known.rewind("m", record_rules.StartAt(latest=True)).start.latest
    with pytest.raises(InvalidField, match="start: say where to begin"):
        known.rewind("m", record_rules.StartAt())
    elsewhere = record_rules.StartAt(offsets=record_rules.PartitionOffsets(topic="pears", offsets={0: 5}))
    with pytest.raises(InvalidField, match="'pears' is no topic that the rule reads"):
        known.rewind("m", elsewhere)


def test_groups_are_translated_for_running_mirrors() -> None:
    assert list(rules(mirror()).sync_groups("m", ["b", "a", "b"]).groups) == ["a", "b"]
    with pytest.raises(NotAllowed, match="'c' is no mirror"):
        rules(content()).sync_groups("c", [])
    with pytest.raises(NotAllowed, match="'m' is paused"):
        paused(mirror()).sync_groups("m", [])


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(Unknown, match=r"record rule 'x' does not exist \(known: c, m\)"):
        rules(mirror(), content()).remove("x")


def test_revisions_are_compared() -> None:
    rules(mirror()).expect("m", 1)
    with pytest.raises(Conflict, match="'m' is at revision 1, not 7"):
        rules(mirror()).expect("m", 7)


def test_a_cluster_knows_who_uses_it() -> None:
    known = rules(mirror(), content(to="c3/fruit"))
    assert [known.users_of(cluster) for cluster in CLUSTERS] == [["c", "m"], ["m"], ["c"]]


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        (mirror(), ["c1/apples", "c2/"]),
        (mirror(keep_topics_in_step=False, target_topic="copy"), ["c1/apples", "c2/copy"]),
        (mirror(topic_prefix="a."), ["c1/", "c2/"]),
        (content(to="c2/fruit"), ["c1/apples", "c2/fruit", "c1/apples.dlq"]),
    ],
)
def test_what_a_rule_needs_on_its_clusters(spec: record_rules.RecordRuleSpec, needs: list[str]) -> None:
    assert [f"{need.cluster}/{need.topic}" for need in needs_of(spec)] == needs


def test_what_is_missing_is_said_with_its_place() -> None:
    [need, *_] = needs_of(mirror())
    assert need.unmet({"apples": 3}) == ""
    assert need.unmet({}) == "topic 'apples' does not exist on cluster 'c1'; create it, or name another one"
    spec = mirror()
    spec.start.offsets.CopyFrom(record_rules.PartitionOffsets(topic="apples", offsets={0: 5, 7: 1}))
    assert "has no partition 7: its partitions are 0 to 2" in needs_of(spec)[-1].unmet({"apples": 3})
