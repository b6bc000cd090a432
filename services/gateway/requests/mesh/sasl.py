"""SaslHandshake and SaslAuthenticate where no log-in is expected: the texts of brokers.

A log-in itself never comes here: the gate of the connection takes its requests (`downstream.gate`).
"""

from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import SaslAuthenticateResponse, SaslHandshakeResponse

TOO_LATE = "SaslAuthenticate request received after successful authentication"


def handle_handshake(request: Request, mesh: MeshView) -> Plan:
    yield from ()
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


def handle_authenticate(request: Request, mesh: MeshView) -> Plan:
    yield from ()
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, TOO_LATE)
