"""The choice of the member that carries out a replay.

1. If a replay names a member, only this member carries it out. While the member is absent, the replay waits.
2. Any other replay goes to a connected member that can carry it out. For a destination at the backend, the member's
   reactive consumers must read all topics of the replay. For the source of dead letters, any member that writes will
   do; for a copy and a profile, any pipeline. If several members can, control chooses the one with the fewest replays.
3. A replay stays with its member while the member is connected, and for `SILENCE` after that. A member that is cut off
   needs less time to notice this and to pause its replays. Then another member goes on.
4. A member has as many replays at a time as it says, or `MAX_RUNNING`; the other replays wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from mesh.rpc import events, replays
from services.control.domain.replays.checks import is_of_pipelines
from services.control.domain.replays.replays import wanted_member
from services.control.domain.sidecars.instances import Instances

SILENCE = timedelta(seconds=20)
"""A member that has not followed for so long is gone. The member itself pauses its replays after 15 s."""
MAX_RUNNING = 5
"""Replays that one member carries out at a time, unless it says another number."""
USUAL_DESTINATIONS = frozenset({"backend", "source"})
MOST_NAMED = 10


Readers = Mapping[str, Sequence[events.ConsumerInstance]]
"""Sidecar -> its reactive consumers."""


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
    """The member that shall carry out the replay; None while there is none. `load`: replays that each member has."""
    able = [each for each in candidates if not why_not(each, replay, readers) and each.has_room(load)]
    return min((each.member for each in able), key=lambda member: (load.get(member, 0), member), default=None)


def why_waiting(
    replay: replays.Replay, candidates: Iterable[Candidate], readers: Readers, load: Mapping[str, int]
) -> str:
    """Why a replay has no member yet, as a sentence; empty when it does not wait."""
    there = sorted(candidates, key=lambda each: each.member)
    able = [each for each in there if not why_not(each, replay, readers)]
    if any(each.has_room(load) for each in able):
        return ""  # control assigns the replay in a moment
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
        return ""  # a user who names a sidecar knows which topics its backend takes
    mine = readers.get(candidate.member, ())
    if not mine:
        return "has no reactive consumer"
    missing = sorted({each.topic for each in replay.spec.ranges if not _is_read(each.topic, replay.spec, mine)})
    return f"has no reactive consumer of {', '.join(missing[:MOST_NAMED])}" if missing else ""


def _why_without_pipeline(wanted: str) -> str:
    """Why no pipeline can carry out the replay; sidecars can't, so the text names none."""
    if wanted:
        fact = f"waits for pipeline {wanted!r}, which does not follow its replays"
        return f"{fact}; start `kafka-mesh pipeline serve` there, or cancel the replay"
    return "waits for a pipeline: none follows its replays; start `kafka-mesh pipeline serve`"


def _is_read(topic: str, spec: replays.ReplaySpec, consumers: Iterable[events.ConsumerInstance]) -> bool:
    """Whether a consumer reads the topic. A topic of dead letters may be named with its extension or without."""
    names = {topic, topic.rpartition(".")[0]} - {""} if spec.dead_letters else {topic}
    return any(_reads(each, name) for each in consumers for name in names)


def _reads(instance: events.ConsumerInstance, topic: str) -> bool:
    if instance.topic_pattern:
        try:
            return re.fullmatch(instance.topic_pattern, topic) is not None
        except re.error:
            return False  # the pattern is of another language
    return topic in instance.topics or any(each.topic == topic for each in instance.assigned_partitions)
