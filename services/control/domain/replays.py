"""The replay aggregate: records are consumed again. Somebody asks for it, a member of the mesh carries it out and says
how far it is, control remembers.

The life of a replay
1. It is PENDING until a member that can carry it out is there (`replay_assignment.py`), and says what it waits for.
2. It is RUNNING from then on, whoever carries it out: where that member is gone, another one may go on, from the
   positions that were said last. What the group of the replay has committed in Kafka is the finer truth.
3. Its member says how it ended. The first end stands. One that is cancelled before anybody has it ends at once.
4. Seeks and resets of groups are control's own. Instances that a reset stops go on when it has ended, however it did:
   `stopped` knows them until a sidecar has said that they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from mesh.rpc import events, replays
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.instances import NUL
from services.control.domain.replay_checks import check_partitions, is_of_control
from services.control.domain.sidecar_commands import LAST_SECOND, SIDECARS
from services.control.domain.sidecar_orders import Orders

REPLAYS = "replays"
"""The collection, in resource names. A replay's events are in the stream of its name."""
KEPT = 200
"""Replays that came to an end and are remembered; of older ones the log tells, and the table `replays`."""
MAX_OPEN = 100
MAX_OPEN_FOR_SIDECAR = 20
"""That wait for one sidecar, or are with it; others find room."""
MAX_PARTITIONS = 1000
"""Of one replay; each is in memory and in every snapshot."""
LONGEST_DESCRIPTION = 1000
PROGRESS_EVERY = timedelta(seconds=5)
"""Between two events about the progress of one replay, at least."""
PROGRESS_EVENTS_PER_AGE = 100
"""A replay that runs for long says it less often: a day of it is some 600 events."""
PARTITIONS_OF_AN_EVENT = 100
"""With more of them, the events are as many times rarer."""
ENDS = (replays.REPLAY_STATE_DONE, replays.REPLAY_STATE_FAILED, replays.REPLAY_STATE_CANCELLED)
WORDS = {
    replays.REPLAY_STATE_PENDING: "pending",
    replays.REPLAY_STATE_RUNNING: "running",
    replays.REPLAY_STATE_DONE: "done",
    replays.REPLAY_STATE_FAILED: "failed",
    replays.REPLAY_STATE_CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays that control knows, by replays/{replay}; the oldest first."""

    open: Mapping[str, replays.Replay] = field(default_factory=dict)
    """As the log says; a member may have said more (`decisions/replay_progress.py`)."""
    ended: Mapping[str, replays.Replay] = field(default_factory=dict)
    """The last `KEPT`, as they came to their end."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """instances/{group}.{instance} that a replay has stopped, and that nobody has said to go on: the replay."""

    def get(self, name: str) -> replays.Replay:
        replay = self.open.get(name) or self.ended.get(name)
        if replay is None:
            raise Unknown(name, f"replay {name!r} is not known: never started, or so old that only the log tells of it")
        return replay

    def newest(self, *, open_only: bool = False) -> list[replays.Replay]:
        """The one that was started last first."""
        return sorted((*self.open.values(), *(() if open_only else self.ended.values())), key=newest_first)

    def of_member(self, member: str) -> list[replays.Replay]:
        """What a member has to carry out, the oldest first; `member` without "members/"."""
        return [replay for replay in self.open.values() if replay.member == f"{SIDECARS}{member}"]


def newest_first(replay: replays.Replay) -> str:
    """To sort by, also as text."""
    return f"{(LAST_SECOND + 1) * 1_000_000_000 - replay.create_time.ToNanoseconds():021d} {replay.name}"


def fold_replays(known: Replays, event: events.Event, orders: Orders) -> Replays:
    """The replays after an event: the very same value where it says nothing of them. `orders`: those before it."""
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
) -> events.ReplayStarted:
    """The event of a replay that can begin; `spec` is checked."""
    check_room(known, spec)
    replay = replays.Replay(
        name=name, spec=spec, state=replays.REPLAY_STATE_PENDING, actor=actor, reason=reason, partitions=plan,
        stopped=stopped,
    )  # fmt: skip
    replay.create_time.FromDatetime(now)
    return events.ReplayStarted(replay=replay)


def check_room(known: Replays, spec: replays.ReplaySpec) -> None:
    """NotAllowed when so many are open that one more is not possible."""
    if len(known.open) >= MAX_OPEN:
        text = f"{len(known.open)} replays are open, and no more are possible; wait until some end, or cancel them"
        raise NotAllowed("TOO_MANY_REPLAYS", REPLAYS, text)
    sidecar = wanted_sidecar(spec)
    waiting = sum(wanted_sidecar(each.spec) == sidecar for each in known.open.values()) if sidecar else 0
    if waiting >= MAX_OPEN_FOR_SIDECAR:
        text = f"{waiting} replays are open for sidecar {sidecar!r}, and no more are possible"
        raise NotAllowed("TOO_MANY_REPLAYS", f"{SIDECARS}{sidecar}", f"{text}; wait until some end, or cancel them")
    group = spec.group.group
    other = next((each for each in known.open.values() if group and each.spec.group.group == group), None)
    if other is not None:
        text = f"{other.name} sets the offsets of group {group!r} just now; wait for its end, or cancel it"
        raise NotAllowed("GROUP_IS_BEING_RESET", f"groups/{group}", text)


def wanted_sidecar(spec: replays.ReplaySpec) -> str:
    """The sidecar that is named; empty for any."""
    return spec.backend.sidecar or spec.source.sidecar


def cancelled(known: Replays, name: str, text: str) -> events.ReplayCancelOrdered | events.ReplayEnded | None:
    """What comes of the wish that a replay should end: None when that is known already."""
    replay = known.get(name)
    if replay.state in ENDS:
        said = f"replay {name!r} is {WORDS[replay.state]} already"
        raise NotAllowed("REPLAY_HAS_ENDED", name, f"{said}: {replay.description}" if replay.description else said)
    if not replay.member:
        return ended(name, replays.REPLAY_STATE_CANCELLED, text)
    return None if replay.cancelling else events.ReplayCancelOrdered(name=name)


def check_report(
    known: Replays, request: replays.ReportReplayRequest, member: str, said: Iterable[replays.ReplayPartition] = ()
) -> replays.Replay | None:
    """The open replay that a member may tell of; None when it repeats the end that it has told. `said`: partitions that
    it has told of before.
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
    partitions = {key_of(each) for each in (*replay.partitions, *said, *request.partitions)}
    if len(partitions) > MAX_PARTITIONS:
        text = f"{len(partitions)} are more than {MAX_PARTITIONS}; make several replays of fewer partitions"
        raise InvalidField("partitions", text)
    return replay


def ended(
    name: str, state: replays.ReplayState.ValueType, text: str, partitions: Iterable[replays.ReplayPartition] = ()
) -> events.ReplayEnded:
    """The event of an end. It is never refused for its text: what happened has happened."""
    description = text.replace(NUL, "")[:LONGEST_DESCRIPTION]
    if not description and state == replays.REPLAY_STATE_FAILED:
        description = "its member does not say why"
    return events.ReplayEnded(name=name, state=state, description=description, partitions=partitions)


def progress_interval(replay: replays.Replay, now: datetime) -> timedelta:
    """Between two events about a replay's progress: so the log stays small, however long and wide the replay."""
    age = now.timestamp() - replay.create_time.ToNanoseconds() / 1e9
    usual = max(PROGRESS_EVERY.total_seconds(), age / PROGRESS_EVENTS_PER_AGE)
    return timedelta(seconds=usual * max(1.0, len(replay.partitions) / PARTITIONS_OF_AN_EVENT))


def key_of(partition: replays.ReplayPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def merged(
    before: Iterable[replays.ReplayPartition], said: Iterable[replays.ReplayPartition]
) -> list[replays.ReplayPartition]:
    """Partitions as they are after what was said last, in their order."""
    latest = {key_of(each): each for each in (*before, *said)}
    return [latest[key] for key in sorted(latest)]


def has_to_be_told(replay: replays.Replay) -> bool:
    """Whether members carry it out, and not control itself."""
    return not is_of_control(replay.spec)


def _with(known: Replays, name: str, partitions: Iterable[replays.ReplayPartition] = (), **fields: object) -> Replays:
    before = known.open.get(name)
    if before is None:
        return known
    return replace(known, open={**known.open, name: _changed(before, partitions, **fields)})


def _changed(before: replays.Replay, partitions: Iterable[replays.ReplayPartition], **fields: object) -> replays.Replay:
    after = replays.Replay()
    after.CopyFrom(before)
    said = list(partitions)
    if said:
        latest = merged(before.partitions, said)
        del after.partitions[:]
        after.partitions.extend(latest)
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
    kept = {**known.ended, end.name: replay}
    while len(kept) > KEPT:
        del kept[next(iter(kept))]
    return replace(known, open={name: each for name, each in known.open.items() if name != end.name}, ended=kept)


def _let_go_on(known: Replays, end: events.SidecarOrderEnded, orders: Orders) -> Replays:
    """An order to go on has an outcome: done, or a sidecar that can't do it. One that nobody took is given again."""
    order = orders.open.get(end.name)
    if order is None or not order.command.HasField("resume") or known.stopped.get(order.target) != order.replay:
        return known
    if not order.replay or end.outcome.result == events.ORDER_RESULT_EXPIRED:
        return known
    return replace(known, stopped={name: by for name, by in known.stopped.items() if name != order.target})
