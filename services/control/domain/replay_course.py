"""How far one replay is: what the log says, what its member has reported since, and all of it together.

A copy may have thousands of partitions, and its member speaks of a few at a time: what is said is taken in without a
look at the others. Only when the log, or the table of reports, has taken a part of it, all are put together anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mesh.rpc import events, replays

Key = tuple[str, int]
"""Topic and partition."""


def key_of(partition: replays.ReplayPartition) -> Key:
    return partition.topic, partition.partition


def merged(
    before: Iterable[replays.ReplayPartition], said: Iterable[replays.ReplayPartition]
) -> list[replays.ReplayPartition]:
    """Partitions as they are after what was said last, in their order. `before` has that order."""
    latest = {key_of(each): each for each in before}
    known = len(latest)
    latest |= {key_of(each): each for each in said}
    return list(latest.values()) if len(latest) == known else [latest[key] for key in sorted(latest)]


def totals_of(partitions: Iterable[replays.ReplayPartition]) -> replays.ReplayTotals:
    """All together."""
    totals = replays.ReplayTotals()
    for each in partitions:
        _count(totals, each, 1)
    return totals


def without_partitions(replay: replays.Replay) -> replays.Replay:
    """All that it says beside; they may be many, so they are not copied first."""
    thin = replays.Replay()
    for field, value in replay.ListFields():
        if field.name == "partitions":
            continue
        if field.is_repeated:
            getattr(thin, field.name).extend(value)
        elif field.message_type is not None:
            getattr(thin, field.name).CopyFrom(value)
        else:
            setattr(thin, field.name, value)
    return thin


class Course:
    """Of one replay."""

    def __init__(self, replay: replays.Replay, reported: events.ReplayProgressed | None) -> None:
        self._base: tuple[object, ...] = ()
        self._said: dict[Key, replays.ReplayPartition] = {}
        self.follow(replay, reported)

    def follow(self, replay: replays.Replay, reported: events.ReplayProgressed | None) -> None:
        """What the log says now, and what is stored of its member's reports: they are newer."""
        if self._base and self._base[0] is replay and self._base[1] is reported:
            return
        self._base = (replay, reported)
        self._all = {key_of(each): each for each in replay.partitions}
        if reported is not None:
            self._all |= {key_of(each): each for each in reported.partitions}
        self._said = {key: each for key, each in self._said.items() if self._all.get(key) != each}
        self._all |= self._said
        self._totals = totals_of(self._all.values())

    def note(self, partitions: Iterable[replays.ReplayPartition]) -> None:
        """What its member says: partitions that changed."""
        for each in partitions:
            key = key_of(each)
            before = self._all.get(key)
            if before is not None:
                _count(self._totals, before, -1)
            _count(self._totals, each, 1)
            self._all[key] = self._said[key] = each

    @property
    def partitions(self) -> Mapping[Key, replays.ReplayPartition]:
        """All, as they are now."""
        return self._all

    @property
    def unwritten(self) -> list[replays.ReplayPartition]:
        """What is not stored, in order."""
        return [self._said[key] for key in sorted(self._said)]

    def beyond(self, known: Iterable[replays.ReplayPartition]) -> list[replays.ReplayPartition]:
        """Partitions that are not just so among those known, in order."""
        as_known = {key_of(each): each for each in known}
        return [self._all[key] for key in sorted(self._all) if as_known.get(key) != self._all[key]]

    @property
    def totals(self) -> replays.ReplayTotals:
        """As they are now; a value of its own."""
        totals = replays.ReplayTotals()
        totals.CopyFrom(self._totals)
        return totals

    def in_order(self) -> list[replays.ReplayPartition]:
        return [self._all[key] for key in sorted(self._all)]


def _count(totals: replays.ReplayTotals, of: replays.ReplayPartition, sign: int) -> None:
    length = max(0, of.end_offset - of.start_offset)
    done = min(max(0, of.position - of.start_offset), length)
    totals.partitions += sign
    totals.partitions_done += sign * (done == length)
    totals.offsets += sign * length
    totals.offsets_done += sign * done
    totals.records += sign * of.records
    totals.failed += sign * of.failed
    if of.HasField("planned"):
        totals.planned += sign * of.planned
