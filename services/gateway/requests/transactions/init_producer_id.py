"""InitProducerId: the gateway mints the id itself, unless it is for transactions (`transactions.begin`).

Brokers hand ids out from 0, each cluster on its own, so one cluster's id would collide on another, and a collision
loses records without an error. Minted ids are random and start at 2^62, where no broker gets to; a broker accepts an id
that it has not seen. A producer that asks again after an error gets a fresh id, as brokers do (protocol-ideas 1).
"""

from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.requests.transactions.begin import begin
from services.gateway.wire.batches import mint_producer_id
from services.gateway.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PRODUCER_ID_BITS = 62


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(InitProducerIdRequest)
    if message.transactional_id is not None:
        mesh.session.uses.transactional_ids.note(message.transactional_id)
        return (yield from begin(message, message.transactional_id, request.version, mesh))
    return InitProducerIdResponse(producer_id=mint_producer_id(mesh.random_bits(PRODUCER_ID_BITS)), producer_epoch=0)
