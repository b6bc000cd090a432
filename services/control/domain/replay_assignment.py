"""Who carries a replay out.

1. A replay that names a sidecar is for that one alone. It waits while the sidecar is not there, and goes on with it.
2. Any other is for whichever member is there and can do it: for a destination at the backend, one whose reactive
   consumers read all of its topics; for the source of dead letters, any that writes. Of several, the one that has the
   fewest.
3. It stays with its member while that is there, and for `SILENCE` after that: longer than a member which is cut off
   takes to notice, and to hold what it carries out. Then another one goes on.
4. A member has `MAX_RUNNING` at a time; the rest waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from mesh.rpc import events, replays
from services.control.domain.instances import Instances
from services.control.domain.replays import wanted_sidecar

SILENCE = timedelta(seconds=20)
"""A member that has not followed for so long is gone; it holds by itself after 15 s."""
MAX_RUNNING = 5
"""Replays that one member carries out at a time."""
USUAL_DESTINATIONS = frozenset({"backend", "source"})
MOST_NAMED = 10


Readers = Mapping[str, Sequence[events.ConsumerInstance]]
"""Reactive consumers by their sidecar."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member that follows its replays."""

    member: str
    destinations: frozenset[str] = USUAL_DESTINATIONS


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
    able = [each.member for each in candidates if not why_not(each, replay, readers)]
    free = [member for member in able if load.get(member, 0) < MAX_RUNNING]
    return min(free, key=lambda member: (load.get(member, 0), member), default=None)


def why_waiting(
    replay: replays.Replay, candidates: Iterable[Candidate], readers: Readers, load: Mapping[str, int]
) -> str:
    """What a replay waits for that has no member, as a sentence; empty when it does not wait."""
    there = sorted(candidates, key=lambda each: each.member)
    wanted = wanted_sidecar(replay.spec)
    able = [each.member for each in there if not why_not(each, replay, readers)]
    if any(load.get(member, 0) < MAX_RUNNING for member in able):
        return ""  # it is given to one in a moment
    if able:
        busy = ", ".join(f"{member} has {load.get(member, 0)}" for member in able[:MOST_NAMED])
        return f"waits for its turn: a member carries out {MAX_RUNNING} replays at a time ({busy})"
    if wanted and wanted not in (each.member for each in there):
        return f"waits for sidecar {wanted!r}, which does not follow its replays; start it, or cancel the replay"
    if not there:
        return "waits for a member: none follows its replays; start a sidecar that is linked to control"
    reasons = [f"{each.member} {why_not(each, replay, readers)}" for each in there if wanted in ("", each.member)]
    more = f", and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
    return f"waits for a member that can do it: {', '.join(reasons[:MOST_NAMED])}{more}"


def why_not(candidate: Candidate, replay: replays.Replay, readers: Readers) -> str:
    """Why a member can't carry a replay out; empty when it can."""
    wanted, destination = wanted_sidecar(replay.spec), replay.spec.WhichOneof("destination") or ""
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
