"""Rules: what a rule matches on, what it decides for the names that match, and the versions of a rule over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from mesh.re2_expressions import InvalidRe2Error, compiled
from mesh.routing.clients import ClientMatch
from mesh.routing.errors import InvalidRuleError
from mesh.routing.plain_text import plain_text
from mesh.routing.templates import TOPIC, TopicTemplate

MAX_NAME = 249
"""Characters of the longest topic name that Kafka accepts (org.apache.kafka.common.internals.Topic)."""


class Subject(Enum):
    """The kind of names that a rule matches; the value is the field of RuleMatch in routing.proto."""

    TOPIC = "topic"
    """A topic: the rule says on which cluster it lives."""
    GROUP = "group"
    """A consumer, share or streams group: the rule says which cluster coordinates it."""
    TRANSACTIONAL_ID = "transactional_id"
    """A transactional producer: the rule says which cluster coordinates its transactions."""
    CLIENT_SOFTWARE = "client_software"
    """A client library as "name/version" (KIP-511), like "librdkafka/2.10.0": the rule says which nodes it is shown."""


class NodeView(Enum):
    """Which virtual nodes a client sees."""

    BY_SOFTWARE = "by software"
    """As the gateway knows the client's software."""
    SINGLE = "single"
    PER_CLUSTER = "per cluster"


@dataclass(frozen=True, slots=True)
class ExactName:
    """Matches exactly this name."""

    text: str
    subject: Subject = field(default=Subject.TOPIC, hash=False)
    client: ClientMatch | None = field(default=None, hash=False)
    """Only for these clients; None: for all."""
    suffix: ClassVar[str] = ""
    """The end of the field's name in RuleMatch, behind the subject's."""

    def __post_init__(self) -> None:
        if self.client is not None:
            _check_client(self)
        if not _has_fitting_length(self):
            subject = self.subject.value.replace("_", " ")
            raise InvalidRuleError(field_of(self), f"{subject} must have {_length(self.subject)}, got {self.text!r}")

    @property
    def head(self) -> str:
        """How every name begins that this matches."""
        return self.text

    def matches(self, name: str) -> bool:
        return name == self.text

    def __str__(self) -> str:
        return f"{self.subject.value} {self.text}{_only_for(self.client)}"


@dataclass(frozen=True, slots=True)
class NamePrefix:
    """Matches every name that begins with this."""

    text: str
    subject: Subject = field(default=Subject.TOPIC, hash=False)
    client: ClientMatch | None = field(default=None, hash=False)
    suffix: ClassVar[str] = "_prefix"

    def __post_init__(self) -> None:
        _check_client(self)
        if not _has_fitting_length(self):
            raise InvalidRuleError(
                field_of(self), f"prefix must have {_length(self.subject)}, got {self.text!r}; for all use regex '.*'"
            )

    @property
    def head(self) -> str:
        """How every name begins that this matches."""
        return self.text

    def matches(self, name: str) -> bool:
        return name.startswith(self.text)

    def __str__(self) -> str:
        return f"{_of(self.subject)}prefix {self.text}{_only_for(self.client)}"


@dataclass(frozen=True, slots=True)
class NameRegex:
    """Matches every name that matches an RE2 expression as a whole (linear time; no look-around, back-references)."""

    text: str
    subject: Subject = field(default=Subject.TOPIC, hash=False)
    client: ClientMatch | None = field(default=None, hash=False)
    suffix: ClassVar[str] = "_regex"

    def __post_init__(self) -> None:
        _check_client(self)
        try:
            compiled(self.text)
        except InvalidRe2Error as error:
            raise InvalidRuleError(field_of(self), str(error)) from None

    @property
    def head(self) -> str:
        """How every name begins that this matches, as far as the expression says so in plain text at its start."""
        return plain_text(self.text)[0]

    @property
    def core(self) -> str:
        """The longest plain text of the expression: every name has it somewhere that this matches."""
        return max(plain_text(self.text), key=len)

    def matches(self, name: str) -> bool:
        return compiled(self.text).fullmatch(name) is not None

    def __str__(self) -> str:
        return f"{_of(self.subject)}regex {self.text}{_only_for(self.client)}"


@dataclass(frozen=True, slots=True)
class UnmatchedTopics:
    """Matches every topic. It is tried after all rules of other kinds, whatever its rank: the default cluster."""

    client: ClientMatch | None = None
    text: ClassVar[str] = ""
    subject: ClassVar[Subject] = Subject.TOPIC
    suffix: ClassVar[str] = ""
    head: ClassVar[str] = ""

    def matches(self, _name: str) -> bool:
        return True

    def __str__(self) -> str:
        return f"topics that no other rule matches{_only_for(self.client)}"


Match = ExactName | NamePrefix | NameRegex | UnmatchedTopics
UNMATCHED_TOPICS = "unmatched_topics"
"""Field of RuleMatch."""


def field_of(match: Match) -> str:
    """The match's field in a rule, as error messages name it."""
    kind = UNMATCHED_TOPICS if isinstance(match, UnmatchedTopics) else f"{match.subject.value}{match.suffix}"
    return f"match.{kind}"


def _check_client(match: ExactName | NamePrefix | NameRegex) -> None:
    if match.client is not None and match.subject is Subject.CLIENT_SOFTWARE:
        raise InvalidRuleError(
            "match.client",
            f"a rule about client software ({field_of(match).removeprefix('match.')} {match.text!r}) says by that "
            "which clients it is about; leave client out",
        )


def _only_for(client: ClientMatch | None) -> str:
    return "" if client is None else f", only clients with {client}"


def _has_fitting_length(match: ExactName | NamePrefix) -> bool:
    """Kafka bounds the names of topics only; those of groups and transactional ids are texts of any length."""
    return bool(match.text) and (match.subject is not Subject.TOPIC or len(match.text) <= MAX_NAME)


def _length(subject: Subject) -> str:
    return f"1 to {MAX_NAME} characters" if subject is Subject.TOPIC else "at least 1 character"


def _of(subject: Subject) -> str:
    return "" if subject is Subject.TOPIC else f"{subject.value} "


@dataclass(frozen=True, slots=True)
class ForwardingRule:
    """Names that match are at home on the target cluster."""

    rule_id: str
    match: Match
    target_cluster: str
    """Empty only in rules about client software."""
    upstream_topic: str = ""
    """Topics: what they are called on their cluster, as a template (`templates`); empty means by the same name."""
    shadow_topics: bool = False
    """Groups: members may subscribe to topics of several clusters by the consumer protocol (KIP-848); the home cluster
    gets an empty topic for each foreign one, which the mesh makes, keeps in step and hides."""
    span_clusters: bool = False
    """Transactional ids: without effect, read from old events. All transactions may be over several clusters."""
    node_view: NodeView = NodeView.BY_SOFTWARE
    """Client software: the virtual nodes that it is shown."""
    template: TopicTemplate | None = field(init=False, compare=False, repr=False)
    """Of `upstream_topic`."""

    def __post_init__(self) -> None:
        subject = self.match.subject
        for given, name, meant in (
            (bool(self.upstream_topic), "upstream_topic", Subject.TOPIC),
            (self.shadow_topics, "shadow_topics", Subject.GROUP),
            (self.span_clusters, "span_clusters", Subject.TRANSACTIONAL_ID),
            (self.node_view is not NodeView.BY_SOFTWARE, "node_view", Subject.CLIENT_SOFTWARE),
        ):
            if given and subject is not meant:
                raise InvalidRuleError(
                    name, f"only rules about a {meant.value} have {name}; this one is about a {subject.value}"
                )
        object.__setattr__(self, "template", self._template())

    def _template(self) -> TopicTemplate | None:
        if not self.upstream_topic:
            return None
        prefix = self.match.text if isinstance(self.match, NamePrefix) else None
        pattern = self.match.text if isinstance(self.match, NameRegex) else None
        single = isinstance(self.match, ExactName)
        return TopicTemplate.of(self.upstream_topic, prefix=prefix, pattern=pattern, single=single)

    @property
    def upstream_head(self) -> str:
        """How the names begin that this rule's topics have on their cluster; the whole name where it is known."""
        if self.template is None:
            return ""
        if isinstance(self.match, ExactName):
            return self.template.upstream(self.match.text)
        text, placeholder, *_ = self.template.pieces
        return text + self.match.head if placeholder == TOPIC else text

    def upstream_name(self, topic: str) -> str:
        """The name that a matching topic has on its cluster."""
        return topic if self.template is None else self.template.upstream(topic)

    def virtual_name(self, upstream_topic: str) -> str | None:
        """A name that this rule would lead to `upstream_topic`, if there is one; whether it does, the table says."""
        if self.template is None:
            return upstream_topic
        if isinstance(self.match, ExactName):
            return self.match.text if self.template.upstream(self.match.text) == upstream_topic else None
        return self.template.virtual(upstream_topic)

    def may_lead_to(self, cluster: str, upstream_topic: str) -> bool:
        """Whether a topic that this rule matches may be the one that the cluster calls so."""
        if self.match.subject is not Subject.TOPIC or self.target_cluster != cluster:
            return False
        name = self.virtual_name(upstream_topic)
        return name is not None and self.match.matches(name)


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

    @property
    def order(self) -> tuple[bool, float]:
        """The lowest is tried first."""
        return isinstance(self.rule.match, UnmatchedTopics), self.rank

    def counts_at(self, revision: int) -> bool:
        return self.from_revision <= revision and (self.until_revision is None or revision < self.until_revision)
