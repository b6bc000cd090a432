"""Orders and answers as they stand in discovery.proto."""

from __future__ import annotations

from collections import deque

from mesh.routing import RoutingTable
from mesh.rpc import admin, discovery
from services.router.discovery.member import (
    Answer,
    Answered,
    Apply,
    Divide,
    Hold,
    Order,
    ProtocolError,
    Release,
    Switch,
    Try,
)
from mesh.routing.table_bytes import TableBytes, field

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
    """Orders to the bytes of a WatchResponse. All members get the same few tables: each is encoded once."""

    def __init__(self) -> None:
        self._encode = TableBytes()
        self._tables: deque[tuple[RoutingTable, bytes]] = deque(maxlen=REMEMBERED_TABLES)

    def response(self, order: Order) -> bytes:
        match order:
            case Apply(table):
                return field(discovery.WatchResponse, "apply", self._encoded(table))
            case Hold(table, hold_ms):
                hold = discovery.HoldOrder(hold_ms=hold_ms).SerializeToString()
                hold += field(discovery.HoldOrder, "table", self._encoded(table))
                return field(discovery.WatchResponse, "hold", hold)
            case Try(table, permille):
                canary = discovery.CanaryOrder(permille=permille).SerializeToString()
                canary += field(discovery.CanaryOrder, "table", self._encoded(table))
                return field(discovery.WatchResponse, "canary", canary)
            case Switch(revision):
                return discovery.WatchResponse(switch=discovery.SwitchOrder(revision=revision)).SerializeToString()
            case Release(revision):
                return discovery.WatchResponse(release=discovery.ReleaseOrder(revision=revision)).SerializeToString()
            case Divide(parts):
                return discovery.WatchResponse(quota_parts=parts).SerializeToString()

    def _encoded(self, table: RoutingTable) -> bytes:
        for known, encoded in self._tables:
            if known is table:
                return encoded
        encoded = self._encode.of(table)
        self._tables.append((table, encoded))
        return encoded


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
