"""The versions of rules about topics, past ones too, and the counted pasts: found by the names that match.

A change of a few makes the next `TopicVersions` from the last, and reads no other (`ordered`). Many changes or many
look-ups make an index of all (`topic_index`, `rule_indexes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from mesh.routing.heads import beginning_with, beginnings_of, with_head
from mesh.routing.index import match_of
from mesh.routing.living import LivingRules
from mesh.routing.ordered import Ordered
from mesh.routing.rules import ExactName, Match, NamePrefix, NameRegex, RuleVersion, Subject, UnmatchedTopics
from mesh.routing.visits import Past

EVERY_NAME = frozenset({".*", ".+"})
"""Expressions that surely match every name of a topic; of others this is not asked."""
MOST_WAITING = 100
"""Versions that come one by one, and that no look-up has needed."""


class TopicVersions:
    """A value that never changes."""

    __slots__ = ("_living", "_sorted", "ended", "pasts")

    def __init__(
        self,
        living: LivingRules,
        ended: Ordered[RuleVersion],
        pasts: Ordered[Past],
        versions: Ordered[RuleVersion] | None = None,
        come: tuple[RuleVersion, ...] = (),
    ) -> None:
        """`come`: further versions, which the first look-up puts in their places."""
        self._living = living
        self.ended = ended
        """The past versions that a table needs."""
        self.pasts = pasts
        """The counted pasts of topics."""
        self._sorted = None if versions is None else (versions, come)
        """One value, which is replaced at once: several threads may look up names."""

    @classmethod
    def of(cls, living: LivingRules, ended: Iterable[RuleVersion], pasts: Iterable[Past]) -> TopicVersions:
        return cls(living, Ordered(ended, version_key), Ordered(pasts, past_key))

    @property
    def in_parts(self) -> bool:
        """Whether names are looked up at once; if not, the first look-up sorts all versions."""
        return self._sorted is not None

    def sort(self) -> None:
        """Sorts all versions, unless that is done: so look-ups in tables that follow need no index of all versions."""
        _ = self.versions

    @property
    def versions(self) -> Ordered[RuleVersion]:
        """Living and past versions about topics, by their heads."""
        if self._sorted is None:
            versions = Ordered(filter(is_about_topics, chain(self._living.ordered, self.ended)), version_key)
        else:
            versions, come = self._sorted
            if not come:
                return versions
            versions = versions.changed((), come)
        self._sorted = versions, ()
        return versions

    def beside(self, living: LivingRules, come: tuple[RuleVersion, ...] = ()) -> TopicVersions:
        """The same with further living versions, beside the living rules that have them."""
        if self._sorted is None:
            return TopicVersions(living, self.ended, self.pasts)
        versions, waiting = self._sorted
        if len(waiting) > MOST_WAITING:
            versions, waiting = self.versions, ()
        return TopicVersions(living, self.ended, self.pasts, versions, (*waiting, *come))

    def matching(self, name: str) -> list[RuleVersion]:
        """The versions that match a name."""
        candidates = chain(with_head(name, self.versions), beginnings_of(name, self.versions))
        return [version for version in candidates if version.rule.match.matches(name)]

    def pasts_matching(self, name: str) -> list[Past]:
        """The pasts whose match has a name."""
        candidates = chain(with_head(name, self.pasts), beginnings_of(name, self.pasts))
        return [past for past in candidates if past.match.matches(name)]

    def about(self, match: Match) -> list[RuleVersion]:
        """The versions of exactly this match."""
        return _about(match, self.versions)

    def past_of(self, match: Match) -> Past | None:
        """The past of exactly this match."""
        return self.pasts.find((match.head, match.text, match.suffix))

    def around(self, match: Match) -> list[Match] | None:
        """The matches that have all names of this pattern, without itself; None when one may have some of them, but
        not all.
        """
        return all_enclosing(match, self._sharing(match.head))

    def _sharing(self, head: str) -> Iterator[Match]:
        """Those that may have a name in common with a pattern that begins so."""
        shorter = chain(
            map(match_of, beginnings_of(head, self.versions)),
            (past.match for past in beginnings_of(head, self.pasts)),
        )
        yield from (match for match in shorter if not isinstance(match, ExactName))
        yield from map(match_of, beginning_with(head, self.versions))
        yield from (past.match for past in beginning_with(head, self.pasts))


class FewTopicChanges:
    """Changes of a few versions and pasts, made in the parts where they lie."""

    def __init__(self, base: TopicVersions) -> None:
        self._base = base
        self._come: list[RuleVersion] = []
        """Versions that no look-up has needed yet."""

    @property
    def now(self) -> TopicVersions:
        """All as they are now, for look-ups."""
        if self._come:
            versions = self._base.versions.changed((), self._come)
            self._base = TopicVersions(self._base._living, self._base.ended, self._base.pasts, versions)
            self._come = []
        return self._base

    def on(self, living: LivingRules) -> TopicVersions:
        """The same as a value, beside these living rules."""
        return self._base.beside(living, tuple(self._come))

    def put(self, version: RuleVersion) -> None:
        """A version that begins."""
        self._come.append(version)

    def drop(self, version: RuleVersion) -> None:
        """A living version that is no more."""
        now = self.now
        self._base = TopicVersions(now._living, now.ended, now.pasts, now.versions.changed([version], ()))

    def end(self, ended: RuleVersion) -> None:
        """A past version that a table needs."""
        now = self.now
        versions = now.versions.changed((), [ended])
        self._base = TopicVersions(now._living, now.ended.changed((), [ended]), now.pasts, versions)

    def count_up(self, past: Past) -> None:
        """The past of a match, in the place of an earlier one and of its ended versions."""
        now, before = self.now, self.now.past_of(past.match)
        ended = _about(past.match, now.ended)
        pasts = now.pasts.changed([] if before is None else [before], [past])
        self._base = TopicVersions(now._living, now.ended.changed(ended, ()), pasts, now.versions.changed(ended, ()))


def is_about_topics(version: RuleVersion) -> bool:
    return version.rule.match.subject is Subject.TOPIC


def all_enclosing(match: Match, others: Iterable[Match]) -> list[Match] | None:
    """The others, once each, if all of them surely have all names of this match; None if one may lack some."""
    found: dict[Match, None] = {}
    for other in others:
        if other != match:
            if not _encloses(other, match):
                return None
            found[other] = None
    return [*found]


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


def version_key(version: RuleVersion) -> tuple[str, str, str, int]:
    match = version.rule.match
    return match.head, match.text, version.rule.rule_id, version.from_revision


def past_key(past: Past) -> tuple[str, str, str]:
    return past.match.head, past.match.text, past.match.suffix


def _about(match: Match, items: Ordered[RuleVersion]) -> list[RuleVersion]:
    found: list[RuleVersion] = []
    for version in items.since((match.head, match.text)):
        if version_key(version)[:2] != (match.head, match.text):
            break
        if version.rule.match == match:
            found.append(version)
    return found
