"""The plan of a content rule: the target topic of each record, by the record's content.

1. The first branch whose expression is true takes the record. Other records go to `otherwise`, or without it to the
   dead letters.
2. A record that can't be read, judged or changed goes to the dead letters, with the reason in headers. So does one for
   which an earlier branch can't be judged, though a later one would be true: it might have been the earlier one's.
3. A dead letter keeps key, value, headers and time as they were on the source.
4. A record's partition on its target follows from its key, so records of one key keep their order on each target.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.judging.records import Content, Headers, Record, UnjudgedError
from mesh.judging.sight import Sight, holds
from mesh.judging.transforms import Transforms
from mesh.judging.values import ValueReader
from mesh.record_expressions import Expression, UndecidedError
from mesh.record_transforms import check_transform
from mesh.rpc import record_rules
from services.router.forwarding.records import BY_KEY, Fate, Write

DEAD_LETTER_HEADERS = "mesh-dlq-"
UNMATCHED = "no branch takes it"


Place = tuple[str, str]
"""cluster_name and topic."""


def places_of(rule: record_rules.ContentRuleSpec) -> list[Place]:
    """Everywhere the rule may write to; each of them has to be there before it begins."""
    otherwise = [_place(rule, rule.otherwise)] if rule.HasField("otherwise") else []
    return [*(_place(rule, branch.target) for branch in rule.branches), *otherwise, _dead_letters(rule)]


def _place(rule: record_rules.ContentRuleSpec, target: record_rules.RecordTarget) -> Place:
    return target.cluster or rule.source_cluster, target.topic


def _dead_letters(rule: record_rules.ContentRuleSpec) -> Place:
    if rule.HasField("dead_letters"):
        return _place(rule, rule.dead_letters)
    return rule.source_cluster, f"{rule.topic}.dlq"


class Distribution:
    """Makes one write of each record."""

    def __init__(self, rule_id: str, rule: record_rules.ContentRuleSpec, read_value: ValueReader) -> None:
        """ValueError where an expression or a transform can't be."""
        self._rule_id, self._cluster = rule_id.encode(), rule.source_cluster.encode()
        self._branches = [
            (number, Expression(branch.when), _place(rule, branch.target))
            for number, branch in enumerate(rule.branches, 1)
        ]
        self._otherwise = _place(rule, rule.otherwise) if rule.HasField("otherwise") else None
        self._dead_letters = _dead_letters(rule)
        for transform in rule.transforms:
            check_transform(transform, rule.value_format)
        self._transforms = Transforms(rule.transforms) if rule.transforms else None
        self._sight = Sight([expression for _, expression, _ in self._branches], read_value)

    def __call__(self, record: Record) -> Sequence[Write]:
        """NotNowError if the reader of the value needs a service that does not answer."""
        seen = self._sight(record)
        target = self._otherwise
        for number, expression, place in self._branches:
            try:
                if holds(expression, seen):
                    target = place
                    break
            except UndecidedError as error:
                return [self._dead_letter(record, f"branch {number} can't be judged: {error}")]
        if target is None:
            return [self._dead_letter(record, UNMATCHED)]
        content = Content(record.value(), record.headers() or [])
        if self._transforms:
            try:
                content = self._transforms(content)
            except UnjudgedError as error:
                return [self._dead_letter(record, str(error))]
        time = record.timestamp()[1]
        return [Write(*target, BY_KEY, record.key(), content.value, content.headers, time)]

    def _dead_letter(self, record: Record, reason: str) -> Write:
        headers: Headers = [each for each in record.headers() or () if not each[0].startswith(DEAD_LETTER_HEADERS)]
        said = {
            "reason": reason.encode(),
            "rule": self._rule_id,
            "cluster": self._cluster,
            "topic": record.topic().encode(),
            "partition": b"%d" % record.partition(),
            "offset": b"%d" % record.offset(),
        }
        headers += [(DEAD_LETTER_HEADERS + name, value) for name, value in said.items()]
        time = record.timestamp()[1]
        return Write(*self._dead_letters, BY_KEY, record.key(), record.value(), headers, time, Fate.DEAD)
