"""TopicMoveCertificateService: the certificate of a move as a signed file, and the check of such a file."""

from __future__ import annotations

from typing import Any, Final

from cryptography import x509
from google.protobuf.message import DecodeError

from mesh.event_log.signatures import CONTROL, UnsignedError
from mesh.member_keys import MemberKeys
from mesh.rpc import move_certificates, move_certificates_grpc, topic_moves
from services.control.api import shapes
from services.control.decisions.topic_moves.certificates import Certificates
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.topic_moves.moves import TOPIC_MOVES
from services.control.store.journal import Journal

WORD: Final = "topic move"
"""The kind of what is signed: no signature of an event is one of a move."""


class TopicMoveCertificateService(move_certificates_grpc.TopicMoveCertificateServiceServicer):
    """See TopicMoveCertificateService in move_certificates.proto."""

    def __init__(self, journal: Journal, certificates: Certificates, keys: MemberKeys | None) -> None:
        self._journal = journal
        self._certificates = certificates
        self._known_keys = keys

    async def SignTopicMove(
        self, request: move_certificates.SignTopicMoveRequest, context: Any
    ) -> move_certificates.SignedTopicMove:
        self._journal.require_loaded()
        shapes.id_of(TOPIC_MOVES, request.name)
        move = self._journal.view.topic_moves.get(request.name)
        if not move.HasField("certificate"):
            text = f"move {request.name!r} has no certificate: control makes it when the move is done"
            raise NotAllowed("MOVE_HAS_NO_CERTIFICATE", request.name, text)
        body = move.SerializeToString(deterministic=True)
        return move_certificates.SignedTopicMove(move=body, signature=self._keys.signature(WORD, body, shows=True))

    async def VerifySignedTopicMove(
        self, request: move_certificates.VerifySignedTopicMoveRequest, context: Any
    ) -> move_certificates.VerifiedTopicMove:
        self._journal.require_loaded()
        signed = request.signed
        try:
            self._keys.signatures(CONTROL).check(WORD, signed.move, signed.signature)
            move = topic_moves.MoveWithRecords.FromString(signed.move)
        except (UnsignedError, DecodeError) as error:
            raise InvalidField("signed", f"control has not signed this move: {error}") from None
        signer = x509.load_der_x509_certificate(signed.signature.certificates[0]).subject.rfc4514_string()
        now = await self._certificates.compared(move)
        return move_certificates.VerifiedTopicMove(move=move, signer=signer, now=now)

    @property
    def _keys(self) -> MemberKeys:
        if self._known_keys is None:
            text = (
                "this control has no certificate of its own, so it signs nothing; set KAFKA_MESH_CONTROL_RPC_TLS_FOLDER"
            )
            raise NotAllowed("CONTROL_DOES_NOT_SIGN", "mesh", text)
        return self._known_keys
