"""UnregisterBroker and UnregisterController: a node that is gone for good leaves its cluster.

The client names the node by its number (`real_brokers`); brokers and controllers of a cluster share these numbers.
"""

from typing import TypeVar

from services.gateway.requests import real_brokers
from services.gateway.requests.clusters.everywhere import ask_each
from services.gateway.requests.plan import MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import refusal, silence
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from services.gateway.wire.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

Q = TypeVar("Q", UnregisterBrokerRequest, UnregisterControllerRequest)
A = TypeVar("A", UnregisterBrokerResponse, UnregisterControllerResponse)


def handle_broker(request: Request, mesh: MeshView) -> Plan:
    number = request.decode(UnregisterBrokerRequest).broker_id
    unknown = ErrorCode.BROKER_ID_NOT_REGISTERED
    return _unregistered(number, UnregisterBrokerRequest, UnregisterBrokerResponse, unknown, request.version, mesh)


def handle_controller(request: Request, mesh: MeshView) -> Plan:
    number = request.decode(UnregisterControllerRequest).controller_id
    question, answer = UnregisterControllerRequest, UnregisterControllerResponse
    return _unregistered(number, question, answer, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, request.version, mesh)


def _unregistered(
    number: int, question: type[Q], answer: type[A], unknown: ErrorCode, version: int, mesh: MeshView
) -> Plan:
    place = real_brokers.place_of(number, mesh)
    if place is None:
        verdict = refusal(unknown, real_brokers.strange(number, mesh))
        return answer(error_code=verdict.code, error_message=verdict.text)
    outcomes = yield from ask_each(mesh, {place.cluster: question(place.broker_id)}, version, answer)
    outcome = outcomes[place.cluster]
    if isinstance(outcome, Unreachable):
        verdict = silence(outcome)
        return answer(error_code=verdict.code, error_message=verdict.text)
    return outcome
