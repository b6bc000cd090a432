"""The look-ups of one table's rules and pasts, each made at its first use: most tables that a fold makes need none."""

from __future__ import annotations

from operator import attrgetter

from mesh.routing.clients import ClientMatch, Conditions
from mesh.routing.index import Index, match_of
from mesh.routing.living import LivingRules, versions_of
from mesh.routing.rules import RuleVersion, Subject
from mesh.routing.visits import Past, latest


class RuleIndexes:
    """Living rules, past versions of rules, and the counted pasts of topics."""

    __slots__ = (
        "_about_some", "_conditions", "_indexes", "_past_index", "_renaming", "_transaction_homes", "_versions",
        "ended", "living", "pasts",
    )  # fmt: skip

    def __init__(self, living: LivingRules, ended: tuple[RuleVersion, ...], pasts: tuple[Past, ...]) -> None:
        self.living = living
        self.ended = ended
        self.pasts = pasts
        self._versions: tuple[RuleVersion, ...] | None = None
        self._conditions: Conditions | None = None
        self._about_some: dict[ClientMatch, list[RuleVersion]] = {}
        self._indexes: dict[Subject, Index[RuleVersion]] = {}
        self._past_index: Index[Past] | None = None
        self._renaming: tuple[RuleVersion, ...] | None = None
        self._transaction_homes: frozenset[str] | None = None

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
            for version in self.versions:
                client = version.rule.match.client
                if client is not None:
                    self._about_some.setdefault(client, []).append(version)
            self._conditions = Conditions(self._about_some)
        return self._conditions

    @property
    def renaming(self) -> tuple[RuleVersion, ...]:
        """Living versions that give topics another name."""
        if self._renaming is None:
            self._renaming = tuple(v for v in self.living.ordered if v.rule.template is not None)
        return self._renaming

    @property
    def transaction_homes(self) -> frozenset[str]:
        if self._transaction_homes is None:
            about = (v.rule for v in self.living.ordered if v.rule.match.subject is Subject.TRANSACTIONAL_ID)
            self._transaction_homes = frozenset(rule.target_cluster for rule in about)
        return self._transaction_homes

    def past(self, topic: str) -> Past | None:
        """The counted past of the topic, for every client."""
        if self._past_index is None:
            self._past_index = Index(self.pasts, attrgetter("match"))
        return latest(self._past_index.matching(topic))

    def index(self, subject: Subject) -> Index[RuleVersion]:
        """The index of the rules about every client."""
        index = self._indexes.get(subject)
        if index is None:
            index = self._indexes[subject] = Index(
                (v for v in self.versions if v.rule.match.subject is subject and v.rule.match.client is None), match_of
            )
        return index

    def index_for(self, holding: frozenset[ClientMatch], subject: Subject) -> Index[RuleVersion]:
        """The index of the rules that apply because these conditions hold."""
        versions = (version for each in holding for version in self._about_some[each])
        return Index((version for version in versions if version.rule.match.subject is subject), match_of)
