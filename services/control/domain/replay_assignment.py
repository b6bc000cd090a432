"""Who carries a replay out.

1. A replay that names a member is for that one alone. It waits while the member is not there, and goes on with it.
2. Any other is for whichever member is there and can do it: for a destination at the backend, one whose reactive
   consumers read all of its topics; for the source of dead letters, any that writes; for a copy and a profile, any
   pipeline. Of several, the one that has the fewest.
3. It stays with its member while that is there, and for `SILENCE` after that: longer than a member which is cut off
   takes to notice, and to hold what it carries out. Then another one goes on.
4. A member has as many at a time as it says, or `MAX_RUNNING`; the rest waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from mesh.rpc import events, replays
from services.control.domain.instances import Instances
from services.control.domain.replay_checks import is_of_pipelines
from services.control.domain.replays import wanted_member

SILENCE = timedelta(seconds=20)
"""A member that has not followed for so long is gone; it holds by itself after 15 s."""
MAX_RUNNING = 5
"""Replays that one member carries out at a time, unless it says another number."""
USUAL_DESTINATIONS = frozenset({"backend", "source"})
MOST_NAMED = 10


Readers = Mapping[str, Sequence[events.ConsumerInstance]]
"""Reactive consumers by their sidecar."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member that follows its replays."""

    member: str
    destinations: frozenset[str] = USUAL_DESTINATIONS
    max_running: int = MAX_RUNNING

    def has_room(self, load: Mapping[str, int]) -> bool:
        return load.get(self.member, 0) < self.max_running


def readers_of(instances: Instances) -> Readers:
    found: dict[str, list[events.ConsumerInstance]] = {}
    for each in instances.values():
        if each.kind == events.INSTANCE_KIND_REACTIVE:
            found.setdefault(each.sidecar, []).append(each)
    return found


def choose(
    replay: replays.Replay, candidates: Iterable[Candidate], readers: Readers, load: Mapping[str, int]
) -> str | None:
    """The member that shall carry it out; None while there is none. `load`: how many each member has."""
    able = [each for each in candidates if not why_not(each, replay, readers) and each.has_room(load)]
    return min((each.member for each in able), key=lambda member: (load.get(member, 0), member), default=None)


def why_waiting(
    replay: replays.Replay, candidates: Iterable[Candidate], readers: Readers, load: Mapping[str, int]
) -> str:
    """What a replay waits for that has no member, as a sentence; empty when it does not wait."""
    there = sorted(candidates, key=lambda each: each.member)
    able = [each for each in there if not why_not(each, replay, readers)]
    if any(each.has_room(load) for each in able):
        return ""  # it is given to one in a moment
    if able:
        busy = ", ".join(f"{each.member} carries out {load.get(each.member, 0)}" for each in able[:MOST_NAMED])
        return f"waits for its turn: {busy}, and no more at a time"
    wanted = wanted_member(replay.spec)
    if is_of_pipelines(replay.spec):
        return _why_without_pipeline(wanted)
    if wanted and wanted not in (each.member for each in there):
        return f"waits for sidecar {wanted!r}, which does not follow its replays; start it, or cancel the replay"
    if not there:
        return "waits for a member: none follows its replays; start a sidecar that is linked to control"
    reasons = [f"{each.member} {why_not(each, replay, readers)}" for each in there if wanted in ("", each.member)]
    more = f", and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
    return f"waits for a member that can do it: {', '.join(reasons[:MOST_NAMED])}{more}"


def why_not(candidate: Candidate, replay: replays.Replay, readers: Readers) -> str:
    """Why a member can't carry a replay out; empty when it can."""
    wanted, destination = wanted_member(replay.spec), replay.spec.WhichOneof("destination") or ""
    if wanted and candidate.member != wanted:
        return "is another one"
    if destination not in candidate.destinations:
        return f"takes no replays to the {destination}"
    if destination != "backend" or wanted:
        return ""  # whoever names a sidecar knows what its backend takes
    mine = readers.get(candidate.member, ())
    if not mine:
        return "has no reactive consumer"
    missing = sorted({each.topic for each in replay.spec.ranges if not _is_read(each.topic, replay.spec, mine)})
    return f"has no reactive consumer of {', '.join(missing[:MOST_NAMED])}" if missing else ""


def _why_without_pipeline(wanted: str) -> str:
    """Sidecars that are there are none that could be meant."""
    if wanted:
        fact = f"waits for pipeline {wanted!r}, which does not follow its replays"
        return f"{fact}; start `kafka-mesh pipeline serve` there, or cancel the replay"
    return "waits for a pipeline: none follows its replays; start `kafka-mesh pipeline serve`"


def _is_read(topic: str, spec: replays.ReplaySpec, consumers: Iterable[events.ConsumerInstance]) -> bool:
    """Of dead letters, the topic may be named with its extension or without."""
    names = {topic, topic.rpartition(".")[0]} - {""} if spec.dead_letters else {topic}
    return any(_reads(each, name) for each in consumers for name in names)


def _reads(instance: events.ConsumerInstance, topic: str) -> bool:
    if instance.topic_pattern:
        try:
            return re.fullmatch(instance.topic_pattern, topic) is not None
        except re.error:
            return False  # it is another language's
    return topic in instance.topics or any(each.topic == topic for each in instance.assigned_partitions)
