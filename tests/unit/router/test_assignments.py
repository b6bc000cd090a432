"""What the worker is told, from what the log says and what the group gives this router."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from mesh.record_rules import GroupSync, RecordRule, Rewind
from mesh.routing import UpstreamCluster
from mesh.rpc import record_rules
from services.router.agents.assignments import Assignments, partition_of
from services.router.agents.rule_book import RuleBook, RulePage
from services.router.forwarding import orders
from services.router.forwarding.orders import Clusters, Order, RemoveRule, RunRule, StopRule, order_line, order_of

C1 = UpstreamCluster("c1", ("c1:9092",), 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALL = frozenset(range(16))


def rule(rule_id: str, revision: int = 5, *, paused: bool = False) -> RecordRule:
    mirror = record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic=rule_id)
    spec = record_rules.RecordRuleSpec(record_rule_id=rule_id, mirror=mirror)
    return RecordRule(spec, created=1, revision=revision, actor="ann", time=NOW, paused=paused)


def page(*rules: RecordRule, position: int = 9) -> RulePage:
    return RulePage({each.rule_id: each for each in rules}, {"c1": C1}, position)


def assigned(*rules: RecordRule) -> Assignments:
    """A router that owns everything, whose worker has been told of these rules."""
    made = Assignments()
    made.own(ALL, 16, "mesh-1")
    made.follow(page(*rules))
    list(made.orders())
    return made


def said(order: Order) -> str:
    match order:
        case RunRule():
            return f"run {order.spec.record_rule_id} at {order.revision}{' paused' if order.paused else ''}"
        case StopRule() | RemoveRule():
            return f"{type(order).__name__} {order.rule_id}"
        case Clusters():
            return f"clusters {', '.join(each.cluster_name for each in order.clusters)} of {order.mesh_id}"


def told(assignments: Assignments) -> list[str]:
    return [said(order) for order in assignments.orders()]


def test_a_router_that_owns_nothing_tells_nothing() -> None:
    made = Assignments()
    made.follow(page(rule("m")))
    assert told(made) == []


def test_the_clusters_come_first_and_everything_is_said_once() -> None:
    made = Assignments()
    made.own(ALL, 16, "mesh-1")
    made.follow(page(rule("m"), rule("n")))
    assert told(made) == ["clusters c1 of mesh-1", "run m at 5", "run n at 5"]
    assert told(made) == []


def test_a_change_is_told_and_nothing_else() -> None:
    made = assigned(rule("m"), rule("n"))
    made.follow(page(rule("m", 12, paused=True), rule("n")))
    assert told(made) == ["run m at 12 paused"]


def test_a_rule_that_is_gone_is_removed_and_one_that_is_given_up_is_stopped() -> None:
    made = assigned(rule("m"), rule("n"))
    made.follow(page(rule("m")))
    assert told(made) == ["RemoveRule n"]
    made.own(ALL - {partition_of("m", 16)}, 16, "mesh-1")
    assert told(made) == ["StopRule m"]
    assert made.ending == {"m", "n"}
    made.ended("m")
    made.ended("n")
    assert made.ending == set()


def test_another_process_is_told_everything() -> None:
    made = assigned(rule("m"))
    made.begin_anew()
    assert told(made) == ["clusters c1 of mesh-1", "run m at 5"]


def test_rules_that_share_a_router_share_no_partition_by_accident_of_their_order() -> None:
    assert partition_of("orders-to-c2", 16) == partition_of("orders-to-c2", 16)
    assert len({partition_of(f"rule-{number}", 16) for number in range(200)}) == 16


def test_what_is_to_be_done_once_travels_with_its_revision() -> None:
    offsets = record_rules.StartAt(offsets=record_rules.PartitionOffsets(topic="m", offsets={3: 7}))
    rewinds = (Rewind(6, record_rules.StartAt(earliest=True)), Rewind(7, offsets))
    made = Assignments()
    made.own(ALL, 16, "mesh-1")
    made.follow(page(replace(rule("m"), rewinds=rewinds, group_syncs=(GroupSync(8, frozenset({"b", "a"})),))))
    *_, run = made.orders()
    read = order_of(order_line(run))
    assert isinstance(read, RunRule)
    assert read == run
    assert [each.revision for each in read.rewinds] == [6, 7]
    assert read.syncs == (orders.GroupSync(8, ("a", "b")),)


def test_the_book_goes_forward_only_and_tells_of_changes_only() -> None:
    book, heard = RuleBook(), []
    book.on_change(lambda: heard.append(book.latest.position))
    first = page(rule("m"), position=5)
    book.post(first)
    book.post(replace(first, position=6))
    book.post(page(position=4))
    assert (heard, book.latest.position) == ([5], 6)
