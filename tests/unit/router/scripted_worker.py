"""A child process that speaks as the worker of record rules does, and moves nothing: it is told when to misbehave.

A rule's topic says how: "obeys", "crashes" (as soon as it is told to run), "lingers" (never ends a rule).
"""

from __future__ import annotations

import sys

from mesh.rpc import record_rules
from services.router.forwarding.orders import (
    Clusters,
    Progress,
    RemoveRule,
    Report,
    RuleEnded,
    RunRule,
    StopRule,
    order_of,
    report_line,
)


def say(report: Report) -> None:
    sys.stdout.buffer.write(report_line(report))
    sys.stdout.buffer.flush()


def main() -> None:
    lingering: set[str] = set()
    for line in sys.stdin.buffer:
        match order_of(line):
            case RunRule() as order:
                rule_id, manner = order.spec.record_rule_id, order.spec.mirror.topic
                if manner == "crashes":
                    sys.exit(3)
                if manner == "lingers":
                    lingering.add(rule_id)
                said = record_rules.RecordRuleProgress(record_rule_id=rule_id, revision=order.revision)
                say(Progress(said, {}))
            case StopRule(rule_id) | RemoveRule(rule_id) if rule_id not in lingering:
                say(RuleEnded(rule_id))
            case StopRule() | RemoveRule() | Clusters():
                pass


if __name__ == "__main__":
    main()
