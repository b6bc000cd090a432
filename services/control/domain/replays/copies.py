"""Checks of a copy to a topic, or of a profile, that need no call to a cluster; and the names of target topics.

The target's name may hold "{topic}", the name of the source topic. A copy of several topics needs "{topic}": without
it, two partitions with the same number would be written to one partition. Then only a header would distinguish their
records.
"""

from __future__ import annotations

from collections.abc import Iterable

from mesh.rpc import replays
from mesh.topics import is_topic_name
from services.control.domain.errors import InvalidField
from services.control.domain.records.checks import check_condition, check_transforms
from services.control.domain.replays.names import check_name, check_topic
from services.control.domain.rules.checks import INTERNAL_PREFIX

SAME_NAME = "{topic}"
MAX_PROFILED = 20
"""Topics of one profile: all findings of a profile are one event."""
LARGEST_SAMPLE = 1_000_000_000
"""Records of each partition; a larger sample would take longer than anybody waits."""

_DEFAULTS = {
    "timestamps": (replays.ReplayTimestamps, replays.REPLAY_TIMESTAMPS_KEEP),
    "partitioning": (replays.ReplayPartitioning, replays.REPLAY_PARTITIONING_SAME),
    "archive": (replays.ReplayArchive, replays.REPLAY_ARCHIVE_AUTO),
}


def topics_of(spec: replays.ReplaySpec) -> list[str]:
    """The source topics of a replay, each once, in their order."""
    return list(dict.fromkeys(each.topic for each in spec.ranges))


def target_of(copy: replays.ReplayToTopic, topic: str) -> str:
    """The name of the topic that gets the copies of a topic's records."""
    return (copy.topic or SAME_NAME).replace(SAME_NAME, topic)


def check_copy(spec: replays.ReplaySpec, identifier: str) -> None:
    """Refuses a wrong copy, and fills in the defaults of unset fields."""
    copy, topics = spec.topic, topics_of(spec)
    check_name("spec.topic.pipeline", copy.pipeline)
    check_name("spec.topic.group", copy.group)
    _check_sources(topics, "copied")
    _check_target(copy, topics)
    if copy.filter:
        check_condition("spec.topic.filter", copy.filter)
    check_transforms("spec.topic.transforms", copy.transforms)
    for field, (kind, usual) in _DEFAULTS.items():
        said = getattr(copy, field)
        if said not in kind.values():
            raise InvalidField(f"spec.topic.{field}", f"{said} is nothing that this release knows")
        setattr(copy, field, said or usual)
    copy.topic = copy.topic or SAME_NAME
    copy.group = copy.group or f"mesh-replay-{identifier}"


def check_profile(spec: replays.ReplaySpec, _identifier: str) -> None:
    check_name("spec.profile.pipeline", spec.profile.pipeline)
    topics = topics_of(spec)
    _check_sources(topics, "looked at")
    if len(topics) > MAX_PROFILED:
        raise InvalidField("spec.ranges", f"{len(topics)} topics are more than {MAX_PROFILED}; make several profiles")
    if not 0 <= spec.profile.sample <= LARGEST_SAMPLE:
        text = f"{spec.profile.sample} is not from 0 (all) to {LARGEST_SAMPLE} records of each partition"
        raise InvalidField("spec.profile.sample", text)
    if spec.dry_run:
        raise InvalidField("spec.dry_run", "a profile writes nothing, so there is nothing to try; leave it out")


def _check_sources(topics: Iterable[str], verb: str) -> None:
    for topic in topics:
        if topic.startswith(INTERNAL_PREFIX):
            raise InvalidField("spec.ranges", f"{topic!r} is kept by Kafka for itself; it can't be {verb}")


def _check_target(copy: replays.ReplayToTopic, topics: list[str]) -> None:
    field = "spec.topic.topic"
    if not copy.topic and copy.cluster == copy.source_cluster:
        text = f"is required on the cluster that is read: copies of {topics[0]!r} in which topic, or on which cluster?"
        raise InvalidField(field, text)
    if len(topics) > 1 and copy.topic and SAME_NAME not in copy.topic:
        text = f"{copy.topic!r} would get the records of {len(topics)} topics, and partitions of one number would mix"
        raise InvalidField(field, f"{text}; put {SAME_NAME} into it, or make a replay for each")
    for topic in topics:
        target = target_of(copy, topic)
        if not is_topic_name(target):
            text = f"{target!r} is no topic name (1 to 249 of a-z, A-Z, 0-9, '.', '_', '-')"
            raise InvalidField(field, f"{text}; only {SAME_NAME} is replaced in it")
        check_topic(field, target)
        if target.startswith(INTERNAL_PREFIX):
            raise InvalidField(field, f"{target!r} is kept by Kafka for itself; nobody else writes there")
        if target in topics and copy.cluster == copy.source_cluster:
            text = f"{target!r} is what is read, and would get its own records again"
            raise InvalidField(field, f"{text}; name another topic, or another cluster")
