"""The start offsets of a session: written to the targets before the session reads a record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from services.router.forwarding import starts
from services.router.forwarding.connections import Cluster, Setback
from services.router.forwarding.lanes import Lane
from services.router.forwarding.memory import CarriedOut, Entry, Memory, SourcePartition
from services.router.forwarding.orders import Rewind
from services.router.forwarding.points import Points
from services.router.forwarding.target import Target
from services.router.forwarding.tasks import Task


def opened(
    source: Cluster,
    targets: Sequence[Target],
    task: Task,
    partitions: Collection[SourcePartition],
    names: Mapping[str, str],
    topic_ids: Mapping[str, str],
) -> list[Lane]:
    """Lanes of these partitions, from the offsets that the targets store. A partition without a stored offset begins as
    the rule says.

    `names`: for a mirror, topic -> its name on the target. `topic_ids`: read before, so that a later check always
    notices a topic that is created again meanwhile.
    """
    memories = [target.memory for target in targets]
    late = any(memory.carried_out.begun for memory in memories)
    unknown = [each for each in partitions if any(each not in memory.positions for memory in memories)]
    found = starts.beginnings(source, task.start, unknown, late=late)
    for target in targets:
        _remember_beginnings(target, found, names, topic_ids)
    return [
        Lane(
            each,
            names.get(each.topic, ""),
            min(memory.positions[each] for memory in memories),
            [memory.positions[each] for memory in memories],
            memories[0].points.setdefault(each, Points()),
        )
        for each in partitions
    ]


def rewind(
    source: Cluster,
    targets: Sequence[Target],
    task: Task,
    rewinds: Sequence[Rewind],
    lanes: Sequence[Lane],
    topic_ids: Mapping[str, str],
) -> None:
    """Carries out rewinds that the targets do not know of yet, in the order they were given."""
    by_source = {lane.source: lane for lane in lanes}
    for each in rewinds:
        behind = [target for target in targets if target.memory.carried_out.rewound < each.revision]
        if not behind:
            continue
        offsets = starts.rewound(source, each.start, by_source)
        for target in behind:
            names = {place: by_source[place].target_topic for place in offsets if task.mirror}
            _remember_rewind(target, each, offsets, target_ends(target, names), by_source, topic_ids)
            for place, offset in offsets.items():
                by_source[place].committed[targets.index(target)] = offset
        for place in offsets:
            by_source[place].position = min(by_source[place].committed)


def recognise(
    source: Cluster, targets: Sequence[Target], lanes: Collection[Lane], topic_ids: Mapping[str, str]
) -> None:
    """Setback: a position is of a topic that was deleted, and there is another one of its name. A position that names
    none, of a release before, is taken to be of the one that is there.
    """
    for target in targets:
        memory = target.memory
        unnamed = []
        others = set()
        for each in (lane.source for lane in lanes if lane.source.topic in topic_ids):
            known = memory.topic_ids.get(each)
            if not known:
                unnamed.append(each)
            elif known != topic_ids[each.topic]:
                others.add(each.topic)
        if others:
            raise Setback(
                f"topic {', '.join(sorted(others))} on cluster {source.name!r} was deleted and created again: what was "
                "read is of the old log, and going on there would pass over records of the new one. Rewind the rule "
                "to earliest, or to offsets of this topic alone, to begin with the new log"
            )
        if unnamed:
            target.commit([_name(memory, each, topic_ids) for each in unnamed])


def target_ends(target: Target, names: Mapping[SourcePartition, str]) -> dict[SourcePartition, int]:
    """The end offsets of the target's partitions for these source partitions. This rule writes to none of them
    meanwhile.
    """
    there = {SourcePartition(name, source.number): source for source, name in names.items()}
    return {there[each]: end for each, end in starts.end_offsets(target.cluster, there).items()}


def _remember_beginnings(
    target: Target,
    found: Mapping[SourcePartition, int],
    names: Mapping[str, str],
    topic_ids: Mapping[str, str],
) -> None:
    memory = target.memory
    unknown = [each for each in found if each not in memory.positions]
    entries = [memory.position_entry(each, found[each]) for each in unknown]
    entries += [_name(memory, each, topic_ids) for each in unknown]
    for each, end in target_ends(target, {each: names[each.topic] for each in unknown if names}).items():
        points = memory.points[each] = Points()
        points.rewind(found[each], end)
        entries.append(memory.points_entry(each, points))
    entries += memory.forgetting_outdated()
    if not memory.carried_out.begun:
        memory.carried_out.begun = True
        entries.append(memory.carried_out_entry())
    if entries:
        target.commit(entries)
    memory.outdated.clear()
    for each in unknown:
        memory.positions[each] = found[each]


def _remember_rewind(
    target: Target,
    rewind: Rewind,
    offsets: Mapping[SourcePartition, int],
    ends: Mapping[SourcePartition, int],
    lanes: Mapping[SourcePartition, Lane],
    topic_ids: Mapping[str, str],
) -> None:
    memory = target.memory
    entries: list[Entry] = []
    for place, offset in offsets.items():
        memory.positions[place] = offset
        entries += [memory.position_entry(place, offset), _name(memory, place, topic_ids)]
        if place in ends:
            points = lanes[place].points
            points.rewind(offset, ends[place])
            entries.append(memory.points_entry(place, points))
    memory.carried_out = CarriedOut(True, rewind.revision, memory.carried_out.synced)
    target.commit([*entries, memory.carried_out_entry()])


def _name(memory: Memory, place: SourcePartition, topic_ids: Mapping[str, str]) -> Entry:
    """The position is of the topic that is there now."""
    memory.topic_ids[place] = topic_ids.get(place.topic, "")
    return memory.topic_id_entry(place, memory.topic_ids[place])
