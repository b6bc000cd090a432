"""The replay aggregate: a user starts a replay, a member consumes the records again, control records the progress.

The life of a replay
1. A replay is PENDING until a member that can carry it out is connected (`assignment.py`). Meanwhile it says why
   it waits.
2. From then on the replay is RUNNING, whichever member carries it out. If that member is gone, another member may go on
   from the last reported positions. The offsets that the replay's group has committed in Kafka are more exact.
3. The member reports how the replay ended. The first end stands. If a user cancels a replay before a member has it, the
   replay ends at once.
4. Control itself carries out seeks and resets of groups. Instances that a reset stops go on after its end, however it
   ended. `stopped` holds these instances until a sidecar has reported that they go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from mesh.rpc import events, replays
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.open_and_ended import OpenAndEnded
from services.control.domain.replays.checks import check_partitions, is_of_control, is_of_pipelines
from services.control.domain.replays.course import Key, key_of, merged, totals_of, without_partitions
from services.control.domain.replays.profiles import TopicProfile, check_profiles, fitting
from services.control.domain.sidecars.commands import SIDECARS
from services.control.domain.sidecars.instances import NUL
from services.control.domain.sidecars.orders import Orders

REPLAYS = "replays"
"""The collection, in resource names. A replay's events are in the stream of its name."""
KEPT = 200
"""Ended replays in memory; older replays are in the log and in the table `replays`."""
MAX_OPEN = 100
MAX_OPEN_FOR_MEMBER = 20
"""Replays that wait for one member, or are with it; so replays of other members find room."""
MAX_PARTITIONS = 1000
"""Partitions of one replay; each of them is in memory and in every snapshot."""
MAX_COPIED = 10_000
"""Partitions of one replay that a pipeline carries out."""
MAX_OPEN_PARTITIONS = 100_000
"""Partitions of all open replays; some 30 MB."""
KEPT_BYTES = 8 * 1024 * 1024
"""Bytes of all ended replays. Control drops partitions and profiles of those that ended earlier."""
LONGEST_DESCRIPTION = 1000
PROGRESS_EVERY = timedelta(seconds=5)
"""The shortest time between two stored reports of the progress of one replay."""
PROGRESS_REPORTS_PER_AGE = 100
"""A replay that runs for long stores its progress less often: a day of it is some 600 events."""
PARTITIONS_OF_A_REPORT = 100
"""A replay with more partitions than this stores its progress proportionally less often."""
LARGEST_EVENT = 600_000
"""Bytes of partitions in one event; Kafka takes events of 1 MB. Some 15,000 partitions with usual topic names."""
ENDS = (replays.REPLAY_STATE_DONE, replays.REPLAY_STATE_FAILED, replays.REPLAY_STATE_CANCELLED)
WORDS = {
    replays.REPLAY_STATE_PENDING: "pending",
    replays.REPLAY_STATE_RUNNING: "running",
    replays.REPLAY_STATE_DONE: "done",
    replays.REPLAY_STATE_FAILED: "failed",
    replays.REPLAY_STATE_CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class Replays(OpenAndEnded[replays.Replay]):
    """The replays that control knows, by replays/{replay}; the last `KEPT` ended ones, as they were at their end.

    Members report later progress of the open ones (`decisions/replays/progress.py`).
    """

    kind = "replay"
    stopped: Mapping[str, str] = field(default_factory=dict)
    """instances/{group}.{instance} -> the replay that has stopped it, until a sidecar has reported that it goes on."""

    def of_member(self, member: str) -> list[replays.Replay]:
        """The replays that a member has to carry out, the oldest first; `member` is without "members/"."""
        return [replay for replay in self.open.values() if replay.member == f"{SIDECARS}{member}"]


def fold_replays(known: Replays, event: events.Event, orders: Orders) -> Replays:
    """The replays after an event: the very same value if the event does not change them. `orders`: those before it."""
    match event.WhichOneof("payload"):
        case "replay_started":
            replay = event.replay_started.replay
            stopped = {**known.stopped, **dict.fromkeys(replay.stopped, replay.name)}
            return replace(known, open={**known.open, replay.name: replay}, stopped=stopped)
        case "replay_assigned":
            assigned = event.replay_assigned
            return _with(known, assigned.name, member=assigned.member, state=replays.REPLAY_STATE_RUNNING)
        case "replay_progressed":
            return _with(known, event.replay_progressed.name, event.replay_progressed.partitions)
        case "replay_cancel_ordered":
            return _with(known, event.replay_cancel_ordered.name, cancelling=True)
        case "replay_ended":
            return _ended(known, event)
        case "sidecar_order_ended":
            return _let_go_on(known, event.sidecar_order_ended, orders)
        case "consumer_instance_removed" if event.consumer_instance_removed.name in known.stopped:
            gone = event.consumer_instance_removed.name
            return replace(known, stopped={name: by for name, by in known.stopped.items() if name != gone})
        case _:
            return known


def started(
    known: Replays,
    name: str,
    spec: replays.ReplaySpec,
    actor: str,
    reason: str,
    now: datetime,
    plan: Iterable[replays.ReplayPartition] = (),
    stopped: Iterable[str] = (),
    places: Iterable[replays.ReplayPlace] = (),
) -> events.ReplayStarted:
    """The event of a replay that can begin; `spec` has been checked."""
    check_room(known, spec)
    replay = replays.Replay(
        name=name, spec=spec, state=replays.REPLAY_STATE_PENDING, actor=actor, reason=reason, partitions=plan,
        stopped=stopped, places=places,
    )  # fmt: skip
    replay.create_time.FromDatetime(now)
    return events.ReplayStarted(replay=replay)


def gone_on_from(known: Replays, spec: replays.ReplaySpec) -> Sequence[replays.ReplayPartition]:
    """The progress of an ended copy with the same specification, which the new copy continues.

    The specification includes the group that keeps the progress. The member has to know this progress: without it, the
    member would copy everything once more if that group no longer exists.
    """
    if not spec.topic.group or spec.dry_run:
        return []
    return next((each.partitions for each in reversed([*known.ended.values()]) if each.spec == spec), [])


def check_room(known: Replays, spec: replays.ReplaySpec) -> None:
    """NotAllowed when so many replays are open that one more is not possible."""
    if len(known.open) >= MAX_OPEN:
        text = f"{len(known.open)} replays are open, and no more are possible; wait until some end, or cancel them"
        raise NotAllowed("TOO_MANY_REPLAYS", REPLAYS, text)
    member = wanted_member(spec)
    waiting = sum(wanted_member(each.spec) == member for each in known.open.values()) if member else 0
    if waiting >= MAX_OPEN_FOR_MEMBER:
        text = f"{waiting} replays are open for {member!r}, and no more are possible"
        raise NotAllowed("TOO_MANY_REPLAYS", f"{SIDECARS}{member}", f"{text}; wait until some end, or cancel them")
    group = spec.group.group
    other = next((each for each in known.open.values() if group and each.spec.group.group == group), None)
    if other is not None:
        text = f"{other.name} sets the offsets of group {group!r} just now; wait for its end, or cancel it"
        raise NotAllowed("GROUP_IS_BEING_RESET", f"groups/{group}", text)
    place = spec.topic.group
    other = next((each for each in known.open.values() if place and each.spec.topic.group == place), None)
    if other is not None:
        text = f"{other.name} keeps in group {place!r} how far it is; wait for its end, or cancel it"
        raise NotAllowed("GROUP_IN_USE", f"groups/{place}", text)


def wanted_member(spec: replays.ReplaySpec) -> str:
    """The sidecar or pipeline that the replay names; empty for any."""
    return spec.backend.sidecar or spec.source.sidecar or spec.topic.pipeline or spec.profile.pipeline


def most_partitions(spec: replays.ReplaySpec) -> int:
    return MAX_COPIED if is_of_pipelines(spec) else MAX_PARTITIONS


def cancelled(known: Replays, name: str, text: str) -> events.ReplayCancelOrdered | events.ReplayEnded | None:
    """The event that a request to cancel leads to; None when control knows of such a request already."""
    replay = known.get(name)
    if replay.state in ENDS:
        said = f"replay {name!r} is {WORDS[replay.state]} already"
        raise NotAllowed("REPLAY_HAS_ENDED", name, f"{said}: {replay.description}" if replay.description else said)
    if not replay.member:
        return ended(name, replays.REPLAY_STATE_CANCELLED, text)
    return None if replay.cancelling else events.ReplayCancelOrdered(name=name)


def check_report(
    known: Replays,
    request: replays.ReportReplayRequest,
    member: str,
    said: Collection[Key] = (),
    partitions_open: int = 0,
) -> replays.Replay | None:
    """The open replay that a member may report about; None when the member repeats the end that it has reported.

    `said`: known partitions of the replay; `partitions_open`: the number of known partitions of all open replays.
    """
    replay = known.get(request.name)
    if request.state not in WORDS:
        raise InvalidField("state", "is how it does: RUNNING, DONE, FAILED or CANCELLED")
    if replay.member != f"{SIDECARS}{member}":
        by = f"{replay.member!r} carries it out" if replay.member else "nobody carries it out"
        raise NotAllowed("REPLAY_OF_ANOTHER", request.name, f"replay {request.name!r}: {by}; {member!r} has to drop it")
    if replay.state in ENDS:
        if request.state == replay.state:
            return None
        text = f"replay {request.name!r} is {WORDS[replay.state]}; {member!r} has to drop it"
        raise NotAllowed("REPLAY_HAS_ENDED", request.name, text)
    check_partitions(request.partitions)
    new = {key_of(each) for each in request.partitions}.difference(said)
    _check_number(replay, len(said) + len(new), partitions_open, more=len(new))
    check_profiles(request.profiles, replay.spec)
    return replay


def _check_number(replay: replays.Replay, number: int, partitions_open: int, *, more: int) -> None:
    most = most_partitions(replay.spec)
    if number > most:
        raise InvalidField("partitions", f"{number} are more than {most}; make several replays of fewer partitions")
    if more and partitions_open + more > MAX_OPEN_PARTITIONS:
        text = f"{MAX_OPEN_PARTITIONS} partitions are open, and {more} more are not possible"
        raise NotAllowed("TOO_MANY_PARTITIONS", REPLAYS, f"{text}; wait until some replays end, or cancel them")


def ended(
    name: str,
    state: replays.ReplayState.ValueType,
    text: str,
    partitions: Iterable[replays.ReplayPartition] = (),
    totals: replays.ReplayTotals | None = None,
    profiles: Iterable[TopicProfile] = (),
) -> events.ReplayEnded:
    """The event of an end. Control never refuses an end for its text: what happened has happened.

    `totals`: given if `partitions` are not all partitions.
    """
    description = text.replace(NUL, "")[:LONGEST_DESCRIPTION]
    if not description and state == replays.REPLAY_STATE_FAILED:
        description = "its member does not say why"
    return events.ReplayEnded(
        name=name, state=state, description=description, partitions=partitions, totals=totals,
        profiles=map(fitting, profiles),
    )  # fmt: skip


def progressed(
    name: str, partitions: Sequence[replays.ReplayPartition], totals: replays.ReplayTotals
) -> list[events.ReplayProgressed]:
    """The events of these changes; no event is too large for Kafka."""
    if not partitions:
        return []
    each = max(1, len(partitions) * LARGEST_EVENT // max(1, sum(one.ByteSize() for one in partitions)))
    parts = [partitions[start : start + each] for start in range(0, len(partitions), each)]
    return [events.ReplayProgressed(name=name, partitions=part, totals=totals) for part in parts]


def progress_interval(replay: replays.Replay, partitions: int, now: datetime) -> timedelta:
    """The time between two stored reports of a replay's progress: reports stay few in a long or wide replay."""
    age = now.timestamp() - replay.create_time.ToNanoseconds() / 1e9
    usual = max(PROGRESS_EVERY.total_seconds(), age / PROGRESS_REPORTS_PER_AGE)
    return timedelta(seconds=usual * max(1.0, partitions / PARTITIONS_OF_A_REPORT))


def has_to_be_told(replay: replays.Replay) -> bool:
    """Whether members carry out the replay, and not control itself."""
    return not is_of_control(replay.spec)


def _with(known: Replays, name: str, partitions: Iterable[replays.ReplayPartition] = (), **fields: object) -> Replays:
    before = known.open.get(name)
    if before is None:
        return known
    return replace(known, open={**known.open, name: _changed(before, partitions, **fields)})


def _changed(before: replays.Replay, partitions: Iterable[replays.ReplayPartition], **fields: object) -> replays.Replay:
    after = without_partitions(before)
    after.partitions.extend(merged(before.partitions, partitions))
    for field_name, value in fields.items():
        setattr(after, field_name, value)
    return after


def _ended(known: Replays, event: events.Event) -> Replays:
    end = event.replay_ended
    before = known.open.get(end.name)
    if before is None:
        return known
    replay = _changed(before, end.partitions, state=end.state, description=end.description)
    replay.end_time.CopyFrom(event.time)
    if end.HasField("totals"):
        replay.totals.CopyFrom(end.totals)
    elif replay.partitions:
        replay.totals.CopyFrom(totals_of(replay.partitions))
    replay.profiles.extend(end.profiles)
    kept = {**known.ended, end.name: replay}
    while len(kept) > KEPT:
        del kept[next(iter(kept))]
    _thin_out(kept)
    return replace(known, open={name: each for name, each in known.open.items() if name != end.name}, ended=kept)


def _thin_out(kept: dict[str, replays.Replay]) -> None:
    """Keeps the last replays whole, as far as there is room, and the very last replay in any case."""
    left = KEPT_BYTES
    for name in list(reversed(kept))[1:]:
        replay = kept[name]
        left -= replay.ByteSize()
        if left < 0 and (replay.partitions or replay.profiles):
            thin = replays.Replay()
            thin.CopyFrom(replay)
            del thin.partitions[:], thin.profiles[:]
            kept[name] = thin


def _let_go_on(known: Replays, end: events.SidecarOrderEnded, orders: Orders) -> Replays:
    """Handles the outcome of an order to resume: done, or a sidecar can't do it. Control repeats an expired order."""
    order = orders.open.get(end.name)
    if order is None or not order.command.HasField("resume") or known.stopped.get(order.target) != order.replay:
        return known
    if not order.replay or end.outcome.result == events.ORDER_RESULT_EXPIRED:
        return known
    return replace(known, stopped={name: by for name, by in known.stopped.items() if name != order.target})
