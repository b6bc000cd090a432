"""Anomalies of a topic's move from one cluster to another."""

from __future__ import annotations

from collections.abc import Iterator

from judge.anomalies.anomaly import Anomaly
from judge.history import History, Kind, Moved, Operation, Outcome, Send
from judge.logs import logs_of

UNBROKEN = "unbroken offsets"
"""The note of a move that promises continuous offsets."""


def wrong_cluster(history: History) -> Iterator[Anomaly]:
    """A record is on another cluster, whose send began after a move had ended, and ended before one to elsewhere."""
    for topic in {move.topic for _, move in _moves(history)}:
        moves = [(each, move) for each, move in _moves(history) if move.topic == topic]
        sends = list(_sends(history, topic))
        for number, (each, move) in enumerate(moves):
            if each.outcome is not Outcome.OK:
                continue
            others = (later.start for later, elsewhere in moves[number + 1 :] if elsewhere.target != move.target)
            until = next(others, float("inf"))
            for operation, send in sends:
                if operation.start > each.end and operation.end < until and send.place.cluster != move.target:
                    text = f"value {send.value} went to {send.place} after the topic had moved to {move.target}"
                    yield Anomaly(str(send.value), text, (each.index, operation.index))


def two_writers(history: History) -> Iterator[Anomaly]:
    """During a move: a send begins after another one was stored on the new cluster, and is stored on the old one."""
    for topic in {move.topic for _, move in _moves(history)}:
        moves = [(each, move) for each, move in _moves(history) if move.topic == topic]
        sends = list(_sends(history, topic))
        for number, (each, move) in enumerate(moves):
            until = moves[number + 1][0].start if number + 1 < len(moves) else float("inf")
            inside = [pair for pair in sends if each.start <= pair[0].end and pair[0].end < until]
            new = [pair for pair in inside if pair[1].place.cluster == move.target and pair[0].start >= each.start]
            for operation, send in inside:
                if send.place.cluster == move.target:
                    continue
                earlier = [
                    (other, stored)
                    for other, stored in new
                    if stored.place.partition == send.place.partition and other.end < operation.start
                ]
                if earlier:
                    other, stored = min(earlier, key=lambda pair: pair[0].end)
                    text = (
                        f"value {stored.value} was stored at {stored.place}; {send.value}, sent later, at {send.place}"
                    )
                    yield Anomaly(str(send.value), text, (each.index, other.index, operation.index))


def misrouted(history: History) -> Iterator[Anomaly]:
    """A record is on another cluster than the routing table led to that its gateway ran, all the time of the send."""
    for topic in {move.topic for _, move in _moves(history)}:
        moves = [(each, move) for each, move in _moves(history) if move.topic == topic]
        for operation, send in _sends(history, topic):
            known = [pair for pair in moves if 0 < pair[0].revision <= operation.revision]
            if not known:
                continue
            made, move = max(known, key=lambda pair: (pair[0].revision, pair[0].start))
            # nobody knows the table of a move whose end is unknown
            doubts = (each for each, _ in moves if each.outcome is not Outcome.OK and each.start < operation.end)
            if send.place.cluster != move.target and not any(each.end > made.start for each in doubts):
                text = (
                    f"value {send.value} went to {send.place} through {operation.via}, which ran revision "
                    f"{operation.revision}; since revision {made.revision} the topic belonged to {move.target}"
                )
                yield Anomaly(str(send.value), text, (made.index, operation.index))


def not_continuous(history: History) -> Iterator[Anomaly]:
    """Over a move that promises unbroken offsets, a log on the new cluster begins below the old one's end."""
    logs = logs_of(history)
    for each, move in _moves(history):
        if each.outcome is not Outcome.OK or each.note != UNBROKEN:
            continue
        for log in logs:
            if log.place.topic != move.topic or log.place.cluster == move.target:
                continue
            later = [other for other in logs if other.place.anywhere == log.place.anywhere and other is not log]
            for other in later:
                if other.order and log.order and other.place.cluster == move.target:
                    end, begin = log.position(log.order[-1]), other.position(other.order[0])
                    if begin <= end:
                        text = f"{log.place} ends at {end}, {other.place} begins at {begin}"
                        yield Anomaly(f"{log.place}/{each.index}", text, (each.index,))


def _moves(history: History) -> Iterator[tuple[Operation, Moved]]:
    return ((each, move) for each in history.of_kind(Kind.MOVE) for move in each.moves())


def _sends(history: History, topic: str) -> Iterator[tuple[Operation, Send]]:
    """Acknowledged sends whose record was found."""
    for operation in history.of_kind(Kind.SEND, Kind.TXN):
        if operation.outcome is Outcome.OK:
            for send in operation.sends():
                if send.place.topic == topic and send.place.cluster:
                    yield operation, send
