"""TopicMoveService: moves of topics with their records."""

from __future__ import annotations

from typing import Any

from mesh.rpc import topic_moves, topic_moves_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.topic_moves.certificates import Certificates
from services.control.decisions.topic_moves.commands import TopicMoveDecisions
from services.control.domain.open_and_ended import newest_first
from services.control.domain.topic_moves.moves import TOPIC_MOVES
from services.control.store.journal import Journal


class TopicMoveService(topic_moves_grpc.TopicMoveServiceServicer):
    """See TopicMoveService in topic_moves.proto."""

    def __init__(self, journal: Journal, decisions: TopicMoveDecisions, certificates: Certificates) -> None:
        self._journal = journal
        self._certificates = certificates
        self._decisions = decisions

    async def StartTopicMove(
        self, request: topic_moves.StartTopicMoveRequest, context: Any
    ) -> topic_moves.MoveWithRecords:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        starting = self._decisions.start(request.spec, who, lambda move: stored_response(who, move))
        return await once(topic_moves.MoveWithRecords, starting)

    async def GetTopicMove(self, request: topic_moves.GetTopicMoveRequest, context: Any) -> topic_moves.MoveWithRecords:
        self._journal.require_loaded()
        shapes.id_of(TOPIC_MOVES, request.name)
        return self._decisions.shown(self._journal.view.topic_moves.get(request.name))

    async def ListTopicMoves(
        self, request: topic_moves.ListTopicMovesRequest, context: Any
    ) -> topic_moves.ListTopicMovesResponse:
        self._journal.require_loaded()
        found = self._journal.view.topic_moves.newest
        keys = [newest_first(each) for each in found]
        page, token = pages.cut(TOPIC_MOVES, found, keys, request.page_size, request.page_token)
        return topic_moves.ListTopicMovesResponse(
            topic_moves=[self._decisions.shown(each) for each in page], next_page_token=token
        )

    async def VerifyTopicMove(
        self, request: topic_moves.VerifyTopicMoveRequest, context: Any
    ) -> topic_moves.TopicMoveCertificate:
        self._journal.require_loaded()
        shapes.id_of(TOPIC_MOVES, request.name)
        return await self._certificates.verified(request.name)

    async def CancelTopicMove(
        self, request: topic_moves.CancelTopicMoveRequest, context: Any
    ) -> topic_moves.MoveWithRecords:
        self._journal.require_loaded()
        shapes.id_of(TOPIC_MOVES, request.name)
        who = caller(request, request.request_id, request.reason)
        cancelling = self._decisions.cancel(request.name, who, lambda move: stored_response(who, move))
        return await once(topic_moves.MoveWithRecords, cancelling)
