"""Decisions about rehearsals of clusters: which topics, which share, for how long.

The policy itself is in the routing table (`mesh.routing.listed_policy`), so gateways get it as they get rules. A
rehearsal is in it from before its topics are made until they are deleted, so no topic is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from mesh.rehearsals.words import candidate_topic
from mesh.routing import RoutingTable
from mesh.rpc import events, rehearsals
from mesh.topics import LONGEST_NAME, is_own_topic
from services.control.domain.errors import Exists, InvalidField, NotAllowed, Unknown

REHEARSALS: Final = "rehearsals"
"""The stream of all decisions about rehearsals."""
MOST_REHEARSALS: Final = 10
MOST_TOPICS: Final = 100
"""Topics of one rehearsal: each has figures in each report of a gateway."""
MOST_SECONDS: Final = 7 * 24 * 3600
USUAL_SECONDS: Final = 3600
WHOLE: Final = 10_000
USUAL_BYTES_PER_SECOND: Final = 20_000_000
MOST_BYTES_PER_SECOND: Final = 1_000_000_000
OWN_SETTINGS: Final = {"cleanup.policy": "delete", "retention.ms": "3600000"}
"""The records are thrown away, an hour after they came at the latest."""
LEFT_OUT: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
                   "remote.storage.enable", "retention.bytes")  # fmt: skip
"""Settings that name brokers of the present cluster, or ask for what a candidate may lack."""

PREPARING: Final = rehearsals.REHEARSAL_STATE_PREPARING
RUNNING: Final = rehearsals.REHEARSAL_STATE_RUNNING
ENDING: Final = rehearsals.REHEARSAL_STATE_ENDING


def rehearsals_of(table: RoutingTable) -> Mapping[str, rehearsals.Rehearsal]:
    """By candidate."""
    policy = table.policies.rehearsal_policy
    return {} if policy is None else {each.cluster_name: each for each in policy.rehearsals}


def rehearsal_of(table: RoutingTable, cluster: str) -> rehearsals.Rehearsal:
    found = rehearsals_of(table).get(cluster)
    if found is None:
        raise Unknown(f"rehearsals/{cluster}", f"cluster {cluster!r} is not rehearsed; begin with `--topics`")
    return found


def completed(request: rehearsals.StartRehearsalRequest, table: RoutingTable) -> rehearsals.StartRehearsalRequest:
    """The request with defaults; refused if no gateway could carry it out."""
    whole = rehearsals.StartRehearsalRequest()
    whole.CopyFrom(request)
    whole.seconds = request.seconds or USUAL_SECONDS
    whole.bytes_per_second = request.bytes_per_second or USUAL_BYTES_PER_SECOND
    if request.cluster_name not in table.clusters:
        known = ", ".join(sorted(table.clusters))
        raise InvalidField("cluster_name", f"cluster {request.cluster_name!r} is not registered (known: {known})")
    for field, value, most in (
        ("share", whole.share, WHOLE),
        ("seconds", whole.seconds, MOST_SECONDS),
        ("bytes_per_second", whole.bytes_per_second, MOST_BYTES_PER_SECOND),
    ):
        if not 1 <= value <= most:
            raise InvalidField(field, f"{value} is not between 1 and {most}")
    if not 1 <= len(request.topics) <= MOST_TOPICS:
        raise InvalidField("topics", f"has {len(request.topics)} items: name 1 to {MOST_TOPICS} topics or patterns")
    known_ones = rehearsals_of(table)
    if request.cluster_name in known_ones:
        raise Exists(
            f"rehearsals/{request.cluster_name}",
            f"cluster {request.cluster_name!r} is rehearsed already: end that first, with `--end`",
        )
    if len(known_ones) >= MOST_REHEARSALS:
        raise NotAllowed("TOO_MANY_REHEARSALS", REHEARSALS, f"{MOST_REHEARSALS} clusters are rehearsed: end one first")
    return whole


def chosen(request: rehearsals.StartRehearsalRequest, table: RoutingTable, known: Mapping[str, str]) -> list[str]:
    """The topics that the request means, by name. `known`: topics as clients know them -> their clusters."""
    found: set[str] = set()
    for place, wanted in enumerate(request.topics):
        names = [name for name in known if fnmatchcase(name, wanted) and not is_own_topic(name)]
        if not names:
            raise InvalidField(f"topics[{place}]", f"rules lead to no topic {wanted[:LONGEST_NAME]!r} on a cluster")
        there = [name for name in names if known[name] == request.cluster_name]
        if there and wanted in there:
            raise NotAllowed(
                "TOPIC_IS_THERE",
                f"topics/{wanted}",
                f"topic {wanted!r} is on cluster {request.cluster_name!r} already: rehearse another one",
            )
        found.update(name for name in names if known[name] != request.cluster_name)
    if not found:
        raise InvalidField("topics", f"all of these topics are on cluster {request.cluster_name!r} already")
    if len(found) > MOST_TOPICS:
        raise InvalidField("topics", f"mean {len(found)} topics, and {MOST_TOPICS} are possible: take a part of them")
    _check_apart(table, found)
    return sorted(found)


def _check_apart(table: RoutingTable, found: Iterable[str]) -> None:
    elsewhere = {topic.topic: name for name, each in rehearsals_of(table).items() for topic in each.topics}
    for name in found:
        if len(candidate_topic(name)) > LONGEST_NAME:
            raise InvalidField("topics", f"{candidate_topic(name)!r} would be too long for the name of a topic")
        if name in elsewhere:
            raise NotAllowed(
                "TOPIC_IS_REHEARSED",
                f"topics/{name}",
                f"topic {name!r} is in the rehearsal of {elsewhere[name]!r}: end that first",
            )


def settings_there(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a topic on the candidate, by those of the topic that is rehearsed."""
    return {name: value for name, value in settings.items() if name not in LEFT_OUT} | OWN_SETTINGS


def begun(
    request: rehearsals.StartRehearsalRequest,
    topics: Sequence[rehearsals.RehearsedTopic],
    rehearsal_id: str,
    now: datetime,
) -> rehearsals.Rehearsal:
    """The rehearsal, whose topics are still to be made."""
    found = rehearsals.Rehearsal(
        cluster_name=request.cluster_name,
        rehearsal_id=rehearsal_id,
        topics=topics,
        share=request.share,
        bytes_per_second=request.bytes_per_second,
        state=PREPARING,
    )
    found.end_time.FromDatetime((now + timedelta(seconds=request.seconds)).replace(microsecond=0))
    return found


def in_state(
    of: rehearsals.Rehearsal,
    state: rehearsals.RehearsalState.ValueType,
    problem: str = "",
    figures: Sequence[rehearsals.RehearsalFigures] = (),
) -> rehearsals.Rehearsal:
    after = rehearsals.Rehearsal()
    after.CopyFrom(of)
    after.state, after.problem = state, problem
    del after.figures[:]
    after.figures.extend(figures)
    return after


def changed(of: rehearsals.Rehearsal) -> events.RehearsalsChanged:
    return events.RehearsalsChanged(changes=[rehearsals.RehearsalChange(cluster_name=of.cluster_name, rehearsal=of)])


def over(of: rehearsals.Rehearsal) -> events.RehearsalsChanged:
    return events.RehearsalsChanged(changes=[rehearsals.RehearsalChange(cluster_name=of.cluster_name)])
