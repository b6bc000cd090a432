"""The routing state to protobuf and back, as snapshots carry it: of control in PostgreSQL, of routers in Kafka."""

from __future__ import annotations

from mesh.routing.canary import Canary
from mesh.routing.codec import table_from_proto, table_to_proto
from mesh.routing.fold import RoutingState
from mesh.rpc import events, snapshots


def state_to_proto(state: RoutingState) -> snapshots.RoutingState:
    return snapshots.RoutingState(
        effective=table_to_proto(state.effective),
        pending=None if state.pending is None else table_to_proto(state.pending),
        position=state.position,
        canary=None if state.canary is None else _canary_to_proto(state.canary),
    )


def state_from_proto(message: snapshots.RoutingState) -> RoutingState:
    """The state, equal to the one that was written; InvalidRuleError when a rule in it can't be understood."""
    return RoutingState(
        table_from_proto(message.effective),
        table_from_proto(message.pending) if message.HasField("pending") else None,
        message.position,
        Canary.of(message.canary) if message.HasField("canary") else None,
    )


def _canary_to_proto(canary: Canary) -> events.Canary:
    return events.Canary(members=sorted(canary.members), permille=canary.permille)
