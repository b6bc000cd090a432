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
4. Two ways to the same table give the same table: what is counted up depends on the table and on nothing else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from mesh.routing.codec import rule_from_proto
from mesh.routing.index import Index, match_of
from mesh.routing.living import LivingRules
from mesh.routing.rules import (
    ExactName,
    ForwardingRule,
    Match,
    NamePrefix,
    NameRegex,
    RuleVersion,
    Subject,
    UnmatchedTopics,
)
from mesh.routing.table import Rules
from mesh.routing.visits import Past, Stay, Visits, latest, pasts_in_order, visits_of
from mesh.rpc import events

EVERY_NAME = frozenset({".*", ".+"})
"""Expressions that surely match every name of a topic; of others this is not asked."""


class RuleHistory:
    """Living rules, and the past as far as it is needed."""

    def __init__(self, rules: Rules) -> None:
        self._ordered = rules.living_rules
        self._touched: dict[str, RuleVersion | None] = {}
        """The changes since then: the version that now lives, for each rule that may have changed."""
        self._ended_at_first = rules.ended
        self._made_ended: dict[Match, list[RuleVersion]] | None = None
        self._ordered_pasts: tuple[Past, ...] | None = rules.pasts
        self._made_pasts: dict[Match, Past] | None = None
        self._made_past_index: Index[Past] | None = None
        self._made_index: Index[RuleVersion] | None = None
        self._made_known: _Matches | None = None

    @property
    def _ended(self) -> dict[Match, list[RuleVersion]]:
        """The ended versions by their matches; made when a version ends for the first time."""
        if self._made_ended is None:
            self._made_ended = {}
            for version in self._ended_at_first:
                self._made_ended.setdefault(match_of(version), []).append(version)
        return self._made_ended

    @property
    def _pasts(self) -> dict[Match, Past]:
        """The pasts by their matches; made when a version ends for the first time."""
        if self._made_pasts is None:
            self._made_pasts = {past.match: past for past in self._ordered_pasts or ()}
        return self._made_pasts

    @property
    def _past_index(self) -> Index[Past]:
        """The same by the names that match."""
        if self._made_past_index is None:
            self._made_past_index = Index(self._pasts.values(), attrgetter("match"))
        return self._made_past_index

    @property
    def _index(self) -> Index[RuleVersion]:
        """The versions about topics by their matches; made when a version ends for the first time."""
        if self._made_index is None:
            self._made_index = Index(self._about_topics(), match_of)
        return self._made_index

    @property
    def _known(self) -> _Matches:
        """The matches of these versions and of the pasts; made when a pattern ends for the first time."""
        if self._made_known is None:
            self._made_known = _Matches([*self._pasts, *map(match_of, self._about_topics())])
        return self._made_known

    def _about_topics(self) -> Iterator[RuleVersion]:
        return filter(_is_about_topics, chain(self.living_rules.ordered, self.ended))

    @property
    def living_rules(self) -> LivingRules:
        """The living rules in their order."""
        if self._touched:
            self._ordered, self._touched = self._ordered.changed(self._touched), {}
        return self._ordered

    @property
    def ended(self) -> tuple[RuleVersion, ...]:
        """The past versions that a table needs."""
        return self._ended_at_first if self._made_ended is None else tuple(chain(*self._made_ended.values()))

    @property
    def pasts(self) -> tuple[Past, ...]:
        """The counted pasts of topics, in their order."""
        if self._ordered_pasts is None:
            self._ordered_pasts = pasts_in_order(self._pasts.values())
        return self._ordered_pasts

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
        self._put(version)

    def _end(self, rule_id: str, revision: int) -> RuleVersion:
        version = self._touched[rule_id] if rule_id in self._touched else self._ordered.get(rule_id)
        if version is None:
            raise LookupError(f"revision {revision}: rule {rule_id!r} does not exist")
        has_decided = version.from_revision < revision  # one born and ended by the same event has not
        visits = self._visits_before(revision, version) if has_decided else None
        self._touched[rule_id] = None
        self._drop(version)
        if visits is not None:
            self._count_up(match_of(version), revision, visits)
        elif has_decided and _is_about_topics(version):
            ended = replace(version, until_revision=revision)
            self._ended.setdefault(match_of(version), []).append(ended)
            self._put(ended)
        return version

    def _put(self, version: RuleVersion) -> None:
        if not _is_about_topics(version):
            return
        if self._made_index is not None:
            self._made_index.add(version)
        if self._made_known is not None:
            self._made_known.add(match_of(version))

    def _drop(self, version: RuleVersion) -> None:
        if not _is_about_topics(version):
            return
        if self._made_index is not None:
            self._made_index.discard(version)
        if self._made_known is not None:
            self._made_known.discard(match_of(version))

    def _visits_before(self, revision: int, version: RuleVersion) -> Visits | None:
        """The earlier places of the topics that match, if one answer holds for all of these topics."""
        match = match_of(version)
        if not _is_about_topics(version):
            return None
        if isinstance(match, ExactName):
            versions = self._index.matching(match.text)
            if any(match_of(each).client for each in versions):
                return None
            return visits_of(match.text, latest(self._past_index.matching(match.text)), versions, revision)
        wider = self._known.around(match)
        if wider is None:
            return None
        matches = {match, *wider}
        versions = [version for each in matches for version in self._index.about(each)]
        if any(match_of(each).client or each.rule.upstream_topic for each in versions):
            return None
        pasts = (past for each in matches if (past := self._pasts.get(each)))
        return visits_of("", latest(pasts), versions, revision)

    def _count_up(self, match: Match, revision: int, visits: Visits) -> None:
        own = match.text if isinstance(match, ExactName) else ""
        stays = (
            Stay(place.cluster, count, "" if place.upstream_topic == own else place.upstream_topic)
            for place, count in visits.items()
        )
        past = Past(match, revision, tuple(stays))
        before = self._pasts.get(match)
        self._past_index.add(past)
        self._pasts[match], self._ordered_pasts = past, None
        if before is not None:
            self._past_index.discard(before)
        elif self._made_known is not None:
            self._made_known.add(match)
        for ended in self._ended.pop(match, ()):
            self._drop(ended)


class _Matches:
    """The matches about topics that a history knows of, each as often as a version or a past there has it."""

    def __init__(self, matches: Sequence[Match]) -> None:
        self._counts = Counter(matches)
        self._by_head: dict[str, set[Match]] = {}
        for match in self._counts:
            self._by_head.setdefault(match.head, set()).add(match)
        self._heads = sorted(self._by_head)
        self._lengths = {len(head) for head in self._heads}

    def add(self, match: Match) -> None:
        self._counts[match] += 1
        if self._counts[match] > 1:
            return
        if match.head not in self._by_head:
            insort(self._heads, match.head)
            self._lengths.add(len(match.head))
        self._by_head.setdefault(match.head, set()).add(match)

    def discard(self, match: Match) -> None:
        self._counts[match] -= 1
        if self._counts[match]:
            return
        del self._counts[match]
        same_head = self._by_head[match.head]
        same_head.remove(match)
        if not same_head:
            del self._by_head[match.head]
            del self._heads[bisect_left(self._heads, match.head)]

    def around(self, match: Match) -> list[Match] | None:
        """The other matches that have all names of this one; None when one may have some of them, but not all."""
        others = []
        for each in self._sharing(match.head):
            if each != match:
                if not _encloses(each, match):
                    return None
                others.append(each)
        return others

    def _sharing(self, head: str) -> Iterator[Match]:
        """Those that may have a name in common with a pattern that begins so."""
        for length in self._lengths:
            if length < len(head):
                yield from (m for m in self._by_head.get(head[:length], ()) if not isinstance(m, ExactName))
        for index in range(bisect_left(self._heads, head), len(self._heads)):
            if not self._heads[index].startswith(head):
                return
            yield from self._by_head[self._heads[index]]


def _is_about_topics(version: RuleVersion) -> bool:
    return version.rule.match.subject is Subject.TOPIC


def _encloses(wide: Match, narrow: Match) -> bool:
    """Whether all names of the narrow one surely match the wide one."""
    match wide:
        case NamePrefix(text):
            return narrow.head.startswith(text)
        case NameRegex(text):
            return text in EVERY_NAME
        case UnmatchedTopics():
            return True
    return False
