"""The look-ups of one table's rules and pasts, each made at its first use: most tables that a fold makes need none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

from mesh.routing.clients import ClientMatch, Conditions
from mesh.routing.index import Index, match_of
from mesh.routing.living import LivingRules, order_of, versions_of
from mesh.routing.rules import RuleVersion, Subject
from mesh.routing.topic_versions import TopicVersions
from mesh.routing.visits import Past, latest, pasts_in_order

Item = TypeVar("Item")
MOST_ASKED_IN_PARTS = 200
"""Look-ups of one table: control asks a table that it decides about little, and a gateway asks its table always."""


@dataclass(frozen=True, slots=True)
class Change(Generic[Item]):
    """The items by which two tables differ."""

    gone: Sequence[Item]
    come: Sequence[Item]


class RuleIndexes:
    """Living rules, past versions of rules, and the counted pasts of topics."""

    __slots__ = (
        "_about_some", "_asked", "_conditions", "_ended", "_indexes", "_past_index", "_pasts", "_renaming",
        "_transaction_homes", "_versions", "living", "revisions", "topics",
    )  # fmt: skip

    def __init__(self, living: LivingRules, topics: TopicVersions) -> None:
        self.living = living
        self.topics = topics
        self._asked = 0
        self._ended: tuple[RuleVersion, ...] | None = None
        self._pasts: tuple[Past, ...] | None = None
        self._versions: tuple[RuleVersion, ...] | None = None
        self._conditions: Conditions | None = None
        self._about_some: dict[ClientMatch, list[RuleVersion]] = {}
        self._indexes: dict[Subject, Index[RuleVersion]] = {}
        self._past_index: Index[Past] | None = None
        self._renaming: tuple[RuleVersion, ...] | None = None
        self._transaction_homes: frozenset[str] | None = None
        self.revisions: Counter[int] | None = None
        """How many versions and pasts begin or end at each revision, if they were counted while the table was read."""

    def take(
        self, indexes: Mapping[Subject, Index[RuleVersion]], past_index: Index[Past], revisions: Counter[int]
    ) -> None:
        """The indexes, which the first look-ups would make at once, were made while the table was read."""
        self._indexes, self._past_index, self.revisions = {**indexes}, past_index, revisions

    def carry_on(self, before: RuleIndexes, versions: Change[RuleVersion], pasts: Change[Past]) -> None:
        """Takes over the look-ups of the table before, of which these versions and pasts have gone and come."""
        for subject, index in before._indexes.items():
            gone, come = ([v for v in some if _is_for_all(v, subject)] for some in (versions.gone, versions.come))
            self._indexes[subject] = index.changed(gone, come) if gone or come else index
        self._past_index = before._past_index
        if self._past_index is not None and (pasts.gone or pasts.come):
            self._past_index = self._past_index.changed(pasts.gone, pasts.come)
        if before.revisions is not None:
            self.revisions = before.revisions.copy()
            self.revisions.subtract(revisions_of(versions.gone, pasts.gone))
            self.revisions.update(revisions_of(versions.come, pasts.come))

    @property
    def ended(self) -> tuple[RuleVersion, ...]:
        """The past versions."""
        if self._ended is None:
            self._ended = tuple(self.topics.ended)
        return self._ended

    @property
    def pasts(self) -> tuple[Past, ...]:
        """The counted pasts of topics, in their order."""
        if self._pasts is None:
            self._pasts = pasts_in_order(self.topics.pasts)
        return self._pasts

    @property
    def versions(self) -> tuple[RuleVersion, ...]:
        """Living and past versions, in their order."""
        if self._versions is None:
            self._versions = versions_of(self.living, self.ended)
        return self._versions

    @property
    def conditions(self) -> Conditions:
        """Those of all rule versions, past ones too: they count visits."""
        if self._conditions is None:
            ended = (version for version in self.ended if version.rule.match.client is not None)
            for version in sorted((*self.living.about_some, *ended), key=order_of):
                client = version.rule.match.client
                if client is not None:
                    self._about_some.setdefault(client, []).append(version)
            self._conditions = Conditions(self._about_some)
        return self._conditions

    @property
    def renaming(self) -> tuple[RuleVersion, ...]:
        """Living versions that give topics another name."""
        if self._renaming is None:
            self._renaming = tuple(sorted(self.living.renaming, key=order_of))
        return self._renaming

    @property
    def transaction_homes(self) -> frozenset[str]:
        if self._transaction_homes is None:
            self._transaction_homes = frozenset(each.rule.target_cluster for each in self.living.transactions)
        return self._transaction_homes

    def past(self, topic: str) -> Past | None:
        """The counted past of the topic, for every client."""
        if self._past_index is None:
            if self._is_asked_little():
                return latest(self.topics.pasts_matching(topic))
            self._past_index = Index(self.topics.pasts, attrgetter("match"))
        return latest(self._past_index.matching(topic))

    def matching(self, subject: Subject, name: str) -> list[RuleVersion]:
        """The versions of rules about every client that match a name."""
        if subject is Subject.TOPIC and subject not in self._indexes and self._is_asked_little():
            return [version for version in self.topics.matching(name) if version.rule.match.client is None]
        return self.index(subject).matching(name)

    def _is_asked_little(self) -> bool:
        """Whether a look-up into the parts of the versions costs less than the index of all would, so far."""
        self._asked += 1
        return self.topics.in_parts and self._asked <= MOST_ASKED_IN_PARTS

    def index(self, subject: Subject) -> Index[RuleVersion]:
        """The index of the rules about every client."""
        index = self._indexes.get(subject)
        if index is None:
            index = self._indexes[subject] = Index(
                (version for version in self.versions if _is_for_all(version, subject)), match_of
            )
        return index

    def index_for(self, holding: frozenset[ClientMatch], subject: Subject) -> Index[RuleVersion]:
        """The index of the rules that apply because these conditions hold."""
        versions = (version for each in holding for version in self._about_some[each])
        return Index((version for version in versions if version.rule.match.subject is subject), match_of)


def revisions_of(versions: Iterable[RuleVersion], pasts: Iterable[Past]) -> Iterator[int]:
    """The revisions at which these begin or end."""
    for version in versions:
        yield version.from_revision
        yield from () if version.until_revision is None else (version.until_revision,)
    yield from (past.until_revision for past in pasts)


def _is_for_all(version: RuleVersion, subject: Subject) -> bool:
    return version.rule.match.subject is subject and version.rule.match.client is None
