"""Drains of clusters as sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mesh import durations
from mesh.rpc import drains, events
from services.control.domain.drains.drains import LEFT, STATES

MOST_NAMED: Final = 3
"""Topics in a sentence."""


def _started(event: events.Event) -> str:
    drain = event.drain_started.drain
    spec = drain.spec
    left = [each for each in drain.topics if each.state == LEFT]
    text = (
        f"{drain.name}: {len(drain.topics) - len(left)} topics move from {spec.source_cluster} to "
        f"{spec.target_cluster}, {spec.at_once} at a time"
    )
    named = [f"{each.topic} ({each.problem})" for each in left[:MOST_NAMED]]
    if len(left) > MOST_NAMED:
        named.append(f"{len(left) - MOST_NAMED} more topics")
    return f"{text}; these stay: {', '.join(named)}" if named else text


def _move_ended(event: events.Event) -> str:
    end = event.drain_move_ended
    problem = f": {end.problem}" if end.problem else ""
    verdict = f"confirmed with {end.records} records" if end.confirmed else "not confirmed"
    waited = durations.whole_ms(end.pause)
    return f"{end.name}: topic {end.topic} has moved, {verdict}{problem}; producers waited {waited} ms"


def _paused(event: events.Event) -> str:
    paused = event.drain_paused
    problem = f": {paused.problem}" if paused.problem else ""
    return f"{paused.name} is paused: no further move begins{problem}"


def _ended(event: events.Event) -> str:
    end = event.drain_ended
    return f"{end.name} is {STATES.get(end.state, 'over')}; {_remainder(end.remainder)}"


def _remainder(of: drains.DrainRemainder) -> str:
    counts = (
        (of.topics, "topics"),
        (of.rules, "rules"),
        (of.groups, "groups"),
        (of.transactional_ids, "transactional ids"),
    )
    return f"still there: {', '.join(f'{len(names)} {what}' for names, what in counts)}"


SENTENCES: Final[dict[str, Callable[[events.Event], str]]] = {
    "drain_started": _started,
    "drain_move_begun": lambda event: (
        f"{event.drain_move_begun.name}: the move of topic {event.drain_move_begun.topic} begins, "
        f"{event.drain_move_begun.move}"
    ),
    "drain_move_ended": _move_ended,
    "drain_topic_left": lambda event: (
        f"{event.drain_topic_left.name}: topic {event.drain_topic_left.topic} stays: {event.drain_topic_left.problem}"
    ),
    "drain_paused": _paused,
    "drain_resumed": lambda event: f"{event.drain_resumed.name} goes on",
    "drain_cancelled": lambda event: (
        f"{event.drain_cancelled.name} is cancelled: no further move begins, and those under way end as they are"
    ),
    "drain_ended": _ended,
}
"""Payload -> its sentence."""
