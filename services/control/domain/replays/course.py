"""The progress of one replay: the log, the later reports of its member, and the sum of both.

A copy may have thousands of partitions, and its member reports a few at a time. Control takes in such a report without
reading the other partitions. Control puts all partitions together again only when the log, or the table of reports, has
taken a part of the reports.
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
    """The partitions after the last report `said`, in their order. `before` has that order."""
    latest = {key_of(each): each for each in before}
    known = len(latest)
    latest |= {key_of(each): each for each in said}
    return list(latest.values()) if len(latest) == known else [latest[key] for key in sorted(latest)]


def totals_of(partitions: Iterable[replays.ReplayPartition]) -> replays.ReplayTotals:
    """The totals of all partitions."""
    totals = replays.ReplayTotals()
    for each in partitions:
        _count(totals, each, 1)
    return totals


def without_partitions(replay: replays.Replay) -> replays.Replay:
    """The replay without its partitions; they may be many, so this function does not copy them first."""
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
    """The progress of one replay."""

    def __init__(self, replay: replays.Replay, reported: events.ReplayProgressed | None) -> None:
        self._base: tuple[object, ...] = ()
        self._said: dict[Key, replays.ReplayPartition] = {}
        self.follow(replay, reported)

    def follow(self, replay: replays.Replay, reported: events.ReplayProgressed | None) -> None:
        """Takes the log's state of the replay, and the stored reports of its member, which are newer."""
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
        """Takes the partitions that changed, as the replay's member reports them."""
        for each in partitions:
            key = key_of(each)
            before = self._all.get(key)
            if before is not None:
                _count(self._totals, before, -1)
            _count(self._totals, each, 1)
            self._all[key] = self._said[key] = each

    @property
    def partitions(self) -> Mapping[Key, replays.ReplayPartition]:
        """All partitions, as they are now."""
        return self._all

    @property
    def unwritten(self) -> list[replays.ReplayPartition]:
        """The partitions whose last report is not stored, in order."""
        return [self._said[key] for key in sorted(self._said)]

    def beyond(self, known: Iterable[replays.ReplayPartition]) -> list[replays.ReplayPartition]:
        """The partitions that differ from those in `known` or are absent there, in order."""
        as_known = {key_of(each): each for each in known}
        return [self._all[key] for key in sorted(self._all) if as_known.get(key) != self._all[key]]

    @property
    def totals(self) -> replays.ReplayTotals:
        """The totals as they are now; a copy."""
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
