"""The same as `topic_versions`, for many changes at a time: an index of all that changes in place."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter

from mesh.routing.index import Index, match_of
from mesh.routing.living import LivingRules
from mesh.routing.rules import ExactName, Match, RuleVersion
from mesh.routing.topic_versions import TopicVersions, all_enclosing
from mesh.routing.visits import Past


class ManyTopicChanges:
    """Changes of many versions and pasts."""

    def __init__(self, base: TopicVersions) -> None:
        self._ended: dict[Match, list[RuleVersion]] = {}
        for version in base.ended:
            self._ended.setdefault(match_of(version), []).append(version)
        self._pasts = {past.match: past for past in base.pasts}
        self._past_index = Index(base.pasts, attrgetter("match"))
        self._index = Index(base.versions, match_of)
        self._known = _Matches([*self._pasts, *map(match_of, base.versions)])

    @property
    def now(self) -> ManyTopicChanges:
        """All as they are now, for look-ups."""
        return self

    def on(self, living: LivingRules) -> TopicVersions:
        """The same as a value, beside these living rules."""
        return TopicVersions.of(living, chain(*self._ended.values()), self._pasts.values())

    def put(self, version: RuleVersion) -> None:
        """A version that begins."""
        self._index.add(version)
        self._known.add(match_of(version))

    def drop(self, version: RuleVersion) -> None:
        """A version that is no more."""
        self._index.discard(version)
        self._known.discard(match_of(version))

    def end(self, ended: RuleVersion) -> None:
        """A past version that a table needs."""
        self._ended.setdefault(match_of(ended), []).append(ended)
        self.put(ended)

    def count_up(self, past: Past) -> None:
        """The past of a match, in the place of an earlier one and of its ended versions."""
        before = self._pasts.get(past.match)
        self._past_index.add(past)
        self._pasts[past.match] = past
        if before is None:
            self._known.add(past.match)
        else:
            self._past_index.discard(before)
        for ended in self._ended.pop(past.match, ()):
            self.drop(ended)

    def matching(self, name: str) -> list[RuleVersion]:
        """The versions that match a name."""
        return self._index.matching(name)

    def pasts_matching(self, name: str) -> list[Past]:
        """The pasts whose match has a name."""
        return self._past_index.matching(name)

    def about(self, match: Match) -> list[RuleVersion]:
        """The versions of exactly this match."""
        return self._index.about(match)

    def past_of(self, match: Match) -> Past | None:
        """The past of exactly this match."""
        return self._pasts.get(match)

    def around(self, match: Match) -> list[Match] | None:
        """As `TopicVersions.around`."""
        return self._known.around(match)


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
        return all_enclosing(match, self._sharing(match.head))

    def _sharing(self, head: str) -> Iterator[Match]:
        """Those that may have a name in common with a pattern that begins so."""
        for length in self._lengths:
            if length < len(head):
                yield from (m for m in self._by_head.get(head[:length], ()) if not isinstance(m, ExactName))
        for index in range(bisect_left(self._heads, head), len(self._heads)):
            if not self._heads[index].startswith(head):
                return
            yield from self._by_head[self._heads[index]]
