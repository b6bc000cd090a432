"""InitProducerId with a transactional id: the coordinator at its home gives the producer's identity."""

from collections.abc import Generator
from typing import Any

from services.gateway.requests.plan import Command, MeshView
from services.gateway.requests.transactions.coordinator import ask_coordinator, coordinator_of
from services.gateway.requests.transactions.home import transaction_home
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def begin(
    message: InitProducerIdRequest, transactional_id: str, version: int, mesh: MeshView
) -> Generator[Command, Any, InitProducerIdResponse]:
    home = transaction_home(transactional_id, mesh)
    coordinator = coordinator_of(transactional_id)
    outcome = yield from ask_coordinator(home, coordinator, message, version, InitProducerIdResponse, mesh)
    if isinstance(outcome, ErrorCode):
        return InitProducerIdResponse(error_code=outcome, producer_id=-1, producer_epoch=-1)
    return outcome
