"""The effects of a move on the records of a topic and on its readers.

Records stay on the old cluster, and offsets are not carried over. A running consumer keeps its position, but this
number means another place in the log of the new cluster. Control compares the group's committed offset on the old
cluster with the new log:

1. The new log begins at the position, or the group has read there to exactly this offset before: it misses nothing.
2. The position is outside of the new log: the broker says so, and the group's reset policy decides.
3. The group has read further there before: it reads some records again.
4. Otherwise it goes on in the middle of a log without an error, and never sees the earlier records: the bad case.

A consumer that starts after the move has no position. It begins at its group's committed offset on the new cluster, or
by its reset policy. A group with shadow topics differs: its home keeps its offsets of all topics. Such a group has the
same position wherever a topic moves, and control does not know what the group has read there before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from mesh.routing import ClientMatch, Place, RoutingTable, Subject
from services.control.domain.errors import NotAllowed
from services.control.domain.log_ranges import LogRange
from services.control.domain.rules.moves import Move, for_whom, listed, located


class Fate(IntEnum):
    """The result for a topic or for a group; the higher, the worse."""

    RECORDS_STAY = 1
    GOES_ON = 2
    OUT_OF_RANGE = 3
    READS_AGAIN = 4
    SILENT_SKIP = 5


Logs = Mapping[Place, Mapping[int, LogRange]]
"""Place of a topic -> partition -> its log. A place that is absent was not read."""
Positions = Mapping[Place, Mapping[str, Mapping[int, int]]]
"""Place of a topic, or of its shadow -> group -> partition -> committed offset."""

EMPTY = LogRange(0, 0)
"""The log of a partition that does not exist yet."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The fate of the records of a topic that moves (`group` is empty), or of one of its groups.

    The effect on a group is that of its partition with the worst fate.
    """

    move: Move
    fate: Fate
    group: str = ""
    partition: int = 0
    position: int = 0
    new_log: LogRange = EMPTY
    records: int = 0


def places_of_danger(moves: Iterable[Move], logs: Logs) -> set[Place]:
    """Places of topics that move whose readers may end in the middle of a log."""
    return {
        move.source
        for move in moves
        if move.target is not None
        and any(
            new.records and old.end > new.start
            for partition, old in logs.get(move.source, {}).items()
            if (new := logs.get(move.target, {}).get(partition)) is not None
        )
    }


class OffsetKeepers:
    """Which clusters keep the offsets of which groups, under the rules of a table."""

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        rules = (rule for rule in table.rules if rule.match.subject is Subject.GROUP and rule.shadow_topics)
        self._homes = {rule.target_cluster for rule in rules} & table.clusters.keys()

    def home_of(self, group: str, clients: ClientMatch | None = None) -> str | None:
        """The cluster that keeps the group's offsets of all topics, for these clients.

        None if each topic's own cluster keeps them.
        """
        rule = self._table.for_clients(clients).group_rule(group)
        return rule.target_cluster if rule is not None and rule.shadow_topics else None

    def places(self, move: Move) -> set[Place]:
        """The places that may hold offsets of groups for a topic before it moves: the topic itself, and its shadows."""
        homes = self._homes - {move.source.cluster}
        return {move.source} | {self._shadow(home, move.topic, move.client) for home in homes}

    def place(self, group: str, topic: str, place: Place) -> Place:
        """The place of a group's offsets of a topic: beside its records; with shadow topics, at the group's home."""
        home = self.home_of(group)
        return place if home is None or home == place.cluster else self._shadow(home, topic)

    def _shadow(self, home: str, topic: str, clients: ClientMatch | None = None) -> Place:
        """The place of a topic's shadow on a cluster that is not the topic's own.

        It has the name that the topic had when it was last on that cluster.
        """
        route = self._table.for_clients(clients).route(topic)
        left = None if route is None else route.before
        return Place(home, left.upstream_topic if left is not None and left.cluster == home else topic)

    def readers(self, move: Move, positions: Positions) -> dict[str, Mapping[int, int]]:
        """The groups that read a topic, each with the offsets that its members use."""
        return {
            group: offsets
            for place in self.places(move)
            for group, offsets in positions.get(place, {}).items()
            if (self.home_of(group, move.client) or move.source.cluster) == place.cluster
        }


def effects_of(
    moves: Iterable[Move], keepers: OffsetKeepers, logs: Logs, positions: Positions, read_before: Positions
) -> list[Effect]:
    """All effects, topic by topic: first on the records, then on the groups.

    `read_before`: the offsets that groups have committed on the clusters of the topics after the move.
    """
    effects: list[Effect] = []
    for move in moves:
        behind = sum(log.records for log in logs.get(move.source, {}).values())
        if behind:
            effects.append(Effect(move, Fate.RECORDS_STAY, records=behind))
        if move.target is None or move.target not in logs:
            continue
        there = read_before.get(move.target, {})
        for group, offsets in sorted(keepers.readers(move, positions).items()):
            fates = (
                _effect(move, group, partition, offset, logs[move.target].get(partition, EMPTY), there.get(group, {}))
                for partition, offset in sorted(offsets.items())
            )
            worst = max(fates, key=lambda effect: effect.fate, default=None)
            if worst is not None:
                effects.append(worst)
    return effects


def _effect(
    move: Move, group: str, partition: int, position: int, log: LogRange, read_before: Mapping[int, int]
) -> Effect:
    return Effect(move, fate_of(position, log, read_before.get(partition)), group, partition, position, log)


def fate_of(position: int, log: LogRange, read_before: int | None) -> Fate:
    """The fate of a reader at `position` in `log`; `read_before` is its group's earlier committed offset there."""
    if not log.start <= position <= log.end:
        return Fate.OUT_OF_RANGE
    if position in (log.start, read_before):
        return Fate.GOES_ON
    if read_before is not None and position < read_before:
        return Fate.READS_AGAIN
    return Fate.SILENT_SKIP


def refuse_skips(effects: Iterable[Effect]) -> None:
    """Refuses a change after which a group would silently skip records."""
    skips = [effect for effect in effects if effect.fate is Fate.SILENT_SKIP]
    if skips:
        raise NotAllowed(
            "GROUP_WOULD_SKIP_RECORDS",
            f"topics/{skips[0].move.topic}",
            listed([skip_of(effect) for effect in skips])
            + "; empty that log first, or set accept_skip (groups that start again after the move are not harmed)",
        )


def skip_of(effect: Effect) -> str:
    """The records that a group would miss, as a clause."""
    move, log = effect.move, effect.new_log
    return (
        f"group {effect.group!r} is at offset {effect.position} of topic {move.topic!r} partition {effect.partition}, "
        f"and would silently go on from that number {located(move.topic, move.target)}, whose log is not empty "
        f"(offsets {log.start} to {log.end}){for_whom(move)}"
    )
