"""The rules of a table and their past: changed in place, so that a long log folds in the time of its events.

Theory of operation
1. A change ends the version of a rule that was alive and begins another one. Nothing else changes, and nothing is built
   anew: `versions` and `pasts` are asked for when somebody wants the table.
2. Past versions only tell where topics have lived. When a version ends, all that its match has been through is counted
   up as a `Past`, where one count holds for every name that matches:
   - every other match that may share a name with this one has all of its names (a wider prefix, `.*`, the default), and
   - none of those rules renames topics, nor is about some clients only. The past of one topic may have renames.
   Otherwise its past versions are kept as they are.
3. So the past in a table is bounded, however often rules change: one count for each match and place. Single versions
   are kept only of patterns that enclose or overlap others, rename topics, or are about some clients. Rules about
   groups, transactional ids and client software have no past.
4. A change of few rules looks into the parts of the table that it begins with (`topic_versions`). Many changes in a
   row, as in a log that is folded, have an index of all (`topic_index`).
5. Two ways to the same table give the same table: what is counted up depends on the table and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mesh.routing.codec import rule_from_proto
from mesh.routing.index import match_of
from mesh.routing.living import LivingRules
from mesh.routing.rules import ExactName, ForwardingRule, Match, RuleVersion
from mesh.routing.table import Rules
from mesh.routing.topic_index import ManyTopicChanges
from mesh.routing.topic_versions import FewTopicChanges, TopicVersions, is_about_topics
from mesh.routing.visits import Past, Stay, Visits, latest, visits_of
from mesh.rpc import events

FEW = 200
"""The most versions that end before an index of all is made: the index costs as much as a hundred look-ups and more."""


class RuleHistory:
    """Living rules, and the past as far as it is needed."""

    def __init__(self, rules: Rules) -> None:
        self._ordered = rules.living_rules
        self._touched: dict[str, RuleVersion | None] = {}
        """The changes since then: the version that now lives, for each rule that may have changed."""
        self._topics: FewTopicChanges | ManyTopicChanges = FewTopicChanges(rules.topics)
        self._number_ended = 0

    @property
    def living_rules(self) -> LivingRules:
        """The living rules in their order."""
        if self._touched:
            self._ordered, self._touched = self._ordered.changed(self._touched), {}
        return self._ordered

    @property
    def topics(self) -> TopicVersions:
        """The versions and the counted pasts of topics."""
        return self._topics.on(self.living_rules)

    def change(self, revision: int, changes: Iterable[events.RuleChange]) -> None:
        """Applies the changes in their order, all at once. ValueError, LookupError: they do not fit these rules."""
        for change in changes:
            match change.WhichOneof("kind"):
                case "created":
                    self._begin(rule_from_proto(change.created), change.rank, revision)
                case "updated":
                    rank = self._end(change.updated.rule_id, revision).rank
                    self._begin(rule_from_proto(change.updated), rank, revision)
                case "moved":
                    self._begin(self._end(change.moved, revision).rule, change.rank, revision)
                case "removed":
                    self._end(change.removed, revision)
                case unknown:
                    raise ValueError(f"revision {revision}: rule change of unknown kind {unknown!r}")

    def _begin(self, rule: ForwardingRule, rank: float, revision: int) -> None:
        version = self._touched[rule.rule_id] = RuleVersion(rule, rank, revision)
        if is_about_topics(version):
            self._topics.put(version)

    def _end(self, rule_id: str, revision: int) -> RuleVersion:
        version = self._touched[rule_id] if rule_id in self._touched else self._ordered.get(rule_id)
        if version is None:
            raise LookupError(f"revision {revision}: rule {rule_id!r} does not exist")
        self._touched[rule_id] = None
        if is_about_topics(version):
            self._end_topics(version, revision)
        return version

    def _end_topics(self, version: RuleVersion, revision: int) -> None:
        self._number_ended += 1
        if self._number_ended > FEW and isinstance(self._topics, FewTopicChanges):
            self._topics = ManyTopicChanges(self._topics.now)
        has_decided = version.from_revision < revision  # one born and ended by the same event has not
        visits = self._visits_before(revision, version) if has_decided else None
        self._topics.drop(version)
        if visits is not None:
            self._topics.count_up(_past(match_of(version), revision, visits))
        elif has_decided:
            self._topics.end(replace(version, until_revision=revision))

    def _visits_before(self, revision: int, version: RuleVersion) -> Visits | None:
        """The earlier places of the topics that match, if one answer holds for all of these topics."""
        match, topics = match_of(version), self._topics.now
        if isinstance(match, ExactName):
            versions = topics.matching(match.text)
            if any(match_of(each).client for each in versions):
                return None
            return visits_of(match.text, latest(topics.pasts_matching(match.text)), versions, revision)
        wider = topics.around(match)
        if wider is None:
            return None
        matches = {match, *wider}
        versions = [version for each in matches for version in topics.about(each)]
        if any(match_of(each).client or each.rule.upstream_topic for each in versions):
            return None
        pasts = (past for each in matches if (past := topics.past_of(each)))
        return visits_of("", latest(pasts), versions, revision)


def _past(match: Match, revision: int, visits: Visits) -> Past:
    own = match.text if isinstance(match, ExactName) else ""
    stays = (
        Stay(place.cluster, count, "" if place.upstream_topic == own else place.upstream_topic)
        for place, count in visits.items()
    )
    return Past(match, revision, tuple(stays))
