"""A standby of a cluster: its topics and its state, from events alone, and what a fail-over would lose."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase

from mesh.routing import ExactName, Place, RoutingTable
from mesh.rpc import events, record_rules, standbys
from services.control.domain.errors import InvalidField, NotAllowed, Refusal, Unknown
from services.control.domain.rules import edits
from services.control.domain.standbys.policies import check_policy
from services.control.domain.topic_moves.moves import Side, TopicMoves, check_sides
from services.control.domain.topics.topics import SeenTopic

STANDBYS = "standbys"
"""The collection, in resource names and streams."""
MOST_TOPICS = 1_000
"""Topics of a standby: routers ask for the end of each of them about twenty times a second."""
IN_ONE_EVENT = 100
MOST_OPEN = 5

FOLLOWING = standbys.STANDBY_STATE_FOLLOWING
FAILING_OVER = standbys.STANDBY_STATE_FAILING_OVER
FAILED_OVER = standbys.STANDBY_STATE_FAILED_OVER
STATES = {FOLLOWING: "following", FAILING_OVER: "failing over", FAILED_OVER: "failed over"}

Standbys = Mapping[str, standbys.Standby]
"""By name. Nobody changes the messages in it."""


def fold_standbys(known: Standbys, event: events.Event) -> Standbys:
    """The standbys after `event`; the very same value when the event is about something else."""
    match event.WhichOneof("payload"):
        case "standby_started":
            return {**known, event.standby_started.standby.name: event.standby_started.standby}
        case "standby_topics_set":
            name = event.standby_topics_set.name
            after = _copied(known[name])
            topics = {each.topic: each for each in (*after.topics, *event.standby_topics_set.topics)}
            del after.topics[:]
            after.topics.extend(topics[topic] for topic in sorted(topics))
            return {**known, name: after}
        case "standby_acls_set":
            after = _copied(known[event.standby_acls_set.name])
            del after.acls[:]
            after.acls.extend(event.standby_acls_set.acls)
            after.acl_problem = event.standby_acls_set.problem
            return {**known, after.name: after}
        case "standby_ended":
            return {name: each for name, each in known.items() if name != event.standby_ended.name}
        case "fail_over_begun":
            after = _copied(known[event.fail_over_begun.name])
            after.state = FAILING_OVER
            return {**known, after.name: after}
        case "fail_over_ended":
            after = _copied(known[event.fail_over_ended.name])
            after.state = FAILED_OVER
            after.silent_gateways.extend(event.fail_over_ended.silent_gateways)
            after.fail_over_time.CopyFrom(event.time)
            return {**known, after.name: after}
        case _:
            return known


def named(known: Standbys, name: str) -> standbys.Standby:
    """The standby; Unknown if there is none."""
    if name not in known:
        raise Unknown(name, f"no standby {name!r} is known (known: {', '.join(sorted(known)) or 'none'})")
    return known[name]


def started(
    known: Standbys,
    spec: standbys.StandbySpec,
    clusters: Collection[str],
    homes: Collection[str],
    actor: str,
    reason: str,
    now: datetime,
) -> events.StandbyStarted:
    """The event of a standby that can begin. `homes`: the clusters that hold the mesh's own log."""
    listed = ", ".join(sorted(clusters)) or "none"
    for field in ("source_cluster", "target_cluster"):
        value = getattr(spec, field)
        if value not in clusters:
            raise InvalidField(f"spec.{field}", f"cluster {value!r} is not registered (known: {listed})")
    if spec.source_cluster == spec.target_cluster:
        raise InvalidField("spec.target_cluster", f"{spec.target_cluster!r} can't stand by for itself; name another")
    if spec.bytes_per_second < 0:
        raise InvalidField("spec.bytes_per_second", f"{spec.bytes_per_second} is less than 0; 0 means without a bound")
    check_policy(spec)
    if spec.source_cluster in homes:
        text = (
            f"{spec.source_cluster!r} is the home of the mesh: without it, no change reaches the gateways, and so no "
            "fail-over either. Give the mesh a home of its own first"
        )
        raise NotAllowed("CLUSTER_IS_HOME", f"clusters/{spec.source_cluster}", text)
    name = f"{STANDBYS}/{spec.source_cluster}"
    if name in known:
        text = f"{name} is there already, and is {STATES[known[name].state]}; end it first"
        raise NotAllowed("STANDBY_EXISTS", name, text)
    if len(known) >= MOST_OPEN:
        raise NotAllowed("TOO_MANY_STANDBYS", STANDBYS, f"{len(known)} standbys are there, and no more are possible")
    standby = standbys.Standby(name=name, spec=spec, state=FOLLOWING, actor=actor, reason=reason)
    standby.create_time.FromDatetime(now)
    return events.StandbyStarted(standby=standby)


def ended(known: Standbys, name: str) -> events.StandbyEnded:
    """Refused amid a fail-over: its topics would be on two clusters."""
    if named(known, name).state == FAILING_OVER:
        raise NotAllowed("STANDBY_FAILS_OVER", name, f"{name} fails over just now; wait until it has")
    return events.StandbyEnded(name=name)


def failing_over(known: Standbys, name: str, target: str) -> events.FailOverBegun:
    """The event of an ordered fail-over."""
    standby = named(known, name)
    if target != standby.spec.target_cluster:
        text = f"the standby of {standby.spec.source_cluster!r} is on {standby.spec.target_cluster!r}, not {target!r}"
        raise InvalidField("target_cluster", text)
    if standby.state != FOLLOWING:
        raise NotAllowed("STANDBY_FAILS_OVER", name, f"{name} is {STATES[standby.state]}; it can't fail over again")
    if not any(not each.left for each in standby.topics):
        raise NotAllowed("NOTHING_TO_FAIL_OVER", name, f"{name} has no copy of a topic")
    return events.FailOverBegun(name=name)


def wanted(standby: standbys.Standby, seen: Iterable[SeenTopic], moves: TopicMoves) -> list[SeenTopic]:
    """The topics that the standby is to have."""
    pattern = standby.spec.topics or "*"
    moving = {each.spec.topic for each in moves.open.values()}
    return [each for each in seen if fnmatchcase(each.name, pattern) and each.name not in moving]


def topic_of(standby: standbys.Standby, seen: SeenTopic, here: Side, there: Side) -> standbys.StandbyTopic:
    """The topic, with its copy or with the reason why it has none."""
    copy = record_rules.CopySpec(
        source_cluster=here.place.cluster,
        topic=here.place.upstream_topic,
        target_cluster=there.place.cluster,
        target_topic=there.place.upstream_topic,
        bytes_per_second=standby.spec.bytes_per_second,
    )
    found = standbys.StandbyTopic(topic=seen.name, copy=copy)
    try:
        check_sides(seen.name, here, there)
    except Refusal as refusal:
        found.left, found.problem = True, refusal.message
    return found


def strayed(standby: standbys.Standby, table: RoutingTable, moves: TopicMoves) -> list[standbys.StandbyTopic]:
    """Topics that the rules lead elsewhere meanwhile, or that a move copies: their copies end."""
    moving = {each.spec.topic for each in moves.open.values()}
    found = []
    for each in standby.topics:
        route = None if each.left else table.route(each.topic)
        place = None if route is None else Place(route.cluster, route.upstream_topic)
        if each.left or (place == Place(each.copy.source_cluster, each.copy.topic) and each.topic not in moving):
            continue
        after = _left(each, "a move copies it" if each.topic in moving else "the rules lead it elsewhere")
        found.append(after)
    return found


def _left(topic: standbys.StandbyTopic, why: str) -> standbys.StandbyTopic:
    after = standbys.StandbyTopic()
    after.CopyFrom(topic)
    after.left, after.problem = True, why
    return after


def with_lag(topic: standbys.StandbyTopic) -> standbys.StandbyTopic:
    """Counts the records that the copy lacks."""
    if not any(each.loss_count for each in topic.partitions):
        topic.lag_records = sum(max(0, each.end - each.position) for each in topic.partitions)
    return topic


def switches(standby: standbys.Standby) -> list[edits.Edit]:
    """The edits that lead each copied topic to its copy."""
    return [
        edits.Set(
            ExactName(each.topic),
            edits.RuleFields(
                target_cluster=each.copy.target_cluster,
                upstream_topic="" if each.copy.target_topic == each.topic else each.copy.target_topic,
            ),
            edits.Place.FIRST,
        )
        for each in standby.topics
        if not each.left
    ]


def _copied(before: standbys.Standby) -> standbys.Standby:
    after = standbys.Standby()
    after.CopyFrom(before)
    return after
