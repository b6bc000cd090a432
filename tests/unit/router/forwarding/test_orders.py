"""Orders and reports survive the way over a pipe."""

from __future__ import annotations

import pytest

from mesh.rpc import record_rules, routing
from services.router.forwarding.orders import (
    Clusters,
    GroupSync,
    Order,
    Progress,
    RemoveRule,
    Report,
    Rewind,
    RuleEnded,
    RunRule,
    Spans,
    StopRule,
    order_line,
    order_of,
    report_line,
    report_of,
)

MIRROR = record_rules.RecordRuleSpec(
    record_rule_id="apples",
    mirror=record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic_prefix="apples-"),
    start=record_rules.StartAt(earliest=True),
)
BACK = record_rules.StartAt(offsets=record_rules.PartitionOffsets(topic="apples-red", offsets={0: 7, 3: 2**40}))


@pytest.mark.parametrize(
    "order",
    [
        RunRule(MIRROR, revision=12, created=11),
        RunRule(MIRROR, 14, 11, paused=True, rewinds=(Rewind(13, BACK),), syncs=(GroupSync(14, ("pickers",)),)),
        StopRule("apples"),
        RemoveRule("apples"),
        Clusters(
            (routing.ClusterSpec(cluster_name="c1", producer_config={"sasl.password": "${env:PASSWORD}"}),), "home"
        ),
    ],
)
def test_an_order_arrives_as_it_was_given(order: Order) -> None:
    line = order_line(order)
    assert line.count(b"\n") == 1
    assert order_of(line) == order


@pytest.mark.parametrize(
    "report",
    [
        Progress(
            record_rules.RecordRuleProgress(record_rule_id="apples", problem="c2 is away\n"), {"lag_records": 3.0}
        ),
        RuleEnded("apples"),
        Spans({"sent": 7, "lost": 1}),
    ],
)
def test_a_report_arrives_as_it_was_given(report: Report) -> None:
    line = report_line(report)
    assert line.count(b"\n") == 1
    assert report_of(line) == report


def test_what_is_no_order_is_refused() -> None:
    with pytest.raises(ValueError, match="no order"):
        order_of(b'{"dance": 1}')
    with pytest.raises(ValueError, match="no report"):
        report_of(b"{}")
