"""Record rules to protobuf and back, as snapshots carry them. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC

from mesh.record_rules import GroupSync, RecordRule, RecordRules, Rewind
from mesh.rpc import snapshots


def rules_to_proto(rules: RecordRules) -> Iterator[snapshots.FoldedRecordRule]:
    for rule in rules.values():
        message = snapshots.FoldedRecordRule(
            spec=rule.spec,
            created=rule.created,
            revision=rule.revision,
            actor=rule.actor,
            paused=rule.paused,
            rewinds=(snapshots.RecordRewind(revision=each.revision, start=each.start) for each in rule.rewinds),
            group_syncs=(
                snapshots.RecordGroupSync(revision=each.revision, groups=sorted(each.groups))
                for each in rule.group_syncs
            ),
        )
        message.time.FromDatetime(rule.time)
        yield message


def rules_from_proto(messages: Iterable[snapshots.FoldedRecordRule]) -> RecordRules:
    """The rules, equal to the rules that were written."""
    return {message.spec.record_rule_id: _rule(message) for message in messages}


def _rule(message: snapshots.FoldedRecordRule) -> RecordRule:
    return RecordRule(
        message.spec,
        message.created,
        message.revision,
        message.actor,
        message.time.ToDatetime(UTC),
        message.paused,
        tuple(Rewind(each.revision, each.start) for each in message.rewinds),
        tuple(GroupSync(each.revision, frozenset(each.groups)) for each in message.group_syncs),
    )
