"""Forks of topics: a log that begins with the parts of another topic's log, and goes on with a part of its own.

Theory of operation
1. The past of a fork is said by place: cluster, topic there, first offset and shift. So nothing that happens to the
   other topic's rules, parts or moves later changes it. The records behind the fork's offsets never belong to it.
2. Gateways read the past by the name of the topic that it is from. So that topic has the same name for clients and on
   the clusters of its parts.
3. The log names the stay that the fork's rule begins, as a cut does (`logs`). The log counts from that stay on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from mesh.routing import RoutingTable, Stay
from mesh.rpc import stitches, topics
from mesh.stitches.log import MOST_PARTS
from mesh.topics import is_topic_name
from services.control.domain.errors import Exists, InvalidField, NotAllowed, Unknown
from services.control.domain.log_ranges import LogRange
from services.control.domain.stitches.logs import (
    check_entries,
    in_force,
    log_of,
    logs_of,
    whole,
    with_parts,
)


def check_wanted(table: RoutingTable, wanted: topics.ForkTopicRequest) -> None:
    """Refuses what no cluster has to be asked for."""
    for field, topic in (("source_topic", wanted.source_topic), ("topic", wanted.topic)):
        if not is_topic_name(topic) or topic.startswith("__"):
            raise InvalidField(field, f"{topic[:249]!r} is no name of a topic of clients")
    if wanted.topic == wanted.source_topic:
        raise InvalidField("topic", f"a fork of {wanted.topic!r} needs another name")
    if wanted.target_cluster not in table.clusters:
        known = ", ".join(sorted(table.clusters)) or "none"
        text = f"cluster {wanted.target_cluster!r} is not registered (known: {known})"
        raise InvalidField("target_cluster", text)
    if wanted.WhichOneof("at") is None or (wanted.WhichOneof("at") == "latest" and not wanted.latest):
        raise InvalidField("at", "is required: say an offset, a time, or the latest record")
    if wanted.WhichOneof("at") == "offset" and wanted.offset < 0:
        raise InvalidField("offset", f"{wanted.offset} is less than 0")
    if wanted.past_bytes_per_second < 0:
        raise InvalidField("past_bytes_per_second", f"{wanted.past_bytes_per_second} is less than 0; 0: no bound")
    route = table.route(wanted.source_topic)
    if route is None:
        raise InvalidField("source_topic", f"no rule leads topic {wanted.source_topic!r} to a cluster")
    there = table.route(wanted.topic)
    if there is not None and in_force(log_of(table, wanted.topic), there.stay):
        raise Exists(f"topics/{wanted.topic}", f"the log of topic {wanted.topic!r} is a fork, or stitched, already")


def past_of(table: RoutingTable, topic: str, partitions: int) -> list[stitches.LogPart]:
    """The parts of a topic's log, as those of a fork's past."""
    route, log = table.route(topic), log_of(table, topic)
    assert route is not None, "the rules lead the topic to a cluster"
    count = len(in_force(log, route.stay))
    found = list(log.parts[:count]) if log is not None and count else [whole(route.stay)]
    past: list[stitches.LogPart] = []
    for each in found:
        part = stitches.LogPart()
        part.CopyFrom(each)
        if not part.is_past and part.topic != topic:
            text = (
                f"topic {topic!r} is {part.topic!r} on {part.cluster_name!r}, and the past of a fork needs the name "
                "that clients know; fork a topic that no rule renames"
            )
            raise NotAllowed("TOPIC_IS_RENAMED", f"topics/{topic}", text)
        part.is_past = True
        if not part.partitions:
            part.partitions.extend(stitches.LogPartPartition() for _ in range(partitions))
        if len(part.partitions) != partitions:
            text = (
                f"topic {topic!r} has {partitions} partitions, and a part of its log has {len(part.partitions)}; wait "
                f"until that part has expired: `meshctl topic parts {topic}` says when"
            )
            raise NotAllowed("OTHER_PARTITIONS", f"topics/{topic}", text)
        past.append(part)
    return past


def check_offsets(topic: str, offset: int, log: Mapping[int, LogRange]) -> None:
    """Refuses an offset whose records are gone."""
    gone = sorted(number for number, each in log.items() if offset < each.start)
    if gone:
        number = gone[0]
        text = (
            f"offset {offset} of partition {number} of topic {topic!r} is gone: the first record there is at "
            f"{log[number].start}; fork at a later offset, or at a time"
        )
        raise NotAllowed("OFFSET_IS_GONE", f"topics/{topic}", text)


def forked(
    table: RoutingTable,
    wanted: topics.ForkTopicRequest,
    past: Sequence[stitches.LogPart],
    offsets: Mapping[int, int],
    stay: Stay,
    now: datetime,
) -> stitches.StitchedLog:
    """The log of the fork. `offsets`: the ends of its past; `stay`: the one that its rule begins."""
    own = whole(stay)
    own.partitions.extend(stitches.LogPartPartition(start=offsets[n], shift=offsets[n]) for n in sorted(offsets))
    own.begin_time.FromDatetime(now)
    kept = [part for part in past if any(each.start < offsets[n] for n, each in enumerate(part.partitions))]
    for part in kept:
        for number, each in enumerate(part.partitions):
            each.start = min(each.start, offsets[number])
    if len(kept) >= MOST_PARTS:
        text = (
            f"the log of topic {wanted.source_topic!r} has {len(kept)} parts up to there, and a fork has {MOST_PARTS} "
            f"with its own; wait until the oldest has expired: `meshctl topic parts {wanted.source_topic}` says when"
        )
        raise NotAllowed("TOO_MANY_PARTS", f"topics/{wanted.source_topic}", text)
    check_entries(table, wanted.topic, (len(kept) + 1) * len(offsets))
    log = stitches.StitchedLog(
        topic=wanted.topic, fork_of=wanted.source_topic, past_bytes_per_second=wanted.past_bytes_per_second
    )
    return with_parts(log, [*kept, own])


def forks_of(table: RoutingTable, source: str = "") -> list[stitches.StitchedLog]:
    """The forks that are in force, by name; `source`: only those of this topic."""
    found = []
    for topic, log in sorted(logs_of(table).items()):
        route = table.route(topic)
        if log.fork_of and (not source or log.fork_of == source) and route and in_force(log, route.stay):
            found.append(log)
    return found


def fork_of(log: stitches.StitchedLog) -> topics.TopicFork:
    """The fork as callers see it."""
    own = next(part for part in log.parts if not part.is_past)
    fork = topics.TopicFork(
        name=f"topics/{log.topic}",
        source_topic=log.fork_of,
        cluster=log.parts[-1].cluster_name,
        past_clusters=[part.cluster_name for part in log.parts if part.is_past],
        past_bytes_per_second=log.past_bytes_per_second,
        create_time=own.begin_time,
    )
    for number, each in enumerate(own.partitions):
        fork.partitions.add(partition=number, offset=each.start)
    return fork


def own_topics(log: stitches.StitchedLog) -> dict[str, list[str]]:
    """Cluster -> the topics there with the fork's own records."""
    found: dict[str, list[str]] = {}
    for part in log.parts:
        if not part.is_past and part.topic not in found.setdefault(part.cluster_name, []):
            found[part.cluster_name].append(part.topic)
    return found


def fork_to_delete(table: RoutingTable, topic: str) -> stitches.StitchedLog:
    """The log of a fork. Refuses a topic that is none."""
    log = log_of(table, topic)
    if log is None or not log.fork_of:
        raise Unknown(f"topics/{topic}", f"topic {topic!r} is no fork; `meshctl topic forks` shows all")
    return log
