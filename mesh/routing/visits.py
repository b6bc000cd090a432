"""The places that a topic has had, and how often: counted from the versions of rules and from earlier counts.

Theory of operation
1. A topic's way follows from the lives of the rule versions that match it: at each revision the first of them says the
   place. Repeats in a row are one visit; time without a rule does not end a visit.
2. A way is kept as its visits by place, in the order in which the places were last left. The present place stands at
   the end; the place before the present one is the place from which the topic came. Nobody asks for more, and the size
   does not grow with the number of moves.
3. So the way up to a revision can be counted up as a `Past`, and the versions that led to it are needed no more. The
   past of a match holds for the names that match and have no narrower past: the latest one is the narrowest, because a
   past is not carried on once something narrower is there (`history`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from mesh.routing.rules import Match, RuleVersion


class Place(NamedTuple):
    """A place for a topic: a cluster, and the name that the topic has there."""

    cluster: str
    upstream_topic: str


class Stay(NamedTuple):
    """A topic's visit to a place: the place, and the number of the visit (from 1)."""

    cluster: str
    visit: int
    upstream_topic: str


Visits = dict[Place, int]
"""Visits by place, the place left longest ago first."""


@dataclass(frozen=True, slots=True)
class Past:
    """The places of a match's topics before `until_revision`."""

    match: Match
    until_revision: int
    stays: tuple[Stay, ...]
    """As `Visits`; no upstream_topic stands for the name that clients use."""

    def visits_of(self, topic: str) -> Visits:
        return {Place(stay.cluster, stay.upstream_topic or topic): stay.visit for stay in self.stays}


def latest(pasts: Iterable[Past]) -> Past | None:
    """The past that counts for a name, from the pasts of all its matches."""
    return max(pasts, key=attrgetter("until_revision"), default=None)


def pasts_in_order(pasts: Iterable[Past]) -> tuple[Past, ...]:
    """The pasts in the order of a table."""
    return tuple(sorted(pasts, key=lambda past: (past.match.text, past.match.suffix)))


def visits_of(topic: str, past: Past | None, versions: Iterable[RuleVersion], before: int | None = None) -> Visits:
    """All visits of a topic, or those `before` a revision; `versions` are those that match it since its past."""
    versions = list(versions)
    if past is None and len(versions) == 1:
        return {place_of(versions[0], topic): 1}
    visits, since = ({}, 0) if past is None else (past.visits_of(topic), past.until_revision)
    revisions = {since, *(v.from_revision for v in versions), *(v.until_revision or 0 for v in versions)}
    last = next(reversed(visits), None)
    for revision in sorted(revisions):
        if revision < since or (before is not None and revision >= before):
            continue
        version = min((v for v in versions if v.counts_at(revision)), key=attrgetter("order"), default=None)
        place = None if version is None else place_of(version, topic)
        if place is not None and place != last:
            visits[place] = visits.pop(place, 0) + 1
            last = place
    return visits


def place_of(version: RuleVersion, topic: str) -> Place:
    return Place(version.rule.target_cluster, version.rule.upstream_name(topic))
