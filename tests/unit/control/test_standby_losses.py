"""The loss of a fail-over: what gateways have acknowledged, and the copy lacks; and what control hears of gateways."""

from __future__ import annotations

import pytest

from mesh.acknowledgements import merged
from mesh.routing.standby_policy import StandbyDraft
from mesh.rpc import acknowledgements, acls, admin, events, record_rules, standbys
from services.control.decisions.standbys.reports import FRESH_S, StandbyReports
from services.control.domain.standbys.acls import MOST_ACLS, changes, key_of, wanted
from services.control.domain.standbys.losses import counted

EXACT, AT_LEAST = standbys.LOSS_COUNT_EXACT, standbys.LOSS_COUNT_AT_LEAST


def copy_of(name: str) -> record_rules.CopySpec:
    return record_rules.CopySpec(source_cluster="c1", topic=name, target_cluster="c2", target_topic=name)


def topic_of(name: str, *partitions: tuple[int, int], left: bool = False) -> standbys.StandbyTopic:
    numbered = (
        standbys.StandbyPartition(partition=number, position=position, end=end)
        for number, (position, end) in enumerate(partitions)
    )
    return standbys.StandbyTopic(topic=name, copy=copy_of(name), left=left, partitions=numbered)


def log_of(since: int, *ends: int, transactional: bool = False) -> acknowledgements.AcknowledgedLog:
    partitions = (
        acknowledgements.AcknowledgedPartition(partition=number, end=end, transactional=transactional)
        for number, end in enumerate(ends)
    )
    return acknowledgements.AcknowledgedLog(topic="apples", since_revision=since, partitions=partitions)


@pytest.mark.parametrize(
    ("log", "is_silent", "lost", "count"),
    [
        (log_of(1, 50), False, 40, EXACT),
        (log_of(1, 25), False, 15, EXACT),  # a router saw records without an answer
        (log_of(1, 5), False, 0, EXACT),
        (None, False, 20, EXACT),
        (log_of(1, 25), True, 20, AT_LEAST),
        (log_of(1, 50), True, 40, AT_LEAST),
        (None, True, 20, AT_LEAST),
        (log_of(1, 50, transactional=True), False, 40, standbys.LOSS_COUNT_AT_MOST),
        (log_of(1, 50, transactional=True), True, 40, standbys.LOSS_COUNT_ABOUT),
    ],
)
def test_acknowledged_records_behind_the_copy_are_lost(
    log: acknowledgements.AcknowledgedLog | None, is_silent: bool, lost: int, count: standbys.LossCount.ValueType
) -> None:
    found = counted(topic_of("apples", (10, 30)), log, someone_is_silent=is_silent)
    [partition] = found.partitions
    assert (partition.lost_records, partition.loss_count, found.lag_records) == (lost, count, lost)
    assert partition.acknowledged_end - lost in (10, partition.acknowledged_end)


def test_the_highest_end_of_each_partition_counts_and_another_copy_begins_anew() -> None:
    both = merged(log_of(1, 5, 9), log_of(1, 7, 3, 2))
    assert [each.end for each in both.partitions] == [7, 9, 2]
    assert merged(both, log_of(4, 1)) == log_of(4, 1)
    assert merged(log_of(4, 1), both) == log_of(4, 1)


def test_a_topic_is_in_the_table_from_its_copy_until_the_rules_have_led_it_to_the_copy() -> None:
    draft = StandbyDraft(None)

    def told(position: int, **payload: object) -> list[tuple[str, int]]:
        draft.change(events.Event(position=position, **payload))  # type: ignore[arg-type]  # one of many
        policy = draft.policy
        assert policy is not None
        assert policy.revision == position
        assert StandbyDraft(policy).policy is policy
        return [(each.topic, each.since_revision) for each in policy.logs]

    def set_(*topics: standbys.StandbyTopic) -> events.StandbyTopicsSet:
        return events.StandbyTopicsSet(name="standbys/c1", topics=topics)

    assert draft.policy is None
    assert told(3, standby_topics_set=set_(topic_of("apples"), topic_of("pears", left=True))) == [("apples", 3)]
    assert told(4, standby_topics_set=set_(topic_of("apples", (1, 2)), topic_of("figs"))) == [
        ("apples", 3),
        ("figs", 4),
    ]
    assert told(5, standby_topics_set=set_(topic_of("figs", left=True))) == [("apples", 3)]
    assert told(6, standby_ended=events.StandbyEnded(name="standbys/c2")) == [("apples", 3)]
    assert told(7, fail_over_ended=events.FailOverEnded(name="standbys/c1")) == []


def test_control_knows_the_ends_of_a_copy_and_which_gateways_reach_the_cluster() -> None:
    now = [100.0]
    reports = StandbyReports(lambda: now[0])
    gateways = [admin.Member(name=f"members/g{number}", kind=admin.MEMBER_KIND_GATEWAY) for number in (1, 2)]
    away = acknowledgements.StandbyReport(unreachable=[acknowledgements.UnreachableCluster(cluster_name="c1")])
    away.unreachable[0].duration.FromSeconds(7)
    reports.report(gateways, [log_of(3, 5)], {"members/g2": away})
    reports.report([], [log_of(3, 8)], {})
    known = reports.log_of("apples", 3)
    assert known is not None
    assert [each.end for each in known.partitions] == [8]
    assert reports.log_of("apples", 9) is None
    assert reports.without("c1") == {"g1": 0.0, "g2": 7.0}
    assert reports.without("c2") == {"g1": 0.0, "g2": 0.0}
    now[0] += FRESH_S + 1
    assert reports.without("c1") == {}


def acl_of(kind: acls.AclResourceType.ValueType, name: str, user: str, *, prefixed: bool = False) -> acls.Acl:
    pattern = acls.ACL_PATTERN_TYPE_PREFIXED if prefixed else acls.ACL_PATTERN_TYPE_LITERAL
    return acls.Acl(resource_type=kind, resource_name=name, pattern_type=pattern, principal=f"User:{user}", host="*")


def test_a_standby_keeps_rights_on_exactly_its_topics_and_groups_and_takes_back_only_its_own() -> None:
    topic, group = acls.ACL_RESOURCE_TYPE_TOPIC, acls.ACL_RESOURCE_TYPE_GROUP
    known = [
        acl_of(topic, "*", "ann"),
        acl_of(topic, "app", "bob", prefixed=True),
        acl_of(topic, "app", "eve"),
        acl_of(group, "readers", "bob"),
        acl_of(group, "apples", "eve"),
        acl_of(acls.ACL_RESOURCE_TYPE_TRANSACTIONAL_ID, "apples", "eve"),
    ]
    right, problem = wanted(known, ["apples"], ["readers"])
    anns, bobs, readers = (
        acl_of(topic, "apples", "ann"),
        acl_of(topic, "apples", "bob"),
        acl_of(group, "readers", "bob"),
    )
    assert problem == ""
    assert [*right.values()] == sorted([anns, bobs, readers], key=key_of)
    strange = acl_of(topic, "apples", "their-own")
    create, delete, made = changes([], right, [bobs, strange])
    assert {key_of(each) for each in create} == {key_of(each) for each in made} == {key_of(anns), key_of(readers)}
    assert delete == []
    fewer, _ = wanted([], ["apples"], ["readers"])
    assert changes(made, fewer, [*made, bobs, strange]) == ([], made, [])


def test_a_standby_says_that_it_keeps_a_bounded_number_of_rights() -> None:
    many = [acl_of(acls.ACL_RESOURCE_TYPE_TOPIC, "*", f"user-{number}") for number in range(MOST_ACLS + 1)]
    right, problem = wanted(many, ["apples"], [])
    assert len(right) == MOST_ACLS
    assert problem == "1001 ACLs are about its topics and groups, and a standby keeps 1000"
