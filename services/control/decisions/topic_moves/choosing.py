"""The kind of a move: the one that the operator names, or the best one that the topic fits."""

from __future__ import annotations

from datetime import datetime

from mesh.rpc import events, topic_moves
from services.control.decisions.topic_moves.preparation import Preparation
from services.control.domain.errors import NotAllowed
from services.control.domain.topic_moves.moves import source_of, started
from services.control.domain.topic_moves.two_cuts import BEST_FIRST, STITCH_THEN_COPY
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller


async def chosen(
    name: str,
    spec: topic_moves.TopicMoveSpec,
    view: MeshView,
    caller: Caller,
    now: datetime,
    preparation: Preparation,
) -> events.TopicMoveStarted:
    """The beginning of the move, with its topics prepared. If no kind fits, the first refusal says why."""
    kinds = (spec.kind,) if spec.kind else (STITCH_THEN_COPY,) if spec.delete_old else BEST_FIRST
    refusals: list[NotAllowed] = []
    for kind in kinds:
        tried = topic_moves.TopicMoveSpec()
        tried.CopyFrom(spec)
        tried.kind = kind
        table = view.state.effective
        try:
            way = source_of(tried, table)
            event = started(view.topic_moves, name, tried, way, table, caller.actor, caller.reason, now)
            await preparation.prepare(tried, view, way)
        except NotAllowed as refusal:
            refusals.append(refusal)
            continue
        event.move.choice = refusals[0].message if refusals else ""
        return event
    raise refusals[0]
