"""Moves of topics with their records as sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mesh import durations
from mesh.rpc import events
from services.control.domain.topic_moves.moves import WORDS
from services.control.domain.topic_moves.two_cuts import STITCH


def _started(event: events.Event) -> str:
    move = event.topic_move_started.move
    way = f"from {move.copy.source_cluster} to {move.copy.target_cluster}"
    how = "without a copy" if move.spec.kind == STITCH else "with its records"
    return f"{move.name}: topic {move.spec.topic} moves {how} {way}"


def _stitched(event: events.Event) -> str:
    stitched = event.topic_move_stitched
    copy = stitched.copy
    pause = f", producers waited {durations.whole_ms(stitched.pause)} ms" if durations.whole_ms(stitched.pause) else ""
    return (
        f"{stitched.name}: the log is stitched{pause}; new records go to {copy.topic} on {copy.source_cluster}, "
        f"and the copy of the whole log to {copy.target_topic} begins"
    )


def _deleted(event: events.Event) -> str:
    deleted = event.topic_move_leftovers_deleted
    topics = ", ".join(f"{each.topic} on {each.cluster_name}" for each in deleted.topics)
    return f"{deleted.name}: nobody needs {topics} any more, and control has deleted it"


def _given_up(event: events.Event) -> str:
    given_up = event.topic_move_cut_given_up
    return f"{given_up.name}: the cut was given up, and the copy goes on: {given_up.problem}"


def _hindered(event: events.Event) -> str:
    hindered = event.topic_move_hindered
    if not hindered.problem:
        return f"{hindered.name}: the copy goes on"
    return f"{hindered.name}: the copy stands, and its router tries again: {hindered.problem}"


def _reached(event: events.Event) -> str:
    reached = event.topic_move_cut_reached
    what = f"{len(reached.cuts)} partitions end alike, and {len(reached.positions)} positions of groups are there"
    return f"{reached.name}: the copy has all records: {what}"


def _certified(event: events.Event) -> str:
    certified = event.topic_move_certified
    if certified.certificate.confirmed:
        records = sum(each.source.records for each in certified.certificate.partitions)
        return f"{certified.name}: both clusters have the same {records} records up to the cut"
    return f"{certified.name}: not confirmed: {'; '.join(certified.certificate.differences[:MOST_NAMED])}"


def _grown(event: events.Event) -> str:
    grown = event.topic_move_old_log_grown
    strays = sum(each.end - each.start for each in grown.strays)
    return f"{grown.name}: somebody has written {strays} records to the old log behind the cut; the new log lacks them"


def _ended(event: events.Event) -> str:
    end = event.topic_move_ended
    pause = f"; producers waited {durations.whole_ms(end.pause)} ms" if durations.whole_ms(end.pause) else ""
    problem = f": {end.problem}" if end.problem else ""
    return f"{end.name} is {WORDS.get(end.state, 'over')}{problem}{pause}"


MOST_NAMED: Final = 3
"""Differences in a sentence."""
SENTENCES: Final[dict[str, Callable[[events.Event], str]]] = {
    "topic_move_started": _started,
    "topic_move_cut_begun": lambda event: (
        f"{event.topic_move_cut_begun.name}: the copy has caught up, and control cuts"
    ),
    "topic_move_cut_given_up": _given_up,
    "topic_move_hindered": _hindered,
    "topic_move_cut_reached": _reached,
    "topic_move_stitched": _stitched,
    "topic_move_certified": _certified,
    "topic_move_leftovers_deleted": _deleted,
    "topic_move_old_log_grown": _grown,
    "topic_move_ended": _ended,
}
"""Payload -> its sentence."""
