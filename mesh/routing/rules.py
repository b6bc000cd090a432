"""Forwarding rules: what a rule matches on, where its topics live, and the versions of a rule over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import re2

MAX_TOPIC_NAME = 249
"""Longest topic name that Kafka accepts, in characters (org.apache.kafka.common.internals.Topic)."""


class InvalidRuleError(ValueError):
    """A rule that can't be: says which field, what was wrong and what would be right."""

    def __init__(self, field_name: str, message: str) -> None:
        super().__init__(message)
        self.field_name = field_name


@dataclass(frozen=True, slots=True)
class ExactTopic:
    """Matches the topic of exactly this name."""

    topic: str

    def __post_init__(self) -> None:
        if not self.topic or len(self.topic) > MAX_TOPIC_NAME:
            raise InvalidRuleError(
                "match.topic", f"topic name must have 1 to {MAX_TOPIC_NAME} characters, got {self.topic!r}"
            )

    def matches(self, topic: str) -> bool:
        return topic == self.topic

    def __str__(self) -> str:
        return f"topic {self.topic}"


@dataclass(frozen=True, slots=True)
class TopicPrefix:
    """Matches every topic whose name begins with the prefix."""

    prefix: str

    def __post_init__(self) -> None:
        if not self.prefix or len(self.prefix) > MAX_TOPIC_NAME:
            raise InvalidRuleError(
                "match.topic_prefix",
                f"prefix must have 1 to {MAX_TOPIC_NAME} characters, got {self.prefix!r}; for all use regex '.*'",
            )

    def matches(self, topic: str) -> bool:
        return topic.startswith(self.prefix)

    def __str__(self) -> str:
        return f"prefix {self.prefix}"


@dataclass(frozen=True, slots=True)
class TopicRegex:
    """Matches every topic whose whole name matches an RE2 expression (linear time; no look-around, back-references)."""

    pattern: str

    def __post_init__(self) -> None:
        _compiled(self.pattern)

    def matches(self, topic: str) -> bool:
        return _compiled(self.pattern).fullmatch(topic) is not None

    def __str__(self) -> str:
        return f"regex {self.pattern}"


Match = ExactTopic | TopicPrefix | TopicRegex


@lru_cache(maxsize=65536)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise InvalidRuleError("match.topic_regex", f"{pattern!r} is not an RE2 expression: {reason}") from None


@dataclass(frozen=True, slots=True)
class ForwardingRule:
    """Topics that match live on the target cluster."""

    rule_id: str
    match: Match
    target_cluster: str


@dataclass(frozen=True, slots=True)
class RuleVersion:
    """A rule as it was during the revisions [from_revision, until_revision); until_revision is None while it lives."""

    rule: ForwardingRule
    rank: float
    from_revision: int
    until_revision: int | None = field(default=None)

    @property
    def alive(self) -> bool:
        return self.until_revision is None

    def counts_at(self, revision: int) -> bool:
        return self.from_revision <= revision and (self.until_revision is None or revision < self.until_revision)
