"""What a dry run finds: topics without a place, settings that differ, groups and transactions that are split."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.routing import ClientIdentity, Place, RoutingTable, Subject
from services.control.domain.dry_runs.findings import (
    Finding,
    FindingKind,
    Severity,
    of_groups,
    of_offset_keepers,
    of_places,
    of_settings,
    of_shadows,
    of_transactions,
    of_unlisted,
    worst_first,
)
from services.control.domain.members.usage import ClientUse, HomeMove, Unlisted, affected, home_moves
from services.control.domain.rules.moves import Checked, Move
from tests.unit.control.worlds import table

HERE, THERE = Place("c1", "apples"), Place("c2", "apples")
MOVE = Move("apples", HERE, THERE, 3)
BEFORE, AFTER = table("apples->c1", "pears->c1"), table("apples->c2", "pears->c1")


def kinds(findings: list[Finding]) -> list[tuple[FindingKind, Severity]]:
    return [(each.kind, each.severity) for each in findings]


def test_a_topic_that_is_absent_breaks_the_change_unless_it_is_to_be_created() -> None:
    checked = Checked(absent=(MOVE,))
    [refused] = of_places([MOVE], checked, create_missing=False)
    [created] = of_places([MOVE], checked, create_missing=True)
    assert (refused.severity, created.severity) == (Severity.BREAKS, Severity.NOTE)
    assert "3 partitions on 'c1'" in refused.text
    assert "create_missing_topics" in refused.text


def test_a_topic_that_would_live_nowhere_and_one_that_would_be_narrower() -> None:
    found = of_places([Move("apples", HERE, None, 3)], Checked(narrow=((MOVE, 1),)), create_missing=True)
    assert kinds(found) == [
        (FindingKind.TOPIC_UNROUTED, Severity.BREAKS),
        (FindingKind.FEWER_PARTITIONS, Severity.BREAKS),
    ]


def test_less_retention_and_another_compaction_are_warned_of_and_more_is_noted() -> None:
    here = {"retention.ms": "604800000", "retention.bytes": "-1", "cleanup.policy": "delete", "compression.type": "lz4"}
    less = {"retention.ms": "1000", "retention.bytes": "-1", "cleanup.policy": "compact", "compression.type": "lz4"}
    assert kinds(of_settings([MOVE], {HERE: here, THERE: less})) == [
        (FindingKind.COMPACTION_DIFFERS, Severity.WARNING),
        (FindingKind.RETENTION_DIFFERS, Severity.WARNING),
    ]
    for_ever = here | {"retention.ms": "-1"}
    assert kinds(of_settings([MOVE], {HERE: here, THERE: for_ever})) == [(FindingKind.RETENTION_DIFFERS, Severity.NOTE)]


def test_a_place_that_was_not_looked_at_is_not_judged() -> None:
    assert of_settings([MOVE], {HERE: {"retention.ms": "1"}}) == []


def test_a_group_that_would_read_two_clusters_is_named_with_its_topics() -> None:
    readers = {"c1": {"shop": ["apples", "pears"], "audit": ["pears"]}}
    [finding] = of_groups(BEFORE, AFTER, [MOVE], readers, [])
    assert (finding.subject, finding.severity) == ("shop", Severity.WARNING)
    assert "apples on c2, pears on c1" in finding.text
    assert of_groups(AFTER, AFTER, [], readers, []) == []


@pytest.mark.parametrize("given", [True, False], ids=["given", "taken away"])
def test_offsets_that_a_rule_about_shadow_topics_leaves_behind_are_named(given: bool) -> None:
    without = table("group:shop->c1", "apples->c2", "pears->c1")
    about_topics = [each for each in without.living if each.rule.match.subject is Subject.TOPIC]
    [about_group] = [each for each in without.living if each.rule.match.subject is Subject.GROUP]
    shadowing = replace(about_group, rule=replace(about_group.rule, shadow_topics=True))
    with_shadows = RoutingTable(0, without.clusters.values(), [shadowing, *about_topics])
    before, after = (without, with_shadows) if given else (with_shadows, without)
    readers = {"c2": {"shop": ["apples"], "audit": ["apples"]}, "c1": {"shop": ["pears"]}}
    [finding] = of_offset_keepers(before, after, [], readers, [])
    assert (finding.kind, finding.severity, finding.subject) == (
        FindingKind.OFFSETS_STAY_BEHIND, Severity.WARNING, "shop",
    )  # fmt: skip
    assert ("apples on c2 instead of c1" if given else "apples on c1 instead of c2") in finding.text
    assert of_offset_keepers(after, after, [], readers, []) == []


def test_what_a_member_reads_counts_before_it_has_committed() -> None:
    use = ClientUse("gw", ClientIdentity(), topics=frozenset({"apples", "pears"}), groups=frozenset({"shop"}))
    [finding] = of_groups(BEFORE, AFTER, [MOVE], {}, [use])
    assert finding.subject == "shop"


def test_a_transactional_id_whose_topics_would_be_on_other_clusters_is_named() -> None:
    use = ClientUse("gw", ClientIdentity(), topics=frozenset({"apples"}), transactional_ids=frozenset({"till"}))
    [finding] = of_transactions(BEFORE, AFTER, [use])
    assert (finding.kind, finding.severity, finding.subject) == (
        FindingKind.TRANSACTION_SPLIT, Severity.NOTE, "till",
    )  # fmt: skip
    assert "home on 'c1'; apples on c2" in finding.text
    assert of_transactions(AFTER, AFTER, [use]) == []


def test_a_rule_that_would_never_match_is_told_with_the_one_that_covers_it() -> None:
    [finding] = of_shadows(table("ap*->c1"), table("ap*->c1", "apples->c2"), accepted=False)
    assert finding.severity is Severity.BREAKS
    assert "rule 'r1' (prefix ap) comes first" in finding.text


def test_clients_that_use_what_moves_are_named_with_it() -> None:
    identity = ClientIdentity(client_id="till-1")
    uses = [
        ClientUse("gw", identity, topics=frozenset({"apples", "pears"})),
        ClientUse("gw", ClientIdentity(client_id="other"), topics=frozenset({"pears"})),
    ]
    [found] = affected(BEFORE, AFTER, uses)
    assert (found.use.identity, list(found.topics)) == (identity, ["apples"])


def test_kinds_of_clients_that_a_gateway_does_not_list_are_counted() -> None:
    [of_kinds, of_an_older_gateway] = of_unlisted([Unlisted("g1", 1000, 2345, 1400), Unlisted("g2", 1000, 0, 1)])
    assert (of_kinds.kind, of_kinds.severity, of_kinds.subject) == (FindingKind.UNKNOWN, Severity.WARNING, "g1")
    assert of_kinds.text == (
        "gateway 'g1' lists 1,000 of 2,345 kinds of clients; "
        "what the change means for its other clients (1,400 connections) is not known"
    )
    assert "gateway 'g2' lists 1,000 kinds of clients, and not all; " in of_an_older_gateway.text
    assert "(1 connection)" in of_an_older_gateway.text


def test_groups_and_ids_in_use_that_get_another_home() -> None:
    before, after = table("group:shop*->c1"), table("group:shop*->c2", "txn:till->c3")
    use = ClientUse("gw", ClientIdentity(), transactional_ids=frozenset({"till"}))
    readers = {"c1": {"shop-1": ["apples"], "audit": ["apples"]}}
    assert home_moves(before, after, readers, [use]) == [
        HomeMove("shop-1", "c1", "c2"),
        HomeMove("till", "c1", "c3", is_group=False),
    ]


def test_the_worst_comes_first() -> None:
    note = Finding(FindingKind.TOPIC_ABSENT, Severity.NOTE, "a", "")
    warning = Finding(FindingKind.SETTING_DIFFERS, Severity.WARNING, "b", "")
    breaks = Finding(FindingKind.SILENT_SKIP, Severity.BREAKS, "c", "")
    assert worst_first([note, warning, breaks]) == [breaks, warning, note]
