"""UnregisterBroker: a real broker, named by its number (`real_brokers`), goes from the cluster that it was part of."""

from services.gateway.requests import real_brokers
from services.gateway.requests.clusters.everywhere import ask_each
from services.gateway.requests.plan import MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import silence
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(UnregisterBrokerRequest)
    place = real_brokers.place_of(message.broker_id, mesh)
    if place is None:
        brokers = real_brokers.listed(mesh.table.clusters, mesh)
        text = f"{message.broker_id} is no real broker of the mesh (those that are there now: {brokers})"
        return UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=text)
    question = UnregisterBrokerRequest(place.broker_id)
    outcomes = yield from ask_each(mesh, {place.cluster: question}, request.version, UnregisterBrokerResponse)
    outcome = outcomes[place.cluster]
    if isinstance(outcome, Unreachable):
        verdict = silence(outcome)
        return UnregisterBrokerResponse(error_code=verdict.code, error_message=verdict.text)
    return outcome
