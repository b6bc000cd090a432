"""Anomalies of the positions that groups store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from judge.anomalies.anomaly import Anomaly
from judge.history import History, Kind, Mark, Operation, Outcome, Place


def lost_commit(history: History) -> Iterator[Anomaly]:
    """A stored position is read that is not the last acknowledged one since the last move, nor one under way since."""
    stored: dict[tuple[str, Place], list[tuple[Operation, Mark]]] = defaultdict(list)
    for operation in history.of_kind(Kind.COMMIT):
        if operation.outcome is not Outcome.FAIL:
            for mark in operation.marks():
                stored[mark.group, mark.place.anywhere].append((operation, mark))
    all_moves = list(history.of_kind(Kind.MOVE))
    for reading in history.of_kind(Kind.COMMITTED):
        if reading.outcome is not Outcome.OK:
            continue
        for seen in reading.marks():
            moves = [each.end for each in all_moves if _moves(each, seen.place) and each.start < reading.end]
            since = max(moves, default=float("-inf"))  # the new cluster has a book of its own
            writes = [pair for pair in stored[seen.group, seen.place.anywhere] if since < pair[0].start < reading.end]
            settled = [each for each, _ in writes if each.outcome is Outcome.OK and each.end < reading.start]
            newest = max((each.start for each in settled), default=None)
            possible = [
                mark.offset
                for each, mark in writes
                if newest is None or each.end >= newest or each.outcome is Outcome.INFO
            ]
            if newest is None and moves:
                continue
            if newest is None:
                possible.append(-1)
            if seen.offset not in possible:
                text = (
                    f"group {seen.group} at {seen.place}: {seen.offset} is read, possible was {sorted(set(possible))}"
                )
                last = [each.index for each in settled if each.start == newest]
                yield Anomaly(f"{seen.group}/{seen.place}/{reading.index}", text, (*last, reading.index))


def commits_disagree(history: History) -> Iterator[Anomaly]:
    """After the run, the position that clients read is not the position that the owner of the topic stores."""
    told: dict[tuple[str, Place], list[tuple[Operation, Mark]]] = defaultdict(list)
    for operation in history.of_kind(Kind.COMMITTED):
        if operation.outcome is Outcome.OK and operation.note == "at rest":
            for mark in operation.marks():
                told[mark.group, mark.place.anywhere].append((operation, mark))
    for (group, place), answers in told.items():
        if len({mark.offset for _, mark in answers}) > 1:
            text = f"group {group} at {place}: " + ", ".join(f"{mark.offset} by {each.via}" for each, mark in answers)
            yield Anomaly(f"{group}/{place}", text, tuple(each.index for each, _ in answers))


def _moves(operation: Operation, place: Place) -> bool:
    return any(move.topic == place.topic for move in operation.moves())
