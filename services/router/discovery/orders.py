"""Orders and answers as they stand in discovery.proto."""

from __future__ import annotations

from collections import deque

from mesh.routing import RoutingTable, codec
from mesh.rpc import admin, discovery, routing
from services.router.discovery.member import Answer, Answered, Apply, Hold, Order, ProtocolError, Release, Switch, Try

REMEMBERED_TABLES = 4
"""Encoded tables kept for the next member: those in force and pending, now and just before."""

PHASES = {
    Answer.APPLIED: admin.MEMBER_PHASE_APPLIED,
    Answer.HELD: admin.MEMBER_PHASE_HELD,
    Answer.TRYING: admin.MEMBER_PHASE_TRYING,
    Answer.REFUSED: admin.MEMBER_PHASE_REFUSED,
}
_ANSWERS = {phase: answer for answer, phase in PHASES.items() if answer is not Answer.REFUSED}


class OrderEncoder:
    """Orders to protobuf. All members get the same few tables: each is encoded once."""

    def __init__(self) -> None:
        self._tables: deque[tuple[RoutingTable, routing.RoutingTable]] = deque(maxlen=REMEMBERED_TABLES)

    def response(self, order: Order) -> discovery.WatchResponse:
        match order:
            case Apply(table):
                return discovery.WatchResponse(apply=self._encoded(table))
            case Hold(table, hold_ms):
                return discovery.WatchResponse(hold=discovery.HoldOrder(table=self._encoded(table), hold_ms=hold_ms))
            case Try(table, permille):
                canary = discovery.CanaryOrder(table=self._encoded(table), permille=permille)
                return discovery.WatchResponse(canary=canary)
            case Switch(revision):
                return discovery.WatchResponse(switch=discovery.SwitchOrder(revision=revision))
            case Release(revision):
                return discovery.WatchResponse(release=discovery.ReleaseOrder(revision=revision))

    def _encoded(self, table: RoutingTable) -> routing.RoutingTable:
        for known, message in self._tables:
            if known is table:
                return message
        message = codec.table_to_proto(table)
        self._tables.append((table, message))
        return message


def answered(request: discovery.WatchRequest, at: float) -> Answered:
    """An ack or nack as the state machine hears it."""
    if request.WhichOneof("kind") == "nack":
        return Answered(request.nack.revision, Answer.REFUSED, at, request.nack.reason)
    answer = _ANSWERS.get(request.ack.phase)
    if answer is None:
        raise ProtocolError(
            f"ack of revision {request.ack.revision} with phase {request.ack.phase}; due is APPLIED, HELD or TRYING"
        )
    return Answered(request.ack.revision, answer, at)
