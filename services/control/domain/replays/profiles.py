"""The last profile of the records of each topic, as replays to "profile" have reported it.

Profiles are bounded: a member reports what it found, and control keeps the part that is of use to people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mesh.rpc import events, replays
from mesh.rpc import profiles as profiles_pb
from services.control.domain.errors import InvalidField, Unknown
from services.control.domain.replays.names import check_topic

TOPICS = "topics/"
"""The beginning of the resource names of topics."""
KEPT_BYTES = 4 * 1024 * 1024
"""Bytes of all profiles; they are in memory and in every snapshot. Enough for a thousand usual topics."""
LARGEST = 40 * 1024
"""Bytes of one profile; those of one replay are one event, and Kafka takes events of 1 MB."""

TopicProfile = profiles_pb.TopicProfile
Profiles = Mapping[str, TopicProfile]
"""Topic -> profile; the profile that was made last is the last."""


def profile_of(known: Profiles, topic: str) -> TopicProfile:
    if topic not in known:
        text = f"topic {topic!r} has not been looked at; `meshctl topic profile {topic}` does it"
        raise Unknown(f"{TOPICS}{topic}", text)
    return known[topic]


def check_profiles(profiles: Iterable[TopicProfile], spec: replays.ReplaySpec) -> None:
    """Checks the profiles that a member reports; InvalidField for a topic outside of the replay."""
    topics = {each.topic for each in spec.ranges} if spec.HasField("profile") else set()
    for place, each in enumerate(profiles):
        field = f"profiles[{place}].topic"
        check_topic(field, each.topic)
        if each.topic not in topics:
            raise InvalidField(field, f"{each.topic!r} is no topic of this profile replay")
        topics.remove(each.topic)


def fitting(profile: TopicProfile) -> TopicProfile:
    """The profile, without the parts that make it too large: first the partitions go, then the last fields."""
    if profile.ByteSize() <= LARGEST:
        return profile
    small = TopicProfile()
    small.CopyFrom(profile)
    small.partition_records.clear()
    while small.ByteSize() > LARGEST and small.fields:
        del small.fields[len(small.fields) // 2 :]
    if small.ByteSize() > LARGEST:
        small.header_names.clear()
    return small


def fold_profiles(known: Profiles, event: events.Event) -> Profiles:
    """The profiles after an event; the very same value if the event says nothing of profiles."""
    if event.WhichOneof("payload") != "replay_ended" or not event.replay_ended.profiles:
        return known
    kept = dict(known)
    for each in event.replay_ended.profiles:
        kept.pop(each.topic, None)
        kept[each.topic] = each
    size = sum(each.ByteSize() for each in kept.values())
    while size > KEPT_BYTES:
        size -= kept.pop(next(iter(kept))).ByteSize()
    return kept
