"""EndTxn: commit or abort, by the coordinator at the transactional id's home."""

from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.requests.transactions.coordinator import ask_coordinator, coordinator_of
from services.gateway.requests.transactions.home import transaction_home
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(EndTxnRequest)
    home = transaction_home(message.transactional_id, mesh)
    coordinator = coordinator_of(message.transactional_id)
    outcome = yield from ask_coordinator(home, coordinator, message, request.version, EndTxnResponse, mesh)
    return EndTxnResponse(error_code=outcome) if isinstance(outcome, ErrorCode) else outcome
