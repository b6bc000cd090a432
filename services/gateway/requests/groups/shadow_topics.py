"""Shadow topics: empty topics on a group's home cluster that stand for topics of other clusters.

A coordinator assigns topics of its own cluster alone, and keeps offsets of these alone. So the mesh makes shadows of
the foreign topics there, with as many partitions. No client writes to a shadow or reads from it: the rules route the
topic's name to another cluster. No list of topics shows shadows, for the same reason. The requests that need shadows
keep them in step: a subscription, a commit, and now and then a heartbeat of the group. A shadow is marked by a setting
that has no effect and that nobody else would choose. A topic that was moved away, with its data left behind, serves as
a shadow as well, and has no mark. Gateways delete marked shadows when their topics are gone (`shadow_sweep`).

Without a rule about the group, shadows serve assignments alone, and each topic's owner keeps the group's offsets, as
for classic groups. So gateways of all releases find the offsets at the same place. A rule with `shadow_topics` has the
home keep all offsets too; a rule without it forbids shadows.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from services.gateway.requests.groups.group_home import may_have_shadows, owners
from services.gateway.requests.groups.group_kinds import CONSUMER, Question, describe
from services.gateway.requests.groups.group_subscription import Lack, lacking, matching_topics
from services.gateway.requests.plan import Call, Command, Controller, Lane, MeshView, Unreachable, ask, refresh
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.consumer_group_describe import DescribedGroup
from services.gateway.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from services.gateway.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

MARK = ("flush.ms", "9223372036854775806")
"""One millisecond less than the default, which means that no flush is ever forced."""
MOST_SHADOWS = 1_000
"""Most topics of other clusters that one subscription may need on a group's home: each takes files and memory there."""
TOO_MANY, REFUSED = "too_many", "refused"
"""Reasons by which a metric counts the faults."""
TIMEOUT_MS = 5_000
CREATE_VERSION, GROW_VERSION = 5, 2
ONLY_BROKERS_DEFAULT = -1
DONE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS})
"""The last two mean that another gateway was faster."""

NOT_NOW = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
"""A cluster answers so while it elects a controller, or while it has too much to do: later it may make the topic."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the home lacks a shadow."""

    reason: str
    passing: bool
    """Whether a later attempt may succeed."""


def keep_shadows(
    home: str, topics: Iterable[str], lacks: Sequence[Lack], mesh: MeshView
) -> Generator[Command, Any, Fault | None]:
    """Makes what the home lacks of the topics of one subscription; returns the fault if that fails."""
    fault = _too_many(home, topics, lacks, mesh)
    kind = TOO_MANY if fault else REFUSED
    if fault is None:
        fault = yield from _make(home, lacks, mesh)
    if fault is not None:
        mesh.memory.on_shadow_fault(kind)
    return fault


def _too_many(home: str, topics: Iterable[str], lacks: Sequence[Lack], mesh: MeshView) -> Fault | None:
    """A subscription whose shadows exist already stays as it is."""
    if all(lack.at_home for lack in lacks):
        return None
    foreign = sum(len(found) for owner, found in owners(topics, mesh).items() if owner != home)
    if foreign <= MOST_SHADOWS:
        return None
    text = f"the subscription would need shadows of {foreign} topics on cluster {home}, and may have {MOST_SHADOWS}"
    return Fault(f"{text}: subscribe to fewer topics, or narrow the expression", passing=False)


def _make(home: str, lacks: Sequence[Lack], mesh: MeshView) -> Generator[Command, Any, Fault | None]:
    taken = [lack.topic for lack in lacks if mesh.table.is_known_to_others(home, _name_at(home, lack.topic, mesh))]
    if taken:
        text = f"other clients have topics on cluster {home} that are called as the shadows would be"
        return Fault(f"{text}: {', '.join(taken)}", passing=False)
    faults = yield from _create(home, [lack for lack in lacks if not lack.at_home], mesh)
    faults += yield from _grow(home, [lack for lack in lacks if lack.at_home], mesh)
    if lacks:
        yield from refresh(home, sorted(lack.topic for lack in lacks))
    if not faults:
        return None
    return Fault("; ".join(fault.reason for fault in faults), all(fault.passing for fault in faults))


def _name_at(home: str, topic: str, mesh: MeshView) -> str:
    """The home's name for the shadow of a foreign topic.

    If the topic was on the home before, this is the topic's last name there.
    """
    route = mesh.table.route(topic)
    left = None if route is None else route.before
    return left.upstream_topic if left is not None and left.cluster == home else topic


def shadowed(topics: Iterable[str], home: str, mesh: MeshView) -> Generator[Command, Any, Fault | None]:
    """Makes the home have a shadow of each foreign topic; returns the fault if that fails."""
    topics = list(topics)
    lacks = yield from lacking(topics, home, mesh)
    if isinstance(lacks, Unreachable):
        return Fault(f"cluster {lacks.cluster} can't be reached: {lacks.reason}", passing=True)
    return (yield from keep_shadows(home, topics, lacks, mesh))


def see_to_shadows(group_id: str, home: str, mesh: MeshView) -> Generator[Command, Any, None]:
    """Compares the home's topics with the members' subscriptions, now and then.

    Any group may need this: a topic may have got more partitions, may match an expression since it exists, or may have
    moved away from the home.
    """
    alone = len(mesh.table.clusters) <= 1
    if alone or not may_have_shadows(group_id, mesh) or mesh.memory.shadows_seen_to.get(group_id, mesh.now):
        return
    mesh.memory.shadows_seen_to.put(group_id, True, mesh.now)
    question = Question(CONSUMER, home, group_id)
    group = (yield from describe([question], mesh))[question]
    if isinstance(group, Unreachable):
        return
    fault = yield from shadowed((yield from _subscribed(group, mesh)), home, mesh)
    if fault is not None:
        log.warning("shadow topics could not be kept in step", group=group_id, cluster=home, reason=fault.reason)


def _subscribed(group: DescribedGroup, mesh: MeshView) -> Generator[Command, Any, list[str]]:
    topics = {topic for member in group.members for topic in member.subscribed_topic_names}
    for regex in {member.subscribed_topic_regex for member in group.members}:
        if regex:
            topics.update((yield from matching_topics(regex, mesh)))
    return sorted(topics)


def _create(home: str, lacks: Sequence[Lack], mesh: MeshView) -> Generator[Command, Any, list[Fault]]:
    if not lacks:
        return []
    name, value = MARK
    message = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=lack.topic,
                num_partitions=lack.partitions,
                replication_factor=ONLY_BROKERS_DEFAULT,
                configs=[CreatableTopicConfig(name=name, value=value)],
            )
            for lack in lacks
        ],
        timeout_ms=TIMEOUT_MS,
    )
    version = highest_version(mesh, home, ApiKey.CREATE_TOPICS, CREATE_VERSION)
    outcome = yield from ask(
        Call(home, message, version, Controller(), Lane.CLIENT, by_mesh=True), CreateTopicsResponse
    )
    if isinstance(outcome, Unreachable):
        return [Fault(f"cluster {home} can't be reached: {outcome.reason}", passing=True)]
    log.info("shadow topics", cluster=home, topics=[lack.topic for lack in lacks])
    return [_fault(home, each.name, each.error_code, each.error_message) for each in outcome.topics if _failed(each)]


def _grow(home: str, lacks: Sequence[Lack], mesh: MeshView) -> Generator[Command, Any, list[Fault]]:
    if not lacks:
        return []
    topics = [CreatePartitionsTopic(name=lack.topic, count=lack.partitions, assignments=None) for lack in lacks]
    message = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
    version = highest_version(mesh, home, ApiKey.CREATE_PARTITIONS, GROW_VERSION)
    outcome = yield from ask(
        Call(home, message, version, Controller(), Lane.CLIENT, by_mesh=True), CreatePartitionsResponse
    )
    if isinstance(outcome, Unreachable):
        return [Fault(f"cluster {home} can't be reached: {outcome.reason}", passing=True)]
    return [_fault(home, each.name, each.error_code, each.error_message) for each in outcome.results if _failed(each)]


def _failed(result: Any) -> bool:
    return result.error_code not in DONE


def _fault(home: str, topic: str, code: int, text: str | None) -> Fault:
    reason = f"cluster {home} made no shadow of topic {topic}: error {code}, {text or 'without a reason'}"
    return Fault(reason, code in NOT_NOW)
